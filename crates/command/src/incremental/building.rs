//! A draft, or an answer, that a command builds in slices from the value at its key, by its own rules.
//!
//! Called by `Incremental`, with the key's shard held. The commands that change or show consumer groups bring
//! implementations. If the key is not watched, the implementation decides which changes invalidate the result.

use darter_store::{Key, Keyed, Object, Shard};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::operation::{FoundValue, NextSlice, Operation, OperationStage, ResultTo};
use super::staged::{StagedForm, StagedWrite};
use crate::{Ctx, Fault};

/// Builds a draft or an answer.
pub trait Build: Send {
    /// Reads the required words of the command, with no shard held.
    ///
    /// Errors: an invalid word.
    fn prepare(&mut self, _args: Args<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Continues for some 20 microseconds, with the draft of this number if there is one. Returns true if that was
    /// all.
    ///
    /// Errors: no room.
    fn step(&mut self, shard: &mut Shard, draft: Option<u32>) -> Result<bool, Fault>;

    /// Returns true if the source has changed.
    fn is_stale(&self, shard: &mut Shard) -> bool;

    /// Continues to assemble the answer, after all is built and with no shard held. Returns true if it is complete.
    fn finish(&mut self) -> bool;

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// Further results, for the body that runs again.
    fn found(&mut self) -> FoundValue;
}

/// The key of the source.
pub struct BuildingPlace {
    /// Its database.
    pub db: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// The hash of that.
    pub hash: u64,
}

impl BuildingPlace {
    /// The key `name` of the selected database.
    pub fn new(ctx: &Ctx<'_>, name: &[u8]) -> BuildingPlace {
        BuildingPlace { db: ctx.db, key: name.into(), hash: ctx.key(name).hash }
    }

    /// The present value; expired members are not removed.
    pub fn find<'s>(&'s self, shard: &'s mut Shard) -> Keyed<'s> {
        Keyed::find(shard, self.db, Key { bytes: &self.key, hash: self.hash }, 0)
    }
}

/// A draft or an answer in progress.
pub struct Building {
    build: Box<dyn Build>,
    is_ready: bool,
    is_done: bool,
    fault: Option<Fault>,
}

impl Operation for Building {
    fn next(&self, draft_shard: Option<u16>) -> NextSlice {
        match draft_shard {
            Some(shard) if self.is_ready && !self.is_done => NextSlice::Step(shard),
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, _nth: u32, _told: &[u8], args: Args<'_>) -> Vec<u8> {
        if !self.is_ready
            && let Err(fault) = self.build.prepare(args)
        {
            (self.is_done, self.fault) = (true, Some(fault));
        }
        self.is_ready = true;
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, draft: Option<u32>) {
        match self.build.step(&mut part.shard, draft) {
            Ok(is_done) => self.is_done = is_done,
            Err(fault) => (self.is_done, self.fault) = (true, Some(fault)),
        }
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        if self.is_ready && self.build.finish() { OperationStage::Done } else { OperationStage::Reading }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn is_stale(&self, ctx: &mut Ctx<'_>, draft_shard: Option<u16>) -> bool {
        let part = draft_shard.and_then(|shard| ctx.part(shard));
        part.is_none_or(|part| self.build.is_stale(&mut part.shard))
    }

    fn found(&mut self) -> FoundValue {
        self.build.found()
    }

    fn bytes(&self) -> usize {
        self.build.bytes()
    }
}

impl Ctx<'_> {
    /// Leaves building `object`, still empty, from the value at `name` to slices. Then the body runs again, and finds
    /// it in [`Ctx::staged`].
    #[cold]
    pub fn build(&mut self, name: &[u8], object: Object, build: Box<dyn Build>) {
        let staged = StagedWrite::new(self, name, StagedForm::List, &[]).with_draft(self, object);
        self.begin_building(staged, build);
    }

    /// Leaves building an answer from the value at `name` to slices, and restarts it if one of the keys `watched`
    /// changes. Then the body runs again, and finds it by [`Ctx::take_answer`].
    #[cold]
    pub fn build_answer(&mut self, name: &[u8], watched: &[&[u8]], build: Box<dyn Build>) {
        let staged = StagedWrite::new(self, name, StagedForm::List, watched);
        self.begin_building(staged, build);
    }

    /// Leaves filling `object`, still empty and later the value at `name`, to the slices of an operation that knows how.
    /// Starts again if one of the keys `watched` changes. Then the body runs again, and finds it in [`Ctx::staged`].
    #[cold]
    pub fn fill_later(
        &mut self,
        (name, watched): (&[u8], &[&[u8]]),
        object: Object,
        operation: Box<dyn Operation>,
    ) {
        let staged = StagedWrite::new(self, name, StagedForm::List, watched).with_draft(self, object);
        self.begin_incremental(&[], operation, false, Some(staged));
    }

    fn begin_building(&mut self, staged: StagedWrite, build: Box<dyn Build>) {
        let building = Building { build, is_ready: false, is_done: false, fault: None };
        self.begin_incremental(&[], Box::new(building), false, Some(staged));
    }
}
