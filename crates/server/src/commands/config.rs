//! CONFIG: settings by name, and the effects of changing them.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::listening;
use crate::replication::group::check_disk_acks;
use crate::rlimits;
use crate::shared::Shared;
use crate::tls;
use darter_config::Measure;
use darter_config::{Changes, Setting, SettingChange, SettingRefusal, WantedSettings, find};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("config", -2).doc(
            Group::Server,
            "2.0.0",
            "",
            "A container for server configuration commands.",
        ),
        super::no_subcommand,
    ),
    row(
        admin(
            "config|get",
            -3,
            "2.0.0",
            "parameter [parameter ...]",
            "Returns the effective values of configuration parameters.",
        )
        .mark(Marks::ONLY_TELLS)
        .cost("O(N) when N is the number of configuration parameters provided"),
        get,
    ),
    row(
        admin(
            "config|set",
            -4,
            "2.0.0",
            "parameter value [parameter value ...]",
            "Sets configuration parameters in-flight.",
        )
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .secret(|args, at| at >= 3 && at % 2 == 1 && is_secret_setting(args.at(at - 1)))
        .cost("O(N) when N is the number of configuration parameters provided"),
        set,
    ),
    row(admin("config|resetstat", 2, "2.0.0", "", "Resets the server's statistics."), resetstat),
    row(admin("config|rewrite", 2, "2.8.0", "", "Persists the effective configuration to file."), rewrite),
    row(super::help_row("config|help", "5.0.0"), help),
];

const fn admin(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
    Spec::other(name, arity).flag(flags).doc(Group::Server, since, syntax, summary)
}

fn get(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let patterns: Vec<&[u8]> = args.iter().skip(2).collect();
    let mut found = caller.local.shared.settings.config_get(&patterns);
    found.sort_unstable();
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn set(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(Fault::Arity("config|set".into()));
    }
    let pairs: Vec<(&[u8], &[u8])> =
        (2..args.len()).step_by(2).map(|at| (args.at(at), args.at(at + 1))).collect();
    let shared = caller.local.shared;
    let place = super::place_of(caller);
    // A renewed certificate keeps its name: setting the same name is enough.
    let renews = pairs.iter().any(|(name, _)| find_by(name).is_some_and(|setting| is_of_tls(setting.name)));
    let changes = shared
        .settings
        .config_set(&pairs, place, |changes| carry_out(shared, changes, renews))
        .map_err(|e| Fault::Text(e.into()))?;
    if renews && changes.names.is_empty() {
        let set = pairs.iter().filter_map(|(name, _)| find_by(name)).find(|setting| is_of_tls(setting.name));
        shared.tls.reload(&changes.after).map_err(|fault| {
            let (name, text) = (set.map_or(fault.setting, |setting| setting.name), fault.text);
            Fault::Text(
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {text}").into(),
            )
        })?;
    }
    if changes.before.requirepass != changes.after.requirepass {
        shared.acl.set_default_password(changes.after.requirepass.as_bytes());
        caller.session.settle_user(&shared.acl);
    }
    if listening::is_moved(&changes) {
        listening::move_all(caller.local, changes.after.version);
    }
    if changes.before.log.level != changes.after.log.level {
        crate::logging::set_level(changes.after.log.level);
    }
    for measure in [Measure::Time, Measure::Request, Measure::Reply] {
        let [before, after] = [&changes.before, &changes.after].map(|live| live.slowlog.len_max(measure));
        if before != after {
            shared.command_logs.of(measure).shorten_to(after);
        }
    }
    caller.local.refresh();
    let of_limit = |live: &darter_config::Live| (live.maxmemory, live.maxmemory_policy);
    if of_limit(&changes.before) != of_limit(&changes.after) {
        crate::limit::relief::begin(caller.local);
    }
    if changes.before.persistence.appendonly != changes.after.persistence.appendonly && caller.may_wait {
        // Its use was tried before; in a transaction housekeeping does it.
        crate::journal::rewrite::keep(caller.local)
            .map_err(|why| Fault::Text(format!("ERR {why}").into()))?;
    }
    if changes.before.replication.max_lag_s != changes.after.replication.max_lag_s {
        shared.replication.recount_good(shared);
    }
    let of_shards = |live: &darter_config::Live| (live.notify_keyspace_events, live.replication.read_only);
    if of_shards(&changes.before) != of_shards(&changes.after) {
        crate::pubsub::listen(caller.local);
    }
    reply.ok();
    Ok(())
}

