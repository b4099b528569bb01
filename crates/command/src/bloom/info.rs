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
            link.error(),
        );
        reply.bulk(line.as_bytes());
    }
    Ok(())
}
