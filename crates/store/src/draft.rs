//! Collections, and long strings, that are being built and have no key yet.
//!
//! A command with a large result builds it in slices, with the shard free in between. It gives it a key when it is
//! complete. Until then it is invisible to scans, snapshots and eviction. Called by `command` and the server, always
//! with the shard held.

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use crate::object::Object;
use crate::record::{self, RecordKind, RecordMeta};
use crate::shard::{PINNED_BYTES_MIN, Shard};

/// A string without a key. Its bytes lie at their final offset in the block of the later record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextDraft {
    number: u32,
    block: Handle,
    // Where its bytes begin: the head of the record must have this length.
    text_at: usize,
    len: usize,
    // Of the record: `Text`, or `Raw` if it may be changed in place.
    kind: RecordKind,
}

/// A draft, and the arguments for changing it.
pub struct Draft<'a> {
    /// The collection.
    pub object: &'a mut Object,
    /// The arena of its packs.
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

    /// The draft of this number, to be continued.
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

    /// Frees an abandoned draft in steps.
    pub fn drop_draft(&mut self, number: u32) {
        if let Some(object) = self.take_draft(number) {
            self.discard(object);
        }
    }

    /// Makes room for a string of `len` bytes, later stored at `key` with such a deadline; returns its number. `None`: it is
    /// too short to gain from this, or there is no room. With another kind of deadline the record cannot take the room.
    pub fn begin_text_draft(&mut self, key: &[u8], len: usize, deadline_ms: Option<u64>) -> Option<u32> {
        if len < PINNED_BYTES_MIN {
            return None;
        }
        let text_at = record::text_at(key, &RecordMeta { deadline_ms, ..RecordMeta::default() }, len);
        self.push_text_draft(text_at, len, RecordKind::Text)
    }

    /// The same for a string that [`crate::Keyed::edit_text_as_drafted`] will hand out.
    pub fn begin_raw_draft(&mut self, key: &[u8], len: usize, deadline_ms: Option<u64>) -> Option<u32> {
        if len < PINNED_BYTES_MIN {
            return None;
        }
        self.push_text_draft(
            record::raw_at(key, &RecordMeta { deadline_ms, ..RecordMeta::default() }),
            len,
            RecordKind::Raw,
        )
    }

    fn push_text_draft(&mut self, text_at: usize, len: usize, kind: RecordKind) -> Option<u32> {
        let block = self.arena.alloc(text_at + len)?;
        self.last_text_draft = self.last_text_draft.wrapping_add(1);
        let number = self.last_text_draft;
        self.text_drafts.push(TextDraft { number, block, text_at, len, kind });
        Some(number)
    }

    /// Writes bytes of the draft string from `at` on.
    pub fn fill_text_draft(&mut self, number: u32, at: usize, bytes: &[u8]) {
        let Some(draft) = self.text_drafts.iter().find(|draft| draft.number == number) else { return };
        let place = draft.text_at + at..draft.text_at + at + bytes.len();
        if at + bytes.len() <= draft.len
            && let Some(room) = self.arena.block_mut(draft.block).get_mut(place)
        {
            room.copy_from_slice(bytes);
        }
    }

    /// Makes the next record of exactly this shape take the block of the string, which is complete. The caller must
    /// follow with [`Shard::drop_text_draft`] after the command.
    pub fn use_text_draft(&mut self, number: u32) {
        self.text_draft_used = self.text_drafts.iter().position(|draft| draft.number == number);
    }

    /// Frees a draft string, unless a record has taken its block.
    pub fn drop_text_draft(&mut self, number: u32) {
        self.text_draft_used = None;
        let Some(at) = self.text_drafts.iter().position(|draft| draft.number == number) else { return };
        let draft = self.text_drafts.swap_remove(at);
        self.free_record(draft.block);
    }

    /// The block for a record, if a draft string, complete except for its head, exists for it.
    #[cold]
    pub(crate) fn take_text_draft(
        &mut self,
        key: &[u8],
        meta: &RecordMeta,
        value_len: usize,
    ) -> Option<Handle> {
        let draft = self.text_drafts.get(self.text_draft_used?)?;
        if draft.kind != RecordKind::Text
            || draft.len != value_len
            || draft.text_at != record::text_at(key, meta, value_len)
        {
            return None;
        }
        let at = self.text_draft_used.take()?;
        Some(self.text_drafts.swap_remove(at).block)
    }

    /// The same for a string that may be changed in place.
    #[cold]
    pub(crate) fn take_raw_draft(
        &mut self,
        key: &[u8],
        meta: &RecordMeta,
        value_len: usize,
    ) -> Option<Handle> {
        let draft = self.text_drafts.get(self.text_draft_used?)?;
        if draft.kind != RecordKind::Raw
            || draft.len != value_len
            || draft.text_at != record::raw_at(key, meta)
        {
            return None;
        }
        let at = self.text_draft_used.take()?;
        Some(self.text_drafts.swap_remove(at).block)
    }

    /// Number of drafts.
    pub fn drafts_len(&self) -> usize {
        self.drafts.len() + self.text_drafts.len()
    }
}

