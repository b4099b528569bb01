//! CLIENT: what clients may know and change about themselves and each other.

mod filter;
mod kill;
mod list;
mod own;
mod pause;
mod tracking;

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

pub(crate) use kill::close;
pub(crate) use list::line_of;

use super::{ServerCommand, help, row};
use crate::dispatch::{Caller, ServerRun};

const ANY: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const ADMIN: Flags = ANY.with(Flags::ADMIN);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("client", -2)
            .mark(Marks::NO_GROUP_CATEGORY)
            .doc(Group::Connection, "2.4.0", "", "Questions and settings about connections.")
            .cost("Depends on subcommand."),
        explain,
    ),
    row(
        spec(
            "client|caching",
            3,
            ANY,
            "6.0.0",
            "<YES | NO>",
            "Says whether the next command's keys are tracked.",
        )
        .mark(Marks::NOT_OVER_HTTP),
        tracking::caching,
    ),
    sub(
        "client|capa",
        -3,
        ANY,
        "8.0.0",
        "capability [capability ...]",
        "Sets the abilities of the client.",
        own::capa,
    ),
    sub("client|getname", 2, ANY, "2.6.9", "", "Returns the connection's name.", own::getname),
    sub(
        "client|getredir",
        2,
        ANY,
        "6.0.0",
        "",
        "Returns the client that gets this one's invalidations.",
        tracking::getredir,
    ),
    sub(
        "client|help",
        2,
        Flags::LOADING.with(Flags::STALE),
        "5.0.0",
        "",
        "Explains the subcommands.",
        explain,
    ),
    sub("client|id", 2, ANY, "5.0.0", "", "Returns the connection's number.", own::id),
    sub(
        "client|import-source",
        3,
        ANY,
        "8.1.0",
        "<ON | OFF>",
        "Shows expired keys to the connection while data is imported.",
        own::import_source,
    ),
    sub("client|info", 2, ANY, "6.2.0", "", "Describes the connection.", list::info)
        .tips(&["nondeterministic_output"]),
    row(
        spec("client|kill", -3, ADMIN, "2.4.0", KILL_SYNTAX, "Closes connections.").cost(BY_CLIENTS),
        kill::kill,
    ),
    row(
        spec("client|list", -2, ADMIN, "2.4.0", LIST_SYNTAX, "Describes the open connections.")
            .tips(&["nondeterministic_output"])
            .mark(Marks::ONLY_TELLS)
            .cost(BY_CLIENTS),
        list::list,
    ),
    sub(
        "client|no-evict",
        3,
        ADMIN,
        "7.0.0",
        "<ON | OFF>",
        "Spares the connection when clients use too much memory.",
        own::no_evict,
    ),
    sub(
        "client|no-touch",
        3,
        ANY,
        "7.2.0",
        "<ON | OFF>",
        "Keeps the connection's reads out of LRU and LFU.",
        own::no_touch,
    ),
    sub("client|pause", -3, ADMIN, "3.0.0", "timeout [WRITE | ALL]", "Makes commands wait.", pause::pause),
    row(
        spec("client|reply", 3, ANY, "3.2.0", "<ON | OFF | SKIP>", "Says whether commands are answered.")
            .mark(Marks::NOT_OVER_HTTP),
        own::reply,
    ),
    sub(
        "client|setinfo",
        4,
        ANY,
        "7.2.0",
        "<LIB-NAME libname | LIB-VER libver>",
        "Names the client's library.",
        own::setinfo,
    ),
    sub("client|setname", 3, ANY, "2.6.9", "connection-name", "Names the connection.", own::setname),
    row(
        spec(
            "client|tracking",
            -3,
            ANY,
            "6.0.0",
            TRACKING_SYNTAX,
            "Tracks keys for a cache on the client's side.",
        )
        .mark(Marks::NOT_OVER_HTTP)
        .cost("O(1). Some options may introduce additional complexity."),
        tracking::tracking,
    ),
    sub(
        "client|trackinginfo",
        2,
        ANY,
        "6.2.0",
        "",
        "Describes the connection's tracking.",
        tracking::trackinginfo,
    ),
    row(
        spec(
            "client|unblock",
            -3,
            ADMIN,
            "5.0.0",
            "client-id [TIMEOUT | ERROR]",
            "Ends the wait of a blocked client.",
        )
        .cost("O(log N) for N clients"),
        kill::unblock,
    ),
    row(
        spec("client|unpause", 2, ADMIN, "6.2.0", "", "Ends CLIENT PAUSE.").cost("O(N) for N paused clients"),
        pause::unpause,
    ),
];

