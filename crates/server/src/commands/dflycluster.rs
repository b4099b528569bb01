//! DFLYCLUSTER: the configuration of a cluster as a control plane of Dragonfly pushes it.
//!
//! CONFIG is checked as a whole and refused with the reason, or it is written to disk and in force on every thread when it is
//! answered. FLUSHSLOTS and GETSLOTINFO are data commands (`darter_command::keys`).

use darter_cluster::{MapChange, PushedChange, pushed};
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_config::ClusterMode;
use darter_wire::{Args, Reply};

use super::persistence::{asking, wait};
use super::{ServerCommand, help, no_subcommand, pushed_migrations, row};
use crate::dispatch::Caller;
use crate::engine::cluster::map_store::Outcome;
use crate::engine::cluster::outgoing::now_s;
use crate::replication::new_id;
use crate::shared::{Shared, ThreadMessage};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(spec("dflycluster", -2, "", "The configuration of a cluster."), no_subcommand),
    row(
        spec("dflycluster|config", 3, "json", "Replaces the configuration of the cluster.")
            .mark(Marks::NOT_OVER_HTTP)
            .flag(Flags::NO_MULTI)
            .cost("O(N) over the slots and nodes; keys of other slots are removed afterwards"),
        config,
    ),
    row(
        spec("dflycluster|help", 2, "", "Returns helpful text about the different subcommands."),
        help_dflycluster,
    ),
    row(spec("dflycluster|myid", 2, "", "Returns the id of this node."), myid),
    row(
        spec(
            "dflycluster|slot-migration-status",
            -2,
            "[node-id]",
            "Lists moves of slots from and to this node.",
        )
        .cost("O(N) over the slots that move"),
        |caller, args, reply| {
            must_be_pushed(caller)?;
            pushed_migrations::status(caller, args, reply)
        },
    ),
];

const fn spec(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::other(name, arity).flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE)).doc(
        Group::Cluster,
        "0.1.0",
        syntax,
        summary,
    )
}

/// Errors: this server has no pushed configuration.
fn must_be_pushed(caller: &Caller<'_>) -> Result<(), Fault> {
    if caller.local.live.cluster.mode == ClusterMode::Pushed {
        return Ok(());
    }
    if caller.local.live.cluster.mode == ClusterMode::Stored {
        return Err(Fault::text("ERR the map of this cluster is in a store: it is changed by CLUSTER"));
    }
    Err(Fault::text("ERR Cluster is disabled. Use --cluster_mode=yes to enable."))
}

fn config(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_pushed(caller)?;
    if !caller.may_wait {
        return Err(Fault::text("ERR DFLYCLUSTER CONFIG isn't allowed for DENY BLOCKING client"));
    }
    let fault = |why: String| Fault::Text(format!("ERR Invalid cluster configuration: {why}").into());
    let config = pushed::parse(args.at(2)).map_err(fault)?;
    let (shared, to) = (caller.local.shared, asking(caller));
    let change = PushedChange::Configure {
        config,
        id: new_id().as_str().to_owned(),
        boot: shared.replication.boot.to_string(),
        now_s: now_s(),
    };
    let then = move |shared: &'static Shared, outcome: Outcome| {
        let done = outcome.and_then(|answers| match answers.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(why) => Err(format!("ERR Invalid cluster configuration: {why}")),
        });
        let mut reply = Vec::new();
        match done {
            Ok(()) => Reply::new(&mut reply, false).ok(),
            Err(line) => Reply::new(&mut reply, false).error(line),
        }
        shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply });
    };
    let store = shared.cluster.store.as_ref().ok_or(Fault::Syntax)?;
    store.change(vec![MapChange::Pushed(change)], Box::new(then));
    wait(caller);
    Ok(())
}

fn myid(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    must_be_pushed(caller)?;
    reply.bulk(caller.local.shared.cluster.id().as_bytes());
    Ok(())
}

fn help_dflycluster(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    help(
        reply,
        "DFLYCLUSTER",
        &[
            "CONFIG <json>",
            "    Replace the configuration of the cluster.",
            "FLUSHSLOTS <first> <last> [<first> <last> ...]",
            "    Remove the keys of slots.",
            "GETSLOTINFO SLOTS <slot | first-last> [...]",
            "    Count the keys of slots and their bytes.",
            "MYID",
            "    Return the id of this node.",
            "SLOT-MIGRATION-STATUS [<node-id>]",
            "    List moves of slots.",
        ],
    );
    Ok(())
}