#[cfg(test)]
mod tests {
    use darter_pack::entry::Item;
    use darter_pack::tree::List;
    use darter_pack::tree::list::ListEnd;

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
            list.push(draft.arena, ListEnd::Back, Item::Int(n as i64)).expect("room");
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
        while !shard.free_some(64) {}
        assert_eq!((shard.drafts_len(), shard.objects.len(), shard.arena.used_bytes()), (0, 0, 0));
    }

    #[test]
    fn a_string_that_was_written_bit_by_bit_becomes_its_keys_without_a_copy() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let long_name = "k".repeat(300);
        for name in ["k", &long_name] {
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            // A string that would be packed, and would fit in the place of the last one.
            for len in [100_000, 70_000, 3 << 20, 3 << 20] {
                let value: Vec<u8> = (0..len).map(|at| b'a' + (at % 23) as u8).collect();
                let number = shard.begin_text_draft(key.bytes, len, None).expect("it is long");
                assert_eq!(shard.drafts_len(), 1);
                for (nth, piece) in value.chunks(30_000).enumerate() {
                    shard.fill_text_draft(number, nth * 30_000, piece);
                }
                shard.use_text_draft(number);
                let used = shard.arena.used_bytes();
                let had = Keyed::find(&mut shard, 0, key, 1).exists();
                let sticky = Keyed::find(&mut shard, 0, key, 1).set_sticky(true);
                shard.set_text(0, key, &value, 1, crate::Event::NEW).expect("room");
                assert!(shard.arena.used_bytes() <= used && had == sticky | had);
                assert_eq!(shard.drafts_len(), 0);
                shard.drop_text_draft(number);
                let place = Keyed::find(&mut shard, 0, key, 1);
                assert!(place.text().expect("a string").expect("it is there").equals(&value));
                assert!(place.record().is_some_and(|record| record.is_sticky() == had));
            }
        }
        assert_eq!((shard.flush_db(0), shard.arena.used_bytes()), (2, 0));
    }

    #[test]
    fn a_string_with_a_deadline_was_written_behind_the_room_for_it() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let long_name = "k".repeat(300);
        for name in ["k", &long_name] {
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            let value: Vec<u8> = (0..200_000).map(|at| b'a' + (at % 23) as u8).collect();
            // One of five bytes, one of eight, what the key has, and none.
            for expiry in [Expiry::At(1_800_000_000_000), Expiry::At(9_000), Expiry::Keep, Expiry::None] {
                let had = Keyed::find(&mut shard, 0, key, 1).deadline_ms();
                let wanted = match expiry {
                    Expiry::At(ms) => Some(ms),
                    Expiry::Keep => had,
                    Expiry::None => None,
                };
                let number = shard.begin_text_draft(key.bytes, value.len(), wanted).expect("it is long");
                for (nth, piece) in value.chunks(30_000).enumerate() {
                    shard.fill_text_draft(number, nth * 30_000, piece);
                }
                shard.use_text_draft(number);
                Keyed::find(&mut shard, 0, key, 1).put_text(&value, expiry).expect("room");
                assert_eq!(shard.drafts_len(), 0, "the record took it");
                shard.drop_text_draft(number);
                let place = Keyed::find(&mut shard, 0, key, 1);
                assert_eq!(place.deadline_ms(), wanted);
                assert!(place.text().expect("a string").expect("it is there").equals(&value));
            }
        }
        assert_eq!(shard.flush_db(0), 2);
        while !shard.free_some(64) {}
        assert_eq!(shard.arena.used_bytes(), 0);
    }

    #[test]
    fn a_string_that_grows_takes_the_block_that_was_written_for_it() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let key = Key { bytes: b"k", hash: hasher.hash(b"k") };
        for (old, expiry) in
            [(None, Expiry::None), (Some(&b"old"[..]), Expiry::None), (Some(b"old"), Expiry::At(9_000))]
        {
            Keyed::find(&mut shard, 0, key, 1).remove();
            if let Some(old) = old {
                Keyed::find(&mut shard, 0, key, 1).put_text(old, expiry).expect("room");
            }
            let deadline_ms = Keyed::find(&mut shard, 0, key, 1).deadline_ms();
            let number = shard.begin_raw_draft(b"k", 200_000, deadline_ms).expect("it is long");
            shard.fill_text_draft(number, 0, &[7; 200_000]);
            // Another length: it has no use.
            shard.use_text_draft(number);
            let mut place = Keyed::find(&mut shard, 0, key, 1);
            assert!(!place.edit_text_as_drafted(100_000).expect("room").1);
            shard.use_text_draft(number);
            let mut place = Keyed::find(&mut shard, 0, key, 1);
            let (bytes, is_drafted) = place.edit_text_as_drafted(200_000).expect("room");
            let kept = if old.is_some() { &b"old"[..] } else { b"\0\0\0" };
            // What was there is kept, zeros behind it too.
            assert!(is_drafted && bytes.starts_with(kept) && bytes[100_000..].iter().all(|byte| *byte == 7));
            assert_eq!(place.deadline_ms(), deadline_ms);
            shard.drop_text_draft(number);
            assert_eq!(shard.drafts_len(), 0);
        }
    }

    #[test]
    fn a_written_string_is_used_by_the_record_it_was_made_for_alone() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 1, hasher).expect("address space");
        let key = Key { bytes: b"k", hash: hasher.hash(b"k") };
        assert!(shard.begin_text_draft(b"k", 100, None).is_none(), "short ones are written at once");
        let value = vec![0xff; 200_000];
        for expiry in [Expiry::At(9_000), Expiry::None] {
            let number = shard.begin_text_draft(b"k", 200_001, None).expect("it is long");
            shard.use_text_draft(number);
            Keyed::find(&mut shard, 0, key, 1).put_text(&value, expiry).expect("room");
            assert_eq!(shard.drafts_len(), 1);
            shard.drop_text_draft(number);
        }
        let number = shard.begin_text_draft(b"k", 200_000, None).expect("it is long");
        shard.fill_text_draft(number, 0, &[1; 200_000]);
        shard.fill_text_draft(number, 199_999, &[1, 1]);
        shard.fill_text_draft(number + 1, 0, &[1]);
        shard.use_text_draft(number);
        Keyed::find(&mut shard, 0, key, 1).put_text(&value, Expiry::At(9_000)).expect("room");
        assert_eq!(shard.drafts_len(), 1, "a deadline has no room before it");
        assert_eq!(shard.flush_db(0), 1);
        shard.drop_text_draft(number);
        while !shard.free_some(64) {}
        assert_eq!((shard.drafts_len(), shard.arena.used_bytes()), (0, 0));
    }
}
