//! ACL: users and their rules, what was refused, passwords.

use std::path::PathBuf;

use darter_base::number;
use darter_command::category::Categories;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec, reader};
use darter_wire::{Args, Reply};

use darter_acl::{CheckedCall, DEFAULT, Selector, is_name, to_hex};

use super::disconnect;
use crate::clock::unix_ms;
use crate::commands::{ServerCommand, help, no_subcommand, row};
use crate::dispatch::{Caller, ServerRun};
use crate::registry::{CommandEntry, Registry};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("acl", -2)
            .doc(Group::Server, "6.0.0", "", "A container for commands about users and their rights.")
            .cost("Depends on subcommand."),
        no_subcommand,
    ),
    open(
        "acl|cat",
        -2,
        "[category]",
        "Lists the categories of commands, or the commands of one.",
        CAT_COST,
        cat,
    ),
    admin(
        "acl|deluser",
        -3,
        "username [username ...]",
        "Removes users and closes their connections.",
        "O(1) amortized time considering the typical user.",
        deluser,
    ),
    row(
        Spec { since: "7.0.0", ..spec("acl|dryrun", -4, "username command [arg [arg ...]]", DRYRUN) }
            .flag(Flags::ADMIN)
            .cost("O(1)."),
        dryrun,
    ),
    open("acl|genpass", -2, "[bits]", "Generates a password.", "O(1)", genpass),
    admin(
        "acl|getuser",
        3,
        "username",
        "Describes a user.",
        "O(N). Where N is the number of password, command and pattern rules that the user has.",
        getuser,
    ),
    admin("acl|list", 2, "", "Lists the users with their rules.", BY_USERS, list),
    admin("acl|load", 2, "", "Reads the access file again.", BY_USERS, load),
    admin("acl|log", -2, "[count | RESET]", "Lists recent refusals.", LOG_COST, log),
    admin("acl|save", 2, "", "Writes the users to the access file.", BY_USERS, save),
    row(
        spec("acl|setuser", -3, "username [rule [rule ...]]", "Makes a user, or changes one.")
            .flag(Flags::ADMIN)
            .secret(|_, at| at >= 2)
            .cost("O(N). Where N is the number of rules provided."),
        setuser,
    ),
    admin("acl|users", 2, "", "Lists the names of the users.", BY_USERS, users),
    open("acl|whoami", 2, "", "Returns the user of the connection.", "O(1)", whoami),
    row(
        Spec::other("acl|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
            Group::Server,
            "6.0.0",
            "",
            "Returns helpful text about the different subcommands.",
        ),
        help_acl,
    ),
];

const BY_USERS: &str = "O(N). Where N is the number of configured users.";
const CAT_COST: &str = "O(1) since the categories and commands are a fixed set.";
const LOG_COST: &str = "O(N) with N being the number of entries shown.";
const DRYRUN: &str = "Tells whether a user may run a command, without running it.";

const fn spec(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    let flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
    Spec::other(name, arity).flag(flags).doc(Group::Server, "6.0.0", syntax, summary)
}

const fn open(
    name: &'static str,
    arity: i16,
    syntax: &'static str,
    summary: &'static str,
    cost: &'static str,
    run: ServerRun,
) -> ServerCommand {
    row(spec(name, arity, syntax, summary).cost(cost), run)
}

const fn admin(
    name: &'static str,
    arity: i16,
    syntax: &'static str,
    summary: &'static str,
    cost: &'static str,
    run: ServerRun,
) -> ServerCommand {
    row(spec(name, arity, syntax, summary).flag(Flags::ADMIN).cost(cost), run)
}

fn setuser(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const BAD_NAME: Fault = Fault::text("ERR Usernames can't contain spaces or null characters");
    let name = is_name(args.at(2)).ok_or(BAD_NAME)?;
    let shared = caller.local.shared;
    let all_channels = caller.local.live.acl_pubsub_all;
    let changed = shared.acl.set_user(name, args.iter().skip(3), all_channels);
    let changed = changed.map_err(|text| Fault::Text(format!("ERR {text}").into()))?;
    if let Some(before) = &changed.before {
        disconnect::close_subscribers(shared, caller.session, before, &changed.after);
    }
    caller.session.settle_user(&shared.acl);
    reply.ok();
    Ok(())
}

