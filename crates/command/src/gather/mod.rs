//! Answers made of whole collections, such as SUNION, ZINTER and SORT, in steps: `Gather`, which the server drives.
//!
//! The command begins a read of each collection while it holds all their shards, so what is gathered is one state.
//! The members are then read a slice at a time, each with one shard held, and taken in and answered with none. Memory:
//! each member once. Called by the bodies of such commands (to begin) and by the server (steps and the end).

mod combining;
mod members;
mod sorted;
mod sorting;

use std::collections::VecDeque;
use std::sync::Arc;

use darter_pack::decimal::Digits;
use darter_pack::tree::window::{Seen, Tell};
use darter_store::Shard;
use darter_store::reads::Stretch;
use darter_wire::Reply;

pub use combining::{Combining, Operation, Scoring, reading_order};
pub use sorting::{ScoreOf, Sorting};

use crate::Ctx;
use crate::slices::Rest;

/// An answer that is being gathered.
pub struct Gather {
    // Reads that are not done yet, in the order in which they are taken in.
    reads: VecDeque<Read>,
    // What the last slice told, taken in before the next one.
    told: Vec<u8>,
    // Which collection that was.
    told_nth: u32,
    maker: Maker,
    resp3: bool,
    stage: Stage,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Read {
    shard: u16,
    number: u32,
    // Which of the command's collections it is, in the order of reading.
    nth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Reading,
    Arranging,
    Telling,
    Done,
}

/// What is made of the members.
pub enum Maker {
    /// A set or sorted set of several.
    Combining(Box<Combining>),
    /// Elements in order.
    Sorting(Box<Sorting>),
}

/// A slice with a shard held ends when it has told so much: some 10 microseconds.
const TOLD_BYTES: usize = 8 << 10;
/// A slice of the answer, for which no shard is held.
const ANSWER_BYTES: usize = 16 << 10;

impl Gather {
    /// Numbers of the reads that are still open, with their shards.
    pub fn open_reads(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.reads.iter().map(|read| (read.shard, read.number))
    }

    /// The shard that the next slice needs; `None` when it needs none.
    pub fn shard(&self) -> Option<u16> {
        self.reads.front().map(|read| read.shard)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let made = match &self.maker {
            Maker::Combining(combining) => combining.bytes(),
            Maker::Sorting(sorting) => sorting.bytes(),
        };
        made + self.told.capacity()
    }

    /// Reads a slice of what comes next, from its shard.
    pub fn read(&mut self, shard: &mut Shard) {
        let Some(read) = self.reads.front() else { return };
        let bytes_max = self.told.len() + TOLD_BYTES;
        let number = read.number;
        self.told_nth = read.nth;
        if self.has_failed() || shard.read_step(number, &mut self.told, bytes_max) {
            shard.end_read(number);
            self.reads.pop_front();
        }
    }

    /// Takes in what was read last: to be called before each slice, with no shard held.
    pub fn take_in(&mut self) {
        let mut rest = &self.told[..];
        while let Some((score, text, after)) = split_told(rest) {
            match &mut self.maker {
                Maker::Combining(combining) => combining.add(self.told_nth, score, text),
                Maker::Sorting(sorting) => sorting.add(text),
            }
            rest = after;
        }
        self.told.clear();
    }

    /// Goes on with the answer, when all is read; returns whether that was all.
    pub fn answer(&mut self, out: &mut Vec<u8>) -> bool {
        let bytes_max = out.len() + ANSWER_BYTES;
        let mut reply = Reply::new(out, self.resp3);
        self.stage = match (self.stage, &mut self.maker) {
            (Stage::Reading, _) => Stage::Arranging,
            (Stage::Arranging, Maker::Combining(combining)) => match combining.arrange() {
                true => {
                    combining.head(&mut reply);
                    Stage::Telling
                }
                false => Stage::Arranging,
            },
            (Stage::Arranging, Maker::Sorting(sorting)) => match sorting.head(&mut reply) {
                true => Stage::Telling,
                false => Stage::Done,
            },
            (Stage::Telling, maker) => {
                let is_done = match maker {
                    Maker::Combining(combining) => combining.tell(&mut reply, bytes_max),
                    Maker::Sorting(sorting) => sorting.tell(&mut reply, bytes_max),
                };
                if is_done { Stage::Done } else { Stage::Telling }
            }
            (Stage::Done, _) => Stage::Done,
        };
        self.stage == Stage::Done
    }

    fn has_failed(&self) -> bool {
        matches!(&self.maker, Maker::Sorting(sorting) if sorting.has_failed())
    }
}

impl Ctx<'_> {
    /// Leaves the answer to slices that read these collections in this order; false when the body must give it itself.
    #[cold]
    pub fn gather(&mut self, sources: &[(&[u8], Stretch)], maker: Maker, resp3: bool) -> bool {
        let mut reads = VecDeque::with_capacity(sources.len());
        let tell = tell();
        for (nth, (name, stretch)) in sources.iter().enumerate() {
            let (key, db) = (self.key(name), self.db);
            let shard = self.shards_mut().router().shard_of(key.hash);
            let part = self.shards_mut().part_mut(key);
            let Some(number) = part.shard.begin_read(db, key, *stretch, tell.clone()) else {
                for Read { shard, number, .. } in reads {
                    if let Some(part) = self.part(shard) {
                        part.shard.end_read(number);
                    }
                }
                return false;
            };
            reads.push_back(Read { shard, number, nth: nth as u32 });
        }
        let gather = Gather { reads, told: Vec::new(), told_nth: 0, maker, resp3, stage: Stage::Reading };
        self.rest = Some(Rest::Gather(Box::new(gather)));
        true
    }
}

/// Writes members down as they come, for [`split_told`].
fn tell() -> Tell {
    Arc::new(|seen, out| {
        let (item, score) = match seen {
            Seen::Item(item) => (item, 1.0),
            Seen::Scored(member, score) => (member, score),
            Seen::Field(..) | Seen::Logged(_) => {
                debug_assert!(false, "neither hashes nor streams are gathered");
                return;
            }
        };
        let mut digits = Digits::new();
        let text = item.text(&mut digits);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(&score.to_le_bytes());
        out.extend_from_slice(text);
    })
}

/// The first member that was told, with its score, and what follows.
fn split_told(told: &[u8]) -> Option<(f64, &[u8], &[u8])> {
    let (len, rest) = told.split_first_chunk::<4>()?;
    let (score, rest) = rest.split_first_chunk::<8>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((f64::from_le_bytes(*score), text, rest))
}
