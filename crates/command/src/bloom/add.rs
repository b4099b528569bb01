//! BF.ADD key item, BF.MADD key item [item ...], BF.INSERT key [CAPACITY capacity] [ERROR error] [EXPANSION expansion]
//! [NOCREATE] [NONSCALING] ITEMS item [item ...], BF.EXISTS key item, BF.MEXISTS key item [item ...]

use darter_sketch::Bloom;
use darter_sketch::bloom::{BloomFault, ERROR_RATE_CAP, Hash, Scaling};
use darter_store::{Arena, Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{CAPACITY, CAPACITY_MAX, ERROR, EXPANSION, EXPANSION_MAX, NOT_FOUND, doc, not_made};
use crate::probabilistic::{SILENT, arity, float, int};
use crate::spec::{Keys, Spec};
use crate::{ArgReader, Ctx, DataCommand, Fault};

/// BF.ADD.
pub const ADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("bf.add", 3, Keys::ONE),
        "1.0.0",
        "key item",
        "Adds an item; creates the filter if there is none.",
    )
    .cost("O(k), where k is the number of hash functions used by the last sub-filter"),
    run: |ctx, args, reply| {
        add_all(ctx, args.at(1), args.tail(2), &Creation::default(), BloomShape::Single, reply)
    },
};
/// BF.MADD.
pub const MADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("bf.madd", -3, Keys::ONE),
        "1.0.0",
        "key item [item ...]",
        "Adds items; creates the filter if there is none.",
    )
    .cost("O(k * n), where k is the number of hash functions and n is the number of items"),
    run: |ctx, args, reply| {
        add_all(ctx, args.at(1), args.tail(2), &Creation::default(), BloomShape::Array, reply)
    },
};
/// BF.INSERT.
pub const INSERT: DataCommand = DataCommand {
    spec: doc(
        Spec::write("bf.insert", -4, Keys::ONE),
        "1.0.0",
        "key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] [NONSCALING] ITEMS item [item ...]",
        "Adds items; creates the filter if there is none.",
    )
    .cost("O(k * n), where k is the number of hash functions and n is the number of items"),
    run: insert,
};
/// BF.EXISTS.
pub const EXISTS: DataCommand = DataCommand {
    spec: doc(
        Spec::read("bf.exists", 3, Keys::ONE),
        "1.0.0",
        "key item",
        "Tells whether an item may have been added.",
    )
    .cost("O(k), where k is the number of hash functions used by the last sub-filter"),
    run: exists,
};
/// BF.MEXISTS.
pub const MEXISTS: DataCommand = DataCommand {
    spec: doc(
        Spec::read("bf.mexists", -3, Keys::ONE),
        "1.0.0",
        "key item [item ...]",
        "Tells for each item whether it may have been added.",
    )
    .cost("O(k * n), where k is the number of hash functions and n is the number of items"),
    run: |ctx, args, reply| {
        reply.array(args.len() - 2);
        exists(ctx, args, reply)
    },
};

/// Items whose memory is prefetched together.
const AHEAD: usize = 16;

/// Parameters of a filter that is created because its key is missing.
struct Creation {
    capacity: u64,
    error: f64,
    scaling: Scaling,
    is_allowed: bool,
}

impl Default for Creation {
    fn default() -> Creation {
        let scaling = Scaling::By(EXPANSION as u32);
        Creation { capacity: CAPACITY as u64, error: ERROR, scaling, is_allowed: true }
    }
}

/// The form of the reply: one answer or an array of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BloomShape {
    Single,
    Array,
}

