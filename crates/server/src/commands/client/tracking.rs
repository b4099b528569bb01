//! CLIENT TRACKING, TRACKINGINFO, CACHING, GETREDIR: caches on the client's side, which this server does not feed yet.

use darter_command::Fault;
use darter_command::reader::is;
use darter_wire::{Args, Reply};

use crate::dispatch::Caller;

/// CLIENT TRACKING: switching it off is always possible.
pub fn tracking(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.at(2) {
        arg if is(arg, "OFF") => reply.ok(),
        arg if is(arg, "ON") => {
            return Err(Fault::text("ERR client-side caching is not in this version of Darter yet"));
        }
        _ => return Err(Fault::Syntax),
    }
    Ok(())
}

/// CLIENT TRACKINGINFO
pub fn trackinginfo(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.int(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(())
}

/// CLIENT CACHING
pub fn caching(_: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    Err(Fault::text(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ))
}

/// CLIENT GETREDIR
pub fn getredir(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int(-1);
    Ok(())
}
