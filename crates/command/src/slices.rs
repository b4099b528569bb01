//! Answers too long for one hold of the shard: the command writes the head, and slices write the rest.
//!
//! Called by the bodies that answer whole collections. The members are those of the moment the command ran.

use std::sync::Arc;

use darter_pack::tree::Direction;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::reads::Stretch;
use darter_store::{Expiry, Object};
use darter_wire::{Args, Reply};

use crate::Ctx;
use crate::incremental::{Incremental, StagedForm};
use crate::item::reply_item;

/// Longer answers are written in slices. This many members take some 20 microseconds.
pub const LEN_MAX: u64 = 1000;

/// Work that a body leaves to slices: the executor passes it to the connection, which continues it.
pub enum SlicesRest {
    /// The members of a collection: the number of the read in its shard.
    Read {
        /// The shard it is in.
        shard: u16,
        /// Its number there.
        number: u32,
    },
    /// A long string: the number of the draft in its shard that must be written. The body runs again afterwards.
    Write {
        /// The shard it is in.
        shard: u16,
        /// Its number there.
        number: u32,
        /// Zeros that it begins with.
        zeros: usize,
        /// The command's word that follows them.
        word: Option<usize>,
    },
    /// All of KEYS.
    Keys,
    /// An answer made of whole collections.
    Incremental(Box<Incremental>),
}

/// Returns true if an answer of `len` members must be sliced. `due_ms` is the first expiry of a member. With expired
/// members it returns false, because only a walk over all members can hide them.
#[inline]
pub fn is_long(len: u64, due_ms: Option<u64>, now_ms: u64) -> bool {
    len > LEN_MAX && due_ms.is_none_or(|ms| ms > now_ms)
}

/// Returns true if removing `gone` members would hold the shard too long, and rebuilding the rest in slices costs at
/// most a few times as much. Removing `gone_max` members takes some 50 microseconds.
pub fn is_better_rebuilt(left: u64, gone: u64, gone_max: u64) -> bool {
    gone > gone_max && left <= gone.saturating_mul(LEFT_PER_GONE)
}

/// Members that may be rebuilt for each removed one. Rebuilding a member costs several times as much as removing one.
const LEFT_PER_GONE: u64 = 8;

/// A collection to be read from one end to the other.
#[derive(Clone, Copy, Debug)]
pub struct WholeReply {
    /// The form in which such a collection is built.
    pub form: StagedForm,
    /// The stretch to read.
    pub stretch: Stretch,
    /// Its length.
    pub len: u64,
    /// Expiry of its first member, Unix milliseconds.
    pub due_ms: Option<u64>,
}

/// All of a collection; `None` of a stream.
pub fn whole_of(object: &Object) -> Option<WholeReply> {
    let ranks = |len| Stretch::Ranks(0, len, Direction::Up);
    let (form, stretch, len, due_ms) = match object {
        Object::Set(set) => (StagedForm::Set, Stretch::All, set.len(), set.next_expiry_ms()),
        Object::Hash(table) => (StagedForm::Hash, Stretch::All, table.len() as u64, table.min_expiry_ms()),
        Object::List(list) => (StagedForm::List, ranks(list.len()), list.len(), None),
        Object::Zset(zset) => (StagedForm::Zset, ranks(zset.len()), zset.len(), zset.next_expiry()),
        Object::Stream(_) | Object::Module(_) => return None,
    };
    Some(WholeReply { form, stretch, len, due_ms })
}

/// Writes members, or fields and values of a hash, in the order received.
pub fn tell_items(resp3: bool) -> Tell {
    Arc::new(move |seen, out| {
        let mut reply = Reply::new(out, resp3);
        match seen {
            SeenLeaf::Item(item) => reply_item(&mut reply, item),
            SeenLeaf::Field(field, value) => {
                reply_item(&mut reply, field);
                reply_item(&mut reply, value);
            }
            SeenLeaf::Scored(..) | SeenLeaf::Logged(_) => {
                debug_assert!(false, "read with another way to tell")
            }
        }
    })
}