fn insert(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut creation = Creation::default();
    let (mut is_fixed, mut growth) = (false, EXPANSION);
    let mut reader = ArgReader::new(args, 2);
    let items = loop {
        let Some(word) = reader.peek() else { return Err(arity("bf.insert")) };
        reader.skip(1);
        // As in the module, single letters distinguish the options.
        let letter = |at: usize| word.get(at).map_or(0, u8::to_ascii_lowercase);
        match letter(0) {
            b'i' => break reader.position(),
            b'e' if letter(1) == b'r' => {
                let rate = reader.bytes().map_err(|_| arity("bf.insert"))?;
                let rate = float(rate, "Bad error rate")?;
                if !(rate > 0.0 && rate < 1.0) {
                    return Err(Fault::text("Bad error rate"));
                }
                creation.error = rate.min(ERROR_RATE_CAP);
            }
            b'e' => growth = option(&mut reader, 0..=EXPANSION_MAX, "Bad expansion")?,
            b'c' => creation.capacity = option(&mut reader, 1..=CAPACITY_MAX, "Bad capacity")?.unsigned_abs(),
            b'n' if letter(2) == b'c' => creation.is_allowed = false,
            b'n' => is_fixed = true,
            _ => return Err(Fault::text("Unknown argument received")),
        }
    };
    if items >= args.len() {
        return Err(arity("bf.insert"));
    }
    let by = growth as u32;
    creation.scaling = if is_fixed || by == 0 { Scaling::Fixed(by) } else { Scaling::By(by) };
    add_all(ctx, args.at(1), args.tail(items), &creation, BloomShape::Array, reply)
}

/// The number after an option of BF.INSERT.
fn option(
    reader: &mut ArgReader<'_>,
    range: std::ops::RangeInclusive<i64>,
    otherwise: &'static str,
) -> Result<i64, Fault> {
    let word = reader.bytes().map_err(|_| arity("bf.insert"))?;
    let number = int(word, otherwise)?;
    if range.contains(&number) { Ok(number) } else { Err(Fault::text(otherwise)) }
}

/// Hashes up to [`AHEAD`] items and prefetches their memory.
fn look_ahead(bloom: &Bloom, arena: &Arena, items: &[&[u8]], hashes: &mut Vec<Hash>) {
    hashes.clear();
    hashes.extend(items.iter().map(|item| bloom.hash(item)));
    hashes.iter().for_each(|&hash| bloom.prefetch(arena, hash));
}

fn add_all(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    items: Args<'_>,
    creation: &Creation,
    shape: BloomShape,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut place = ctx.at(key);
    match place.kind() {
        Some(Type::Bloom) => {}
        Some(_) => return Err(Fault::WrongType),
        None if creation.is_allowed => {
            let made = Bloom::new(creation.capacity, creation.error, creation.scaling).map_err(not_made)?;
            place.put_object(made.wrap(), Expiry::None)?;
        }
        None => return Err(NOT_FOUND),
    }
    let items: Vec<&[u8]> = items.iter().collect();
    let edited = place.edit(|bloom: &mut Bloom, arena, _| {
        let (mut answers, mut hashes) = (Vec::with_capacity(items.len()), Vec::new());
        for batch in items.chunks(AHEAD) {
            look_ahead(bloom, arena, batch, &mut hashes);
            for &hash in &hashes {
                let answer = bloom.add(arena, hash);
                answers.push(answer);
                if answer == Err(BloomFault::FilterFull) {
                    return answers;
                }
            }
        }
        answers
    })?;
    place.changed(SILENT);
    let answers = edited.map_or(Vec::new(), |edited| edited.result);
    if shape == BloomShape::Array {
        reply.array(answers.len());
    }
    for answer in answers {
        match answer {
            Ok(is_new) => reply_flag(reply, is_new),
            Err(BloomFault::FilterFull) => reply.error("ERR non scaling filter is full"),
            Err(_) => reply.error("ERR problem inserting into filter"),
        }
    }
    Ok(())
}

/// A truth value in RESP3, 1 or 0 in RESP2.
fn reply_flag(reply: &mut Reply<'_>, flag: bool) {
    reply.boolean(flag);
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let items: Vec<&[u8]> = args.tail(2).iter().collect();
    // A key of another type has no items, as in RedisBloom.
    let Ok(Some(view)) = place.view::<Bloom>() else {
        items.iter().for_each(|_| reply_flag(reply, false));
        return Ok(());
    };
    let mut hashes = Vec::new();
    for batch in items.chunks(AHEAD) {
        look_ahead(view.root, view.arena, batch, &mut hashes);
        hashes.iter().for_each(|&hash| reply_flag(reply, view.root.contains(view.arena, hash)));
    }
    Ok(())
}
