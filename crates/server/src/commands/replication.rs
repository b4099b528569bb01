//! SYNC and REPLCONF, as far as `redis-cli --rdb` and `--functions-rdb` use them: a copy of everything, once.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::snapshot::copy::{self, Contents, Wish};
use crate::waiting::{Parking, TimeUp};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("sync", 1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI))
            .cost("O(N) where N is the total number of keys in all databases")
            .doc(Group::Server, "1.0.0", "", "Sends a snapshot as an RDB file and closes the connection."),
        sync,
    ),
    row(
        Spec::other("replconf", -1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
            .flag(Flags::ALLOW_BUSY)
            .doc(
                Group::Server,
                "3.0.0",
                "[option value [option value ...]]",
                "Says what SYNC is to send: rdb-only, rdb-filter-only.",
            ),
        replconf,
    ),
];

fn sync(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    if !caller.may_wait {
        return Err(Fault::text("ERR SYNC isn't allowed for DENY BLOCKING client"));
    }
    let mut wish = caller.session.copy.as_deref().copied().unwrap_or_default();
    if wish.is_replica {
        return Err(Fault::text("ERR there is no replication: SYNC sends one copy, for backups"));
    }
    wish.is_begun = true;
    copy::begin(caller.core, caller.session.id, wish.contents)?;
    caller.session.copy = Some(Box::new(wish));
    caller.session.parking = Some(Parking {
        ticket: None,
        deadline_ms: None,
        ripe_ms: None,
        on_timeout: TimeUp::Reply(Vec::new()),
    });
    // Behind the copy: while it waits nothing is closed.
    caller.session.is_closing = true;
    Ok(())
}

fn replconf(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len().is_multiple_of(2) {
        return Err(Fault::Syntax);
    }
    let mut wish = caller.session.copy.as_deref().copied().unwrap_or_default();
    for at in (1..args.len()).step_by(2) {
        let (name, value) = (args.at(at), args.at(at + 1));
        match name.to_ascii_lowercase().as_slice() {
            b"rdb-only" => match value {
                b"0" => wish.is_replica = true,
                b"1" => wish.is_replica = false,
                _ => return Err(Fault::NotInteger),
            },
            b"rdb-filter-only" => wish.contents = filtered(value)?,
            // What a replica is able to do matters to nobody here; that it is one does.
            b"capa" => wish.is_replica |= value.eq_ignore_ascii_case(b"psync2"),
            _ => {
                let shown = name.escape_ascii();
                return Err(Fault::Text(format!("ERR Unrecognized REPLCONF option: {shown}").into()));
            }
        }
    }
    caller.session.copy = (wish != Wish::default()).then(|| Box::new(wish));
    reply.ok();
    Ok(())
}

/// What is left of a copy by words that name what it shall hold.
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
