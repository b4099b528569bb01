//! CLIENT KILL, UNBLOCK: what one client does to others.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_base::number;
use darter_command::reader::{int, is};
use darter_command::{Fault, Reader};
use darter_wire::{Args, Reply};

use super::list::ClientType;
use super::wrong_use;
use crate::acl::Acl;
use crate::clients::ClientCard;
use crate::core::unix_ms;
use crate::dispatch::Caller;
use crate::shared::{Mail, Shared};
use crate::worker::lock;

/// Which clients are to be closed: those that everything given fits.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<ClientType>,
    age_s_min: Option<u64>,
    spares_caller: bool,
}

/// CLIENT KILL
pub fn kill(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_old_form = args.len() == 3;
    let filter = if is_old_form {
        Filter { addr: Some(args.at(2)), ..Filter::default() }
    } else {
        Filter::parse(args, &caller.core.shared.acl)?
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
    match (is_old_form, chosen.len()) {
        (true, 0) => return Err(Fault::text("ERR No such client")),
        (true, _) => reply.ok(),
        (false, n) => reply.int_len(n),
    }
    Ok(())
}

/// Closes a client; from here on nobody can find it.
pub(crate) fn close(shared: &Shared, card: &ClientCard) {
    lock(&shared.clients).remove(&card.id);
    shared.door(card.thread).send(Mail::Kill { token: card.token, client: card.id });
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>, acl: &Acl) -> Result<Filter<'a>, Fault> {
        let mut filter = Filter { spares_caller: true, ..Filter::default() };
        let mut reader = Reader::new(args, 2);
        while !reader.is_done() {
            if reader.take_with("ID", 1) {
                let wrong = Fault::text("ERR client-id should be greater than 0");
                filter.id = Some(reader.int_from(1, wrong)?.unsigned_abs());
            } else if reader.take_with("MAXAGE", 1) {
                let wrong = Fault::text("ERR maxage is not an integer or out of range");
                let age_s = number::parse_i64(reader.bytes()?).ok_or(wrong)?;
                let too_small = Fault::text("ERR maxage should be greater than 0");
                filter.age_s_min = Some(u64::try_from(age_s).ok().filter(|&s| s > 0).ok_or(too_small)?);
            } else if reader.take_with("TYPE", 1) {
                filter.kind = Some(ClientType::parse(reader.bytes()?)?);
            } else if reader.take_with("ADDR", 1) {
                filter.addr = Some(reader.bytes()?);
            } else if reader.take_with("LADDR", 1) {
                filter.laddr = Some(reader.bytes()?);
            } else if reader.take_with("USER", 1) {
                let name = reader.bytes()?;
                if !std::str::from_utf8(name).is_ok_and(|name| acl.user(name).is_some()) {
                    let shown = String::from_utf8_lossy(name);
                    return Err(Fault::Text(format!("ERR No such user '{shown}'").into()));
                }
                filter.user = Some(name);
            } else if reader.take_with("SKIPME", 1) {
                filter.spares_caller = match reader.bytes()? {
                    arg if is(arg, "YES") => true,
                    arg if is(arg, "NO") => false,
                    _ => return Err(Fault::Syntax),
                };
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(filter)
    }

    fn fits(&self, card: &ClientCard, caller: u64, now_ms: u64) -> bool {
        let age_s = (now_ms / 1000).saturating_sub(card.since_ms / 1000);
        self.addr.is_none_or(|addr| addr == card.peer.as_bytes())
            && self.laddr.is_none_or(|laddr| laddr == card.local.as_bytes())
            && self.kind.is_none_or(|kind| kind == ClientType::of(card))
            && self.id.is_none_or(|id| id == card.id)
            && self.user.is_none_or(|user| user == lock(&card.words).user.as_bytes())
            && !(self.spares_caller && card.id == caller)
            && self.age_s_min.is_none_or(|min| age_s >= min)
    }
}

/// CLIENT UNBLOCK
pub fn unblock(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let with_error = match args.get(3) {
        _ if args.len() > 4 => return Err(wrong_use(args)),
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
