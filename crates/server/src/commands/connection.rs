//! PING, ECHO, SELECT, QUIT, RESET: the connection itself.

use darter_command::spec::{DatabaseReach, Group};
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::ServerCommand;
use crate::dispatch::Caller;
use crate::session::{Gate, ReplyMode};
use crate::sync::lock;
use crate::{pubsub, tracking, transaction};

/// PING tells monitors that writes fail, and keeps subscribers' connections open.
const ANSWERS_IN_TROUBLE: Marks = Marks::FAILS_WITH_SNAPSHOTS.with(Marks::ALLOWED_SUBSCRIBED);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    ServerCommand {
        spec: Spec::other("ping", -1)
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .fast()
            .mark(ANSWERS_IN_TROUBLE.with(Marks::ONLY_TELLS))
            .doc(Group::Connection, "1.0.0", "[message]", "Returns the server's liveliness response."),
        run: ping,
    },
    ServerCommand {
        spec: Spec::other("echo", 2)
            .flag(Flags::LOADING.with(Flags::STALE))
            .mark(Marks::ONLY_TELLS)
            .fast()
            .doc(Group::Connection, "1.0.0", "message", "Returns the given string."),
        run: echo,
    },
    ServerCommand {
        spec: Spec::other("select", 2)
            .mark(Marks::SELECTS)
            .databases(DatabaseReach::First)
            .flag(Flags::LOADING.with(Flags::STALE))
            .fast()
            .doc(Group::Connection, "1.0.0", "index", "Changes the selected database."),
        run: select,
    },
    ServerCommand {
        spec: Spec::other("quit", -1)
            .deprecated("7.2.0", "just closing the connection")
            .mark(Marks::NOT_QUEUED.with(Marks::ALLOWED_SUBSCRIBED).with(Marks::NOT_OVER_HTTP))
            .flag(
                Flags::NOSCRIPT
                    .with(Flags::LOADING)
                    .with(Flags::STALE)
                    .with(Flags::NO_AUTH)
                    .with(Flags::ALLOW_BUSY),
            )
            .fast()
            .doc(Group::Connection, "1.0.0", "", "Closes the connection."),
        run: quit,
    },
    ServerCommand {
        spec: Spec::other("reset", 1)
            .mark(Marks::NOT_QUEUED.with(Marks::ALLOWED_SUBSCRIBED).with(Marks::NOT_OVER_HTTP))
            .flag(
                Flags::NOSCRIPT
                    .with(Flags::LOADING)
                    .with(Flags::STALE)
                    .with(Flags::NO_AUTH)
                    .with(Flags::ALLOW_BUSY),
            )
            .fast()
            .doc(Group::Connection, "6.2.0", "", "Brings the connection back to how it began."),
        run: reset,
    },
];

fn ping(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 2 {
        return Err(Fault::Arity("ping".into()));
    }
    if !reply.is_resp3() && caller.session.gate.has(Gate::SUBSCRIBED) {
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(args.at(1));
    } else if args.len() == 2 {
        reply.bulk(args.at(1));
    } else {
        reply.status("PONG");
    }
    Ok(())
}

fn echo(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.bulk(args.at(1));
    Ok(())
}

fn select(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.session.db = darter_command::keys::database_index(args.at(1), caller.local.live.dbnum as usize)?;
    reply.ok();
    Ok(())
}

fn quit(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.session.is_closing = true;
    // After its reply the client can no longer be found. A client that got its invalidations learns of the end with
    // the next one.
    lock(&caller.local.shared.clients).remove(&caller.session.id);
    reply.ok();
    Ok(())
}

fn reset(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Caller { local, session, info, .. } = caller;
    transaction::forget(session);
    pubsub::unsubscribe_all(local, session, info);
    tracking::end(local, session);
    if std::mem::take(&mut session.is_monitor) {
        local.shared.monitors.remove(session.id);
        local.refresh_gate();
    }
    session.db = 0;
    session.resp3 = false;
    reply.set_resp3(false);
    session.reply_mode = ReplyMode::On;
    session.gate.set(Gate::REPLY, false);
    session.no_evict = false;
    session.no_touch = false;
    session.reads_replica = false;
    session.import = None;
    session.gate.set(Gate::NO_TOUCH, false);
    session.gate.set(Gate::IMPORTS, false);
    session.fieldsets = None;
    session.settle_subscribed();
    crate::acl::log_out(local, session, info);
    lock(&info.words).name.clear();
    reply.status("RESET");
    Ok(())
}
