//! SYNC, PSYNC and REPLCONF, for replicas and backups; REPLICAOF, which makes this server a replica.

use darter_base::number;
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Marks, Spec, reader};
use darter_wire::{Args, Reply};

use super::persistence::{answer, asking, wait};
use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::engine::cluster::sweep;
use crate::replication::failover::{self, FailoverWish as Wishes};
use crate::replication::group;
use crate::replication::roles::{self, Followed};
use crate::replication::sync::{self, Asks};
use crate::replication::takeover;
use crate::snapshot::copy::{self, Contents, CopyWish};
use crate::waiting::{BlockedState, TimeUp};

const SYNC: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("sync", 1)
            .mark(Marks::NOT_OVER_HTTP)
            .flag(SYNC)
            .cost("O(N) where N is the total number of keys in all databases")
            .doc(
                Group::Server,
                "1.0.0",
                "",
                "Sends a snapshot as an RDB file, and all later changes to replicas.",
            ),
        sync,
    ),
    row(
        Spec::other("psync", -3)
            .mark(Marks::NOT_OVER_HTTP)
            .flag(SYNC)
            .cost("O(N) where N is the total number of keys in all databases, or what the replica lacks")
            .doc(
                Group::Server,
                "2.8.0",
                "replicationid offset",
                "Sends a replica the changes it lacks, or a snapshot, and all later changes.",
            ),
        psync,
    ),
    row(
        Spec::other("replconf", -1)
            .mark(Marks::NOT_OVER_HTTP)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
            .flag(Flags::ALLOW_BUSY)
            .doc(
                Group::Server,
                "3.0.0",
                "[option value [option value ...]]",
                "Sets the abilities of a replica, or reports its offset.",
            ),
        replconf,
    ),
    row(replica_spec("replicaof", "5.0.0"), replicaof),
    row(replica_spec("slaveof", "1.0.0").deprecated("5.0.0", "`REPLICAOF`"), replicaof),
    row(
        Spec::other("failover", -1).flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE)).doc(
            Group::Server,
            "6.2.0",
            "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
            "Starts a coordinated failover from a server to one of its replicas.",
        ),
        fail_over,
    ),
    row(
        Spec::other("repltakeover", -2).flag(Flags::ADMIN.with(Flags::NOSCRIPT)).doc(
            Group::Server,
            "0.1.0",
            "seconds [SAVE]",
            "Has a replica take the place of its master, which follows it then.",
        ),
        take_over,
    ),
];

const fn replica_spec(name: &'static str, since: &'static str) -> Spec {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::NO_ASYNC_LOADING);
    Spec::other(name, 3).flag(flags).doc(
        Group::Server,
        since,
        "<host port | NO ONE>",
        "Configures a server as replica of another, or promotes it to a master.",
    )
}

fn sync(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wish = caller.session.copy.as_deref().cloned().unwrap_or_default();
    if wish.is_backup {
        return back_up(caller, wish);
    }
    follow(caller, wish, Asks::All, reply)
}

fn psync(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wish = caller.session.copy.as_deref().cloned().unwrap_or_default();
    let next = reader::int(args.at(2))?;
    let replication = &caller.local.shared.replication;
    if args.get(3).is_some_and(|word| reader::is(word, "failover")) && replication.is_replica() {
        if args.at(1) != replication.state().history.id.as_str().as_bytes() {
            return Err(Fault::text("ERR PSYNC FAILOVER replid must match my replid."));
        }
        refuse_in_group(caller)?;
        roles::stand_alone(caller.local);
    }
    follow(caller, wish, Asks::After(args.at(1), next), reply)
}

/// Sends one copy and closes the connection.
fn back_up(caller: &mut Caller<'_>, mut wish: CopyWish) -> Result<(), Fault> {
    if !caller.may_wait {
        return Err(Fault::text("ERR SYNC isn't allowed for DENY BLOCKING client"));
    }
    wish.is_begun = true;
    copy::begin(caller.local, caller.session.id, wish.contents)?;
    caller.session.copy = Some(Box::new(wish));
    caller.session.blocked = Some(BlockedState {
        ticket: None,
        deadline_ms: None,
        ready_at_ms: None,
        on_timeout: TimeUp::Reply(Vec::new()),
    });
    // Closed after the copy: a waiting connection is not closed.
    caller.session.is_closing = true;
    Ok(())
}

