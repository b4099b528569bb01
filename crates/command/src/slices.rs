//! Answers too long to be given in one go: the command writes the head, the rest follows in steps.
//!
//! Called by the bodies that answer whole collections. The members are those of the moment the command ran.

use std::sync::Arc;

use darter_pack::tree::Direction;
use darter_pack::tree::window::{Seen, Tell};
use darter_store::Object;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use crate::Ctx;
use crate::gather::{Form, Gather};
use crate::item::reply_item;

/// Longer answers are given in steps: some 20 microseconds' worth.
pub const LEN_MAX: u64 = 1000;

/// What a body has left to slices: the executor gives it to the connection, which goes on with it.
pub enum Rest {
    /// The members of a collection: the number of the read in its shard.
    Read {
        /// The shard it is in.
        shard: u16,
        /// Its number there.
        number: u32,
    },
    /// A long string: the number of the draft in its shard that it is to be written to. The body runs again then.
    Write {
        /// The shard it is in.
        shard: u16,
        /// Its number there.
        number: u32,
        /// Which of the command's words it is.
        word: usize,
    },
    /// All of KEYS.
    Keys,
    /// An answer made of whole collections.
    Gather(Box<Gather>),
}

/// Whether an answer of `len` members is for slices. With members that should have gone already, which nobody may see
/// (`due_ms` is when the first one goes), it is not: who they are is known only from looking at all.
#[inline]
pub fn is_long(len: u64, due_ms: Option<u64>, now_ms: u64) -> bool {
    len > LEN_MAX && due_ms.is_none_or(|ms| ms > now_ms)
}

/// Whether taking `gone` members out holds the shard for longer than it should, and building what is left anew, in
/// slices, costs no more than some times that. `gone_max` members are taken out in some 50 microseconds.
pub fn is_better_rebuilt(left: u64, gone: u64, gone_max: u64) -> bool {
    gone > gone_max && left <= gone.saturating_mul(LEFT_PER_GONE)
}

/// A member that is built anew costs some times as much as one that is taken out; more of them than this for each member
/// that goes are not worth it.
const LEFT_PER_GONE: u64 = 8;

/// A collection as it is read from one end to the other.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// What a collection of its kind is built as.
    pub form: Form,
    /// How it is read.
    pub stretch: Stretch,
    /// Its length.
    pub len: u64,
    /// When its first member is due, Unix milliseconds.
    pub due_ms: Option<u64>,
}

/// All of a collection; `None` of a stream.
pub fn whole_of(object: &Object) -> Option<Whole> {
    let ranks = |len| Stretch::Ranks(0, len, Direction::Up);
    let (form, stretch, len, due_ms) = match object {
        Object::Set(set) => (Form::Set, Stretch::All, set.len(), set.next_expiry_ms()),
        Object::Hash(table) => (Form::Hash, Stretch::All, table.len() as u64, table.min_expiry_ms()),
        Object::List(list) => (Form::List, ranks(list.len()), list.len(), None),
        Object::Zset(zset) => (Form::Zset, ranks(zset.len()), zset.len(), zset.next_expiry()),
        Object::Stream(_) | Object::Module(_) => return None,
    };
    Some(Whole { form, stretch, len, due_ms })
}

/// Answers members, or fields and values of a hash, as they come.
pub fn tell_items(resp3: bool) -> Tell {
    Arc::new(move |seen, out| {
        let mut reply = Reply::new(out, resp3);
        match seen {
            Seen::Item(item) => reply_item(&mut reply, item),
            Seen::Field(field, value) => {
                reply_item(&mut reply, field);
                reply_item(&mut reply, value);
            }
            Seen::Scored(..) | Seen::Logged(_) => debug_assert!(false, "read with another way to tell"),
        }
    })
}

/// Strings of at least this many bytes are written in slices. Writing one at once takes a quarter of a millisecond.
pub const WRITE_BYTES_MIN: usize = 1 << 20;

impl Ctx<'_> {
    /// Leaves it to slices to write word `word` of `args` to where it is to be at `name`; false when the body must store
    /// it now.
    #[inline]
    pub fn leave_write(&mut self, name: &[u8], word: usize, args: Args<'_>) -> bool {
        self.may_slice && args.at(word).len() >= WRITE_BYTES_MIN && self.begin_write(name, word, args)
    }

    #[cold]
    fn begin_write(&mut self, name: &[u8], word: usize, args: Args<'_>) -> bool {
        let key = self.key(name);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let part = self.shards_mut().part_mut(key);
        let number = part.shard.begin_text_draft(name, args.at(word).len());
        self.rest = number.map(|number| Rest::Write { shard, number, word });
        number.is_some()
    }

    /// Leaves what follows the head of an answer to steps; false when the body must write it itself.
    #[cold]
    pub fn leave_rest(&mut self, name: &[u8], stretch: Stretch, tell: Tell) -> bool {
        let (key, db) = (self.key(name), self.db);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let number = self.shards_mut().part_mut(key).shard.begin_read(db, key, stretch, tell);
        self.rest = number.map(|number| Rest::Read { shard, number });
        number.is_some()
    }

    /// Leaves it to steps to answer the bytes `from..to` of the long string at `name`; false when the body must answer in
    /// another way.
    #[cold]
    pub fn leave_text(&mut self, name: &[u8], (from, to): (usize, usize), reply: &Reply<'_>) -> bool {
        let (key, db) = (self.key(name), self.db);
        let mut head = Vec::new();
        Reply::new(&mut head, reply.is_resp3()).bulk_header(to - from);
        let shard = self.shards_mut().router().shard_of(key.hash);
        let part = self.shards_mut().part_mut(key);
        let number = part.shard.begin_text(db, key, (from, to), (head, b"\r\n"));
        self.rest = number.map(|number| Rest::Read { shard, number });
        number.is_some()
    }
}
