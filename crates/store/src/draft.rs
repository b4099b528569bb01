//! Collections that are being built and have no key yet.
//!
//! A command that stores a large result builds it bit by bit, with the shard free in between, and gives it a key in one
//! go when it is complete. Until then nobody sees it: no scan, no snapshot, no eviction. Called by `command` and the
//! server, always with the shard held.

use darter_base::hash::KeyHasher;
use darter_slab::Arena;

use crate::object::Object;
use crate::shard::Shard;

/// A draft, and what changing it asks for.
pub struct Draft<'a> {
    /// The collection.
    pub object: &'a mut Object,
    /// Where its packs are.
    pub arena: &'a mut Arena,
    /// Hashes members and fields.
    pub hasher: KeyHasher,
}

impl Shard {
    /// Keeps `object` without a key; returns its number here. Members that expire must not be in it.
    pub fn begin_draft(&mut self, object: Object) -> u32 {
        let id = self.objects.insert(object);
        self.drafts.push(id);
        id
    }

    /// The draft of this number, to go on with.
    pub fn draft_mut(&mut self, number: u32) -> Option<Draft<'_>> {
        self.drafts.contains(&number).then(|| Draft {
            object: self.objects.get_mut(number),
            arena: &mut self.arena,
            hasher: self.hasher,
        })
    }

    /// Takes a draft out, for a key of this shard.
    pub fn take_draft(&mut self, number: u32) -> Option<Object> {
        let at = self.drafts.iter().position(|draft| *draft == number)?;
        self.drafts.swap_remove(at);
        Some(self.objects.remove(number))
    }

    /// Frees a draft that nobody wants any more, by and by.
    pub fn drop_draft(&mut self, number: u32) {
        if let Some(object) = self.take_draft(number) {
            self.discard(object);
        }
    }

    /// Number of drafts.
    pub fn drafts_len(&self) -> usize {
        self.drafts.len()
    }
}

#[cfg(test)]
mod tests {
    use darter_pack::entry::Item;
    use darter_pack::tree::List;
    use darter_pack::tree::list::End;

    use super::*;
    use crate::record::Expiry;
    use crate::{Key, Keyed};

    #[test]
    fn a_draft_outlives_flushes_and_leaves_nothing_behind() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let key = Key { bytes: b"k", hash: hasher.hash(b"k") };
        Keyed::find(&mut shard, 0, key, 1).put_text(b"v", Expiry::None).expect("room");
        let drafts = [0, 1].map(|_| shard.begin_draft(Object::List(List::new())));
        for n in 0..5_000 {
            let draft = shard.draft_mut(drafts[n % 2]).expect("it is there");
            let Object::List(list) = draft.object else { panic!("a list") };
            list.push(draft.arena, End::Back, Item::Int(n as i64)).expect("room");
            if n == 2_500 {
                assert_eq!(shard.flush_db(0), 1);
            }
        }
        let object = shard.take_draft(drafts[0]).expect("it is there");
        assert!(shard.take_draft(drafts[0]).is_none() && shard.draft_mut(drafts[0]).is_none());
        Keyed::find(&mut shard, 0, key, 1).put_object(object, Expiry::None).expect("room");
        let place = Keyed::find(&mut shard, 0, key, 1);
        let view = place.view::<List>().expect("a list").expect("it is there");
        assert_eq!((view.root.len(), view.root.get(view.arena, 2_499)), (2_500, Some(Item::Int(4_998))));
        shard.drop_draft(drafts[1]);
        shard.flush_db(0);
        while !shard.bury(64) {}
        assert_eq!((shard.drafts_len(), shard.objects.len(), shard.arena.used_bytes()), (0, 0, 0));
    }
}
