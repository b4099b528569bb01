//! What a user may do: the check RIGHTS of the list in `darter_engine::admit`, when a command comes, when EXEC runs it,
//! from a script, and when its wait ends. Each refusal is counted and logged here.

use std::sync::Arc;

use darter_command::{Marks, MayRead};
use darter_wire::{Args, Span};

use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::commands::client;
use crate::conn::window::Prepared;
use crate::registry::CommandEntry;
use crate::session::{Gate, Session};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_acl::{AclPattern, AclRefusal, CheckedCall, Context, Denied, Permit, User};

/// Whether nothing stands before a command whose connection has only its user's rights to be asked about. Where it says
/// no, the long way finds out why.
#[inline]
pub fn lets_through(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    let call = CheckedCall { command: entry.id, args, db: session.db };
    // SORT's patterns are looked at on the long way.
    entry.is_single_of(args.len() as u32) && session.user.check(local.shared.acl.catalog(), call).is_ok()
}

/// How many of `commands` may run because of what their user is permitted for all calls of `entry` about one key; counts
/// only as far as they are such calls. The first that is not counted is to be asked about.
#[inline(never)]
pub fn permitted_len(
    local: &ThreadState,
    session: &Session,
    entry: &'static CommandEntry,
    (buf, spans): (&[u8], &[Span]),
    commands: &[Prepared],
) -> usize {
    let catalog = local.shared.acl.catalog();
    let Some(permit) = session.user.permit(catalog, catalog.row(entry.id)) else { return 0 };
    if permit.covers_all() {
        return commands.len();
    }
    covered_len(&permit, entry, (buf, spans), commands)
}

/// How many of `commands`, calls of `entry`, `permit` covers before the first that it does not.
#[inline]
fn covered_len(
    permit: &Permit<'_>,
    entry: &'static CommandEntry,
    (buf, spans): (&[u8], &[Span]),
    commands: &[Prepared],
) -> usize {
    // All that begin as the first one does have its pattern's prefix if it has.
    if let (Some(pattern), Some(first)) = (permit.only(), commands.first())
        && pattern.prefix_len().is_some_and(|len| len <= usize::from(first.key_head_len))
        && first.alike_len > 0
        && permit.covers(first.key(buf, spans), first.args_len())
    {
        return 1 + usize::from(first.alike_len);
    }
    let is_alike = |planned: &Prepared| planned.ready.entry.is_some_and(|other| std::ptr::eq(other, entry));
    let is_other = |planned: &Prepared| {
        !is_alike(planned) || !permit.covers(planned.key(buf, spans), planned.args_len())
    };
    let Some((word, mask)) = permit.only().and_then(AclPattern::head) else {
        return commands.iter().position(is_other).unwrap_or(commands.len());
    };
    // Nearly all users have one prefix and nearly all keys eight bytes: then the loop holds nothing but a comparison.
    let is_plain = |planned: &Prepared| {
        planned.args_len() == entry.inlined_len
            && is_alike(planned)
            && (planned.own_arg::<1>(buf).first_chunk())
                .is_some_and(|head| (u64::from_le_bytes(*head) ^ word) & mask == 0)
    };
    commands.iter().position(|planned| !is_plain(planned) && is_other(planned)).unwrap_or(commands.len())
}

