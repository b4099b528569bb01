//! CLIENT LIST, INFO: connections as lines of `field=value`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_command::reader::is;
use darter_wire::{Args, Reply};

use super::filter::{ClientFilter, FilterForm};
use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::conn::output::FREE_BYTES;
use crate::dispatch::Caller;
use crate::limit::clients;
use crate::shared::Shared;
use crate::sync::lock;

/// The type of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientType {
    /// Sends commands.
    Normal,
    /// The master of this server.
    Master,
    /// A replica of this server.
    Replica,
    /// Has subscriptions.
    Pubsub,
}

impl ClientType {
    /// Reads a type as CLIENT LIST and KILL take it.
    pub fn parse(name: &[u8]) -> Result<ClientType, Fault> {
        const NAMES: [(&str, ClientType); 6] = [
            ("normal", ClientType::Normal),
            ("slave", ClientType::Replica),
            ("replica", ClientType::Replica),
            ("pubsub", ClientType::Pubsub),
            ("master", ClientType::Master),
            ("primary", ClientType::Master),
        ];
        let known = NAMES.iter().find(|(word, _)| is(name, word)).map(|(_, kind)| *kind);
        known.ok_or_else(|| {
            Fault::Text(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)).into())
        })
    }

    /// The type of a client.
    pub fn of(info: &ClientInfo) -> ClientType {
        if info.is_master.load(Relaxed) {
            return ClientType::Master;
        }
        if info.is_replica.load(Relaxed) {
            return ClientType::Replica;
        }
        if info.subscriptions_len() > 0 { ClientType::Pubsub } else { ClientType::Normal }
    }
}

/// CLIENT LIST
pub fn list(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    // Clients that exceed the limit are closed, by any thread that notices first.
    if clients::is_over(caller.local) {
        clients::evict(caller.local);
    }
    let filter = ClientFilter::parse(args, &shared.acl, FilterForm::List)?;
    let now_ms = unix_ms();
    refresh_own(caller, args, reply);
    let mut infos = matching(shared, &filter, caller.session.id, now_ms);
    infos.retain(|info| !info.is_closing.load(Relaxed));
    if filter.ids().is_none() {
        infos.sort_unstable_by_key(|info| info.id);
    }
    let mut lines = String::new();
    for info in &infos {
        describe(shared, info, now_ms, &mut lines);
    }
    reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
}

/// The clients that match a filter, in the order of its ids if it has any: with the link to the master, and with one
/// connection of each replica.
pub(super) fn matching(
    shared: &Shared,
    filter: &ClientFilter<'_>,
    caller: u64,
    now_ms: u64,
) -> Vec<Arc<ClientInfo>> {
    let master = shared.replication.master_client();
    let mut infos: Vec<Arc<ClientInfo>> = {
        let clients = lock(&shared.clients);
        let by_id = |id: &u64| clients.get(id).or(master.as_ref().filter(|master| master.id == *id)).cloned();
        match filter.ids() {
            None => clients.values().chain(&master).cloned().collect(),
            Some(ids) => ids.iter().filter_map(by_id).collect(),
        }
    };
    infos.retain(|info| !info.is_flow.load(Relaxed) && filter.fits(info, caller, now_ms));
    infos
}

/// CLIENT INFO
pub fn info(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    refresh_own(caller, args, reply);
    let mut line = String::new();
    describe(caller.local.shared, caller.info, unix_ms(), &mut line);
    reply.verbatim(*b"txt", line.as_bytes());
    Ok(())
}

/// The caller's own info is brought up to date at the end of the turn, which is too late to be shown.
fn refresh_own(caller: &Caller<'_>, args: Args<'_>, reply: &Reply<'_>) {
    let Caller { local, session, info, may_wait, .. } = caller;
    // Scripts do not call this: without `may_wait` this is EXEC.
    if *may_wait {
        info.update(session)
    } else {
        info.update_in_exec(session)
    }
    info.active_ms.store(local.now_ms, Relaxed);
    info.arg_bytes.store(args.bytes_len(), Relaxed);
    if info.pending_bytes.load(Relaxed) == 0 {
        // All that is there now came in this turn.
        info.pending_bytes.store(reply.len(), Relaxed);
    }
}

