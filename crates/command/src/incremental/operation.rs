//! The trait `Operation`: the processing of the members that an incremental command reads.
//!
//! Implemented by one file per operation, in this folder and next to the commands that bring their own (LPOS,
//! GEOSEARCH, DUMP). Driven by `Incremental` alone: it reads the collections, and passes the members to the
//! operation.

use darter_pack::tree::window::Tell;
use darter_store::reads::SeriesToRead;
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::{TOLD_BYTES, tell};
use crate::{Ctx, Fault};

/// The results of an operation, for a body that runs again.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct FoundValue {
    /// Ranks, places or sums, depending on the command.
    pub numbers: Vec<u64>,
    /// A string.
    pub bytes: Vec<u8>,
    /// Series that were found by their labels, by shard.
    pub series: Vec<SeriesToRead>,
}

/// The slice that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextSlice {
    /// More members are read, if any are left.
    Read,
    /// The same of the collection with this number.
    ReadOf(u32),
    /// [`Operation::step`], with this shard held.
    Step(u16),
    /// [`Operation::end_reading`]: work without a shard.
    Work,
}

/// The destination of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultTo {
    /// To the client.
    Reply,
    /// Under a key; the body runs again with it.
    Key,
}

/// The progress of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationStage {
    /// Collections are read.
    Reading,
    /// The members are brought into order.
    Arranging,
    /// The answer is written.
    Answering,
    /// The result is stored.
    Storing,
    /// All is done.
    Done,
}

/// Makes an answer or a result of members. Each call takes some 20 microseconds with a shard held, 100 without.
pub trait Operation: Send {
    /// Encodes the parts of a member that the operation needs; called with its shard held.
    fn tell(&self) -> Tell {
        tell()
    }

    /// Bytes told in one slice.
    fn told_max(&self) -> usize {
        TOLD_BYTES
    }

    /// The next slice. `draft_shard` is the shard of the result's key.
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        NextSlice::Read
    }

    /// A slice that [`Operation::next`] has asked for; `draft` is the number of the draft in this shard.
    fn step(&mut self, _part: &mut ShardPart, _draft: Option<u32>) {}

    /// Processes the members read from collection `nth`, with no shard held. Returns the members for the result. Also
    /// called before each slice of the operation's own, with `told` empty.
    fn take(&mut self, nth: u32, told: &[u8], args: Args<'_>) -> Vec<u8>;

    /// Returns true if members are added to the result as they are read, without [`Operation::take`].
    fn is_copy(&self) -> bool {
        false
    }

    /// Returns true if the rest of the members cannot change the result.
    fn is_decided(&self) -> bool {
        false
    }

    /// Works without a shard after all known members are read. Returns the next stage; [`OperationStage::Reading`] calls
    /// [`Operation::next`] again.
    fn end_reading(&mut self, target: ResultTo, reply: &mut Reply<'_>, bytes_max: usize) -> OperationStage {
        if target == ResultTo::Key {
            return OperationStage::Storing;
        }
        let is_complete = self.answer(reply, bytes_max);
        if is_complete { OperationStage::Done } else { OperationStage::Answering }
    }

    /// Sorts a part of the members; writes the head of the answer after the last part.
    fn arrange(&mut self, _target: ResultTo, _reply: &mut Reply<'_>) -> OperationStage {
        OperationStage::Done
    }

    /// Writes the answer until `reply` has `bytes_max` bytes or a few more. Returns whether it is complete.
    fn answer(&mut self, _reply: &mut Reply<'_>, _bytes_max: usize) -> bool {
        true
    }

    /// Writes up to `members_max` members of the result to `told`. Returns whether those were the last.
    fn store(&mut self, _args: Args<'_>, _members_max: usize, _told: &mut Vec<u8>) -> bool {
        true
    }

    /// The fault that was found.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// The results, for the body that runs again.
    fn found(&mut self) -> FoundValue {
        FoundValue::default()
    }

    /// Returns true if the result is useless although no watched key has changed. All shards of the command are held.
    fn is_stale(&self, _ctx: &mut Ctx<'_>, _draft_shard: Option<u16>) -> bool {
        false
    }

    /// Bytes held.
    fn bytes(&self) -> usize;
}

/// Stores members unchanged.
pub struct Copying;

impl Operation for Copying {
    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn is_copy(&self) -> bool {
        true
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        OperationStage::Done
    }

    fn bytes(&self) -> usize {
        0
    }
}
