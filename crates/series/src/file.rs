//! The fields of a series in an RDB file.

use darter_base::fields::{FieldSink, FieldSource};
use darter_slab::Arena;

use crate::aggregate::{Aggregator, TimeBucket};
use crate::gorilla;
use crate::sample::{DuplicatePolicy, Sample};
use crate::series::{CompactionRule, Series, SeriesSettings};
use crate::{SeriesFull, SeriesLoadFault};

/// The newest version of the form that can be read; the one that is written.
pub const VERSION: u16 = 9;
/// In the options: chunks are not compressed.
const UNCOMPRESSED: u64 = 1;
/// In the options: chunks are compressed.
const COMPRESSED: u64 = 2;
/// No bucket is open.
const NO_BUCKET: u64 = u64::MAX;
/// Labels and rules of a file at most.
const PARTS_MAX: u64 = 1 << 20;
const SAMPLE_BYTES: u64 = 16;

/// The keys of other series in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrossReferences {
    /// They are kept: a file of all data.
    Kept,
    /// They are dropped: a single value.
    Dropped,
}

impl Series {
    /// Writes the fields of the series, in the form of [`VERSION`].
    pub fn save(&self, references: CrossReferences, arena: &Arena, out: &mut dyn FieldSink) {
        self.save_head(references, out);
        self.save_chunks(arena, out);
    }

    fn save_head(&self, references: CrossReferences, out: &mut dyn FieldSink) {
        let settings = &self.settings;
        let newest = self.newest().unwrap_or(Sample { time: 0, value: 0.0 });
        out.string(&[&self.name]);
        out.unsigned(settings.retention_ms);
        out.unsigned(settings.chunk_bytes);
        out.unsigned(if settings.is_uncompressed { UNCOMPRESSED } else { COMPRESSED });
        out.unsigned(newest.time);
        out.double(newest.value);
        out.unsigned(self.len());
        out.unsigned(settings.policy.map_or(0, |policy| policy as u64));
        let keeps = references == CrossReferences::Kept;
        match self.source.as_deref().filter(|_| keeps) {
            Some(source) => {
                out.unsigned(1);
                out.string(&[source]);
            }
            None => out.unsigned(0),
        }
        out.unsigned(settings.ignore_ms);
        out.double(settings.ignore_value);
        out.unsigned(settings.labels.len() as u64);
        for (name, value) in &settings.labels {
            out.string(&[name]);
            out.string(&[value]);
        }
        let rules = if keeps { &self.rules[..] } else { &[] };
        out.unsigned(rules.len() as u64);
        rules.iter().for_each(|rule| save_rule(rule, out));
    }

    /// Writes everything except the samples, in the form of [`VERSION`].
    pub fn save_root(&self, out: &mut dyn FieldSink) {
        self.save_head(CrossReferences::Kept, out);
    }

    /// Reads the output of [`Series::save_root`]. Fails if these are not the fields of a series.
    pub fn load_root(source: &mut dyn FieldSource) -> Result<Series, SeriesLoadFault> {
        load_root(source, VERSION)
    }

    /// Writes piece `number` of the samples; there are [`Series::pieces_len`].
    pub fn save_piece(&self, number: u64, arena: &Arena, out: &mut dyn FieldSink) {
        gorilla::save(&self.piece(number, arena), 0, out);
    }

    /// Adds the next piece of the samples. Fails if it is invalid or there is no room.
    pub fn load_piece(
        &mut self,
        source: &mut dyn FieldSource,
        arena: &mut Arena,
    ) -> Result<(), SeriesLoadFault> {
        let samples = gorilla::load(source)?;
        let is_newer = match (self.newest(), samples.first()) {
            (Some(newest), Some(first)) => newest.time < first.time,
            _ => true,
        };
        if !is_newer || !samples.is_sorted_by(|a, b| a.time < b.time) {
            return Err(SeriesLoadFault::Corrupt);
        }
        Ok(self.extend(arena, &samples)?)
    }

    fn save_chunks(&self, arena: &Arena, out: &mut dyn FieldSink) {
        if self.is_empty() {
            out.unsigned(1);
            return self.save_chunk(&[], out);
        }
        out.unsigned(self.pieces_len() as u64);
        self.each_piece(arena, &mut |samples| self.save_chunk(samples, out));
    }

    fn save_chunk(&self, samples: &[Sample], out: &mut dyn FieldSink) {
        if !self.settings.is_uncompressed {
            return gorilla::save(samples, self.settings.chunk_bytes, out);
        }
        let size = (samples.len() as u64 * SAMPLE_BYTES).max(self.settings.chunk_bytes);
        out.unsigned(samples.first().map_or(0, |sample| sample.time));
        out.unsigned(samples.len() as u64);
        out.unsigned(size);
        let mut bytes = Vec::with_capacity(size as usize);
        for sample in samples {
            bytes.extend(sample.time.to_le_bytes());
            bytes.extend(sample.value.to_bits().to_le_bytes());
        }
        bytes.resize(size as usize, 0);
        out.string(&[&bytes]);
    }

