//! CLIENT KILL, UNBLOCK: what one client does to others.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_command::reader::{int, is};
use darter_wire::{Args, Reply};

use super::filter::{Filter, Form};
use crate::clients::ClientCard;
use crate::core::unix_ms;
use crate::dispatch::Caller;
use crate::shared::{Mail, Shared};
use crate::worker::lock;

/// CLIENT KILL
pub fn kill(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_old_form = args.len() == 3;
    let filter = if is_old_form {
        Filter::from_addr(args.at(2))
    } else {
        Filter::parse(args, &caller.core.shared.acl, Form::Kill)?
    };
    let now_ms = unix_ms();
    let shared = caller.core.shared;
    let fits = |card: &&Arc<ClientCard>| filter.fits(card, caller.session.id, now_ms);
    let chosen: Vec<Arc<ClientCard>> = lock(&shared.clients).values().filter(fits).cloned().collect();
    for card in &chosen {
        if card.id == caller.session.id {
            caller.session.is_closing = true;
        } else {
            close(shared, card);
        }
    }
    let is_master = |at: usize| {
        is(args.at(at), "type") && ["master", "primary"].iter().any(|word| is(args.at(at + 1), word))
    };
    let breaks = (2..args.len()).step_by(2).any(is_master) && shared.replication.break_link();
    match (is_old_form, chosen.len() + usize::from(breaks)) {
        (true, 0) => return Err(Fault::text("ERR No such client")),
        (true, _) => reply.ok(),
        (false, n) => reply.int_len(n),
    }
    Ok(())
}

/// Closes a client; from here on nobody can find it, and none of its commands begins.
pub(crate) fn close(shared: &Shared, card: &ClientCard) {
    lock(&shared.clients).remove(&card.id);
    card.is_killed.store(true, Relaxed);
    shared.acl.have_all_settled();
    shared.door(card.thread).send(Mail::Kill { token: card.token, client: card.id });
}

/// CLIENT UNBLOCK
pub fn unblock(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let with_error = match args.get(3) {
        _ if args.len() > 4 => return Err(Fault::wrong_form(args)),
        None => false,
        Some(arg) if is(arg, "TIMEOUT") => false,
        Some(arg) if is(arg, "ERROR") => true,
        Some(_) => return Err(Fault::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = int(args.at(2))?;
    let shared = caller.core.shared;
    let card = u64::try_from(id).ok().and_then(|id| lock(&shared.clients).get(&id).cloned());
    // Cleared here, so that of two calls only one says it has ended the wait.
    let is_blocked = card.as_ref().is_some_and(|card| card.is_blocked.swap(false, Relaxed));
    if let Some(card) = card.filter(|_| is_blocked) {
        shared.door(card.thread).send(Mail::Unblock { token: card.token, client: card.id, with_error });
    }
    reply.int(i64::from(is_blocked));
    Ok(())
}
