//! AROP key start end <SUM | MIN | MAX | AND | OR | XOR | USED | MATCH value>

use darter_base::number;
use darter_wire::{Args, Reply};

use super::long_read::{self, PlaceSpan, RangeCollector, Took};
use super::{range, read, spec};
use crate::reader::is;
use crate::{Ctx, DataCommand, Fault};

/// AROP.
pub const AROP: DataCommand = DataCommand {
    spec: spec(
        read("arop", -5),
        "key start end <SUM | MIN | MAX | AND | OR | XOR | USED | MATCH value>",
        "Performs aggregate operations on array elements in a range.",
    )
    .cost("O(N) where N is the number of existing elements in range"),
    run: op,
};

/// The operation on the elements.
#[derive(Clone)]
enum ArrayOp {
    Count(Option<Box<[u8]>>),
    Number(fn(f64, f64) -> f64),
    Bits(fn(i64, i64) -> i64),
}

fn parse(args: Args<'_>) -> Result<ArrayOp, Fault> {
    let word = args.at(4);
    let op = match () {
        () if is(word, "SUM") => ArrayOp::Number(|a, b| a + b),
        () if is(word, "MIN") => ArrayOp::Number(f64::min),
        () if is(word, "MAX") => ArrayOp::Number(f64::max),
        () if is(word, "AND") => ArrayOp::Bits(|a, b| a & b),
        () if is(word, "OR") => ArrayOp::Bits(|a, b| a | b),
        () if is(word, "XOR") => ArrayOp::Bits(|a, b| a ^ b),
        () if is(word, "USED") => ArrayOp::Count(None),
        () if is(word, "MATCH") => ArrayOp::Count(Some(args.get(5).ok_or(Fault::Syntax)?.into())),
        () => return Err(Fault::Syntax),
    };
    let wanted = if matches!(op, ArrayOp::Count(Some(_))) { 6 } else { 5 };
    if args.len() == wanted { Ok(op) } else { Err(Fault::Syntax) }
}

/// Joins the elements by an operation.
#[derive(Clone)]
struct JoinedElements {
    op: ArrayOp,
    count: i64,
    number: Option<f64>,
    bits: Option<i64>,
}

impl RangeCollector for JoinedElements {
    fn take(&mut self, _at: u64, text: &[u8], _reply: &mut Reply<'_>, _bytes_max: usize) -> Took {
        match &self.op {
            ArrayOp::Count(wanted) => {
                self.count += i64::from(wanted.as_ref().is_none_or(|wanted| **wanted == *text));
            }
            ArrayOp::Number(join) => {
                if let Some(number) = number::parse_f64(text).filter(|number| !number.is_nan()) {
                    self.number = Some(self.number.map_or(number, |so_far| join(so_far, number)));
                }
            }
            ArrayOp::Bits(join) => {
                if let Some(number) = integer(text) {
                    self.bits = Some(self.bits.map_or(number, |so_far| join(so_far, number)));
                }
            }
        }
        Took::On
    }

    fn len(&self) -> Option<usize> {
        None
    }

    fn finish(&mut self, reply: &mut Reply<'_>) {
        match (&self.op, self.number, self.bits) {
            (ArrayOp::Count(_), ..) => reply.int(self.count),
            (ArrayOp::Number(_), Some(number), _) => {
                let mut text = Vec::new();
                number::write_f64(&mut text, number);
                reply.bulk(&text);
            }
            (ArrayOp::Bits(_), _, Some(bits)) => reply.int(bits),
            (ArrayOp::Number(_) | ArrayOp::Bits(_), ..) => reply.null(),
        }
    }
}

fn op(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let ((low, high), _) = range(args.at(2), args.at(3))?;
    let joined = JoinedElements { op: parse(args)?, count: 0, number: None, bits: None };
    long_read::answer(ctx, args.at(1), vec![PlaceSpan { low, high, is_reversed: false }], joined, reply)
}

/// A number without its fraction, as far as it has 64 bits.
fn integer(text: &[u8]) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    number::parse_i64(text).or_else(|| {
        let number = number::parse_f64(text)?;
        (-END..END).contains(&number).then_some(number as i64)
    })
}