/// Has the client as a replica.
fn follow(
    caller: &mut Caller<'_>,
    mut wish: CopyWish,
    asks: Asks<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if !caller.may_wait {
        return Err(Fault::text("ERR SYNC isn't allowed for DENY BLOCKING client"));
    }
    if wish.is_begun {
        return Ok(());
    }
    let answer = sync::serve(caller.local, caller.session.id, &wish, asks)?;
    reply.raw(&answer);
    wish.is_begun = true;
    caller.session.copy = Some(Box::new(wish));
    Ok(())
}

fn replconf(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len().is_multiple_of(2) {
        return Err(Fault::Syntax);
    }
    let mut wish = caller.session.copy.as_deref().cloned().unwrap_or_default();
    for at in (1..args.len()).step_by(2) {
        let (name, value) = (args.at(at), args.at(at + 1));
        match name.to_ascii_lowercase().as_slice() {
            // Never answered.
            b"ack" => {
                note_ack(caller, args);
                return Ok(());
            }
            b"getack" => return Ok(()),
            b"rdb-only" => match value {
                b"0" => wish.is_backup = false,
                b"1" => wish.is_backup = true,
                _ => return Err(Fault::NotInteger),
            },
            b"rdb-filter-only" => wish.contents = filtered(value)?,
            b"listening-port" => {
                let port = number::parse_i64(value).and_then(|port| u16::try_from(port).ok());
                wish.port = port.ok_or(Fault::NotInteger)?;
            }
            b"ip-address" => {
                let text = std::str::from_utf8(value).ok().filter(|text| text.len() < ADDRESS_BYTES_MAX);
                let text = text
                    .ok_or(Fault::text("ERR REPLCONF ip-address provided by replica instance is too long"))?;
                wish.address = (!text.is_empty()).then(|| text.into());
            }
            // Snapshots are sent by length, which all understand.
            b"capa" => wish.knows_ids |= value.eq_ignore_ascii_case(b"psync2"),
            b"version" => {}
            _ => {
                let shown = name.escape_ascii();
                return Err(Fault::Text(format!("ERR Unrecognized REPLCONF option: {shown}").into()));
            }
        }
    }
    caller.session.copy = (wish != CopyWish::default()).then(|| Box::new(wish));
    reply.ok();
    Ok(())
}

/// The longest address that a replica may have.
const ADDRESS_BYTES_MAX: usize = 256;

fn note_ack(caller: &Caller<'_>, args: Args<'_>) {
    let value_of = |name: &str| {
        let at = (1..args.len()).step_by(2).find(|at| reader::is(args.at(*at), name))?;
        u64::try_from(number::parse_i64(args.at(at + 1))?).ok()
    };
    if let Some(offset) = value_of("ack") {
        let shared = caller.local.shared;
        shared.replication.note_ack(shared, caller.session.id, offset, value_of("fack"));
    }
}

/// The contents of a copy, limited by words that name its parts.
fn filtered(words: &[u8]) -> Result<Contents, Fault> {
    let mut contents = Contents::Nothing;
    for word in words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if !word.eq_ignore_ascii_case(b"functions") {
            let shown = word.escape_ascii();
            return Err(Fault::Text(format!("ERR Unsupported rdb-filter-only option: {shown}").into()));
        }
        contents = Contents::Functions;
    }
    Ok(contents)
}

fn replicaof(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    use darter_config::ClusterMode;
    if matches!(caller.local.live.cluster.mode, ClusterMode::Emulated | ClusterMode::Stored) {
        return Err(Fault::text("ERR REPLICAOF not allowed in cluster mode."));
    }
    refuse_in_group(caller)?;
    if reader::is(args.at(1), "no") && reader::is(args.at(2), "one") {
        roles::stand_alone(caller.local);
        sweep::begin(caller.local.shared, caller.local.cluster.map.revision());
        reply.ok();
        return Ok(());
    }
    let invalid = Fault::text("ERR Invalid master port");
    let port = number::parse_i64(args.at(2)).and_then(|port| u16::try_from(port).ok()).ok_or(invalid)?;
    let host = std::str::from_utf8(args.at(1)).map_err(|_| Fault::Syntax)?;
    if host.is_empty() || host.contains(|byte: char| byte.is_control() || byte.is_whitespace()) {
        return Err(Fault::Syntax);
    }
    match roles::follow(caller.local.shared, host, port) {
        Ok(Followed::Now) => reply.ok(),
        Ok(Followed::Already) => reply.status("OK Already connected to specified master"),
        Err(error) => return Err(Fault::Text(format!("ERR {error}").into())),
    }
    caller.local.refresh_gate();
    Ok(())
}

