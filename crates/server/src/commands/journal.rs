//! WAITAOF, BGREWRITEAOF: the append-only journal as clients see it.

use darter_command::Marks;
use darter_command::category::Categories;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec, reader};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::journal::rewrite::{self, RewriteBegun};
use crate::journal::waitaof::write_reply;
use crate::replication::acks::{self, Goal};
use crate::waiting::{BlockedState, TimeUp};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("waitaof", 4).category(Categories::CONNECTION).mark(Marks::NO_GROUP_CATEGORY).tips(&["request_policy:all_shards", "response_policy:agg_min"]).flag(Flags::BLOCKING).doc(
            Group::Generic,
            "7.2.0",
            "numlocal numreplicas timeout",
            "Blocks until all of the preceding write commands sent by the connection are written to the append-only file of the master and/or replicas.",
        ),
        waitaof,
    ),
    row(
        Spec::other("bgrewriteaof", 1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING))
            .doc(Group::Server, "1.0.0", "", "Asynchronously rewrites the append-only file to disk."),
        bgrewriteaof,
    ),
];

fn waitaof(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let local = reader::int(args.at(1))?;
    if !(0..=1).contains(&local) {
        return Err(Fault::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = reader::int(args.at(2))?;
    if replicas < 0 {
        return Err(Fault::text("ERR value is out of range, must be positive"));
    }
    let timeout_ms = reader::timeout_in_ms(args.at(3), caller.local.now_ms)?;
    if caller.local.shared.replication.is_replica() {
        return Err(Fault::text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local \
             and are not propagated.",
        ));
    }
    let journal = &caller.local.shared.journal;
    if local > 0 && !journal.is_on() {
        return Err(Fault::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let before = journal.end();
    let is_synced = journal.is_on() && journal.durable_before() >= before;
    let is_local_enough = local == 0 || is_synced;
    if is_local_enough && replicas == 0 || !caller.may_wait {
        write_reply(reply, is_synced);
        return Ok(());
    }
    if let Ok(replicas @ 1..) = usize::try_from(replicas) {
        acks::wait_for(caller, Goal::Synced { replicas, here: local > 0 }, timeout_ms);
        return Ok(());
    }
    let (token, client, resp3) = (caller.info.token, caller.info.id, caller.session.resp3);
    let deadline_ms = (timeout_ms > 0).then(|| caller.local.now_ms.saturating_add(timeout_ms));
    let mut late = Vec::new();
    write_reply(&mut Reply::new(&mut late, resp3), is_synced);
    let ticket = caller.local.shared.sync_waiters.add(caller.local, token, client, resp3, before);
    caller.session.blocked = Some(BlockedState {
        ticket: Some(ticket),
        deadline_ms,
        ready_at_ms: None,
        on_timeout: TimeUp::Reply(late),
    });
    Ok(())
}

fn bgrewriteaof(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let journal = &caller.local.shared.journal;
    if !journal.is_on() {
        rewrite::make_room(caller.local).map_err(|why| Fault::Text(format!("ERR {why}").into()))?;
    }
    let begun = if caller.may_wait {
        rewrite::begin(caller.local)
    } else {
        // The shards of a transaction are held: housekeeping begins it.
        journal.schedule_base();
        tracing::info!("AOF background was scheduled");
        RewriteBegun::Later
    };
    match begun {
        RewriteBegun::Now => reply.status("Background append only file rewriting started"),
        RewriteBegun::Later => reply.status("Background append only file rewriting scheduled"),
        RewriteBegun::Already => {
            return Err(Fault::text("ERR Background append only file rewriting already in progress"));
        }
    }
    Ok(())
}
