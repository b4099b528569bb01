//! `incr`, `decr` and `ma` on one key whose shard is held.

use darter_base::number;
use darter_store::error::ShardFull;
use darter_store::{Expiry, Extras, Key, Keyed, RecordMarks, Shard};
use darter_wire::memcache::MemcacheError;

use super::run::ExecutionContext;
use super::{COUNT_EVENT, Counter, DB, NO_ROOM};

/// A number to add or subtract.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountStep {
    pub delta: u64,
    pub decrement: bool,
}

/// What became of it.
pub(super) enum CountedVerb {
    /// The number now.
    To(u64),
    /// Nothing is there.
    Missing,
    /// Another token is there.
    Exists,
    /// The stored value is no number.
    NonNumeric,
    NoRoom,
}

impl From<ShardFull> for CountedVerb {
    fn from(_: ShardFull) -> CountedVerb {
        CountedVerb::NoRoom
    }
}

/// `incr` and `decr`, answered with the number.
pub(super) fn classic(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    step: CountStep,
    out: &mut Vec<u8>,
) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    match add(context, &mut place, step, 0, None) {
        CountedVerb::To(value) => {
            number::write_u64(out, value);
            out.extend_from_slice(b"\r\n");
        }
        CountedVerb::Missing | CountedVerb::Exists => out.extend_from_slice(b"NOT_FOUND\r\n"),
        CountedVerb::NonNumeric => context.error(MemcacheError::NonNumeric, out),
        CountedVerb::NoRoom => out.extend_from_slice(NO_ROOM),
    }
}

/// Changes the number that is there if it has the token `cas` (0 is any); it gets the token `new_cas` or another.
pub(super) fn add(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    step: CountStep,
    cas: u64,
    new_cas: Option<u64>,
) -> CountedVerb {
    let (hit, miss) = match step.decrement {
        true => (Counter::DecrHit, Counter::DecrMiss),
        false => (Counter::IncrHit, Counter::IncrMiss),
    };
    if !place.exists() {
        context.counts.add(miss);
        return CountedVerb::Missing;
    }
    let done = add_to(context, place, step, cas, new_cas).unwrap_or_else(CountedVerb::from);
    if let CountedVerb::To(_) = done {
        context.counts.add(hit);
    }
    done
}

fn add_to(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    step: CountStep,
    cas: u64,
    new_cas: Option<u64>,
) -> Result<CountedVerb, ShardFull> {
    let Ok(Some(text)) = place.text() else { return Ok(CountedVerb::NonNumeric) };
    // only long values are not kept as they are, and those are no numbers
    let (old, old_len) = (parse(&text.range(0, DIGITS_LOOKED_AT)), text.len());
    if old_len == 0 {
        return Ok(CountedVerb::NonNumeric);
    }
    if cas != 0 && place.cas()? != Some(cas) {
        return Ok(CountedVerb::Exists);
    }
    let Some(old) = old else { return Ok(CountedVerb::NonNumeric) };
    let value = match step.decrement {
        true => old.saturating_sub(step.delta),
        false => old.wrapping_add(step.delta),
    };
    let extras = place.extras().unwrap_or_default();
    let cas = new_cas.or_else(|| extras.cas.is_some().then(|| place.next_cas()));
    let mut text = Vec::with_capacity(old_len);
    number::write_u64(&mut text, value);
    // A number that got shorter keeps its length, as memcached's does; one that got longer is a new item.
    let marks = if text.len() > old_len { RecordMarks::default() } else { extras.marks };
    if text.len() < old_len {
        text.resize(old_len, b' ');
    }
    let extras = Extras { cas, access_s: Some(context.now_s()), marks, flags: extras.flags, frequency: None };
    place.put_item(&text, Expiry::Keep, extras)?;
    place.changed(COUNT_EVENT);
    Ok(CountedVerb::To(value))
}

/// The number that a value spells: digits, after spaces or a sign, up to its end or a space.
fn parse(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"+").unwrap_or(value);
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let is_ended = value.get(end).is_none_or(|byte| byte.is_ascii_whitespace() || *byte == 0x0b);
    if is_ended { number::parse_u64_digits(&value[..end]) } else { None }
}

/// Bytes of a value that may hold its number.
const DIGITS_LOOKED_AT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_a_space() {
        for (text, number) in [
            ("5", Some(5)),
            ("007", Some(7)),
            ("99 ", Some(99)),
            ("12 34", Some(12)),
            (" 3", Some(3)),
            ("+3", Some(3)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("5x", None),
            ("x", None),
            ("1.5", None),
        ] {
            assert_eq!(parse(text.as_bytes()), number, "{text:?}");
        }
    }
}
