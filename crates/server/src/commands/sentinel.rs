//! SENTINEL: what clients of Redis' Sentinel ask before they connect, answered from the state of the group.
//!
//! The master's name is that of the group. A server without a group does not know the command, as Redis.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::{self, Caller};
use crate::replication::group::show::{self, GroupOverview};
use crate::replication::group::split_name;

const ASK: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::NOSCRIPT);

const fn ask(name: &'static str, arity: i16, args: &'static str, about: &'static str) -> Spec {
    Spec::other(name, arity).flag(ASK).doc(Group::Server, "2.8.4", args, about)
}

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(ask("sentinel", -2, "", "A container for questions of Sentinel's clients."), unknown),
    row(
        ask("sentinel|get-master-addr-by-name", 3, "master-name", "Returns the address of the leader."),
        address,
    ),
    row(ask("sentinel|masters", 2, "", "Returns the leader of the group, in a list."), masters),
    row(ask("sentinel|master", 3, "master-name", "Returns the leader of the group."), master),
    row(ask("sentinel|replicas", 3, "master-name", "Returns the other members."), replicas),
    row(ask("sentinel|slaves", 3, "master-name", "Returns the other members."), replicas),
    row(ask("sentinel|sentinels", 3, "master-name", "Returns where else may be asked."), sentinels),
    row(ask("sentinel|myid", 2, "", "Returns the id of this start of the server."), my_id),
];

fn unknown(_: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    Err(Fault::Text(String::from_utf8_lossy(&dispatch::unknown_line(args)).into_owned().into()))
}

/// The group, if there is one.
///
/// Errors: that of a command that is not known.
fn overview(caller: &Caller<'_>, args: Args<'_>) -> Result<GroupOverview, Fault> {
    let line = || String::from_utf8_lossy(&dispatch::unknown_line(args)).into_owned();
    show::overview(caller.local.shared).ok_or_else(|| Fault::Text(line().into()))
}

/// The group, if it has the name that is asked for and a leader.
fn named(caller: &Caller<'_>, args: Args<'_>) -> Result<Option<GroupOverview>, Fault> {
    let seen = overview(caller, args)?;
    let is_it = caller.local.live.replication.ha.group.as_bytes() == args.at(2) && !seen.leader.is_empty();
    Ok(is_it.then_some(seen))
}

const NO_SUCH_MASTER: &str = "ERR No such master with that name";

fn address(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Some((host, port)) = named(caller, args)?.and_then(|seen| split_name(&seen.leader)) else {
        reply.null_array();
        return Ok(());
    };
    reply.array(2);
    reply.bulk(host.as_bytes());
    reply.bulk(port.to_string().as_bytes());
    Ok(())
}

fn masters(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seen = overview(caller, args)?;
    let is_led = !seen.leader.is_empty();
    reply.array(usize::from(is_led));
    if is_led {
        write_master(caller, &seen, reply);
    }
    Ok(())
}

fn master(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seen = named(caller, args)?.ok_or(Fault::text(NO_SUCH_MASTER))?;
    write_master(caller, &seen, reply);
    Ok(())
}

fn write_master(caller: &Caller<'_>, seen: &GroupOverview, reply: &mut Reply<'_>) {
    let others = seen.sync.len().saturating_sub(1).to_string();
    let facts = [
        ("num-slaves", others.as_str()),
        ("num-other-sentinels", &others),
        ("quorum", "1"),
        ("config-epoch", &seen.term.to_string()),
    ];
    let name = caller.local.live.replication.ha.group.clone();
    write_instance(reply, (&name, "master", &seen.leader, boot_of(seen, &seen.leader)), &facts);
}

fn replicas(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seen = named(caller, args)?.ok_or(Fault::text(NO_SUCH_MASTER))?;
    let (host, port) = split_name(&seen.leader).unwrap_or_default();
    let port = port.to_string();
    let others = others(&seen, &seen.leader);
    reply.array(others.len());
    for name in others {
        let facts = [
            ("master-link-status", "ok"),
            ("master-link-down-time", "0"),
            ("master-host", host.as_str()),
            ("master-port", &port),
            ("slave-priority", "100"),
        ];
        write_instance(reply, (&name, "slave", &name, boot_of(&seen, &name)), &facts);
    }
    Ok(())
}

/// Every other member listens for the same questions, on the same port as this one.
fn sentinels(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seen = named(caller, args)?.ok_or(Fault::text(NO_SUCH_MASTER))?;
    let port = caller.local.live.replication.ha.sentinel_port;
    let others = others(&seen, &seen.name);
    let listening: Vec<&String> = others.iter().filter(|_| port.is_some()).collect();
    reply.array(listening.len());
    for name in listening {
        let host = split_name(name).map(|(host, _)| host).unwrap_or_default();
        let place = format!("{host}:{}", port.unwrap_or(0));
        write_instance(reply, (&place, "sentinel", &place, boot_of(&seen, name)), &[]);
    }
    Ok(())
}

fn my_id(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    overview(caller, args)?;
    reply.bulk(caller.local.shared.replication.boot.as_str().as_bytes());
    Ok(())
}

/// Members but for one, by name.
fn others(seen: &GroupOverview, but: &str) -> Vec<String> {
    let names = seen.sync.iter().filter_map(|member| Some(member.split_once('#')?.0));
    names.filter(|name| *name != but).map(str::to_owned).collect()
}

fn boot_of<'s>(seen: &'s GroupOverview, name: &str) -> &'s str {
    let found = seen.sync.iter().filter_map(|member| member.split_once('#')).find(|(own, _)| *own == name);
    found.map_or("", |(_, boot)| boot)
}

/// Writes names and texts, as Sentinel describes a server.
fn write_instance(
    reply: &mut Reply<'_>,
    (name, flags, place, boot): (&str, &str, &str, &str),
    more: &[(&str, &str)],
) {
    let (host, port) = split_name(place).unwrap_or_default();
    let port = port.to_string();
    let facts = [("name", name), ("ip", &host), ("port", &port), ("runid", boot), ("flags", flags)];
    reply.map(facts.len() + more.len());
    for (name, value) in facts.iter().chain(more) {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
