//! BITCOUNT key [start [end [BYTE | BIT]]], BITPOS key bit [start [end [BYTE | BIT]]]

use darter_store::Text;
use darter_wire::{Args, Reply};

use super::{bit, clipped_range, range};
use crate::incremental::reduce::{AT_ONCE_BYTES, Fold, Reduction};
use crate::incremental::{FoundValue, StagedForm};
use crate::reader::{self, is};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// BITCOUNT.
pub const BITCOUNT: DataCommand = DataCommand {
    spec: Spec::read("bitcount", -2, Keys::ONE)
        .doc(
            Group::Bitmap,
            "2.6.0",
            "key [start [end [BYTE | BIT]]]",
            "Counts the number of set bits (population counting) in a string.",
        )
        .cost("O(N)"),
    run: bitcount,
};
/// BITPOS.
pub const BITPOS: DataCommand = DataCommand {
    spec: Spec::read("bitpos", -3, Keys::ONE)
        .doc(
            Group::Bitmap,
            "2.8.7",
            "key bit [start [end [BYTE | BIT]]]",
            "Finds the first set (1) or clear (0) bit in a string.",
        )
        .cost("O(N)"),
    run: bitpos,
};

/// Returns true if a range counts bits; otherwise bytes.
fn unit(arg: Option<&[u8]>) -> Result<bool, Fault> {
    match arg {
        None => Ok(false),
        Some(word) if is(word, "byte") => Ok(false),
        Some(word) if is(word, "bit") => Ok(true),
        Some(_) => Err(Fault::Syntax),
    }
}

/// First and last bit of the range that `find` derives from `start..=end`, in bytes or bits over `len` bytes.
fn bit_range(find: FindRange, (start, end): (i64, i64), in_bits: bool, len: usize) -> Option<(u64, u64)> {
    let len = len as u64;
    if in_bits {
        find(start, end, len * 8)
    } else {
        find(start, end, len).map(|(first, last)| (first * 8, last * 8 + 7))
    }
}

/// [`range`], or [`clipped_range`]: BITCOUNT knows empty ranges that BITPOS does not.
type FindRange = fn(i64, i64, u64) -> Option<(u64, u64)>;

fn bitcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, end, in_bits) = match args.len() {
        2 => (0, -1, false),
        3 => (reader::int(args.at(2))?, -1, false),
        4 | 5 => {
            let in_bits = unit(args.get(4))?;
            (reader::int(args.at(2))?, reader::int(args.at(3))?, in_bits)
        }
        _ => return Err(Fault::Syntax),
    };
    if let Some(staged) = ctx.staged.take() {
        reply.int(staged.found.numbers.iter().sum::<u64>() as i64);
        return Ok(());
    }
    let name = args.at(1);
    let bits = ctx.read_text(name)?.and_then(|text| bit_range(range, (start, end), in_bits, text.len()));
    let Some((first, last)) = bits else {
        reply.int(0);
        return Ok(());
    };
    if leave(ctx, name, (first, last), Ones { first, last, sum: 0 }) {
        return Ok(());
    }
    let (from, to) = byte_range(first, last);
    let count = text_at(ctx, name).map_or(0, |text| {
        let bytes = text.range(from, to);
        ones(&bytes, first - 8 * from as u64, last - 8 * from as u64)
    });
    reply.int(count as i64);
    Ok(())
}

/// The bytes that bits `first` to `last` are in.
fn byte_range(first: u64, last: u64) -> (usize, usize) {
    ((first >> 3) as usize, (last >> 3) as usize + 1)
}

/// The string at a key that was looked up before.
fn text_at<'a>(ctx: &'a Ctx<'_>, name: &[u8]) -> Option<Text<'a>> {
    ctx.peek(name).and_then(|(_, record)| record.text())
}

/// Leaves the walk over bits `first` to `last` to slices; false if it must be done now.
fn leave(ctx: &mut Ctx<'_>, name: &[u8], (first, last): (u64, u64), fold: impl Fold + 'static) -> bool {
    let (from, to) = byte_range(first, last);
    if !ctx.may_slice || to - from <= AT_ONCE_BYTES {
        return false;
    }
    let reduction = Reduction::new(ctx, &[name], (from, to), Box::new(fold));
    ctx.store_later((name, StagedForm::List), &[name], &[], Box::new(reduction))
}

/// Set bits of a long string.
struct Ones {
    first: u64,
    last: u64,
    sum: u64,
}

