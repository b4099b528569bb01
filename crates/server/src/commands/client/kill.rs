//! CLIENT KILL, UNBLOCK: actions of one client on others.

use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_command::reader::{int, is};
use darter_wire::{Args, Reply};

use super::filter::{ClientFilter, FilterForm};
use super::list::matching;
use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::dispatch::Caller;
use crate::shared::{Shared, ThreadMessage, UnblockReason};
use crate::sync::lock;

/// CLIENT KILL
pub fn kill(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_old_form = args.len() == 3;
    let filter = if is_old_form {
        ClientFilter::from_addr(args.at(2))
    } else {
        ClientFilter::parse(args, &caller.local.shared.acl, FilterForm::Kill)?
    };
    let now_ms = unix_ms();
    let shared = caller.local.shared;
    let mut chosen = matching(shared, &filter, caller.session.id, now_ms);
    // An id may be named twice.
    chosen.sort_unstable_by_key(|info| info.id);
    chosen.dedup_by_key(|info| info.id);
    for info in &chosen {
        if info.id == caller.session.id {
            caller.session.is_closing = true;
        } else {
            close(shared, info);
        }
    }
    match (is_old_form, chosen.len()) {
        (true, 0) => return Err(Fault::text("ERR No such client")),
        (true, _) => reply.ok(),
        (false, n) => reply.int_len(n),
    }
    Ok(())
}

/// Closes a client. From here on it cannot be found, and none of its commands begins.
pub(crate) fn close(shared: &Shared, info: &ClientInfo) {
    if info.is_master.load(Relaxed) {
        shared.replication.break_link();
        return;
    }
    lock(&shared.clients).remove(&info.id);
    info.is_killed.store(true, Relaxed);
    shared.acl.have_all_settled();
    shared.handle(info.thread).send(ThreadMessage::Kill { token: info.token, client: info.id });
}

/// CLIENT UNBLOCK
pub fn unblock(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let reason = match args.get(3) {
        _ if args.len() > 4 => return Err(Fault::wrong_form(args)),
        None => UnblockReason::Timeout,
        Some(arg) if is(arg, "TIMEOUT") => UnblockReason::Timeout,
        Some(arg) if is(arg, "ERROR") => UnblockReason::Error,
        Some(_) => return Err(Fault::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = int(args.at(2))?;
    let shared = caller.local.shared;
    let info = u64::try_from(id).ok().and_then(|id| lock(&shared.clients).get(&id).cloned());
    // Cleared here, so that of two calls only one says it has ended the wait.
    let is_blocked = info.as_ref().is_some_and(|info| info.is_blocked.swap(false, Relaxed));
    if let Some(info) = info.filter(|_| is_blocked) {
        shared.handle(info.thread).send(ThreadMessage::Unblock {
            token: info.token,
            client: info.id,
            reason,
        });
    }
    reply.int(i64::from(is_blocked));
    Ok(())
}