    /// Reads the fields of a series of version `version`. Fails if they are not those of a series.
    pub fn load(
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<Series, SeriesLoadFault> {
        if version > VERSION {
            return Err(SeriesLoadFault::Corrupt);
        }
        let mut series = load_root(source, version)?;
        let mut chunks: Vec<Vec<Sample>> = Vec::new();
        if version < 2 {
            let mut samples = Vec::new();
            for _ in 0..source.unsigned()? {
                samples.push(Sample::new(source.unsigned()?, source.double()?));
            }
            chunks.push(samples);
        } else {
            for _ in 0..source.unsigned()? {
                let is_uncompressed = series.settings.is_uncompressed;
                chunks.push(if is_uncompressed { load_plain(source)? } else { gorilla::load(source)? });
            }
        }
        let samples = chunks.concat();
        let is_sorted = samples.is_sorted_by(|a, b| a.time < b.time);
        if !is_sorted {
            return Err(SeriesLoadFault::Corrupt);
        }
        if let Err(SeriesFull) = series.extend(arena, &samples) {
            while !series.free_step(arena, usize::MAX) {}
            return Err(SeriesLoadFault::Full);
        }
        Ok(series)
    }
}

fn save_rule(rule: &CompactionRule, out: &mut dyn FieldSink) {
    out.string(&[&rule.target]);
    out.unsigned(rule.bucket_ms);
    out.unsigned(rule.align_ms);
    out.unsigned(rule.kind as u64);
    out.unsigned(rule.current.unwrap_or(NO_BUCKET));
    out.unsigned(u64::from(rule.bucket.has(rule.kind)));
    rule.bucket.save(rule.kind, out);
}

/// The settings, labels and rules of a series without samples.
fn load_root(source: &mut dyn FieldSource, version: u16) -> Result<Series, SeriesLoadFault> {
    let name = source.string()?.into();
    let mut settings = SeriesSettings { retention_ms: source.unsigned()?, ..SeriesSettings::default() };
    settings.chunk_bytes = source.unsigned()?;
    if version < 2 {
        settings.chunk_bytes = settings.chunk_bytes.saturating_mul(SAMPLE_BYTES);
    }
    if settings.chunk_bytes == 0 || !settings.chunk_bytes.is_multiple_of(8) {
        return Err(SeriesLoadFault::Corrupt);
    }
    settings.is_uncompressed = version < 1 || source.unsigned()? & UNCOMPRESSED != 0;
    let mut fed_by = None;
    if version >= 2 {
        // The newest sample and the number of samples follow from the chunks.
        source.unsigned()?;
        source.double()?;
        source.unsigned()?;
        if version >= 3 {
            settings.policy = DuplicatePolicy::of_number(source.unsigned()?);
        }
        if source.unsigned()? != 0 {
            fed_by = Some(source.string()?.into());
        }
    }
    if version >= 8 {
        settings.ignore_ms = source.unsigned()?;
        settings.ignore_value = source.double()?;
    }
    for _ in 0..parts(source)? {
        let name = source.string()?.into();
        settings.labels.push((name, source.string()?.into()));
    }
    let mut series = Series::new(settings);
    series.name = name;
    series.source = fed_by;
    for _ in 0..parts(source)? {
        series.rules.push(load_rule(source, version)?);
    }
    Ok(series)
}

fn parts(source: &mut dyn FieldSource) -> Result<u64, SeriesLoadFault> {
    source
        .unsigned()
        .map_err(SeriesLoadFault::from)
        .and_then(|n| if n > PARTS_MAX { Err(SeriesLoadFault::Corrupt) } else { Ok(n) })
}

fn load_rule(source: &mut dyn FieldSource, version: u16) -> Result<CompactionRule, SeriesLoadFault> {
    let target = source.string()?.into();
    let bucket_ms = source.unsigned()?;
    let align_ms = if version >= 6 { source.unsigned()? } else { 0 };
    let kind = Aggregator::of_number(source.unsigned()?).ok_or(SeriesLoadFault::Corrupt)?;
    let current = Some(source.unsigned()?).filter(|&start| start != NO_BUCKET);
    let has_any = if version >= 9 { Some(source.unsigned()? != 0) } else { None };
    if bucket_ms == 0 {
        return Err(SeriesLoadFault::Corrupt);
    }
    let bucket = TimeBucket::load(kind, version, has_any, source)?;
    Ok(CompactionRule { target, kind, bucket_ms, align_ms, current, bucket, before: None })
}

/// Reads one uncompressed chunk of samples.
fn load_plain(source: &mut dyn FieldSource) -> Result<Vec<Sample>, SeriesLoadFault> {
    let (_base, count, size) = (source.unsigned()?, source.unsigned()?, source.unsigned()?);
    let bytes = source.string()?;
    if bytes.len() as u64 != size || count > size / SAMPLE_BYTES {
        return Err(SeriesLoadFault::Corrupt);
    }
    let samples = bytes.as_chunks::<16>().0.iter().take(count as usize).map(
        |[t0, t1, t2, t3, t4, t5, t6, t7, value @ ..]| {
            let time = u64::from_le_bytes([*t0, *t1, *t2, *t3, *t4, *t5, *t6, *t7]);
            Sample::new(time, f64::from_bits(u64::from_le_bytes(*value)))
        },
    );
    Ok(samples.collect())
}