/// Errors: a group says who leads.
fn refuse_in_group(caller: &Caller<'_>) -> Result<(), Fault> {
    if caller.local.shared.group.is_some() { Err(Fault::text(group::REFUSAL)) } else { Ok(()) }
}

fn fail_over(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    // A replica that takes over asks with its address (REPLTAKEOVER, CLUSTER FAILOVER).
    let (mode, names_one) = (caller.local.live.cluster.mode, args.len() > 3 && reader::is(args.at(1), "to"));
    if mode != darter_config::ClusterMode::Off && !(mode.has_slots() && names_one) {
        return Err(Fault::text("ERR FAILOVER not allowed in cluster mode."));
    }
    let mut wish = Wishes::default();
    let mut words = ArgReader::new(args, 1);
    while !words.is_done() {
        if words.take("abort") && args.len() == 2 {
            if !shared.replication.abort_failover() {
                return Err(Fault::text("ERR No failover in progress."));
            }
            reply.ok();
            return Ok(());
        } else if wish.timeout_ms.is_none() && words.take("timeout") {
            let timeout =
                number::parse_i64(words.bytes()?).and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
            wish.timeout_ms =
                Some(timeout.ok_or(Fault::text("ERR FAILOVER timeout must be greater than 0"))?);
        } else if wish.to.is_none() && words.take("to") {
            let host = String::from_utf8_lossy(words.bytes()?).into_owned();
            let port = number::parse_i64(words.bytes()?).and_then(|port| u16::try_from(port).ok());
            wish.to = Some((host, port.ok_or(Fault::NotInteger)?));
        } else if !wish.is_forced && words.take("force") {
            wish.is_forced = true;
        } else {
            return Err(Fault::Syntax);
        }
    }
    if wish.is_forced && (wish.timeout_ms.is_none() || wish.to.is_none()) {
        return Err(Fault::text(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    if let Some(group) = &shared.group {
        if wish.is_forced {
            return Err(Fault::text(
                "ERR FAILOVER FORCE would lose changes, which this group does not (ha_store)",
            ));
        }
        let timeout = wish.timeout_ms.map(std::time::Duration::from_millis);
        group::takeover::begin(shared, group, wish.to, timeout).map_err(|line| Fault::Text(line.into()))?;
        reply.ok();
        return Ok(());
    }
    failover::begin(shared, wish).map_err(|line| Fault::Text(line.into()))?;
    reply.ok();
    Ok(())
}

/// The longest time that a takeover may have, as Dragonfly's operator asks for it.
const TAKEOVER_SECS_MAX: f64 = 60.0;

fn take_over(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seconds = std::str::from_utf8(args.at(1)).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| seconds.is_finite());
    let seconds = seconds.ok_or(Fault::text("ERR value is not a valid float"))?;
    if seconds < 0.0 {
        return Err(Fault::text("ERR timeout is negative"));
    }
    let mut words = ArgReader::new(args, 2);
    let saves = words.take("save");
    if !words.is_done() {
        let shown = words.bytes()?.escape_ascii().to_string();
        return Err(Fault::Text(format!("ERR Unsupported option:{shown}").into()));
    }
    refuse_in_group(caller)?;
    let shared = caller.local.shared;
    if !shared.replication.is_replica() {
        // A repeated request for the present state is confirmed.
        reply.ok();
        return Ok(());
    }
    if !takeover::may_begin(shared) {
        return Err(Fault::text("ERR Full sync not done"));
    }
    if !caller.may_wait {
        return Err(Fault::text("ERR REPLTAKEOVER isn't allowed for DENY BLOCKING client"));
    }
    let to = asking(caller);
    let timeout = std::time::Duration::from_secs_f64(seconds.min(TAKEOVER_SECS_MAX));
    let begun = takeover::begin(shared, takeover::TakeoverWish { timeout, saves }, move |shared, done| {
        answer(shared, to, if done { Ok(()) } else { Err("Couldn't execute takeover") });
    });
    begun.map_err(|error| Fault::Text(format!("ERR {error}").into()))?;
    wait(caller);
    Ok(())
}
