//! Members moved from one key to another, and the sorted set they become.

use darter_pack::entry::Item;
use darter_pack::tree::Zset;
use darter_store::{Collection, Event, Expiry};

use super::event;
use crate::{Ctx, Env, Fault};

/// Members and scores out of the arena, their texts in one piece.
#[derive(Debug, Default)]
pub(crate) struct StoredMembers {
    texts: Vec<u8>,
    // the end of a member's text, and its score
    ends: Vec<(usize, f64)>,
}

impl StoredMembers {
    /// Adds a member at the end.
    pub fn push(&mut self, member: Item<'_>, score: f64) {
        member.write_to(&mut self.texts);
        self.ends.push((self.texts.len(), score));
    }

    /// Returns true if Redis would keep them in a listpack.
    fn fit_listpack(&self, env: &Env) -> bool {
        self.ends.len() as u64 <= env.zset_max_listpack_entries
            && self.iter().all(|(member, _)| member.len() as u64 <= env.zset_max_listpack_value)
    }

    /// The members in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let mut start = 0;
        self.ends.iter().map(move |&(end, score)| {
            let text = self.texts.get(start..end).unwrap_or_default();
            start = end;
            (text, score)
        })
    }
}

/// Makes `key` a sorted set of these members, replacing any value; without members the key is removed. Returns their
/// number.
///
/// Errors: no room; the old value stays.
pub(crate) fn store(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    members: &StoredMembers,
    event_name: &'static str,
) -> Result<i64, Fault> {
    // A listpack has no negative zero.
    let sheds_sign = members.fit_listpack(ctx.env);
    let mut place = ctx.at(key);
    if members.ends.is_empty() {
        if place.remove() {
            place.changed(Event::DEL);
        }
        return Ok(0);
    }
    let hasher = place.hasher();
    let arena = place.arena_mut();
    let mut zset = Zset::new();
    for (member, score) in members.iter() {
        let score = if sheds_sign { score + 0.0 } else { score };
        if zset.insert(arena, &hasher, Item::of(member), score).is_err() {
            zset.clear(arena);
            return Err(Fault::OutOfMemory);
        }
    }
    let len = zset.len();
    place.put_object(zset.wrap(), Expiry::None)?;
    place.changed(event(event_name));
    Ok(len as i64)
}
