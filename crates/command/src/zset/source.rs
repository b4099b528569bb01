//! Sorted sets and sets as the inputs of ZUNION, ZINTER and ZDIFF; the members of a set score 1.

use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::tree::{Direction, Zset};
use darter_store::reads::Stretch;
use darter_store::{KeyView, SetValue, Type};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use darter_base::hash::KeyHasher;

use crate::{Ctx, Fault};

/// One input. A missing key is an empty input.
#[derive(Clone, Copy)]
pub(super) enum ZsetSource<'a> {
    Missing,
    Zset(KeyView<'a, Zset>),
    Set(KeyView<'a, SetValue>, u64),
}

impl<'a> ZsetSource<'a> {
    /// The input at `key`.
    ///
    /// Errors: a value of another type.
    pub fn at(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<ZsetSource<'a>, Fault> {
        let Some((shard, record)) = ctx.peek(key) else { return Ok(ZsetSource::Missing) };
        match record.value_type() {
            Type::Zset => Ok(ZsetSource::Zset(shard.view_of(record)?)),
            Type::Set => Ok(ZsetSource::Set(shard.view_of(record)?, ctx.now_ms)),
            _ => Err(Fault::WrongType),
        }
    }

    /// Number of members, including expired ones not yet removed.
    pub fn len(&self) -> u64 {
        match self {
            ZsetSource::Missing => 0,
            ZsetSource::Zset(zset) => zset.root.len(),
            ZsetSource::Set(set, _) => set.root.len(),
        }
    }

    /// The hasher of its members.
    pub fn hasher(&self) -> Option<KeyHasher> {
        match self {
            ZsetSource::Missing => None,
            ZsetSource::Zset(zset) => Some(zset.hasher),
            ZsetSource::Set(set, _) => Some(set.hasher),
        }
    }

    /// All of it, as a stretch for slices.
    pub fn stretch(&self) -> Stretch {
        match self {
            ZsetSource::Zset(zset) => Stretch::Ranks(0, zset.root.len(), Direction::Up),
            ZsetSource::Missing | ZsetSource::Set(..) => Stretch::All,
        }
    }

    /// Returns true if it has expired members.
    pub fn is_due(&self) -> bool {
        match self {
            // They went when it was found.
            ZsetSource::Missing | ZsetSource::Zset(_) => false,
            ZsetSource::Set(set, now_ms) => set.root.next_expiry_ms().is_some_and(|ms| ms <= *now_ms),
        }
    }

    /// Returns true if it has members that expire.
    pub fn expires(&self) -> bool {
        match self {
            ZsetSource::Missing => false,
            ZsetSource::Zset(zset) => zset.root.next_expiry().is_some(),
            ZsetSource::Set(set, _) => set.root.next_expiry_ms().is_some(),
        }
    }

    /// The score of a member.
    pub fn score(&self, member: Item<'_>) -> Option<f64> {
        match self {
            ZsetSource::Missing => None,
            ZsetSource::Zset(zset) => zset.root.score(zset.arena, &zset.hasher, member),
            ZsetSource::Set(set, now_ms) => {
                set.root.contains(set.arena, set.hasher, member, *now_ms).then_some(1.0)
            }
        }
    }

    /// Members with their scores, as long as `visit` returns true.
    pub fn each(&self, mut visit: impl FnMut(Item<'a>, f64) -> bool) {
        match *self {
            ZsetSource::Missing => {}
            ZsetSource::Zset(zset) => {
                let _ =
                    zset.root.iter(zset.arena, 0, Direction::Up).all(|(member, score)| visit(member, score));
            }
            ZsetSource::Set(set, now_ms) => {
                let _ = set.root.iter(set.arena, now_ms).all(|member| visit(member, 1.0));
            }
        }
    }
}

/// Scores by member.
pub(super) type Scores<'a> = HashMap<SourceMember<'a>, f64, MemberHasher>;

/// A member as the key of a map: equal texts are equal items, because the store keeps integers as such.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceMember<'a>(pub Item<'a>);

impl Hash for SourceMember<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Item::Int(value) => state.write(&value.to_le_bytes()),
            Item::Bytes(bytes) => state.write(bytes),
        }
    }
}

/// Hashes members with a seed no client knows.
#[derive(Clone, Copy)]
pub(super) struct MemberHasher(pub KeyHasher);

impl BuildHasher for MemberHasher {
    type Hasher = OneWrite;

    fn build_hasher(&self) -> OneWrite {
        OneWrite { hasher: self.0, hash: 0 }
    }
}

/// The hash of the last write; a member is written once.
pub(super) struct OneWrite {
    hasher: KeyHasher,
    hash: u64,
}

impl Hasher for OneWrite {
    fn write(&mut self, bytes: &[u8]) {
        self.hash = self.hasher.hash(bytes);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

/// The order of a sorted set; scores are not NaN.
pub(super) fn order(a: &(Item<'_>, f64), b: &(Item<'_>, f64)) -> Ordering {
    a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal).then_with(|| {
        let (mut left, mut right) = (Digits::new(), Digits::new());
        a.0.text(&mut left).cmp(b.0.text(&mut right))
    })
}
