//! BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION], BF.CARD key, BF.DEBUG key

use darter_sketch::Bloom;
use darter_wire::{Args, Reply};

use super::{NOT_FOUND, doc};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// BF.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(
        Spec::read("bf.info", -2, Keys::ONE).fast(),
        "1.0.0",
        "key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]",
        "Shows size, layers and counts of a filter.",
    ),
    run: info,
};
/// BF.CARD.
pub const CARD: DataCommand = DataCommand {
    spec: doc(
        Spec::read("bf.card", 2, Keys::ONE).fast(),
        "2.4.4",
        "key",
        "Counts the items that were added.",
    ),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        reply.int(place.view::<Bloom>()?.map_or(0, |view| view.root.items().cast_signed()));
        Ok(())
    },
};
/// BF.DEBUG.
pub const DEBUG: DataCommand = DataCommand {
    spec: doc(Spec::read("bf.debug", 2, Keys::ONE), "1.0.0", "key", "Shows the parameters of each layer."),
    run: debug,
};

/// The fields of BF.INFO, in its order.
const FIELDS: [(&str, &str); 5] = [
    ("Capacity", "CAPACITY"),
    ("Size", "SIZE"),
    ("Number of filters", "FILTERS"),
    ("Number of items inserted", "ITEMS"),
    ("Expansion rate", "EXPANSION"),
];

fn info(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(arity("bf.info"));
    }
    let place = ctx.read(args.at(1));
    let bloom = place.view::<Bloom>()?.ok_or(NOT_FOUND)?.root;
    let numbers = [
        Some(bloom.capacity()),
        Some(bloom.nominal_bytes()),
        Some(bloom.links().len() as u64),
        Some(bloom.items()),
        bloom.expansion().map(u64::from),
    ];
    let write = |reply: &mut Reply<'_>, number: Option<u64>| match number {
        Some(number) => reply.int(number.cast_signed()),
        None => reply.null(),
    };
    let Some(word) = args.get(2) else {
        reply.map(FIELDS.len());
        for ((name, _), number) in FIELDS.iter().zip(numbers) {
            reply.status(name);
            write(reply, number);
        }
        return Ok(());
    };
    let found = FIELDS.iter().zip(numbers).find(|((_, option), _)| is(word, option));
    let ((name, _), number) = found.ok_or(Fault::text("Invalid information value"))?;
    if reply.is_resp3() {
        reply.map(1);
        reply.status(name);
    } else {
        reply.array(1);
    }
    write(reply, number);
    Ok(())
}

fn debug(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let bloom = place.view::<Bloom>()?.ok_or(NOT_FOUND)?.root;
    reply.array(1 + bloom.links().len());
    reply.bulk(format!("size:{}", bloom.items()).as_bytes());
    for link in bloom.links() {
        let (bytes, bits) = (link.bits().bytes(), link.bits().bytes() * 8);
        let line = format!(
            "bytes:{bytes} bits:{bits} hashes:{} hashwidth:{} capacity:{} size:{} ratio:{}",
            link.hashes(),
            bloom.hash_bits(),
            link.entries(),
            link.items(),
            general(link.error()),
        );
        reply.bulk(line.as_bytes());
    }
    Ok(())
}

/// A number as C's `%g` prints it.
fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    let written = format!("{value:.*e}", DIGITS as usize - 1);
    let Some((mantissa, exponent)) = written.split_once('e') else { return written };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        return short(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (value, wanted) in [
            (0.0005, "0.0005"),
            (0.00025, "0.00025"),
            (6.25e-5, "6.25e-05"),
            (1.5625e-5, "1.5625e-05"),
            (0.01, "0.01"),
            (1.0 / 3.0, "0.333333"),
            (1e-10, "1e-10"),
            (123_456_789.0, "1.23457e+08"),
        ] {
            assert_eq!(general(value), wanted);
        }
    }
}
