//! BITOP AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key ...]

use crate::keyspec;
use darter_store::change::{JournalReaders, Vocabulary};
use darter_store::{Event, Expiry};
use darter_wire::{Args, Reply};

use crate::incremental::reduce::{AT_ONCE_BYTES, Fold, PIECE_BYTES, Reduction};
use crate::incremental::{FoundValue, StagedForm};
use crate::reader::is;
use crate::spec::{Group, Keys, Spec};
use crate::string::{SET_EVENT, put_raw};
use crate::{Ctx, DataCommand, Fault};

/// BITOP.
pub const BITOP: DataCommand = DataCommand {
    spec: Spec::write("bitop", -4, Keys::Range { first: 2, last: -1, step: 1 })
        .key_groups(&[keyspec::one(2, keyspec::WRITTEN), keyspec::rest(3, keyspec::READ)])
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
enum BitOp {
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

const OPS: &[(&str, BitOp)] = &[
    ("and", BitOp::And),
    ("or", BitOp::Or),
    ("xor", BitOp::Xor),
    ("not", BitOp::Not),
    ("diff", BitOp::Diff),
    ("diff1", BitOp::Diff1),
    ("andor", BitOp::AndOr),
    ("one", BitOp::One),
];

fn bitop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let &(_, op) = OPS.iter().find(|(name, _)| is(args.at(1), name)).ok_or(Fault::Syntax)?;
    if op == BitOp::Not && args.len() != 4 {
        return Err(Fault::text("ERR BITOP NOT must be called with a single source key."));
    }
    if args.len() < 5
        && let BitOp::Diff | BitOp::Diff1 | BitOp::AndOr = op
    {
        let name = String::from_utf8_lossy(args.at(1)).to_ascii_uppercase();
        return Err(Fault::Text(
            format!("ERR BITOP {name} must be called with at least two source keys.").into(),
        ));
    }
    let staged = ctx.staged.take();
    let result = match staged {
        Some(staged) => staged.found.bytes,
        None => match combine(ctx, op, args)? {
            Some(result) => result,
            None => return Ok(()),
        },
    };
    let mut place = ctx.at(args.at(2));
    if result.is_empty() {
        if place.remove() {
            place.changed(Event::DEL);
        }
    } else {
        put_raw(&mut place, &result, Expiry::None)?;
        place.changed(SET_EVENT);
    }
    let is_new = matches!(op, BitOp::Diff | BitOp::Diff1 | BitOp::AndOr | BitOp::One);
    if is_new && ctx.journal_readers(args.at(2)) == JournalReaders::Replicas {
        // Redis 7.0 does not know these operations.
        ctx.journal_as(args.at(2), Vocabulary::New, args.iter());
    }
    reply.int_len(result.len());
    Ok(())
}

/// The result of the operation over the strings of the command, as long as the longest; shorter ones are padded with
/// zeros. `None` if it is left to slices.
fn combine(ctx: &mut Ctx<'_>, op: BitOp, args: Args<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let names: Vec<&[u8]> = args.tail(3).iter().collect();
    let (mut len, mut sum) = (0, 0);
    for name in &names {
        let own = ctx.read_text(name)?.map_or(0, |text| text.len());
        (len, sum) = (len.max(own), sum + own);
    }
    let mut result = Joint::new(op, names.len(), len);
    if ctx.may_slice && sum > AT_ONCE_BYTES {
        let reduction = Reduction::new(ctx, &names, (0, len), Box::new(result));
        let operation = reduction;
        if ctx.store_later((args.at(2), StagedForm::List), &names, &[], Box::new(operation)) {
            return Ok(None);
        }
        result = Joint::new(op, names.len(), len);
    }
    for from in (0..len).step_by(PIECE_BYTES) {
        for (nth, name) in names.iter().enumerate() {
            let text = ctx.peek(name).and_then(|(_, record)| record.text());
            let bytes = text.map(|text| text.range(from, from + PIECE_BYTES));
            result.take(nth, from, bytes.as_deref().unwrap_or_default());
        }
    }
    Ok(Some(result.out))
}

/// A result in progress, piece by piece.
struct Joint {
    op: BitOp,
    sources_len: usize,
    out: Vec<u8>,
    // For the present piece: the bits of the sources after the first, or those in two of them.
    others: Vec<u8>,
}

impl Joint {
    fn new(op: BitOp, sources_len: usize, len: usize) -> Joint {
        Joint { op, sources_len, out: vec![0; len], others: vec![0; len.min(PIECE_BYTES)] }
    }
}

impl Fold for Joint {
    fn take(&mut self, nth: usize, from: usize, bytes: &[u8]) -> bool {
        let to = self.out.len().min(from + PIECE_BYTES);
        let Some(out) = self.out.get_mut(from..to) else { return true };
        // A source that has grown meanwhile makes this useless, but must not exceed it.
        let bytes = bytes.get(..out.len()).unwrap_or(bytes);
        let Some(others) = self.others.get_mut(..out.len()) else { return true };
        match (nth, self.op) {
            (0, _) => {
                zip(out, bytes, |_, b| b);
                others.fill(0);
            }
            (_, BitOp::And) => zip(out, bytes, |a, b| a & b),
            (_, BitOp::Or | BitOp::Not) => zip(out, bytes, |a, b| a | b),
            (_, BitOp::Xor) => zip(out, bytes, |a, b| a ^ b),
            (_, BitOp::One) => {
                let both = out.iter().zip(bytes).map(|(a, b)| a & b);
                others.iter_mut().zip(both).for_each(|(other, both)| *other |= both);
                zip(out, bytes, |a, b| a | b);
            }
            (_, BitOp::Diff | BitOp::Diff1 | BitOp::AndOr) => zip(others, bytes, |a, b| a | b),
        }
        if nth + 1 == self.sources_len {
            match self.op {
                BitOp::And | BitOp::Or | BitOp::Xor => {}
                BitOp::Not => out.iter_mut().for_each(|byte| *byte = !*byte),
                BitOp::One | BitOp::Diff => zip(out, others, |a, b| a & !b),
                BitOp::Diff1 => zip(out, others, |a, b| b & !a),
                BitOp::AndOr => zip(out, others, |a, b| a & b),
            }
        }
        false
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.out), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        self.out.len()
    }
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
            let sources = if *op == BitOp::Not { &sources[..1] } else { &sources[..] };
            let mut joint = Joint::new(*op, sources.len(), 3);
            sources.iter().enumerate().for_each(|(nth, source)| {
                joint.take(nth, 0, source);
            });
            let result = joint.out;
            assert_eq!(result.len(), 3);
            for at in 0..24 {
                let bits: Vec<bool> = sources.iter().map(|s| super::super::bit(s, at)).collect();
                let others = bits[1..].iter().any(|&b| b);
                let wanted = match op {
                    BitOp::And => bits.iter().all(|&b| b),
                    BitOp::Or => bits.iter().any(|&b| b),
                    BitOp::Xor => bits.iter().filter(|&&b| b).count() % 2 == 1,
                    BitOp::Not => !bits[0],
                    BitOp::Diff => bits[0] && !others,
                    BitOp::Diff1 => !bits[0] && others,
                    BitOp::AndOr => bits[0] && others,
                    BitOp::One => bits.iter().filter(|&&b| b).count() == 1,
                };
                assert_eq!(super::super::bit(&result, at), wanted, "{name} bit {at}");
            }
        }
    }
}
