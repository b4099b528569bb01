//! A series: settings, sealed blocks by time, and the newest samples uncompressed.

mod blocks;
mod feed;
mod head;
#[cfg(test)]
mod tests;

use darter_slab::Arena;

use crate::SeriesFull;
use crate::aggregate::{Aggregator, TimeBucket};
use crate::codec::{Packing, SAMPLES_MAX};
use crate::sample::{Blocked, DuplicatePolicy, Sample};
use blocks::SampleBlock;

pub use feed::{Fed, SeriesChange};
pub(crate) use head::BlockHead;

/// Newest samples that are kept uncompressed.
const OPEN_MAX: usize = SAMPLES_MAX / 8;

/// A label and its value.
pub type Label = (Box<[u8]>, Box<[u8]>);

/// The settings of a series.
#[derive(Clone, Debug)]
pub struct SeriesSettings {
    /// Samples older than the newest by more than this are removed; 0 keeps all. Milliseconds.
    pub retention_ms: u64,
    /// Bytes of a chunk; answered and saved, blocks here do not depend on it.
    pub chunk_bytes: u64,
    /// True if the client asked for chunks without compression; answered and saved only.
    pub is_uncompressed: bool,
    /// The policy for a second sample of the same time; `None` takes the server's setting.
    pub policy: Option<DuplicatePolicy>,
    /// With [`DuplicatePolicy::Last`], a sample this near to the newest in time ...
    pub ignore_ms: u64,
    /// ... and in value is not added.
    pub ignore_value: f64,
    /// Labels in the order given.
    pub labels: Vec<Label>,
}

impl Default for SeriesSettings {
    fn default() -> SeriesSettings {
        SeriesSettings {
            retention_ms: 0,
            chunk_bytes: 4096,
            is_uncompressed: false,
            policy: None,
            ignore_ms: 0,
            ignore_value: 0.0,
            labels: Vec::new(),
        }
    }
}

/// A rule: buckets of this series become samples of another one.
#[derive(Clone, PartialEq, Debug)]
pub struct CompactionRule {
    /// The key of the other series.
    pub target: Box<[u8]>,
    /// The aggregation of a bucket.
    pub kind: Aggregator,
    /// Milliseconds of a bucket.
    pub bucket_ms: u64,
    /// A time at which a bucket begins.
    pub align_ms: u64,
    /// The start of the bucket that is open; `None` before the first sample.
    pub current: Option<u64>,
    /// The content of the open bucket; the source may have dropped its samples already.
    pub bucket: TimeBucket,
    /// The newest number of the bucket before, for [`Aggregator::Twa`].
    pub before: Option<Sample>,
}

/// The result of adding a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// It is the newest now.
    Appended,
    /// It was inserted among older ones, or changed one.
    Upserted,
    /// It was too near to the newest, and was not added.
    Ignored,
}

/// Why a sample was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddFault {
    /// It is older than the retention.
    TooOld,
    /// A sample of the same time exists, and the policy keeps it.
    Blocked,
    /// There is no room.
    Full,
}

impl From<SeriesFull> for AddFault {
    fn from(_: SeriesFull) -> AddFault {
        AddFault::Full
    }
}

impl From<Blocked> for AddFault {
    fn from(_: Blocked) -> AddFault {
        AddFault::Blocked
    }
}

/// A series of samples, each time at most once.
#[derive(Debug, Default)]
pub struct Series {
    /// The key at which it was created, for files.
    pub name: Box<[u8]>,
    /// Its settings.
    pub settings: SeriesSettings,
    /// The key of the series whose rule feeds this one.
    pub source: Option<Box<[u8]>>,
    /// Rules that this series feeds.
    pub rules: Vec<CompactionRule>,
    blocks: Vec<SampleBlock>,
    // Removed, and not freed yet.
    doomed: Vec<SampleBlock>,
    // Newer than all blocks, sorted, at most OPEN_MAX.
    open: Vec<Sample>,
    len: u64,
    newest: Option<Sample>,
    block_bytes: usize,
}

