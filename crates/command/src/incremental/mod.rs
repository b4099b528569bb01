//! Answers from whole collections, for SUNION, ZINTER, SORT and similar commands, in slices: `Incremental`, which the
//! server drives.
//!
//! The command begins a read of each collection while it holds all their shards, so the gathered members are one
//! state. The members are then read a slice at a time, each with one shard held. They are processed and answered with
//! no shard held. A result to be stored is built as a draft instead ([`staged`]). Memory: each member once. Called by
//! the bodies of such commands (to begin) and by the server (slices and the end).

pub mod building;
pub mod bulk_add;
mod bulk_remove;
mod combining;
mod members;
pub mod operation;
pub mod partition;
pub mod pieces;
pub mod pointer;
pub mod random_sample;
pub mod reduce;
mod rounds;
pub mod sort_lookup;
mod sorted;
mod sorting;
pub mod staged;
pub mod survey;

use std::collections::VecDeque;
use std::sync::Arc;

use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::reads::Stretch;
use darter_store::{Key, Shard};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

pub use building::Build;
pub use combining::{Combining, Scoring, SetOperation, reading_order};
pub use operation::{Copying, FoundValue, Operation};
pub use sorting::{ScoreOf, Sorting};
pub use staged::{Staged, StagedForm};

use crate::slices::SlicesRest;
use crate::{Ctx, Fault};
use operation::{NextSlice, OperationStage, ResultTo};
use staged::StagedWrite;

/// An answer that is being gathered.
pub struct Incremental {
    // Unfinished reads, in processing order.
    reads: VecDeque<ReadOperation>,
    // The members of the last slice, processed before the next one; or the members to store next, from `told_at` on.
    told: Vec<u8>,
    told_at: usize,
    // The collection of these members.
    told_nth: u32,
    operation: Box<dyn Operation>,
    resp3: bool,
    stage: OperationStage,
    staged: Option<Box<StagedWrite>>,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct ReadOperation {
    shard: u16,
    number: u32,
    // The collection's number, in reading order.
    nth: u32,
}

/// A slice with a shard held ends after this many bytes: some 10 microseconds.
pub(crate) const TOLD_BYTES: usize = 8 << 10;
/// A slice of the answer, for which no shard is held.
const ANSWER_BYTES: usize = 16 << 10;

impl Incremental {
    /// Numbers of the reads that are still open, with their shards.
    pub fn open_reads(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.reads.iter().map(|read| (read.shard, read.number))
    }

    /// The shard and the number of the draft, once there is one.
    pub fn draft(&self) -> Option<(u16, u32)> {
        self.staged.as_ref().and_then(|staged| staged.draft())
    }

    fn draft_shard(&self) -> Option<u16> {
        self.staged.as_ref().map(|staged| staged.shard)
    }

    /// Returns true if members were read that are not in the draft yet.
    fn has_told(&self) -> bool {
        self.told_at < self.told.len()
    }

    /// Returns the shard that the next slice needs; `None` if it needs none.
    pub fn shard(&self) -> Option<u16> {
        let draft_shard = self.draft_shard();
        if self.has_told() && draft_shard.is_some() {
            return draft_shard;
        }
        match self.operation.next(draft_shard) {
            NextSlice::Read | NextSlice::ReadOf(_) => Some(self.reads.get(self.next_read())?.shard),
            NextSlice::Step(shard) => Some(shard),
            NextSlice::Work => None,
        }
    }

    /// The place among the reads of the one that comes next.
    fn next_read(&self) -> usize {
        let NextSlice::ReadOf(nth) = self.operation.next(self.draft_shard()) else { return 0 };
        self.reads.iter().position(|read| read.nth == nth).unwrap_or(0)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.operation.bytes() + self.told.capacity()
    }

    /// The fault that was found, which is the answer.
    pub fn fault(&self) -> Option<&Fault> {
        self.operation.fault()
    }

    /// Runs the next slice, with its shard held.
    pub fn step(&mut self, part: &mut ShardPart) {
        let draft_shard = self.draft_shard();
        let shard = &mut part.shard;
        if self.has_told()
            && let Some(staged) = &mut self.staged
        {
            self.told_at = staged.add(shard, &self.told, self.told_at);
            if self.told_at >= self.told.len() {
                // Nothing is taken in twice.
                self.told.clear();
                self.told_at = 0;
            }
            return;
        }
        if let NextSlice::Step(_) = self.operation.next(draft_shard) {
            let draft = self.draft().map(|(_, number)| number);
            return self.operation.step(part, draft);
        }
        let place = self.next_read();
        let Some(read) = self.reads.get(place) else { return };
        let bytes_max = self.told.len() + self.operation.told_max();
        let number = read.number;
        self.told_nth = read.nth;
        if self.operation.is_decided() || shard.read_step(number, &mut self.told, bytes_max) {
            shard.end_read(number);
            self.reads.remove(place);
        }
        if !self.operation.is_copy() {
            // Nothing is added to the result before it is processed.
            self.told_at = self.told.len();
        }
    }

