//! Sorted sets: members with a score each, in order of score and then of text.

pub mod add;
pub(crate) mod aggregate;
pub mod bound;
pub mod combine;
pub mod pop;
pub mod random;
pub mod range;
pub mod read;
pub mod remove;
pub mod scan;
mod source;
mod stored;
#[cfg(test)]
mod tests;

use darter_pack::entry::Item;
use darter_pack::tree::{Direction, Zset};
use darter_store::change::Class;
use darter_store::{Event, KeyView, Keyed, Type};
use darter_wire::Reply;

use crate::hash::PACKS_AT_ONCE;
use crate::item::reply_item;
use crate::{Ctx, DataCommand, Env};

pub(crate) use stored::{StoredMembers, store};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    add::ZADD,
    add::ZINCRBY,
    read::ZCARD,
    read::ZSCORE,
    read::ZMSCORE,
    read::ZCOUNT,
    read::ZLEXCOUNT,
    read::ZRANK,
    read::ZREVRANK,
    range::ZRANGE,
    range::ZRANGESTORE,
    range::ZREVRANGE,
    range::ZRANGEBYSCORE,
    range::ZREVRANGEBYSCORE,
    range::ZRANGEBYLEX,
    range::ZREVRANGEBYLEX,
    remove::ZREM,
    remove::ZREMRANGEBYRANK,
    remove::ZREMRANGEBYSCORE,
    remove::ZREMRANGEBYLEX,
    pop::ZPOPMIN,
    pop::ZPOPMAX,
    pop::ZMPOP,
    pop::BZPOPMIN,
    pop::BZPOPMAX,
    pop::BZMPOP,
    random::ZRANDMEMBER,
    scan::ZSCAN,
    combine::ZUNION,
    combine::ZINTER,
    combine::ZDIFF,
    combine::ZUNIONSTORE,
    combine::ZINTERSTORE,
    combine::ZDIFFSTORE,
    combine::ZINTERCARD,
];

/// The sorted set at `name`, to read. Expired members are removed, because ranks count live ones.
///
/// Cost: one comparison if no collection of the shard has members that expire, else about a microsecond per expired
/// member.
pub(crate) fn read<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.read(name);
    expire(&mut place);
    place
}

/// The sorted set at `name`, to change; as [`read`].
pub(crate) fn at<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.at(name);
    expire(&mut place);
    place
}

/// Removes all expired members of a sorted set; of other collections, some.
pub(crate) fn expire(place: &mut Keyed<'_>) {
    if place.expire_members(PACKS_AT_ONCE) > 0 && place.kind() == Some(Type::Zset) {
        while place.expire_members(usize::MAX) > 0 {}
    }
}

pub(crate) const fn event(name: &'static str) -> Event {
    Event::new(Class::ZSET, name)
}

/// The name OBJECT ENCODING gives a sorted set: Redis' rule for when one listpack is enough.
pub fn encoding(zset: KeyView<'_, Zset>, env: &Env) -> &'static str {
    let is_small = zset.root.len() <= env.zset_max_listpack_entries
        && zset
            .root
            .iter(zset.arena, 0, Direction::Up)
            .all(|(member, _)| member.len() as u64 <= env.zset_max_listpack_value);
    if is_small { "listpack" } else { "skiplist" }
}

/// Begins an array of `len` members: with scores, pairs in RESP3 and twice as many elements in RESP2.
pub(crate) fn reply_head(reply: &mut Reply<'_>, len: u64, with_scores: bool) {
    let len = len as usize;
    let is_flat = with_scores && !reply.is_resp3();
    reply.array(if is_flat { len.saturating_mul(2) } else { len });
}

/// Answers a member, and its score if requested.
#[inline]
pub(crate) fn reply_member(reply: &mut Reply<'_>, (member, score): (Item<'_>, f64), with_scores: bool) {
    if !with_scores {
        return reply_item(reply, member);
    }
    if reply.is_resp3() {
        reply.array(2);
    }
    reply_item(reply, member);
    reply.double(score);
}
