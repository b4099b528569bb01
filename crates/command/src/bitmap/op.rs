//! BITOP AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key ...]

use darter_store::{Event, Expiry};
use darter_wire::{Args, Reply};

use crate::reader::is;
use crate::spec::{Group, Keys, Spec};
use crate::string::{SET_EVENT, put_raw};
use crate::{Ctx, DataCommand, Fault};

/// BITOP.
pub const BITOP: DataCommand = DataCommand {
    spec: Spec::write("bitop", -4, Keys::Range { first: 2, last: -1, step: 1 })
        .doc(
            Group::Bitmap,
            "2.6.0",
            "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
            "Performs bitwise operations on multiple strings, and stores the result.",
        )
        .cost("O(N)"),
    run: bitop,
};

#[derive(Clone, Copy, PartialEq)]
enum Op {
    And,
    Or,
    Xor,
    Not,
    /// In the first and in no other.
    Diff,
    /// In some other and not in the first.
    Diff1,
    /// In the first and in some other.
    AndOr,
    /// In exactly one.
    One,
}

const OPS: &[(&str, Op)] = &[
    ("and", Op::And),
    ("or", Op::Or),
    ("xor", Op::Xor),
    ("not", Op::Not),
    ("diff", Op::Diff),
    ("diff1", Op::Diff1),
    ("andor", Op::AndOr),
    ("one", Op::One),
];

fn bitop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let &(_, op) = OPS.iter().find(|(name, _)| is(args.at(1), name)).ok_or(Fault::Syntax)?;
    if op == Op::Not && args.len() != 4 {
        return Err(Fault::text("ERR BITOP NOT must be called with a single source key."));
    }
    if args.len() < 5
        && let Op::Diff | Op::Diff1 | Op::AndOr = op
    {
        let name = String::from_utf8_lossy(args.at(1)).to_ascii_uppercase();
        return Err(Fault::Text(
            format!("ERR BITOP {name} must be called with at least two source keys.").into(),
        ));
    }
    let mut sources = Vec::new();
    for key in args.tail(3).iter() {
        sources.push(ctx.read_text(key)?.map(|text| text.bytes().into_owned()).unwrap_or_default());
    }
    let result = combine(op, &sources);
    let mut place = ctx.at(args.at(2));
    if result.is_empty() {
        if place.remove() {
            place.changed(Event::DEL);
        }
    } else {
        put_raw(&mut place, &result, Expiry::None)?;
        place.changed(SET_EVENT);
    }
    reply.int_len(result.len());
    Ok(())
}

/// The operation over strings that end in zeros for ever; as long as the longest.
fn combine(op: Op, sources: &[Vec<u8>]) -> Vec<u8> {
    let len = sources.iter().map(Vec::len).max().unwrap_or(0);
    let padded = |at: usize| sources.get(at).map_or(&[][..], Vec::as_slice);
    let mut out = vec![0; len];
    out[..padded(0).len()].copy_from_slice(padded(0));
    if op == Op::Not {
        out.iter_mut().for_each(|byte| *byte = !*byte);
        return out;
    }
    let rest = &sources[1.min(sources.len())..];
    match op {
        Op::And => rest.iter().for_each(|source| zip(&mut out, source, |a, b| a & b)),
        Op::Or => rest.iter().for_each(|source| zip(&mut out, source, |a, b| a | b)),
        Op::Xor => rest.iter().for_each(|source| zip(&mut out, source, |a, b| a ^ b)),
        Op::One => {
            let mut twice = vec![0; len];
            for source in rest {
                for (at, byte) in source.iter().enumerate() {
                    twice[at] |= out[at] & byte;
                    out[at] |= byte;
                }
            }
            zip(&mut out, &twice, |a, b| a & !b);
        }
        Op::Diff | Op::Diff1 | Op::AndOr => {
            let mut others = vec![0; len];
            rest.iter().for_each(|source| zip(&mut others, source, |a, b| a | b));
            match op {
                Op::Diff => zip(&mut out, &others, |a, b| a & !b),
                Op::Diff1 => zip(&mut out, &others, |a, b| b & !a),
                _ => zip(&mut out, &others, |a, b| a & b),
            }
        }
        Op::Not => {}
    }
    out
}

/// Combines every byte of `out` with that of `source`, which counts as zeros past its end.
fn zip(out: &mut [u8], source: &[u8], with: impl Fn(u8, u8) -> u8) {
    let (head, tail) = out.split_at_mut(source.len().min(out.len()));
    head.iter_mut().zip(source).for_each(|(a, b)| *a = with(*a, *b));
    tail.iter_mut().for_each(|a| *a = with(*a, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_agrees_with_its_definition_bit_by_bit() {
        let sources = [vec![0b1100_1010, 0xff, 1], vec![0b1010_0110], vec![0b0110_1111, 0x0f]];
        for (name, op) in OPS {
            let sources = if *op == Op::Not { &sources[..1] } else { &sources[..] };
            let result = combine(*op, sources);
            assert_eq!(result.len(), 3);
            for at in 0..24 {
                let bits: Vec<bool> = sources.iter().map(|s| super::super::bit(s, at)).collect();
                let others = bits[1..].iter().any(|&b| b);
                let wanted = match op {
                    Op::And => bits.iter().all(|&b| b),
                    Op::Or => bits.iter().any(|&b| b),
                    Op::Xor => bits.iter().filter(|&&b| b).count() % 2 == 1,
                    Op::Not => !bits[0],
                    Op::Diff => bits[0] && !others,
                    Op::Diff1 => !bits[0] && others,
                    Op::AndOr => bits[0] && others,
                    Op::One => bits.iter().filter(|&&b| b).count() == 1,
                };
                assert_eq!(super::super::bit(&result, at), wanted, "{name} bit {at}");
            }
        }
    }
}
