//! AROP key start end <SUM | MIN | MAX | AND | OR | XOR | USED | MATCH value>

use darter_base::number;
use darter_store::Array;
use darter_wire::{Args, Reply};

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
enum Op<'a> {
    Count(Option<&'a [u8]>),
    Number(fn(f64, f64) -> f64),
    Bits(fn(i64, i64) -> i64),
}

fn parse(args: Args<'_>) -> Result<Op<'_>, Fault> {
    let word = args.at(4);
    let op = match () {
        () if is(word, "SUM") => Op::Number(|a, b| a + b),
        () if is(word, "MIN") => Op::Number(f64::min),
        () if is(word, "MAX") => Op::Number(f64::max),
        () if is(word, "AND") => Op::Bits(|a, b| a & b),
        () if is(word, "OR") => Op::Bits(|a, b| a | b),
        () if is(word, "XOR") => Op::Bits(|a, b| a ^ b),
        () if is(word, "USED") => Op::Count(None),
        () if is(word, "MATCH") => Op::Count(Some(args.get(5).ok_or(Fault::Syntax)?)),
        () => return Err(Fault::Syntax),
    };
    let wanted = if matches!(op, Op::Count(Some(_))) { 6 } else { 5 };
    if args.len() == wanted { Ok(op) } else { Err(Fault::Syntax) }
}

fn op(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let ((low, high), _) = range(args.at(2), args.at(3))?;
    let op = parse(args)?;
    let key = ctx.read(args.at(1));
    let view = key.view::<Array>()?;
    let each = |visit: &mut dyn FnMut(&[u8])| {
        if let Some(view) = view {
            view.root.each(view.arena, low, high, &mut |_, text| {
                visit(text);
                true
            });
        }
    };
    match op {
        Op::Count(wanted) => {
            let mut count = 0;
            each(&mut |text| count += i64::from(wanted.is_none_or(|wanted| wanted == text)));
            reply.int(count);
        }
        Op::Number(join) => {
            let mut joined: Option<f64> = None;
            each(&mut |text| {
                if let Some(number) = number::parse_f64(text).filter(|number| !number.is_nan()) {
                    joined = Some(joined.map_or(number, |so_far| join(so_far, number)));
                }
            });
            match joined {
                Some(number) => {
                    let mut text = Vec::new();
                    number::write_f64(&mut text, number);
                    reply.bulk(&text);
                }
                None => reply.null(),
            }
        }
        Op::Bits(join) => {
            let mut joined: Option<i64> = None;
            each(&mut |text| {
                if let Some(number) = integer(text) {
                    joined = Some(joined.map_or(number, |so_far| join(so_far, number)));
                }
            });
            match joined {
                Some(number) => reply.int(number),
                None => reply.null(),
            }
        }
    }
    Ok(())
}

/// A number without its fraction, as far as it has 64 bits.
fn integer(text: &[u8]) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    number::parse_i64(text).or_else(|| {
        let number = number::parse_f64(text)?;
        (-END..END).contains(&number).then_some(number as i64)
    })
}
