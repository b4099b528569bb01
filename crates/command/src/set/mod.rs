//! Sets: members without order, each of which may expire on its own.

pub mod algebra;
pub mod change;
pub mod draw;
pub mod read;
pub mod scan;
pub mod store;
#[cfg(test)]
mod tests;

use darter_store::change::Class;
use darter_store::{Event, KeyView, Keyed, SetValue};

use crate::hash::{COUNTED_LEN_MAX, PACKS_AT_ONCE};
use crate::{Ctx, DataCommand, Env};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    change::SADD,
    change::SADDEX,
    change::SREM,
    change::SMOVE,
    draw::SPOP,
    draw::SRANDMEMBER,
    read::SISMEMBER,
    read::SMISMEMBER,
    read::SCARD,
    read::SMEMBERS,
    scan::SSCAN,
    algebra::SINTER,
    algebra::SUNION,
    algebra::SDIFF,
    algebra::SINTERCARD,
    algebra::SUNIONCARD,
    algebra::SDIFFCARD,
    store::SINTERSTORE,
    store::SUNIONSTORE,
    store::SDIFFSTORE,
];

const fn event(name: &'static str) -> Event {
    Event::new(Class::SET, name)
}

const SADD_EVENT: Event = event("sadd");
const SREM_EVENT: Event = event("srem");

/// The set at `name`, to read. Expired members are removed, or hidden by the set's own methods.
fn read<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.read(name);
    place.expire_members(PACKS_AT_ONCE);
    place
}

/// The set at `name`, to change; as [`read`].
fn at<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.at(name);
    place.expire_members(PACKS_AT_ONCE);
    place
}

/// The reply of SCARD: as [`alive_len`], but large sets count expired members that wait for removal.
fn shown_len(set: KeyView<'_, SetValue>, now_ms: u64) -> usize {
    match usize::try_from(set.root.len()) {
        Ok(len) if len <= COUNTED_LEN_MAX => alive_len(set, now_ms),
        len => len.unwrap_or(usize::MAX),
    }
}

/// Number of live members. Cost: none, unless expired members wait for removal; then a walk over all.
fn alive_len(set: KeyView<'_, SetValue>, now_ms: u64) -> usize {
    match set.root.next_expiry_ms() {
        Some(ms) if ms <= now_ms => set.root.iter(set.arena, now_ms).count(),
        _ => usize::try_from(set.root.len()).unwrap_or(usize::MAX),
    }
}

/// The name OBJECT ENCODING gives a set: Redis' rule for when an array of integers or a listpack is enough.
pub fn encoding(set: KeyView<'_, SetValue>, env: &Env) -> &'static str {
    let len = set.root.len();
    if set.root.texts().is_none() && len <= env.set_max_intset_entries {
        return "intset";
    }
    let value_max = env.set_max_listpack_value as usize;
    let is_small =
        len <= env.set_max_listpack_entries && set.root.iter(set.arena, 0).all(|m| m.len() <= value_max);
    if is_small && set.root.texts().is_some() { "listpack" } else { "hashtable" }
}