fn deluser(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let names = || args.iter().skip(2).filter_map(|name| std::str::from_utf8(name).ok());
    if names().any(|name| name == DEFAULT) {
        return Err(Fault::text("ERR The 'default' user cannot be removed"));
    }
    let shared = caller.local.shared;
    let removed = shared.acl.remove_users(names());
    disconnect::close_clients_of(shared, caller.session, &removed);
    reply.int_len(removed.len());
    Ok(())
}

fn getuser(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let name = std::str::from_utf8(args.at(2)).unwrap_or_default();
    let Some(user) = caller.local.shared.acl.user(name) else {
        reply.null();
        return Ok(());
    };
    let has_databases = user.selectors().iter().any(|selector| selector.databases().is_said());
    reply.map(6 + usize::from(has_databases));
    reply.bulk(b"flags");
    reply.set(user.flags().count());
    user.flags().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.bulk(to_hex(hash).as_bytes()));
    describe(user.own(), has_databases, reply);
    reply.bulk(b"selectors");
    let others = user.selectors().get(1..).unwrap_or_default();
    reply.array(others.len());
    for selector in others {
        reply.map(3 + usize::from(has_databases));
        describe(selector, has_databases, reply);
    }
    Ok(())
}

/// The fields of a selector; databases only where something was said of them, so that clients of Redis see its fields.
fn describe(selector: &Selector, has_databases: bool, reply: &mut Reply<'_>) {
    reply.bulk(b"commands");
    reply.bulk(selector.describe_commands().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.describe_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.describe_channels());
    if has_databases {
        reply.bulk(b"databases");
        reply.bulk(selector.databases().show().as_bytes());
    }
}

fn list(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let users = caller.local.shared.acl.all();
    reply.array(users.len());
    users.values().for_each(|user| reply.bulk(&user.describe()));
    Ok(())
}