impl Series {
    /// A series without samples.
    pub fn new(settings: SeriesSettings) -> Series {
        Series { settings, ..Series::default() }
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The newest sample, if one was ever added.
    pub fn newest(&self) -> Option<Sample> {
        self.newest
    }

    /// Samples before this time are beyond the retention.
    pub fn oldest_kept(&self) -> u64 {
        match (self.settings.retention_ms, self.newest) {
            (0, _) | (_, None) => 0,
            (retention, Some(newest)) => newest.time.saturating_sub(retention),
        }
    }

    /// Adds a sample; `policy` decides about one of the same time. Fails, with the series unchanged, if the sample is
    /// too old or refused, or there is no room.
    #[inline]
    pub fn add(
        &mut self,
        arena: &mut Arena,
        sample: Sample,
        policy: DuplicatePolicy,
    ) -> Result<Added, AddFault> {
        let Some(newest) = self.newest else {
            return self.append(arena, sample);
        };
        if sample.time < self.oldest_kept() {
            return Err(AddFault::TooOld);
        }
        if policy == DuplicatePolicy::Last && self.is_near(newest, sample) {
            return Ok(Added::Ignored);
        }
        if sample.time > newest.time || self.len == 0 {
            return self.append(arena, sample);
        }
        self.upsert(arena, sample, policy)?;
        Ok(Added::Upserted)
    }

    /// Returns true if a sample is so near to the newest that the settings ignore it.
    fn is_near(&self, newest: Sample, sample: Sample) -> bool {
        self.source.is_none()
            && self.len > 0
            && sample.time >= newest.time
            && sample.time - newest.time <= self.settings.ignore_ms
            && (sample.value - newest.value).abs() <= self.settings.ignore_value
            && (self.settings.ignore_ms > 0 || self.settings.ignore_value > 0.0)
    }

    fn append(&mut self, arena: &mut Arena, sample: Sample) -> Result<Added, AddFault> {
        if self.open.len() >= OPEN_MAX {
            self.seal(arena)?;
        }
        self.open.push(sample);
        self.len += 1;
        self.newest = Some(sample);
        if self.settings.retention_ms > 0 {
            self.trim(arena);
        }
        Ok(Added::Appended)
    }

    /// Moves the open samples into the last block, or into a new one.
    fn seal(&mut self, arena: &mut Arena) -> Result<(), SeriesFull> {
        let mut samples = Vec::with_capacity(SAMPLES_MAX);
        let joins = self.blocks.last().filter(|block| block.len() + self.open.len() <= SAMPLES_MAX);
        let at = self.blocks.len() - usize::from(joins.is_some());
        if let Some(block) = joins {
            block.decode(arena, &mut samples);
        }
        samples.extend_from_slice(&self.open);
        self.put_block(arena, at, &samples)?;
        self.open.clear();
        Ok(())
    }

    /// Drops blocks that are completely beyond the retention.
    fn trim(&mut self, arena: &mut Arena) {
        let oldest = self.oldest_kept();
        let gone = self.blocks.iter().take_while(|block| block.last() < oldest).count();
        for mut block in self.blocks.drain(..gone) {
            self.len -= block.len() as u64;
            self.block_bytes -= block.free(arena);
        }
    }

    /// Replaces block `at` by `samples`, or adds them after the last. Fails, with the blocks unchanged, if there is
    /// no room. `samples` is not empty and at most twice as long as a block.
    fn put_block(&mut self, arena: &mut Arena, at: usize, samples: &[Sample]) -> Result<(), SeriesFull> {
        let half = if samples.len() > SAMPLES_MAX { samples.len() / 2 } else { samples.len() };
        let (low, high) = samples.split_at(half);
        let packing = if self.settings.is_uncompressed { Packing::Plain } else { Packing::Small };
        let first = SampleBlock::new(arena, low, packing)?;
        let second = if high.is_empty() { None } else { Some(SampleBlock::new(arena, high, packing)) };
        let second = match second {
            Some(Err(full)) => {
                let mut first = first;
                first.free(arena);
                return Err(full);
            }
            Some(Ok(block)) => Some(block),
            None => None,
        };
        self.block_bytes += first.bytes(arena) + second.as_ref().map_or(0, |block| block.bytes(arena));
        let end = (at + 1).min(self.blocks.len());
        for mut old in self.blocks.splice(at..end, std::iter::once(first).chain(second)) {
            self.block_bytes -= old.free(arena);
        }
        Ok(())
    }

    /// Adds or changes a sample that is not newer than the newest.
    fn upsert(&mut self, arena: &mut Arena, sample: Sample, policy: DuplicatePolicy) -> Result<(), AddFault> {
        let at = self.blocks.partition_point(|block| block.last() < sample.time);
        let added = if at == self.blocks.len() {
            if self.open.len() >= OPEN_MAX && !self.open.iter().any(|open| open.time == sample.time) {
                self.seal(arena)?;
                return self.upsert(arena, sample, policy);
            }
            insert(&mut self.open, sample, policy)?
        } else {
            let mut samples = Vec::with_capacity(SAMPLES_MAX + 1);
            if let Some(block) = self.blocks.get(at) {
                block.decode(arena, &mut samples);
            }
            let added = insert(&mut samples, sample, policy)?;
            self.put_block(arena, at, &samples)?;
            added
        };
        self.len += added;
        if let Some(newest) = self.newest
            && newest.time == sample.time
        {
            self.newest = self.open.last().copied().or_else(|| self.last_of_blocks(arena));
        }
        Ok(())
    }

    fn last_of_blocks(&self, arena: &Arena) -> Option<Sample> {
        let mut samples = Vec::new();
        self.blocks.last()?.decode(arena, &mut samples);
        samples.last().copied()
    }

    /// Removes the samples of `from..=to`; returns their number. Fails, with some or none of them removed, if there
    /// is no room for the rest of a block.
    pub fn remove(&mut self, arena: &mut Arena, from: u64, to: u64) -> Result<u64, SeriesFull> {
        let before = self.len;
        self.remove_whole_blocks(from, to);
        let mut at = self.blocks.partition_point(|block| block.last() < from);
        while let Some(block) = self.blocks.get(at).filter(|block| block.first() <= to) {
            let mut samples = Vec::new();
            let count = block.len();
            block.decode(arena, &mut samples);
            samples.retain(|sample| sample.time < from || sample.time > to);
            if samples.is_empty() {
                let mut block = self.blocks.remove(at);
                self.block_bytes -= block.free(arena);
            } else {
                if samples.len() < count {
                    self.put_block(arena, at, &samples)?;
                }
                at += 1;
            }
            self.len -= (count - samples.len()) as u64;
        }
        let open = self.open.len();
        self.open.retain(|sample| sample.time < from || sample.time > to);
        self.len -= (open - self.open.len()) as u64;
        if self.len < before {
            let last = self.open.last().copied().or_else(|| self.last_of_blocks(arena));
            // An emptied series forgets its newest sample, so that older ones can be added.
            self.newest = last;
        }
        Ok(before - self.len)
    }

    /// Takes out the blocks that lie within `from..=to`, to be freed by [`Series::sweep`].
    fn remove_whole_blocks(&mut self, from: u64, to: u64) {
        let start = self.blocks.partition_point(|block| block.first() < from);
        let end = self.blocks.partition_point(|block| block.last() <= to);
        if start < end {
            let gone = self.blocks.drain(start..end);
            self.doomed.extend(gone.inspect(|block| self.len -= block.len() as u64));
        }
    }

    /// Frees up to `blocks_max` blocks that were removed; returns true if none is left.
    pub fn sweep(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            let Some(mut block) = self.doomed.pop() else { break };
            self.block_bytes -= block.free(arena);
        }
        if self.doomed.is_empty() {
            self.doomed = Vec::new();
        }
        self.doomed.is_empty()
    }