/// Whether the connection's user may run a command that has come. Errors: the error line.
pub fn check(
    local: &ThreadState,
    session: &Session,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Result<(), Vec<u8>> {
    if !session.gate.has(Gate::ACL) {
        return Ok(());
    }
    let acl = &local.shared.acl;
    let queued_db = session.multi.as_ref().and_then(|multi| multi.db);
    let call = CheckedCall { command: entry.id, args, db: queued_db.unwrap_or(session.db) };
    if let Err(denied) = session.user.check(acl.catalog(), call) {
        let context = if session.multi.is_some() { Context::Multi } else { Context::TopLevel };
        note(local, Some(session), info, &session.user, denied, context, call);
        let text = denied.text(&session.user, acl.catalog().row(entry.id).name());
        return Err(format!("NOPERM {text}").into_bytes());
    }
    // In a transaction EXEC says so.
    if session.multi.is_none() { check_sort(local, &session.user, call) } else { Ok(()) }
}

/// Whether a transaction's command may still run. Errors: the error line.
pub fn check_in_exec(
    local: &ThreadState,
    session: &Session,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Result<(), Vec<u8>> {
    let acl = &local.shared.acl;
    if !session.gate.has(Gate::ACL) {
        return Ok(());
    }
    let call = CheckedCall { command: entry.id, args, db: session.db };
    let Err(denied) = session.user.check(acl.catalog(), call) else {
        return check_sort(local, &session.user, call);
    };
    note(local, Some(session), info, &session.user, denied, Context::Multi, call);
    Err(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {}",
        denied.exec_text()
    )
    .into_bytes())
}

/// Whether a script's command may run. Errors: the error line.
pub fn check_in_script(
    local: &ThreadState,
    session: &Session,
    info: &ClientInfo,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Result<(), Vec<u8>> {
    if !session.gate.has(Gate::ACL) {
        return Ok(());
    }
    let acl = &local.shared.acl;
    let call = CheckedCall { command: entry.id, args, db: session.db };
    let Err(denied) = session.user.check(acl.catalog(), call) else {
        return check_sort(local, &session.user, call);
    };
    note(local, Some(session), info, &session.user, denied, Context::Lua, call);
    let text = denied.text(&session.user, acl.catalog().row(entry.id).name());
    Err(format!("ERR ACL failure in script: {text}").into_bytes())
}

/// Whether a command may run that began to wait under other rights. Errors: the error line.
pub fn check_after_wait(
    local: &ThreadState,
    client: u64,
    entry: &'static CommandEntry,
    args: Args<'_>,
    db: usize,
) -> Result<(), Vec<u8>> {
    let Some(info) = lock(&local.shared.clients).get(&client).cloned() else { return Ok(()) };
    let acl = &local.shared.acl;
    let name = lock(&info.words).user.clone();
    let Some(user) = acl.user(&name) else { return Ok(()) };
    let call = CheckedCall { command: entry.id, args, db };
    let Err(denied) = user.check(acl.catalog(), call) else { return Ok(()) };
    note(local, None, &info, &user, denied, Context::TopLevel, call);
    let text = denied.text(&user, acl.catalog().row(entry.id).name());
    Err(format!("NOPERM {text}").into_bytes())
}

/// Whether the connection's user may see what others do: what INFO, SLOWLOG GET and CLIENT LIST answer.
pub fn may_observe(local: &ThreadState, session: &Session) -> bool {
    let acl = &local.shared.acl;
    let may_run = |name: &str| {
        let Some(row) = acl.catalog().find(name) else { return false };
        session
            .user
            .check(
                acl.catalog(),
                CheckedCall { command: row.number(), args: Args::new(&[], &[]), db: session.db },
            )
            .is_ok()
    };
    !session.gate.has(Gate::ACL) || ["info", "slowlog|get", "client|list"].into_iter().all(may_run)
}

/// Counts and logs a failed login; `word` is the command as it was sent, `name` the user that was given.
pub fn note_failed_login(
    local: &ThreadState,
    session: &Session,
    info: &ClientInfo,
    word: &[u8],
    name: &[u8],
) {
    let context = if session.multi.is_some() { Context::Multi } else { Context::TopLevel };
    let user = String::from_utf8_lossy(name).into_owned();
    let refusal = AclRefusal { reason: "auth", context, object: word.to_vec(), user };
    log(local, Some(session), info, refusal);
}

/// The keys that `client` may read by a call that finds its keys by labels; `None`: it finds none, or may read every key.
/// A client that has gone may read none; 0 is the server. Cost: a comparison for other commands.
#[inline]
pub fn may_read(
    local: &ThreadState,
    entry: &CommandEntry,
    args: Args<'_>,
    db: usize,
    client: u64,
) -> Option<MayRead> {
    if !entry.spec.has(Marks::READS_BY_LABEL) || client == 0 {
        return None;
    }
    match user_of(local, client) {
        Some(user) if user.is_unlimited() => None,
        Some(user) => {
            let call = CheckedCall { command: entry.id, args, db };
            let rights = user.read_rights(local.shared.acl.catalog(), call);
            Some(Box::new(move |key| rights.covers(key)))
        }
        None => Some(Box::new(|_| false)),
    }
}

#[cold]
fn user_of(local: &ThreadState, client: u64) -> Option<Arc<User>> {
    let info = lock(&local.shared.clients).get(&client).cloned()?;
    let name = lock(&info.words).user.clone();
    local.shared.acl.user(&name)
}

/// What patterns of SORT reach.
fn check_sort(local: &ThreadState, user: &User, call: CheckedCall<'_>) -> Result<(), Vec<u8>> {
    let spec = &local.shared.acl.catalog().row(call.command).spec;
    if !spec.has(Marks::READS_BY_PATTERN) {
        return Ok(());
    }
    user.check_sort(local.shared.acl.catalog(), call).map_err(|line| line.as_bytes().to_vec())
}

fn note(
    local: &ThreadState,
    session: Option<&Session>,
    info: &ClientInfo,
    user: &User,
    denied: Denied,
    context: Context,
    call: CheckedCall<'_>,
) {
    let object = match denied {
        Denied::Command | Denied::Database(0) => {
            local.shared.acl.catalog().row(call.command).name().as_bytes()
        }
        Denied::Database(at) | Denied::Key(at) | Denied::Channel(at) => call.args.at(at),
    };
    let refusal =
        AclRefusal { reason: denied.reason(), context, object: object.to_vec(), user: user.name.to_string() };
    log(local, session, info, refusal);
}

fn log(local: &ThreadState, session: Option<&Session>, info: &ClientInfo, refusal: AclRefusal) {
    let acl = &local.shared.acl;
    acl.count_denial(refusal.reason);
    if let Some(session) = session {
        info.update(session);
    }
    let now_ms = unix_ms();
    let client = client::line_of(local.shared, info, now_ms);
    acl.log().add(refusal, client, now_ms, local.live.acllog_max_len);
}