/// Strings of at least this many bytes are written in slices. Writing one at once takes a quarter of a millisecond.
pub const WRITE_BYTES_MIN: usize = 1 << 20;
/// A string that grows is copied to its new place at once if it is at most this long: some 10 microseconds.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Ctx<'_> {
    /// Returns true if a body may leave writing `value` to slices. What it can find out without the value it does first:
    /// for a condition that fails nothing needs to be written.
    #[inline]
    pub fn may_leave_write(&self, value: &[u8]) -> bool {
        self.may_slice && value.len() >= WRITE_BYTES_MIN
    }

    /// Leaves writing word `word` of `args` for the value at `name` to slices; false if the body must store it now. The
    /// body runs again in the end and stores it with `expiry`.
    #[inline]
    pub fn leave_write(&mut self, name: &[u8], word: usize, expiry: Expiry, args: Args<'_>) -> bool {
        self.may_leave_write(args.at(word)) && self.begin_write(name, word, expiry, args)
    }

    #[cold]
    fn begin_write(&mut self, name: &[u8], word: usize, expiry: Expiry, args: Args<'_>) -> bool {
        let deadline_ms = match expiry {
            Expiry::None => None,
            Expiry::Keep => self.at(name).deadline_ms(),
            Expiry::At(ms) => Some(ms),
        };
        let key = self.key(name);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let part = self.shards_mut().part_mut(key);
        let number = part.shard.begin_text_draft(name, args.at(word).len(), deadline_ms);
        self.rest = number.map(|number| SlicesRest::Write { shard, number, zeros: 0, word: Some(word) });
        number.is_some()
    }

    /// Returns true if a body may leave growing a string to `len` bytes to slices.
    #[inline]
    pub fn may_leave_growth(&self, len: usize) -> bool {
        self.may_slice && len >= WRITE_BYTES_MIN
    }

    /// Leaves growing the string at `name` from `old_len` to `len` bytes to slices: zeros, and word `word` of `args` at the
    /// end. False if the body must do it now. The body runs again in the end.
    #[inline]
    pub fn leave_growth(
        &mut self,
        name: &[u8],
        (old_len, len): (usize, usize),
        word: Option<usize>,
        args: Args<'_>,
    ) -> bool {
        self.may_leave_growth(len) && old_len <= KEPT_BYTES_MAX && self.begin_growth(name, len, word, args)
    }

    #[cold]
    fn begin_growth(&mut self, name: &[u8], len: usize, word: Option<usize>, args: Args<'_>) -> bool {
        let deadline_ms = self.at(name).deadline_ms();
        let key = self.key(name);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let number = self.shards_mut().part_mut(key).shard.begin_raw_draft(name, len, deadline_ms);
        let zeros = len - word.map_or(0, |word| args.at(word).len());
        self.rest = number.map(|number| SlicesRest::Write { shard, number, zeros, word });
        number.is_some()
    }

    /// Leaves the members after the head of an answer to slices; false if the body must write them.
    #[cold]
    pub fn leave_rest(&mut self, name: &[u8], stretch: Stretch, tell: Tell) -> bool {
        let (key, db) = (self.key(name), self.db);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let number = self.shards_mut().part_mut(key).shard.begin_read(db, key, stretch, tell);
        self.rest = number.map(|number| SlicesRest::Read { shard, number });
        number.is_some()
    }

    /// Leaves answering the bytes `from..to` of the long string at `name` to slices; false if the body must answer
    /// otherwise.
    #[cold]
    pub fn leave_text(&mut self, name: &[u8], (from, to): (usize, usize), reply: &Reply<'_>) -> bool {
        let (key, db) = (self.key(name), self.db);
        let mut head = Vec::new();
        Reply::new(&mut head, reply.is_resp3()).bulk_header(to - from);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let part = self.shards_mut().part_mut(key);
        let number = part.shard.begin_text(db, key, (from, to), (head, b"\r\n"));
        self.rest = number.map(|number| SlicesRest::Read { shard, number });
        number.is_some()
    }
}
