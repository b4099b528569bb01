//! MONITOR

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[row(
    Spec::other("monitor", 1)
        .mark(Marks::NOT_OVER_HTTP)
        .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
        .doc(Group::Server, "1.0.0", "", "Shows every command the server runs, as it runs them."),
    monitor,
)];

fn monitor(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !caller.may_wait {
        return Err(Fault::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !caller.session.is_monitor {
        caller.session.is_monitor = true;
        caller.local.shared.monitors.add(caller.info);
        caller.local.refresh_gate();
        reply.ok();
    }
    Ok(())
}