/// Carries out the effects of new values, or tries them if another thread must do it.
fn carry_out(shared: &Shared, changes: &Changes, renews_tls: bool) -> Result<(), SettingRefusal> {
    let is_fixed = |name: &&&'static str| {
        !matches!(**name, "port" | "bind")
            && !is_of_tls(name)
            && find(name).is_some_and(|setting| setting.change == SettingChange::Applied)
    };
    let [before, after] = [&changes.before, &changes.after].map(|live| &live.persistence);
    let refused =
        |text| SettingRefusal { name: changes.names.first().copied().unwrap_or("replica_ack"), text };
    check_disk_acks(&changes.after).map_err(refused)?;
    match changes.names.iter().find(is_fixed) {
        // The next start would search it in the wrong folder.
        _ if before.appendonly && after.appendonly && before.dir != after.dir => Err(SettingRefusal {
            name: "dir",
            text: "the journal is in the folder there is: switch appendonly off before, and on afterwards"
                .to_owned(),
        }),
        _ if changes.after.persistence.appendonly && !changes.before.persistence.appendonly => {
            let refused = |text| SettingRefusal { name: "appendonly", text };
            let dir = crate::journal::rewrite::dir_of(&changes.after).map_err(refused)?;
            let made = std::fs::create_dir_all(&dir);
            made.map_err(|error| refused(format!("{}: {error}", dir.display())))
        }
        Some(name) => Err(SettingRefusal { name, text: "can't be changed while the server runs".to_owned() }),
        None => {
            let open_admin =
                |text| SettingRefusal { name: changes.names.first().copied().unwrap_or("bind"), text };
            changes.after.check_admin().map_err(open_admin)?;
            if listening::is_moved(changes) {
                listening::probe(changes)?;
            }
            if changes.before.maxclients < changes.after.maxclients {
                let refused = |text| SettingRefusal { name: "maxclients", text };
                rlimits::try_clients(&changes.after, shared.handles.len()).map_err(refused)?;
            }
            if changes.before.oom_score != changes.after.oom_score {
                let refused = |text| SettingRefusal { name: "oom-score-adj", text };
                crate::oom_score::apply(&changes.after).map_err(refused)?;
            }
            if renews_tls {
                // The argument that was set, as in Redis' errors, and not the faulty file.
                let set = changes.names.iter().find(|name| is_of_tls(name)).copied();
                let refusal = |fault: tls::IdentityFault| SettingRefusal {
                    name: set.unwrap_or(fault.setting),
                    text: fault.text,
                };
                shared.tls.reload(&changes.after).map_err(refusal)?;
            }
            Ok(())
        }
    }
}

fn find_by(name: &[u8]) -> Option<&'static Setting> {
    find(std::str::from_utf8(name).ok()?)
}

/// Returns true if a setting is one of those that `tls` rereads.
fn is_of_tls(name: &str) -> bool {
    name == "tls" || name.starts_with("tls-")
}

fn resetstat(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    crate::report::reset(caller.local.shared, caller.held.as_deref_mut());
    // this call itself comes after the reset
    let own = caller.local.shared.registry.find(b"config").and_then(|config| config.sub(b"resetstat"));
    if let Some(entry) = own {
        caller.local.stats().commands[entry.id].calls.add(1);
    }
    reply.ok();
    Ok(())
}

fn rewrite(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    rewrite_file(caller, WantedSettings::Changed, reply)
}

/// DEBUG CONFIG-REWRITE-FORCE-ALL.
pub(super) fn rewrite_all(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    rewrite_file(caller, WantedSettings::All, reply)
}

fn rewrite_file(caller: &mut Caller<'_>, wanted: WantedSettings, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (shared, live) = (caller.local.shared, &caller.local.live);
    let users = live.aclfile.is_none().then(|| shared.acl.config_lines(&live.requirepass));
    shared.settings.rewrite(users.as_deref(), wanted).map_err(|error| Fault::Text(error.into()))?;
    reply.ok();
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "CONFIG",
        &[
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
        ],
    );
    Ok(())
}

fn is_secret_setting(name: &[u8]) -> bool {
    let setting = std::str::from_utf8(name).ok().and_then(darter_config::find);
    setting.is_some_and(|setting| matches!(setting.secrecy, darter_config::Secrecy::Secret))
}
