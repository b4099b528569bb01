//! GET and SET without options, in the form that the server inlines into its loop over a pipeline.
//!
//! They do the same as the bodies in `get` and `set`, on a held shard, without a context: making one and calling
//! through a pointer costs as much as the work. Only these two commands are worth that; MGET and MSET are many of
//! them.

use darter_store::{Key, Look, Shard, Text};
use darter_wire::{Reply, ReplyBuffer};

use super::SET_EVENT;
use super::get::reply_text;
use crate::Fault;
use crate::incremental::reduce::AT_ONCE_BYTES;

/// Database and time: index and Unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct KernelPlace {
    /// Selected database.
    pub db: usize,
    /// The time of the command.
    pub now_ms: u64,
}

/// `GET key`, if the value is stored plainly and short enough to be staged. Otherwise returns the lookup, and
/// [`get_looked`] must follow.
#[inline(always)]
pub fn get(shard: &mut Shard, db: usize, key: Key<'_>, reply_buffer: &mut ReplyBuffer) -> Option<Look> {
    shard.read_plain(db, key, |value| reply_buffer.bulk(value))
}

/// Returns true if the value that [`get`] found is so long that the command's body should leave it to slices.
pub fn is_long(shard: &Shard, look: Look) -> bool {
    shard.is_longer(look, AT_ONCE_BYTES)
}

/// `GET key` of any value.
///
/// Errors: the value is not a string; nothing was answered.
pub fn get_looked(
    shard: &mut Shard,
    place: KernelPlace,
    key: Key<'_>,
    look: Look,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if let Some(value) = shard.read_found(place.db, key, look) {
        reply_text(reply, Text::Plain(value));
        return Ok(());
    }
    match shard.read_looked(place.db, key, look, place.now_ms)? {
        Some(text) => reply_text(reply, text),
        None => reply.null(),
    }
    Ok(())
}

/// `SET key value`, if both values are stored plainly and have one length. Otherwise returns the lookup, and
/// [`set_looked`] must follow.
#[inline(always)]
pub fn set(
    shard: &mut Shard,
    db: usize,
    key: Key<'_>,
    value: &[u8],
    reply_buffer: &mut ReplyBuffer,
) -> Option<Look> {
    let look = shard.look(db, key);
    if !shard.overwrite_plain(db, key, look, value, SET_EVENT) {
        return Some(look);
    }
    let is_staged = reply_buffer.ok();
    debug_assert!(is_staged, "a window's replies fit");
    None
}

/// `SET key value` in all cases.
///
/// Errors: no room; the old value stays and nothing was answered.
pub fn set_looked(
    shard: &mut Shard,
    place: KernelPlace,
    key: Key<'_>,
    look: Look,
    value: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    shard.set_looked(place.db, key, look, value, place.now_ms, SET_EVENT)?;
    reply.ok();
    Ok(())
}

/// `SET key value` that nobody waits for.
///
/// Errors: no room; the old value stays.
#[inline]
pub fn set_unanswered(
    shard: &mut Shard,
    place: KernelPlace,
    key: Key<'_>,
    value: &[u8],
) -> Result<(), Fault> {
    let look = shard.look(place.db, key);
    if !shard.overwrite_plain(place.db, key, look, value, SET_EVENT) {
        shard.set_looked(place.db, key, look, value, place.now_ms, SET_EVENT)?;
    }
    Ok(())
}

/// One key of `MSET`.
///
/// Errors: no room; the old value stays.
#[inline]
pub fn set_any(shard: &mut Shard, place: KernelPlace, key: Key<'_>, value: &[u8]) -> Result<(), Fault> {
    shard.set_text(place.db, key, value, place.now_ms, SET_EVENT)?;
    Ok(())
}
