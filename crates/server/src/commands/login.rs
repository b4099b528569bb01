//! HELLO and AUTH: the protocol of a connection, and its user.

use darter_base::number;
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::acl::{self, guard};
use crate::conn::Conn;
use crate::dispatch::Caller;
use crate::protocol::ListenerKind;
use crate::redact::follows;
use crate::session::Gate;
use crate::sync::lock;
use crate::thread_state::{COMPAT_VERSION, ThreadState};
use darter_config::ClusterMode;

const BEFORE_LOGIN: Flags =
    Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("auth", -2)
            .mark(Marks::NOT_OVER_HTTP)
            .secret(|_, at| at >= 1)
            .flag(BEFORE_LOGIN)
            .fast()
            .doc(Group::Connection, "1.0.0", "[username] password", "Logs the connection in."),
        auth,
    ),
    row(
        Spec::other("hello", -1)
            .mark(Marks::NOT_OVER_HTTP)
            .secret(|args, at| follows(args, at, "AUTH", 2))
            .flag(BEFORE_LOGIN)
            .fast()
            .doc(
                Group::Connection,
                "6.0.0",
                "[protover [AUTH username password] [SETNAME clientname]]",
                "Chooses the protocol, and may log in and name the connection.",
            ),
        hello,
    ),
];

fn auth(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (user, password) = match args.len() {
        2 if !caller.local.shared.acl.default_has_password() => return Err(NO_PASSWORD_SET),
        2 => (acl::DEFAULT.as_bytes(), args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(Fault::Syntax),
    };
    log_in(caller, args.at(0), user, password)?;
    reply.ok();
    Ok(())
}

fn hello(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 1);
    let mut wanted = None;
    if !reader.is_done() {
        let version = number::parse_i64(reader.bytes()?).ok_or(NO_VERSION)?;
        wanted = Some(match version {
            2 => false,
            3 => true,
            _ => return Err(Fault::text("NOPROTO unsupported protocol version")),
        });
    }
    let (mut login, mut name) = (None, None);
    while !reader.is_done() {
        if reader.take_with("AUTH", 2) {
            login = Some((reader.bytes()?, reader.bytes()?));
        } else if reader.take_with("SETNAME", 1) {
            name = Some(client_name(reader.bytes()?)?);
        } else {
            let option = String::from_utf8_lossy(reader.bytes()?);
            return Err(Fault::Text(format!("ERR Syntax error in HELLO option '{option}'").into()));
        }
    }
    if let Some((user, password)) = login {
        log_in(caller, args.at(0), user, password)?;
    }
    if caller.session.gate.has(Gate::LOGIN) && caller.local.shared.acl.default_needs_login() {
        return Err(HELLO_WITHOUT_LOGIN);
    }
    if let Some(name) = name {
        lock(&caller.info.words).name = name;
    }
    if let Some(resp3) = wanted {
        caller.session.resp3 = resp3;
        caller.session.settle_subscribed();
        reply.set_resp3(resp3);
    }
    describe(caller, reply);
    Ok(())
}

/// The server and the connection, as HELLO answers them.
fn describe(caller: &Caller<'_>, reply: &mut Reply<'_>) {
    let zone = &caller.local.live.availability_zone;
    reply.map(7 + usize::from(!zone.is_empty()));
    let mut text = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    text("server", "redis");
    text("version", COMPAT_VERSION);
    reply.bulk(b"proto");
    reply.int(if caller.session.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(i64::try_from(caller.session.id).unwrap_or(i64::MAX));
    let is_cluster = caller.local.live.cluster.mode != ClusterMode::Off;
    reply.bulk(b"mode");
    reply.bulk(if is_cluster { b"cluster" } else { b"standalone" });
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    super::modules::reply_all(reply);
    if !zone.is_empty() {
        reply.bulk(b"availability_zone");
        reply.bulk(zone.as_bytes());
    }
}

/// A name for CLIENT LIST: printable and without spaces, so that its lines can be split.
pub(super) fn client_name(name: &[u8]) -> Result<String, Fault> {
    let wrong = "ERR Client names cannot contain spaces, newlines or special characters.";
    word(name).ok_or(Fault::text(wrong))
}

/// `text` if it is printable ASCII without spaces.
pub(super) fn word(text: &[u8]) -> Option<String> {
    let is_plain = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if is_plain { String::from_utf8(text.to_vec()).ok() } else { None }
}

/// Returns true if a client of this kind of listener must log in before anything else.
pub(crate) fn is_wanted(local: &ThreadState, kind: ListenerKind) -> bool {
    let is_free = kind == ListenerKind::Admin && local.live.admin.nopass;
    local.shared.acl.default_needs_login() && !is_free
}

/// Logs a connection in as this user; returns true if the password is right.
pub(crate) fn try_log_in(local: &ThreadState, conn: &mut Conn, user: &[u8], password: &[u8]) -> bool {
    let found = local.shared.acl.login(user, password);
    let is_right = found.is_some();
    match found {
        Some(user) => acl::log_in(&mut conn.session, &conn.info, user),
        None => {
            guard::note_failed_login(local, &conn.session, &conn.info, b"HTTP", user);
            acl::log_out(local, &mut conn.session, &conn.info);
            conn.session.gate.set(Gate::LOGIN, true);
        }
    }
    is_right
}

/// Removes a connection's user; returns true if it may continue without one.
pub(crate) fn as_nobody(local: &ThreadState, conn: &mut Conn) -> bool {
    acl::log_out(local, &mut conn.session, &conn.info);
    !conn.session.gate.has(Gate::LOGIN)
}

fn log_in(caller: &mut Caller<'_>, word: &[u8], user: &[u8], password: &[u8]) -> Result<(), Fault> {
    let Some(user) = caller.local.shared.acl.login(user, password) else {
        guard::note_failed_login(caller.local, caller.session, caller.info, word, user);
        return Err(Fault::text("WRONGPASS invalid username-password pair or user is disabled."));
    };
    acl::log_in(caller.session, caller.info, user);
    Ok(())
}

const NO_PASSWORD_SET: Fault = Fault::text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
     configuration is correct?",
);
const NO_VERSION: Fault = Fault::text("ERR Protocol version is not an integer or out of range");
const HELLO_WITHOUT_LOGIN: Fault = Fault::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
     <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_spaces() {
        assert_eq!(client_name(b"a-b_c!~").ok().as_deref(), Some("a-b_c!~"));
        for wrong in [b"a b" as &[u8], b"\n", b"\x7f", b"\xc3\xa4"] {
            assert!(client_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
