//! BITCOUNT key [start [end [BYTE | BIT]]], BITPOS key bit [start [end [BYTE | BIT]]]

use darter_wire::{Args, Reply};

use super::{bit, clipped_range, range};
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

/// Whether a range counts bits; otherwise bytes.
fn unit(arg: Option<&[u8]>) -> Result<bool, Fault> {
    match arg {
        None => Ok(false),
        Some(word) if is(word, "byte") => Ok(false),
        Some(word) if is(word, "bit") => Ok(true),
        Some(_) => Err(Fault::Syntax),
    }
}

/// First and last bit of the range that `find` makes of `start..=end`, in bytes or bits over `len` bytes.
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
    let count = match ctx.read_text(args.at(1))? {
        None => 0,
        Some(text) => {
            let bytes = text.bytes();
            bit_range(range, (start, end), in_bits, bytes.len())
                .map_or(0, |(first, last)| ones(&bytes, first, last))
        }
    };
    reply.int(count as i64);
    Ok(())
}

/// Set bits from `first` to `last`, both inside `bytes`.
fn ones(bytes: &[u8], first: u64, last: u64) -> u64 {
    let (from, to) = ((first >> 3) as usize, (last >> 3) as usize);
    let whole: u64 = bytes[from..=to]
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from(u64::from_le_bytes(word).count_ones())
        })
        .sum();
    let before = (bytes[from] as u32) >> (8 - (first & 7));
    let after = (bytes[to] as u32) & ((1 << (7 - (last & 7))) - 1);
    whole - u64::from(before.count_ones()) - u64::from(after.count_ones())
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
    let Some(text) = ctx.read_text(args.at(1))? else {
        reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = text.bytes();
    let range = bit_range(clipped_range, (start, end.unwrap_or(-1)), in_bits, bytes.len());
    let found = range.and_then(|(first, last)| {
        find(&bytes, wanted, first, last).or_else(|| {
            // A clear bit follows any string of ones, unless the end was named.
            (!wanted && end.is_none()).then_some(bytes.len() as u64 * 8)
        })
    });
    reply.int(found.map_or(-1, |at| at as i64));
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
            let run = bytes[from..=(last >> 3) as usize].iter().take_while(|&&byte| byte == dull).count();
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
