//! DEBUG: tools for tests and developers. Subcommands about keys are separate data commands; those that would crash
//! the process are refused.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_base::{glob, number};
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec, reader};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::clients::ClientInfo;
use crate::dispatch::Caller;
use crate::thread_state::ThreadState;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[row(
    Spec::other("debug", -2)
        .mark(Marks::DEBUG)
        .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
        .cost("Depends on subcommand.")
        .doc(Group::Server, "1.0.0", "", "A container for debugging commands."),
    debug,
)];

/// DEBUG subcommands by name, number of arguments (with DEBUG; 0 for any), and body.
type Sub = (&'static str, usize, fn(&mut Caller<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Fault>);

const SUBS: &[Sub] = &[
    ("help", 2, help),
    ("sleep", 3, sleep),
    ("protocol", 3, protocol),
    ("error", 3, error),
    ("log", 3, log),
    ("set-active-expire", 3, set_active_expire),
    ("quicklist-packed-threshold", 3, accept),
    ("set-skip-checksum-validation", 3, accept),
    ("set-disable-deny-scripts", 3, set_disable_deny_scripts),
    ("pause-cron", 3, accept),
    ("replybuffer", 4, accept),
    ("dict-resizing", 3, accept),
    ("change-repl-id", 2, accept),
    ("config-rewrite-force-all", 2, super::config::rewrite_all),
    ("stringmatch-len", 4, stringmatch_len),
    ("populate", 0, super::populate::populate),
    ("reload", 0, super::persistence::reload),
    ("loadaof", 2, super::persistence::load_journal),
    ("htstats", 3, htstats),
    ("segfault", 2, no_crash),
    ("panic", 2, no_crash),
    ("assert", 2, no_crash),
    ("oom", 2, no_crash),
    ("restart", 0, no_crash),
    ("crash-and-recover", 0, no_crash),
];

/// The error for a client that may not use DEBUG.
pub const NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
you can run it from a local connection, otherwise you need to set this option in the configuration file, and then \
restart the server.";

/// Returns true if a client may use DEBUG.
pub fn is_allowed(local: &ThreadState, info: &ClientInfo) -> bool {
    local.live.enable_debug_command.lets(super::place_of_card(info))
}

fn debug(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let found =
        SUBS.iter().find(|(name, len, _)| reader::is(args.at(1), name) && (*len == 0 || *len == args.len()));
    match found {
        Some((_, _, run)) => run(caller, args, reply),
        None => Err(Fault::wrong_form(args)),
    }
}

fn sleep(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let seconds = number::parse_f64(args.at(2)).unwrap_or(0.0);
    if let Ok(time) = Duration::try_from_secs_f64(seconds) {
        std::thread::sleep(time);
        // Later commands of the same turn, for example the end of an EXEC, must see the keys that expired meanwhile.
        caller.local.now_ms = crate::clock::unix_ms();
    }
    reply.ok();
    Ok(())
}

fn error(_: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let text = String::from_utf8_lossy(args.at(2)).replace(['\r', '\n'], " ");
    Err(Fault::Text(text.into()))
}

fn log(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(args.at(2)).escape_debug());
    reply.ok();
    Ok(())
}

fn set_active_expire(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.local.shared.is_sweeping.store(args.at(2) != b"0", Relaxed);
    reply.ok();
    Ok(())
}

fn set_disable_deny_scripts(
    caller: &mut Caller<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    caller.local.shared.scripts.may_debug.store(args.at(2) != b"0", Relaxed);
    reply.ok();
    Ok(())
}

/// Settings of structures that Darter does not have: there is nothing to set.
fn accept(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.ok();
    Ok(())
}

/// Matches a text of this many `a` against a pattern, to show that no pattern runs forever.
fn stringmatch_len(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let len = reader::int(args.at(2))?;
    let len = usize::try_from(len).ok().filter(|len| *len <= 1 << 20).ok_or(Fault::OutOfRange)?;
    reply.int(i64::from(glob::matches(args.at(3), &vec![b'a'; len], false)));
    Ok(())
}

fn no_crash(_: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    Err(Fault::text("ERR Darter does not crash or restart itself on request"))
}

fn htstats(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let db = reader::int(args.at(2))?;
    let info = caller.local.shared.survey(caller.held.as_deref_mut());
    let of = |counts: &[usize]| usize::try_from(db).ok().and_then(|db| counts.get(db).copied());
    let Some(keys) = of(&info.keys) else { return Err(Fault::text("ERR Out of range database")) };
    let text = format!(
        "[Dictionary HT]\nkeys: {keys}\nindex bytes of all databases: {}\n[Expires HT]\nkeys: {}\n",
        info.index_bytes,
        of(&info.expiring).unwrap_or(0)
    );
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn protocol(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.at(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(f64::from(3141) / 1000.0),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"map" => {
            reply.map(3);
            (0..3).for_each(|n| {
                reply.int(n);
                reply.boolean(n == 1);
            });
        }
        b"attrib" => {
            if reply.attribute(1) {
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !reply.is_resp3() {
                return Err(Fault::text("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim(*b"txt", b"This is a verbatim\nstring"),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        _ => {
            return Err(Fault::text(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "DEBUG",
        &[
            "CHANGE-REPL-ID",
            "    Accepted; there is no replication yet.",
            "CONFIG-REWRITE-FORCE-ALL",
            "    Like CONFIG REWRITE but writes all settings, also those at their defaults.",
            "DIGEST",
            "    Output a hex signature representing the current DB content.",
            "DIGEST-VALUE <key> [<key> ...]",
            "    Output a hex signature of the values of all the specified keys.",
            "ERROR <string>",
            "    Return a protocol error with <string> as message.",
            "HTSTATS <dbid>",
            "    Return statistics of a database's index.",
            "LISTPACK <key>",
            "    Accepted for keys whose value has a compact encoding.",
            "LOADAOF",
            "    Empty all databases and read the append-only journal back.",
            "LOG <message>",
            "    Write <message> to the server log.",
            "OBJECT <key>",
            "    Show low level info about `key` and associated value.",
            "POPULATE <count> [<prefix>] [<size>] [RAND] [TYPE <type>] [ELEMENTS <n>] [EXPIRE <low> <high>]",
            "    Create <count> keys named key:<num>, or with <prefix> instead of 'key'.",
            "PROTOCOL <type>",
            "    Reply with a test value of the specified type. <type> can be: string,",
            "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
            "    true, false.",
            "RELOAD [option ...]",
            "    Save a snapshot, empty all databases and load it. Options: NOSAVE, NOFLUSH, MERGE.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    0 keeps dead keys until they are looked at, 1 removes them in the background.",
            "SET-DISABLE-DENY-SCRIPTS <0|1>",
            "    1 lets scripts call DEBUG.",
            "SLEEP <seconds>",
            "    Stop the connection's thread for <seconds>. Decimals allowed.",
            "STRINGMATCH-LEN <len> <pattern>",
            "    Match <len> times 'a' against <pattern>.",
            "WATCHED",
            "    List the keys of the selected database that clients wait for.",
        ],
    );
    Ok(())
}