/// A client's line, without the end of it.
pub(crate) fn line_of(shared: &Shared, info: &ClientInfo, now_ms: u64) -> String {
    let mut line = String::new();
    describe(shared, info, now_ms, &mut line);
    line.truncate(line.trim_end().len());
    line
}

/// Appends a client's line.
fn describe(shared: &Shared, info: &ClientInfo, now_ms: u64, out: &mut String) {
    let words = info.words();
    let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
    let queued = info.multi.load(Relaxed);
    let pending = info.pending_bytes.load(Relaxed);
    let beyond = pending.saturating_sub(FREE_BYTES);
    let last = shared.registry.entries().get(info.last_command.load(Relaxed) as usize);
    let [channels, patterns, shard_channels] = info.subscriptions.each_ref().map(|n| n.load(Relaxed));
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={channels} psub={patterns} \
         ssub={shard_channels} multi={} watch={}",
        info.id,
        info.peer,
        info.local,
        info.fd,
        words.name,
        seconds(info.since_ms),
        seconds(info.active_ms.load(Relaxed)),
        flags(info),
        info.db.load(Relaxed),
        if queued == u32::MAX { -1 } else { i64::from(queued) },
        info.watched.load(Relaxed),
    );
    let _ = write!(
        out,
        " qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} oll={} omem={beyond} tot-mem={} \
         events={}{} cmd={} user={} redir={} resp={}",
        info.query_bytes.load(Relaxed),
        info.query_free.load(Relaxed),
        info.arg_bytes.load(Relaxed),
        info.multi_bytes.load(Relaxed),
        info.output_room.load(Relaxed),
        info.output_peak.load(Relaxed),
        pending - beyond,
        beyond.div_ceil(FREE_BYTES),
        info.total_bytes(),
        if info.is_paused.load(Relaxed) { "" } else { "r" },
        if info.awaits_writable.load(Relaxed) { "w" } else { "" },
        last.map_or("NULL", |entry| entry.spec.name),
        words.user,
        info.redirect.load(Relaxed),
        if info.resp3.load(Relaxed) { 3 } else { 2 },
    );
    let _ = writeln!(
        out,
        " lib-name={} lib-ver={} io-thread={} tot-net-in={} tot-net-out={} tot-cmds={}",
        words.lib_name,
        words.lib_ver,
        info.thread,
        info.input_bytes.load(Relaxed),
        info.output_bytes.load(Relaxed),
        info.commands.load(Relaxed),
    );
}

/// The letters that `flags` may show, except `N`.
pub(super) const LETTERS: &[u8] = b"OSMPxbtRBdcUeT";

/// A client's letters.
pub(super) fn flags(info: &ClientInfo) -> String {
    let is_blocked = info.is_blocked.load(Relaxed) || info.is_postponed.load(Relaxed);
    let letters: String = [
        (info.is_monitor.load(Relaxed), 'O'),
        (info.is_replica.load(Relaxed), 'S'),
        (info.is_master.load(Relaxed), 'M'),
        (info.subscriptions_len() > 0, 'P'),
        (info.multi.load(Relaxed) != u32::MAX, 'x'),
        (is_blocked, 'b'),
        (info.redirect.load(Relaxed) >= 0, 't'),
        (info.is_redirect_broken.load(Relaxed), 'R'),
        (info.is_broadcast.load(Relaxed), 'B'),
        (info.is_dirty(), 'd'),
        (info.is_closing.load(Relaxed), 'c'),
        (info.is_unix, 'U'),
        (info.no_evict.load(Relaxed), 'e'),
        (info.no_touch.load(Relaxed), 'T'),
        (info.imports.load(Relaxed), 'I'),
    ]
    .iter()
    .filter_map(|(is_set, letter)| is_set.then_some(*letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}
