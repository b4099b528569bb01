//! CMS.MERGE of large sketches in slices: a piece of each source is read with its shard held, added up with none, and
//! written into a draft of the result.
//!
//! The sources are watched: if one changes, the command starts again. Called by CMS.MERGE (to begin) and by
//! `Incremental`. Memory: the result, and the sums of one piece.

use darter_sketch::Cms;
use darter_sketch::cms::{CellSums, MergeFault};
use darter_store::{Collection, Key};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::merge::{merge_fault, total_count};
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};
use crate::{Ctx, Fault};

/// Bytes of counters that are read or written with a shard held: some 10 microseconds.
const PIECE_BYTES: u64 = 32 << 10;
/// Merges that read and write no more bytes than this are made at once.
const AT_ONCE_BYTES: u64 = 128 << 10;

/// A sketch to be added.
pub(super) struct MergedSource<'a> {
    /// Its key.
    pub name: &'a [u8],
    /// The factor for its counters.
    pub weight: i64,
    /// The sum of its increments.
    pub count: u64,
}

/// The place of a source, and its weight.
struct MergingSource {
    shard: u16,
    hash: u64,
    name: Box<[u8]>,
    weight: i64,
}

/// A merge in progress.
struct Merging {
    db: usize,
    sources: Vec<MergingSource>,
    // The piece: its first byte, and the bytes of all counters.
    from: u64,
    to: u64,
    // The source that is read next, the piece of the one before, and the sums of those before that.
    nth: usize,
    piece: Vec<u8>,
    sums: CellSums,
    // The piece of the result.
    cells: Vec<u8>,
    fault: Option<Fault>,
}

/// Leaves the merge of `sources` into the sketch at `destination`, all of these dimensions, to slices. Returns false if it
/// is so short that the body must do it.
///
/// Errors: the sum of the counts does not fit, or the result would fit no arena.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    destination: &[u8],
    (width, depth): (u64, u64),
    sources: &[MergedSource<'_>],
) -> Result<bool, Fault> {
    let bytes = darter_sketch::cms::bytes_of(width, depth);
    if !ctx.may_slice || bytes.saturating_mul(1 + sources.len() as u64) <= AT_ONCE_BYTES {
        return Ok(false);
    }
    let mut sketch = Cms::new(width, depth).map_err(|_| Fault::OutOfMemory)?;
    sketch.set_count(total_count(sources)?);
    let mut place = |source: &MergedSource<'_>| {
        let hash = ctx.key(source.name).hash;
        let shard = ctx.shards_mut().router().shard_of(hash);
        MergingSource { shard, hash, name: source.name.into(), weight: source.weight }
    };
    let merging = Merging {
        sources: sources.iter().map(&mut place).collect(),
        db: ctx.db,
        from: 0,
        to: bytes,
        nth: 0,
        piece: Vec::new(),
        sums: CellSums::default(),
        cells: Vec::new(),
        fault: None,
    };
    let names: Vec<&[u8]> = sources.iter().map(|source| source.name).collect();
    ctx.fill_later((destination, &names), sketch.wrap(), Box::new(merging));
    Ok(true)
}

impl Merging {
    /// Adds the piece that was read; the sums are complete with that of the last source.
    fn add(&mut self) -> Result<(), MergeFault> {
        let Some(source) = self.nth.checked_sub(1).and_then(|nth| self.sources.get(nth)) else {
            return Ok(());
        };
        if self.nth == 1 {
            self.sums = CellSums::new(self.piece.len());
        }
        self.sums.add(&self.piece, source.weight)?;
        self.piece.clear();
        if self.nth == self.sources.len() {
            self.cells = self.sums.cells()?;
        }
        Ok(())
    }
}

impl Operation for Merging {
    fn next(&self, draft_shard: Option<u16>) -> NextSlice {
        if self.fault.is_some() || self.from >= self.to {
            return NextSlice::Work;
        }
        let shard = match self.sources.get(self.nth) {
            Some(source) => Some(source.shard),
            None => draft_shard,
        };
        shard.map_or(NextSlice::Work, NextSlice::Step)
    }

    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        if !self.piece.is_empty()
            && let Err(fault) = self.add()
        {
            self.fault = Some(merge_fault(fault));
        }
        self.piece.reserve(PIECE_BYTES as usize);
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, draft: Option<u32>) {
        let shard = &mut part.shard;
        if let Some(MergingSource { hash, name, .. }) = self.sources.get(self.nth) {
            let record = shard.peek(self.db, Key { bytes: name, hash: *hash }, 0);
            let view = record.and_then(|record| shard.view_of::<Cms>(record).ok());
            if let Some(view) = view {
                view.root.read_to(view.arena, self.from, PIECE_BYTES, &mut self.piece);
                self.nth += 1;
            }
            if self.piece.is_empty() {
                // The source has gone or is another: the result is useless, as the last step finds.
                self.from = self.to;
            }
            return;
        }
        let draft = draft.and_then(|number| shard.draft_mut(number));
        let written = draft.and_then(|draft| {
            let sketch = Cms::of_mut(draft.object)?;
            sketch.write(draft.arena, self.from, &self.cells).ok()
        });
        if written.is_none() {
            self.fault = Some(Fault::OutOfMemory);
        }
        self.from += self.cells.len() as u64;
        self.cells.clear();
        self.nth = 0;
    }

    fn end_reading(&mut self, _target: ResultTo, _reply: &mut Reply<'_>, _max: usize) -> OperationStage {
        OperationStage::Done
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn bytes(&self) -> usize {
        self.piece.capacity() + self.cells.capacity() + 2 * self.cells.len()
    }
}