fn users(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let users = caller.local.shared.acl.all();
    reply.array(users.len());
    users.keys().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn whoami(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.bulk(caller.session.user.name.as_bytes());
    Ok(())
}

fn cat(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.len() {
        2 => {
            reply.array(Categories::NAMES.len());
            Categories::NAMES.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        3 => {
            let name = args.at(2);
            let shown = String::from_utf8_lossy(name.get(..128).unwrap_or(name)).into_owned();
            let unknown = Fault::Text(format!("ERR Unknown category '{shown}'").into());
            let category = Categories::named(name).ok_or(unknown)?;
            let begun = reply.begin_array();
            let members = caller.local.shared.acl.catalog().members(category);
            let len = members.map(|entry| reply.bulk(entry.spec.name.as_bytes())).count();
            reply.end_array(begun, len);
        }
        _ => return Err(Fault::wrong_form(args)),
    }
    Ok(())
}

fn genpass(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const BITS_MAX: i64 = 4096;
    let bits = match args.len() {
        2 => 256,
        3 => reader::int(args.at(2))?,
        _ => return Err(Fault::wrong_form(args)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Fault::text(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    // 1 <= bits <= 4096
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes).map_err(|_| Fault::text("ERR the system has no randomness to give"))?;
    reply.bulk(&to_hex(&bytes).as_bytes()[..digits]);
    Ok(())
}

fn log(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut log = caller.local.shared.acl.log();
    let count = match args.len() {
        2 => 10,
        3 if reader::is(args.at(2), "reset") => {
            log.reset();
            reply.ok();
            return Ok(());
        }
        3 => usize::try_from(number::parse_i64(args.at(2)).ok_or(Fault::NotInteger)?).unwrap_or(0),
        _ => return Err(Fault::wrong_form(args)),
    };
    let now_ms = unix_ms();
    let shown = log.entries().take(count);
    reply.array(shown.len());
    for entry in shown {
        reply.map(10);
        let mut int = |name: &str, value: u64| {
            reply.bulk(name.as_bytes());
            reply.int(i64::try_from(value).unwrap_or(i64::MAX));
        };
        int("count", entry.count);
        let mut text = |name: &str, value: &[u8]| {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        };
        text("reason", entry.refusal.reason.as_bytes());
        text("context", entry.refusal.context.name().as_bytes());
        text("object", &entry.refusal.object);
        text("username", entry.refusal.user.as_bytes());
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
        let mut int = |name: &str, value: u64| {
            reply.bulk(name.as_bytes());
            reply.int(i64::try_from(value).unwrap_or(i64::MAX));
        };
        int("entry-id", entry.id);
        int("timestamp-created", entry.created_ms);
        int("timestamp-last-updated", entry.updated_ms);
    }
    Ok(())
}

fn dryrun(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let no_user = || {
        let name = String::from_utf8_lossy(args.at(2));
        Fault::Text(format!("ERR User '{name}' not found").into())
    };
    let user = std::str::from_utf8(args.at(2)).ok().and_then(|name| shared.acl.user(name));
    let user = user.ok_or_else(no_user)?;
    let call = args.tail(3);
    let no_command = || {
        let name = String::from_utf8_lossy(call.at(0));
        Fault::Text(format!("ERR Command '{name}' not found").into())
    };
    let entry = find_command(&shared.registry, call).ok_or_else(no_command)?;
    let name = shared.acl.catalog().row(entry.id).name();
    if !entry.spec.accepts(call.len()) {
        return Err(Fault::Arity(name.to_owned()));
    }
    let checked = CheckedCall { command: entry.id, args: call, db: caller.session.db };
    match user.check(shared.acl.catalog(), checked) {
        Ok(()) => reply.ok(),
        Err(denied) => reply.bulk(&denied.long_text(&user, name, call)),
    }
    Ok(())
}

/// The command or subcommand that a call runs.
pub(crate) fn find_command(registry: &Registry, call: Args<'_>) -> Option<&'static CommandEntry> {
    let entry = registry.find(call.at(0))?;
    if entry.subs.is_empty() || call.len() < 2 {
        return Some(entry);
    }
    entry.sub(call.at(1)).or(entry.is_open.then_some(entry))
}

fn load(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let path = access_file(caller)?;
    let before = shared.acl.load_file(&path, caller.local.live.acl_pubsub_all);
    let before = before.map_err(|text| Fault::Text(format!("ERR {text}").into()))?;
    let after = shared.acl.all();
    let removed: Vec<_> = before.values().filter(|user| !after.contains_key(&user.name)).cloned().collect();
    disconnect::close_clients_of(shared, caller.session, &removed);
    for (name, user) in &after {
        if let Some(before) = before.get(name) {
            disconnect::close_subscribers(shared, caller.session, before, user);
        }
    }
    caller.session.settle_user(&shared.acl);
    reply.ok();
    Ok(())
}

fn save(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = access_file(caller)?;
    caller.local.shared.acl.save_file(&path).map_err(|error| {
        tracing::warn!("cannot write the access file {}: {error}", path.display());
        Fault::text(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })?;
    reply.ok();
    Ok(())
}

fn access_file(caller: &Caller<'_>) -> Result<PathBuf, Fault> {
    const NO_FILE: Fault = Fault::text(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
         command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
         users in the Redis configuration.",
    );
    caller.local.live.aclfile.clone().ok_or(NO_FILE)
}

fn help_acl(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    help(
        reply,
        "ACL",
        &[
            "CAT [<category>]",
            "    List the categories of commands, or the commands of <category>.",
            "DELUSER <username> [<username> ...]",
            "    Remove users and close their connections.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Tell whether the user may run the command, without running it.",
            "GETUSER <username>",
            "    Describe a user.",
            "GENPASS [<bits>]",
            "    Make a password of 256 bits, or of as many as asked for.",
            "LIST",
            "    List the users with their rules, as an access file has them.",
            "LOAD",
            "    Read the access file again.",
            "LOG [<count> | RESET]",
            "    List what was refused lately, or forget it.",
            "SAVE",
            "    Write the users to the access file.",
            "SETUSER <username> <rule> [<rule> ...]",
            "    Make a user, or change one.",
            "USERS",
            "    List the names of the users.",
            "WHOAMI",
            "    Return the user of this connection.",
        ],
    );
    Ok(())
}
