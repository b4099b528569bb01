//! PING, ECHO, SELECT, QUIT, RESET: the connection itself.

use darter_command::spec::{DatabaseReach, Group};
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::ServerCommand;
use crate::dispatch::Caller;
use crate::session::{Gate, ReplyMode};
use crate::worker::lock;
use crate::{multi, pubsub, tracking};

/// PING is how monitors learn that writes fail, and how subscribers keep their connection.
const ANSWERS_IN_TROUBLE: Marks = Marks::FAILS_WITH_SNAPSHOTS.with(Marks::ALLOWED_SUBSCRIBED);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    ServerCommand {
        spec: Spec::other("ping", -1).fast().mark(ANSWERS_IN_TROUBLE.with(Marks::ONLY_TELLS)).doc(
            Group::Connection,
            "1.0.0",
            "[message]",
            "Returns the server's liveliness response.",
        ),
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
    caller.session.db = darter_command::keys::database_index(args.at(1), caller.core.live.dbnum as usize)?;
    reply.ok();
    Ok(())
}

fn quit(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.session.is_closing = true;
    // Nobody can find it once it has the reply: whose changes it was told of hears that with the next one.
    lock(&caller.core.shared.clients).remove(&caller.session.id);
    reply.ok();
    Ok(())
}

fn reset(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Caller { core, session, card, .. } = caller;
    multi::forget(session);
    pubsub::unsubscribe_all(core, session, card);
    tracking::end(core, session);
    if std::mem::take(&mut session.is_monitor) {
        core.shared.monitors.remove(session.id);
        core.refresh_gate();
    }
    session.db = 0;
    session.resp3 = false;
    reply.set_resp3(false);
    session.reply_mode = ReplyMode::On;
    session.gate.set(Gate::REPLY, false);
    session.no_evict = false;
    session.no_touch = false;
    session.gate.set(Gate::NO_TOUCH, false);
    session.gate.set(Gate::IMPORTS, false);
    session.fieldsets = None;
    session.settle_subscribed();
    crate::acl::log_out(core, session, card);
    lock(&card.words).name.clear();
    reply.status("RESET");
    Ok(())
}
