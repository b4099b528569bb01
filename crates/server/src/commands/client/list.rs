//! CLIENT LIST, INFO: connections as lines of `field=value`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_command::reader::is;
use darter_wire::{Args, Reply};

use super::filter::{Filter, Form};
use crate::clients::ClientCard;
use crate::core::unix_ms;
use crate::dispatch::Caller;
use crate::limit::clients;
use crate::output::FREE_BYTES;
use crate::shared::Shared;
use crate::worker::lock;

/// What kind of client a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientType {
    /// Sends commands.
    Normal,
    /// The server this one follows.
    Master,
    /// A server that follows this one.
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
    pub fn of(card: &ClientCard) -> ClientType {
        if card.is_replica.load(Relaxed) {
            return ClientType::Replica;
        }
        if card.subscriptions_len() > 0 { ClientType::Pubsub } else { ClientType::Normal }
    }
}

/// CLIENT LIST
pub fn list(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.core.shared;
    // Those that take too much are on their way out, whichever thread finds it first.
    if clients::is_over(caller.core) {
        clients::evict(caller.core);
    }
    let filter = Filter::parse(args, &shared.acl, Form::List)?;
    let now_ms = unix_ms();
    refresh_own(caller, args, reply);
    let mut cards: Vec<Arc<ClientCard>> = {
        let clients = lock(&shared.clients);
        match filter.ids() {
            None => clients.values().cloned().collect(),
            Some(ids) => ids.iter().filter_map(|id| clients.get(id).cloned()).collect(),
        }
    };
    cards.retain(|card| !card.is_closing.load(Relaxed) && filter.fits(card, caller.session.id, now_ms));
    if filter.ids().is_none() {
        cards.sort_unstable_by_key(|card| card.id);
    }
    let mut lines = String::new();
    for card in &cards {
        describe(shared, card, now_ms, &mut lines);
    }
    reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
}

/// CLIENT INFO
pub fn info(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    refresh_own(caller, args, reply);
    let mut line = String::new();
    describe(caller.core.shared, caller.card, unix_ms(), &mut line);
    reply.verbatim(*b"txt", line.as_bytes());
    Ok(())
}

/// The caller's own card is brought up to date at the end of the turn, which is too late to be shown.
fn refresh_own(caller: &Caller<'_>, args: Args<'_>, reply: &Reply<'_>) {
    let Caller { core, session, card, may_wait, .. } = caller;
    // Scripts do not call this: what may not wait is in EXEC.
    if *may_wait {
        card.update(session)
    } else {
        card.update_in_exec(session)
    }
    card.active_ms.store(core.now_ms, Relaxed);
    card.arg_bytes.store(args.bytes_len(), Relaxed);
    if card.pending_bytes.load(Relaxed) == 0 {
        // All that is there now came in this turn.
        card.pending_bytes.store(reply.len(), Relaxed);
    }
}

/// A client's line, without the end of it.
pub(crate) fn line_of(shared: &Shared, card: &ClientCard, now_ms: u64) -> String {
    let mut line = String::new();
    describe(shared, card, now_ms, &mut line);
    line.truncate(line.trim_end().len());
    line
}

/// Appends a client's line.
fn describe(shared: &Shared, card: &ClientCard, now_ms: u64, out: &mut String) {
    let words = card.words();
    let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
    let queued = card.multi.load(Relaxed);
    let pending = card.pending_bytes.load(Relaxed);
    let beyond = pending.saturating_sub(FREE_BYTES);
    let last = shared.registry.entries().get(card.last_command.load(Relaxed) as usize);
    let [channels, patterns, shard_channels] = card.subscriptions.each_ref().map(|n| n.load(Relaxed));
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={channels} psub={patterns} \
         ssub={shard_channels} multi={} watch={}",
        card.id,
        card.peer,
        card.local,
        card.fd,
        words.name,
        seconds(card.since_ms),
        seconds(card.active_ms.load(Relaxed)),
        flags(card),
        card.db.load(Relaxed),
        if queued == u32::MAX { -1 } else { i64::from(queued) },
        card.watched.load(Relaxed),
    );
    let _ = write!(
        out,
        " qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} oll={} omem={beyond} tot-mem={} \
         events={}{} cmd={} user={} redir={} resp={}",
        card.query_bytes.load(Relaxed),
        card.query_free.load(Relaxed),
        card.arg_bytes.load(Relaxed),
        card.multi_bytes.load(Relaxed),
        card.output_room.load(Relaxed),
        card.output_peak.load(Relaxed),
        pending - beyond,
        beyond.div_ceil(FREE_BYTES),
        card.total_bytes(),
        if card.is_paused.load(Relaxed) { "" } else { "r" },
        if card.awaits_writable.load(Relaxed) { "w" } else { "" },
        last.map_or("NULL", |entry| entry.spec.name),
        words.user,
        card.redirect.load(Relaxed),
        if card.resp3.load(Relaxed) { 3 } else { 2 },
    );
    let _ = writeln!(
        out,
        " lib-name={} lib-ver={} io-thread={} tot-net-in={} tot-net-out={} tot-cmds={}",
        words.lib_name,
        words.lib_ver,
        card.thread,
        card.input_bytes.load(Relaxed),
        card.output_bytes.load(Relaxed),
        card.commands.load(Relaxed),
    );
}

/// The letters that `flags` may show, but for `N`.
pub(super) const LETTERS: &[u8] = b"OSPxbtRBdcUeT";

/// A client's letters.
pub(super) fn flags(card: &ClientCard) -> String {
    let is_blocked = card.is_blocked.load(Relaxed) || card.is_postponed.load(Relaxed);
    let letters: String = [
        (card.is_monitor.load(Relaxed), 'O'),
        (card.is_replica.load(Relaxed), 'S'),
        (card.subscriptions_len() > 0, 'P'),
        (card.multi.load(Relaxed) != u32::MAX, 'x'),
        (is_blocked, 'b'),
        (card.redirect.load(Relaxed) >= 0, 't'),
        (card.is_redirect_broken.load(Relaxed), 'R'),
        (card.is_broadcast.load(Relaxed), 'B'),
        (card.is_dirty(), 'd'),
        (card.is_closing.load(Relaxed), 'c'),
        (card.is_unix, 'U'),
        (card.no_evict.load(Relaxed), 'e'),
        (card.no_touch.load(Relaxed), 'T'),
        (card.imports.load(Relaxed), 'I'),
    ]
    .iter()
    .filter_map(|(is_set, letter)| is_set.then_some(*letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}
