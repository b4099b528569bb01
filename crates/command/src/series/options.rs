//! The options with which a series is created or changed, at any position among the arguments.

use darter_base::number;
use darter_series::series::Label;
use darter_series::{DuplicatePolicy, SeriesSettings};
use darter_wire::Args;

use crate::Fault;
use crate::probabilistic::find_word;
use crate::reader::is;

const CHUNK_BYTES_MIN: i64 = 48;
const CHUNK_BYTES_MAX: i64 = 1 << 20;

/// The options of a command; `None` if not given.
#[derive(Default)]
pub(super) struct SeriesOptions {
    retention_ms: Option<u64>,
    chunk_bytes: Option<u64>,
    is_uncompressed: Option<bool>,
    policy: Option<DuplicatePolicy>,
    ignore: Option<(u64, f64)>,
    labels: Option<Vec<Label>>,
}

/// The argument after `word`, if the word is present.
fn after<'a>(
    args: Args<'a>,
    from: usize,
    word: &str,
    missing: &'static str,
) -> Result<Option<&'a [u8]>, Fault> {
    match find_word(args, from, word) {
        Some(at) => args.get(at + 1).map(Some).ok_or(Fault::text(missing)),
        None => Ok(None),
    }
}

/// The policy after `word`, if the word is present.
pub(super) fn policy(args: Args<'_>, from: usize, word: &str) -> Result<Option<DuplicatePolicy>, Fault> {
    let Some(name) = after(args, from, word, "ERR TSDB: Couldn't parse DUPLICATE_POLICY")? else {
        return Ok(None);
    };
    DuplicatePolicy::of_name(name).map(Some).ok_or(Fault::text("ERR TSDB: Unknown DUPLICATE_POLICY"))
}

impl SeriesOptions {
    /// Reads the options among the arguments from `from` on.
    pub(super) fn read(args: Args<'_>, from: usize) -> Result<SeriesOptions, Fault> {
        // All words after LABELS are labels; options among them count as well, as in RedisTimeSeries.
        let (labels_at, head) = (find_word(args, from, "LABELS"), args);
        let mut options = SeriesOptions {
            labels: labels_at.map(|at| labels(args.tail(at + 1))).transpose()?,
            ..SeriesOptions::default()
        };
        const BAD_RETENTION: &str = "ERR TSDB: Couldn't parse RETENTION";
        if let Some(word) = after(head, from, "RETENTION", BAD_RETENTION)? {
            let retention = number::parse_i64(word).and_then(|ms| u64::try_from(ms).ok());
            options.retention_ms = Some(retention.ok_or(Fault::text(BAD_RETENTION))?);
        }
        const BAD_SIZE: &str = "ERR TSDB: Couldn't parse CHUNK_SIZE";
        if let Some(word) = after(head, from, "CHUNK_SIZE", BAD_SIZE)? {
            let bytes = number::parse_i64(word).ok_or(Fault::text(BAD_SIZE))?;
            if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) || bytes % 8 != 0 {
                let text = "ERR TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]";
                return Err(Fault::text(text));
            }
            options.chunk_bytes = Some(bytes.unsigned_abs());
        }
        options.is_uncompressed = encoding(head, from)?;
        options.policy = policy(head, from, "DUPLICATE_POLICY")?;
        options.ignore = ignore(head, from)?;
        Ok(options)
    }

    /// The settings of a created series.
    pub(super) fn settings(self) -> SeriesSettings {
        let is_uncompressed = self.is_uncompressed.unwrap_or(false);
        let mut settings = SeriesSettings { is_uncompressed, ..SeriesSettings::default() };
        self.apply(&mut settings);
        settings
    }

    /// Applies the given options; the encoding stays.
    pub(super) fn apply(self, settings: &mut SeriesSettings) {
        settings.retention_ms = self.retention_ms.unwrap_or(settings.retention_ms);
        settings.chunk_bytes = self.chunk_bytes.unwrap_or(settings.chunk_bytes);
        settings.policy = self.policy.or(settings.policy);
        if let Some((ms, value)) = self.ignore {
            settings.ignore_ms = ms;
            settings.ignore_value = value;
        }
        if let Some(labels) = self.labels {
            settings.labels = labels;
        }
    }
}

fn labels(words: Args<'_>) -> Result<Vec<Label>, Fault> {
    const BAD_LABELS: Fault = Fault::text("ERR TSDB: Couldn't parse LABELS");
    let pairs = words.len() / 2;
    let mut labels: Vec<Label> = Vec::with_capacity(pairs);
    // An odd last word is ignored.
    for pair in 0..pairs {
        let (name, value) = (words.at(2 * pair), words.at(2 * pair + 1));
        let is_value = !value.is_empty() && !value.iter().any(|byte| b"(),".contains(byte));
        if name.is_empty() || !is_value || labels.iter().any(|(known, _)| **known == *name) {
            return Err(BAD_LABELS);
        }
        labels.push((name.into(), value.into()));
    }
    Ok(labels)
}

fn encoding(args: Args<'_>, from: usize) -> Result<Option<bool>, Fault> {
    const UNKNOWN: Fault = Fault::text("ERR TSDB: unknown ENCODING parameter");
    if find_word(args, from, "UNCOMPRESSED").is_some() {
        return Ok(Some(true));
    }
    match find_word(args, from, "ENCODING").map(|at| args.get(at + 1)) {
        None => Ok(None),
        Some(Some(word)) if is(word, "COMPRESSED") => Ok(Some(false)),
        Some(_) => Err(UNKNOWN),
    }
}

fn ignore(args: Args<'_>, from: usize) -> Result<Option<(u64, f64)>, Fault> {
    const BAD_IGNORE: Fault = Fault::text("ERR TSDB: Couldn't parse IGNORE");
    let Some(at) = find_word(args, from, "IGNORE") else { return Ok(None) };
    let ms = args.get(at + 1).and_then(number::parse_i64).ok_or(BAD_IGNORE)?;
    let value = args.get(at + 2).and_then(number::parse_f64).ok_or(BAD_IGNORE)?;
    match u64::try_from(ms) {
        Ok(ms) if value >= 0.0 => Ok(Some((ms, value))),
        _ => Err(Fault::text("ERR TSDB: IGNORE arguments cannot be negative")),
    }
}
