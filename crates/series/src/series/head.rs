//! The head of a block: what its samples add up to, so that a bucket takes the block unread.

use crate::aggregate::TimeBucket;
use crate::sample::Sample;

/// The sums of a block whose values are all numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct BlockHead {
    /// Its oldest sample.
    pub first: Sample,
    /// Its newest sample.
    pub last: Sample,
    /// Its samples.
    pub count: u64,
    /// The sum of the values.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The area under the lines from sample to sample; value times milliseconds.
    pub area: f64,
}

/// The byte of a block without a head, and of one with a head.
const MISSING: u8 = 0;
const THERE: u8 = 1;
/// Bytes of a head behind that byte.
const BYTES: usize = 7 * 8;

/// Writes the head of `samples`, unless a value is NaN or the sum is not finite.
pub(super) fn write(samples: &[Sample], out: &mut Vec<u8>) {
    let mut bucket = TimeBucket::default();
    samples.iter().for_each(|sample| bucket.add(*sample));
    let Some(head) = bucket.head(samples) else { return out.push(MISSING) };
    out.push(THERE);
    let numbers = [head.first.value, head.last.value, head.sum, head.squares, head.min, head.max, head.area];
    numbers.iter().for_each(|number| out.extend(number.to_bits().to_le_bytes()));
}

/// The head of a block of `count` samples from `first` to `last`, in milliseconds.
pub(super) fn read(bytes: &[u8], (first, last): (u64, u64), count: u64) -> Option<BlockHead> {
    let (&mark, rest) = bytes.split_first()?;
    let (numbers, _) = rest.get(..BYTES).filter(|_| mark == THERE)?.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|number| f64::from_bits(u64::from_le_bytes(*number)));
    let mut next = || numbers.next().unwrap_or_default();
    Some(BlockHead {
        first: Sample { time: first, value: next() },
        last: Sample { time: last, value: next() },
        count,
        sum: next(),
        squares: next(),
        min: next(),
        max: next(),
        area: next(),
    })
}

/// The bytes of a block behind its head.
pub(super) fn skip(bytes: &[u8]) -> &[u8] {
    let len = if bytes.first() == Some(&THERE) { 1 + BYTES } else { 1 };
    bytes.get(len..).unwrap_or_default()
}