const BY_CLIENTS: &str = "O(N) for N clients";
const LIST_SYNTAX: &str = "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]] [USER username] \
    [ADDR ip:port] [LADDR ip:port] [IP ip] [NAME name] [LIB-NAME name] [LIB-VER version] [FLAGS letters] [CAPA letters] [DB number] \
    [MAXAGE seconds] [IDLE seconds] [SKIPME <YES | NO>]";
const KILL_SYNTAX: &str = "<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | \
    [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | [MAXAGE maxage] \
    [[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | [ADDR ip:port] | \
    [LADDR ip:port] | [SKIPME <YES | NO>] | [MAXAGE maxage] ...]>>";
const TRACKING_SYNTAX: &str =
    "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]";

const fn spec(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::other(name, arity).flag(flags).mark(Marks::KEEPS_CACHING).doc(
        Group::Connection,
        since,
        syntax,
        summary,
    )
}

const fn sub(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    run: ServerRun,
) -> ServerCommand {
    row(spec(name, arity, flags, since, syntax, summary), run)
}

fn explain(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    help(reply, "CLIENT", HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Say whether the keys of the next command are tracked, in OPTIN or OPTOUT mode.",
    "CAPA <option> [options...]",
    "    Tell what the client can do: REDIRECT.",
    "GETREDIR",
    "    Return the number of the client that gets this one's invalidations.",
    "GETNAME",
    "    Return the name of this connection.",
    "ID",
    "    Return the number of this connection.",
    "IMPORT-SOURCE (ON|OFF)",
    "    Show expired keys to this connection, which imports data; needs import-mode.",
    "INFO",
    "    Describe this connection.",
    "KILL <ip:port>",
    "    Close the connection that comes from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that all options fit:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Where it comes from.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Where it came to.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      What it is.",
    "    * USER <username>",
    "      Who is logged in.",
    "    * SKIPME (YES|NO)",
    "      Whether this connection is spared (default: yes).",
    "    * ID <client-id> [<client-id> ...]",
    "      Its number.",
    "    * MAXAGE <maxage>, IDLE <idle>",
    "      Seconds since it was opened, or last sent something, at least.",
    "    * IP <ip>, NAME <name>, LIB-NAME <name>, LIB-VER <version>, DB <number>, FLAGS <letters>",
    "      What CLIENT LIST shows of it.",
    "    * CAPA <letters>",
    "      What it can do: r for REDIRECT.",
    "    NOT- before a word turns it round (but SKIPME, MAXAGE and IDLE).",
    "LIST [options ...]",
    "    Describe connections:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Those of one type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Those with these numbers.",
    "    * the other options of KILL",
    "      Those that all of them fit.",
    "UNPAUSE",
    "    End CLIENT PAUSE.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Make writes, or all commands, wait for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Say whether commands of this connection are answered.",
    "SETNAME <name>",
    "    Name this connection.",
    "SETINFO <option> <value>",
    "    Describe the client's library:",
    "    * LIB-NAME: its name.",
    "    * LIB-VER: its version.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    End the wait of a blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Track keys for a cache on the client's side.",
    "TRACKINGINFO",
    "    Describe the tracking of this connection.",
    "NO-EVICT (ON|OFF)",
    "    Spare this connection when clients use too much memory.",
    "NO-TOUCH (ON|OFF)",
    "    Keep reads of this connection out of LRU and LFU.",
];