    /// Processes the members read last, and prepares the next ones to be stored. Called before each slice, with no
    /// shard held; `args` are the command's.
    pub fn take_in(&mut self, args: Args<'_>) {
        if self.has_told() {
            return;
        }
        let stays = self.operation.take(self.told_nth, &self.told, args);
        if stays.is_empty() {
            self.told.clear();
        } else {
            self.told = stays;
        }
        self.told_at = 0;
        if self.stage == OperationStage::Storing
            && let Some(staged) = &self.staged
            && self.operation.store(args, staged.form().batch_len(), &mut self.told)
            && self.told.is_empty()
        {
            self.stage = OperationStage::Done;
        }
    }

    /// Continues the answer after the last read. Returns whether it is complete.
    pub fn answer(&mut self, out: &mut Vec<u8>) -> bool {
        let bytes_max = out.len() + ANSWER_BYTES;
        let mut reply = Reply::new(out, self.resp3);
        let target = if self.staged.is_some() { ResultTo::Key } else { ResultTo::Reply };
        self.stage = match self.stage {
            OperationStage::Reading => self.operation.end_reading(target, &mut reply, bytes_max),
            OperationStage::Arranging => self.operation.arrange(target, &mut reply),
            OperationStage::Answering => match self.operation.answer(&mut reply, bytes_max) {
                true => OperationStage::Done,
                false => OperationStage::Answering,
            },
            // `take_in` prepares the members to be stored.
            stage @ (OperationStage::Storing | OperationStage::Done) => stage,
        };
        self.stage == OperationStage::Done && target == ResultTo::Reply
    }

    /// Returns true if a result to be stored is ready for the last step: it is complete, or useless because a source
    /// has changed.
    pub fn is_to_end(&self) -> bool {
        let is_complete = self.stage == OperationStage::Done && self.told_at >= self.told.len();
        self.staged.as_ref().is_some_and(|staged| is_complete || staged.is_stale())
    }

    /// Looks up the sources of the result, whose shards are held, so that expired ones are removed now. The changes
    /// must be published before [`Incremental::end`].
    pub fn look(&self, ctx: &mut Ctx<'_>) {
        if let Some(staged) = &self.staged {
            staged.look(ctx);
        }
    }

    /// Ends a stored result, with the shards of its command held. Returns the result for the context of the command's
    /// body, unless a source has changed.
    pub fn end(&mut self, ctx: &mut Ctx<'_>) -> Option<Staged> {
        for ReadOperation { shard, number, .. } in self.reads.drain(..) {
            if let Some(part) = ctx.part(shard) {
                part.shard.end_read(number);
            }
        }
        let (fault, found) = (self.operation.fault().cloned(), self.operation.found());
        let is_stale = self.operation.is_stale(ctx, self.draft_shard());
        let mut staged = self.staged.take()?.end(fault, ctx)?;
        if is_stale {
            staged.give_up(ctx);
            return None;
        }
        staged.found = found;
        Some(staged)
    }

    /// Number of attempts of the command, this one included.
    pub fn tries(&self) -> u8 {
        self.staged.as_ref().map_or(0, |staged| staged.tries)
    }

    /// Sets the number of earlier attempts.
    pub fn tried(&mut self, tries: u8) {
        if let Some(staged) = &mut self.staged {
            staged.tries = tries;
        }
    }
}

/// After this many results invalidated by changes, the next one is made at once.
pub const TRIES_MAX: u8 = 3;

impl Ctx<'_> {
    /// Leaves the answer to slices that read these collections in this order; false if the body must write it itself.
    #[cold]
    pub fn answer_later(
        &mut self,
        sources: &[(&[u8], Stretch)],
        operation: Box<dyn Operation>,
        resp3: bool,
    ) -> bool {
        self.begin_incremental(sources, operation, resp3, None)
    }

    /// Like [`Ctx::answer_later`], for a result to be stored at `dest`. `names` are all keys that it depends on. The
    /// body runs again when the result is complete, and finds it in [`Ctx::staged`].
    #[cold]
    pub fn store_later(
        &mut self,
        (dest, form): (&[u8], StagedForm),
        names: &[&[u8]],
        sources: &[(&[u8], Stretch)],
        operation: Box<dyn Operation>,
    ) -> bool {
        let staged = StagedWrite::new(self, dest, form, names);
        self.begin_incremental(sources, operation, false, Some(staged))
    }

    /// Like [`Ctx::answer_later`], for values of modules: `begin` begins the read of the name with this number.
    #[cold]
    pub fn read_later(
        &mut self,
        names: &[&[u8]],
        begin: BeginRead<'_>,
        operation: Box<dyn Operation>,
        reply: &Reply<'_>,
    ) -> bool {
        let Some(reads) = self.begin_reads(names.iter().copied(), begin) else { return false };
        self.leave_incremental(reads, (operation, reply.is_resp3()), None);
        true
    }