    /// Returns true if blocks that were removed are not freed yet.
    pub fn is_unswept(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Visits the samples of `from..=to` that the retention keeps, oldest first, until `visit` returns false.
    pub fn each(&self, arena: &Arena, from: u64, to: u64, visit: &mut dyn FnMut(Sample) -> bool) {
        let from = from.max(self.oldest_kept());
        let mut samples = Vec::new();
        let start = self.blocks.partition_point(|block| block.last() < from);
        for block in self.blocks.iter().skip(start).take_while(|block| block.first() <= to) {
            block.decode(arena, &mut samples);
            if !visit_within(samples.iter(), from, to, visit) {
                return;
            }
        }
        visit_within(self.open.iter(), from, to, visit);
    }

    /// [`Series::each`] that offers a block with a head whole, unless a sample of it lies elsewhere.
    pub(crate) fn each_part(&self, arena: &Arena, from: u64, to: u64, visitor: &mut impl PartVisitor) {
        let from = from.max(self.oldest_kept());
        let mut samples = Vec::new();
        let start = self.blocks.partition_point(|block| block.last() < from);
        for block in self.blocks.iter().skip(start).take_while(|block| block.first() <= to) {
            let head = block.head(arena).filter(|_| block.first() >= from && block.last() <= to);
            if head.is_some_and(|head| visitor.block(&head)) {
                continue;
            }
            block.decode(arena, &mut samples);
            if !visit_within(samples.iter(), from, to, &mut |sample| visitor.sample(sample)) {
                return;
            }
        }
        visit_within(self.open.iter(), from, to, &mut |sample| visitor.sample(sample));
    }

    /// [`Series::each`], newest first.
    pub fn each_reversed(&self, arena: &Arena, from: u64, to: u64, visit: &mut dyn FnMut(Sample) -> bool) {
        let from = from.max(self.oldest_kept());
        if !visit_within(self.open.iter().rev(), from, to, visit) {
            return;
        }
        let mut samples = Vec::new();
        let end = self.blocks.partition_point(|block| block.first() <= to);
        for block in self.blocks.iter().take(end).rev().take_while(|block| block.last() >= from) {
            block.decode(arena, &mut samples);
            if !visit_within(samples.iter().rev(), from, to, visit) {
                return;
            }
        }
    }

    /// Blocks that have samples of `from..=to`.
    pub fn blocks_within(&self, from: u64, to: u64) -> usize {
        let start = self.blocks.partition_point(|block| block.last() < from);
        let end = self.blocks.partition_point(|block| block.first() <= to);
        end.saturating_sub(start)
    }

    /// The last time before the samples that follow those of `from` and the next `blocks` blocks.
    pub(crate) fn end_of_blocks(&self, from: u64, blocks: usize) -> u64 {
        let start = self.blocks.partition_point(|block| block.last() < from.max(self.oldest_kept()));
        self.blocks.get(start + blocks).map_or(u64::MAX, |next| next.first() - 1)
    }

    /// The first time after the samples that come before those of `to` and the `blocks` blocks before it.
    pub(crate) fn start_of_blocks(&self, to: u64, blocks: usize) -> u64 {
        let end = self.blocks.partition_point(|block| block.first() <= to);
        let before = end.checked_sub(blocks + 1).and_then(|at| self.blocks.get(at));
        before.map_or(0, |before| before.last() + 1)
    }

    /// The time of the oldest sample; `None` if there is none.
    pub fn first_time(&self) -> Option<u64> {
        self.blocks.first().map(SampleBlock::first).or_else(|| self.open.first().map(|sample| sample.time))
    }

    /// Approximate number of chunks of the requested size that the samples would fill; at least one.
    pub fn chunks_len(&self) -> u64 {
        let bytes = if self.settings.is_uncompressed {
            self.len * 16
        } else {
            (self.block_bytes + self.open.len() * 4) as u64
        };
        bytes.div_ceil(self.settings.chunk_bytes.max(1)).max(1)
    }

    /// The value of label `name`.
    pub fn label(&self, name: &[u8]) -> Option<&[u8]> {
        self.settings.labels.iter().find(|(own, _)| &**own == name).map(|(_, value)| &**value)
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        let labels: usize =
            self.settings.labels.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        let rules: usize =
            self.rules.iter().map(|rule| rule.target.len() + size_of::<CompactionRule>()).sum();
        self.block_bytes
            + (self.blocks.capacity() + self.doomed.capacity()) * size_of::<SampleBlock>()
            + self.open.capacity() * size_of::<Sample>()
            + labels
            + rules
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> Series {
        Series {
            name: self.name.clone(),
            settings: self.settings.clone(),
            source: self.source.clone(),
            rules: self.rules.clone(),
            blocks: self.blocks.clone(),
            doomed: Vec::new(),
            open: self.open.clone(),
            ..*self
        }
    }

    /// The same for a reader of the samples alone: without names and labels.
    pub fn frozen_samples(&self) -> Series {
        Series {
            name: Box::default(),
            settings: SeriesSettings { labels: Vec::new(), ..self.settings },
            source: None,
            rules: Vec::new(),
            blocks: self.blocks.clone(),
            doomed: Vec::new(),
            open: self.open.clone(),
            ..*self
        }
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            let Some(mut block) = self.blocks.pop().or_else(|| self.doomed.pop()) else { break };
            self.block_bytes -= block.free(arena);
        }
        self.blocks.is_empty() && self.doomed.is_empty()
    }

    /// Adds samples that are sorted and newer than all; for files.
    pub(crate) fn extend(&mut self, arena: &mut Arena, samples: &[Sample]) -> Result<(), SeriesFull> {
        for chunk in samples.chunks(SAMPLES_MAX) {
            self.put_block(arena, self.blocks.len(), chunk)?;
            self.len += chunk.len() as u64;
            self.newest = chunk.last().copied();
        }
        Ok(())
    }

    /// Visits all samples in pieces of a block; for files.
    pub(crate) fn each_piece(&self, arena: &Arena, visit: &mut dyn FnMut(&[Sample])) {
        let mut samples = Vec::new();
        for block in &self.blocks {
            block.decode(arena, &mut samples);
            visit(&samples);
        }
        if !self.open.is_empty() {
            visit(&self.open);
        }
    }

    /// The samples of piece `number`.
    pub(crate) fn piece(&self, number: u64, arena: &Arena) -> Vec<Sample> {
        let mut samples = Vec::new();
        match self.blocks.get(number as usize) {
            Some(block) => block.decode(arena, &mut samples),
            None => samples.extend_from_slice(&self.open),
        }
        samples
    }

    /// Pieces in which the samples are written.
    pub fn pieces_len(&self) -> usize {
        self.blocks.len() + usize::from(!self.open.is_empty())
    }
}

/// What [`Series::each_part`] passes samples to.
pub(crate) trait PartVisitor {
    /// Takes a whole block; false: its samples are to be passed one by one.
    fn block(&mut self, head: &BlockHead) -> bool;
    /// Takes a sample; false: it is the last.
    fn sample(&mut self, sample: Sample) -> bool;
}

/// Visits the samples of `from..=to`; returns false if `visit` did.
fn visit_within<'a, V: FnMut(Sample) -> bool + ?Sized>(
    samples: impl Iterator<Item = &'a Sample>,
    from: u64,
    to: u64,
    visit: &mut V,
) -> bool {
    samples.filter(|sample| (from..=to).contains(&sample.time)).all(|sample| visit(*sample))
}

/// Inserts a sample by its time; returns the number of samples added.
fn insert(samples: &mut Vec<Sample>, sample: Sample, policy: DuplicatePolicy) -> Result<u64, Blocked> {
    match samples.binary_search_by_key(&sample.time, |own| own.time) {
        Ok(at) => {
            if let Some(own) = samples.get_mut(at) {
                own.value = policy.combine(own.value, sample.value)?;
            }
            Ok(0)
        }
        Err(at) => {
            samples.insert(at, sample);
            Ok(1)
        }
    }
}