impl Fold for Ones {
    fn take(&mut self, _nth: usize, from: usize, bytes: &[u8]) -> bool {
        if let Some((first, last)) = within((self.first, self.last), from, bytes) {
            self.sum += ones(bytes, first, last);
        }
        false
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { numbers: vec![self.sum], ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The first bit of a kind in a long string.
struct BitPosition {
    wanted: bool,
    first: u64,
    last: u64,
    at: Option<u64>,
}

impl Fold for BitPosition {
    fn take(&mut self, _nth: usize, from: usize, bytes: &[u8]) -> bool {
        let bits = within((self.first, self.last), from, bytes);
        let found = bits.and_then(|(first, last)| find(bytes, self.wanted, first, last));
        self.at = found.map(|at| at + 8 * from as u64);
        self.at.is_some()
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { numbers: self.at.into_iter().collect(), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The bits of a piece, which begins at byte `from` of a string, that lie between `first` and `last`.
fn within((first, last): (u64, u64), from: usize, bytes: &[u8]) -> Option<(u64, u64)> {
    let begin = 8 * from as u64;
    let end = begin + 8 * bytes.len() as u64;
    (first < end && last >= begin && !bytes.is_empty())
        .then(|| (first.max(begin) - begin, last.min(end - 1) - begin))
}

/// Set bits from `first` to `last`, both inside `bytes`.
fn ones(bytes: &[u8], first: u64, last: u64) -> u64 {
    let (from, to) = ((first >> 3) as usize, (last >> 3) as usize);
    let whole = all_ones(&bytes[from..=to]);
    let before = (bytes[from] as u32) >> (8 - (first & 7));
    let after = (bytes[to] as u32) & ((1 << (7 - (last & 7))) - 1);
    whole - u64::from(before.count_ones()) - u64::from(after.count_ones())
}

/// Set bits of `bytes`: those of eight words are added up in columns first, so that one word in eight is counted.
fn all_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, others) = words.as_chunks::<8>();
    let (mut sum, mut ones, mut twos, mut fours) = (0, 0, 0, 0);
    for block in blocks {
        let word = |at: usize| u64::from_le_bytes(block[at]);
        let (a, b, c, d);
        (a, ones) = add(ones, word(0), word(1));
        (b, ones) = add(ones, word(2), word(3));
        (c, ones) = add(ones, word(4), word(5));
        (d, ones) = add(ones, word(6), word(7));
        let (e, f, eights);
        (e, twos) = add(twos, a, b);
        (f, twos) = add(twos, c, d);
        (eights, fours) = add(fours, e, f);
        sum += 8 * u64::from(eights.count_ones());
    }
    let columns = [(1, ones), (2, twos), (4, fours)];
    sum += columns.map(|(each, column)| each * u64::from(column.count_ones())).iter().sum::<u64>();
    sum += others.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum::<u64>();
    sum + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// Adds three bits in each column; returns the carry and the sum.
#[inline(always)]
fn add(a: u64, b: u64, c: u64) -> (u64, u64) {
    let either = a ^ b;
    ((a & b) | (either & c), either ^ c)
}

fn bitpos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = match reader::int(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(Fault::text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(Fault::Syntax);
    }
    let in_bits = unit(args.get(5))?;
    let start = args.get(3).map_or(Ok(0), reader::int)?;
    let end = args.get(4).map(reader::int).transpose()?;
    let name = args.at(1);
    let staged = ctx.staged.take();
    let Some(text) = ctx.read_text(name)? else {
        reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let len = text.len();
    let range = bit_range(clipped_range, (start, end.unwrap_or(-1)), in_bits, len);
    let found = match (staged, range) {
        (Some(staged), _) => staged.found.numbers.first().copied(),
        (None, None) => None,
        (None, Some((first, last))) => {
            if leave(ctx, name, (first, last), BitPosition { wanted, first, last, at: None }) {
                return Ok(());
            }
            text_at(ctx, name).and_then(|text| find(&text.bytes(), wanted, first, last))
        }
    };
    // A clear bit follows any string of ones, unless the end was named.
    let past = (range.is_some() && !wanted && end.is_none()).then_some(len as u64 * 8);
    reply.int(found.or(past).map_or(-1, |at| at as i64));
    Ok(())
}

/// The first bit equal to `wanted` from `first` to `last`.
fn find(bytes: &[u8], wanted: bool, first: u64, last: u64) -> Option<u64> {
    let dull = if wanted { 0 } else { 0xff };
    let mut at = first;
    while at <= last {
        if at & 7 == 0 {
            // Whole bytes without the bit are passed over at once.
            let from = (at >> 3) as usize;
            let bytes = &bytes[from..=(last >> 3) as usize];
            let blocks = bytes.as_chunks::<64>().0;
            let run = 64 * blocks.iter().take_while(|&&block| block == [dull; 64]).count();
            let run = run + bytes[run..].iter().take_while(|&&byte| byte == dull).count();
            at += run as u64 * 8;
            if at > last {
                return None;
            }
        }
        if bit(bytes, at) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_are_counted_and_searched_by_blocks() {
        for len in [63, 64, 65, 127, 128, 200, 513, 1000] {
            let bytes: Vec<u8> = (0..len).map(|n: usize| ((n * n * 31) >> 3) as u8).collect();
            let count: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(all_ones(&bytes), u64::from(count));
            for dull in [0u8, 0xff] {
                let mut bytes = vec![dull; len];
                assert_eq!(find(&bytes, dull == 0, 0, 8 * len as u64 - 1), None);
                bytes[len - 2] ^= 0x10;
                assert_eq!(find(&bytes, dull == 0, 5, 8 * len as u64 - 1), Some(8 * (len as u64 - 2) + 3));
            }
        }
    }

    #[test]
    fn counts_and_places_agree_with_a_look_at_every_bit() {
        let bytes: Vec<u8> = (0..23u32).map(|n| [0, 0xff, n as u8, 0x80][n as usize % 4]).collect();
        let last_bit = bytes.len() as u64 * 8 - 1;
        for first in 0..=last_bit {
            for last in first..=last_bit {
                let on: Vec<u64> = (first..=last).filter(|&at| bit(&bytes, at)).collect();
                assert_eq!(ones(&bytes, first, last), on.len() as u64, "{first}..={last}");
                assert_eq!(find(&bytes, true, first, last), on.first().copied());
                let off = (first..=last).find(|&at| !bit(&bytes, at));
                assert_eq!(find(&bytes, false, first, last), off);
            }
        }
    }
}