    /// Leaves the answer to slices that continue these reads, each given by its shard and its number there.
    #[cold]
    pub fn follow_reads(&mut self, reads: &[(u16, u32)], operation: Box<dyn Operation>, reply: &Reply<'_>) {
        let reads = reads.iter().zip(0..).map(|(&(shard, number), nth)| ReadOperation { shard, number, nth });
        self.leave_incremental(reads.collect(), (operation, reply.is_resp3()), None);
    }

    /// Leaves the steps of an operation that looks through shards to slices. The body runs again when they are done, and
    /// finds the result in [`Ctx::staged`].
    #[cold]
    pub fn find_later(&mut self, args: Args<'_>, operation: Box<dyn Operation>) {
        let staged = StagedWrite::new(self, args.at(1), StagedForm::List, &[]);
        self.begin_incremental(&[], operation, false, Some(staged));
    }

    /// Writes the answer of an operation that has all that it needs: in slices without a shard, if that is possible.
    #[cold]
    pub fn answer_aside(&mut self, mut operation: Box<dyn Operation>, reply: &mut Reply<'_>) {
        if self.may_slice {
            self.leave_incremental(VecDeque::new(), (operation, reply.is_resp3()), None);
        } else {
            while !operation.answer(reply, usize::MAX) {}
        }
    }

    fn begin_incremental(
        &mut self,
        sources: &[(&[u8], Stretch)],
        operation: Box<dyn Operation>,
        resp3: bool,
        staged: Option<StagedWrite>,
    ) -> bool {
        let tell = operation.tell();
        let names = sources.iter().map(|(name, _)| *name);
        let reads = self.begin_reads(names, &mut |nth, shard, db, key| {
            let (_, stretch) = sources.get(nth)?;
            shard.begin_read(db, key, *stretch, tell.clone())
        });
        let Some(reads) = reads else {
            if let Some(staged) = staged {
                staged.end(None, self);
            }
            return false;
        };
        self.leave_incremental(reads, (operation, resp3), staged);
        true
    }

    /// Begins a read for each name; `None`, with none begun, if one is impossible.
    fn begin_reads<'n>(
        &mut self,
        names: impl Iterator<Item = &'n [u8]>,
        begin: BeginRead<'_>,
    ) -> Option<VecDeque<ReadOperation>> {
        let mut reads = VecDeque::new();
        for (nth, name) in names.enumerate() {
            let (key, db) = (self.key(name), self.db);
            let shard = self.shards_mut().router().shard_of(key.hash);
            let part = self.shards_mut().part_mut(key);
            let Some(number) = begin(nth, &mut part.shard, db, key) else {
                for ReadOperation { shard, number, .. } in reads {
                    if let Some(part) = self.part(shard) {
                        part.shard.end_read(number);
                    }
                }
                return None;
            };
            reads.push_back(ReadOperation { shard, number, nth: nth as u32 });
        }
        Some(reads)
    }

    fn leave_incremental(
        &mut self,
        reads: VecDeque<ReadOperation>,
        (operation, resp3): (Box<dyn Operation>, bool),
        staged: Option<StagedWrite>,
    ) {
        let incremental = Incremental {
            reads,
            told: Vec::new(),
            told_at: 0,
            told_nth: 0,
            operation,
            resp3,
            stage: OperationStage::Reading,
            staged: staged.map(Box::new),
        };
        self.rest = Some(SlicesRest::Incremental(Box::new(incremental)));
    }
}

/// Begins the read of the value with this number, at this key of a shard's database.
type BeginRead<'b> = &'b mut dyn FnMut(usize, &mut Shard, usize, Key<'_>) -> Option<u32>;

/// Encodes members for [`told_members`].
pub(crate) fn tell() -> Tell {
    Arc::new(|seen, out| match seen {
        SeenLeaf::Item(item) => write_item(out, item, 1.0),
        SeenLeaf::Scored(member, score) => write_item(out, member, score),
        SeenLeaf::Field(field, value) => {
            write_item(out, field, 0.0);
            write_item(out, value, 0.0);
        }
        SeenLeaf::Logged(_) => debug_assert!(false, "streams are not gathered"),
    })
}

fn write_item(out: &mut Vec<u8>, item: Item<'_>, score: f64) {
    let mut digits = Digits::new();
    write_told(out, item.text(&mut digits), score);
}

pub(crate) fn write_told(out: &mut Vec<u8>, text: &[u8], score: f64) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&score.to_le_bytes());
    out.extend_from_slice(text);
}

/// A member on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// Its score, 1 in sets.
    pub score: f64,
    /// Itself.
    pub text: &'a [u8],
}

/// An iterator over encoded members.
pub(crate) struct ToldMembers<'a>(&'a [u8]);

/// The members that [`tell`] wrote down.
pub(crate) fn told_members(told: &[u8]) -> ToldMembers<'_> {
    ToldMembers(told)
}

impl<'a> ToldMembers<'a> {
    /// The members not yet returned.
    fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for ToldMembers<'a> {
    type Item = Told<'a>;

    fn next(&mut self) -> Option<Told<'a>> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (score, rest) = rest.split_first_chunk::<8>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some(Told { score: f64::from_le_bytes(*score), text })
    }
}
