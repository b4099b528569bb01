//! TIME, ROLE, WAIT, MODULE: the server as an administrator sees it.

use darter_command::category::Categories;
use std::time::{SystemTime, UNIX_EPOCH};

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec, reader};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::replication::acks::{self, Goal};
use crate::replication::show;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("time", 1).tips(&["nondeterministic_output"]).flag(Flags::LOADING.with(Flags::STALE)).mark(Marks::ONLY_TELLS).fast().doc(
            Group::Server,
            "2.6.0",
            "",
            "Returns the server time.",
        ),
        time,
    ),
    row(
        Spec::other("role", 1).category(Categories::ADMIN).category(Categories::DANGEROUS).flag(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE)).fast().doc(
            Group::Server,
            "2.8.12",
            "",
            "Returns the replication role.",
        ),
        role,
    ),
    row(
        Spec::other("wait", 3).category(Categories::CONNECTION).mark(Marks::NO_GROUP_CATEGORY).tips(&["request_policy:all_shards", "response_policy:agg_min"]).doc(
            Group::Generic,
            "3.0.0",
            "numreplicas timeout",
            "Blocks until the asynchronous replication of all preceding write commands sent by the connection is completed.",
        ),
        wait,
    ),
    row(
        Spec::other("module", -2).doc(Group::Server, "4.0.0", "", "A container for module commands."),
        super::no_subcommand,
    ),
    row(
        Spec::other("module|list", 2).tips(&["nondeterministic_output_order"]).flag(Flags::ADMIN.with(Flags::NOSCRIPT)).doc(
            Group::Server,
            "4.0.0",
            "",
            "Returns all loaded modules.",
        ),
        module_list,
    ),
    row(module_spec("module|load", -3, "path [arg [arg ...]]", "Loads a module."), module_load),
    row(
        module_spec("module|loadex", -3, "path [CONFIG name value [CONFIG name value ...]] [ARGS args ...]", "Loads a module using extended parameters."),
        module_load,
    ),
    row(module_spec("module|unload", 3, "name", "Unloads a module."), module_unload),
    row(super::help_row("module|help", "5.0.0"), module_help),
];

const fn module_spec(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);
    Spec::other(name, arity).flag(flags).doc(Group::Server, "4.0.0", syntax, summary)
}

fn time(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Within a script or a transaction it is the same time throughout.
    let now = if caller.may_wait { now() } else { *caller.local.frozen.get_or_insert_with(now) };
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

fn role(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    show::role(caller.local.shared, reply);
    Ok(())
}

fn wait(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let replicas = reader::int(args.at(1))?;
    let timeout_ms = reader::timeout_in_ms(args.at(2), caller.local.now_ms)?;
    let replication = &caller.local.shared.replication;
    if replication.is_replica() {
        return Err(Fault::text(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local and are not \
             propagated.",
        ));
    }
    let replicas = usize::try_from(replicas).unwrap_or(0);
    if replicas == 0 || !caller.may_wait {
        reply.int_len(replication.applied_all());
        return Ok(());
    }
    acks::wait_for(caller, Goal::Applied(replicas), timeout_ms);
    Ok(())
}

fn module_list(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::modules::reply_all(reply);
    Ok(())
}

fn module_load(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    refuse_modules(caller)?;
    let path = args.at(2).escape_ascii();
    tracing::warn!("Module {path} failed to load: Darter has no loadable modules");
    Err(Fault::text("ERR Error loading the extension. Please check the server logs."))
}

fn module_unload(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    refuse_modules(caller)?;
    Err(Fault::text("ERR Error unloading module: no such module with that name"))
}

/// Fails unless `enable-module-command` lets the caller in.
fn refuse_modules(caller: &Caller<'_>) -> Result<(), Fault> {
    if caller.local.live.enable_module_command.lets(super::place_of(caller)) {
        return Ok(());
    }
    Err(Fault::text(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from \
         a local connection, otherwise you need to set this option in the configuration file, and then restart the \
         server.",
    ))
}

fn module_help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "MODULE",
        &[
            "LIST",
            "    Return a list of loaded modules.",
            "LOAD <path> [<arg> ...]",
            "    Load a module library from <path>, passing to it any optional arguments.",
            "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
            "    Load a module library from <path>, while passing it module configurations and optional arguments.",
            "UNLOAD <name>",
            "    Unload a module.",
        ],
    );
    Ok(())
}
