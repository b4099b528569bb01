//! CF.ADD key item, CF.ADDNX key item, CF.INSERT key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...], CF.INSERTNX

use darter_sketch::Cuckoo;
use darter_sketch::cuckoo::{CuckooFault, hash};
use darter_store::{Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{CAPACITY, CAPACITY_MAX, NO_MEMORY, NOT_FOUND, SETTINGS, TABLES_MAX, doc};
use crate::probabilistic::{SILENT, arity, int};
use crate::spec::{Keys, Spec};
use crate::{ArgReader, Ctx, DataCommand, Fault};

const COST: &str =
    "O(n * (k + i)), where n is the number of items, k is the number of sub-filters and i is maxIterations";
const INSERT_SYNTAX: &str = "key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]";

/// CF.ADD.
pub const ADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cf.add", 3, Keys::ONE),
        "key item",
        "Adds an item; creates the filter if there is none.",
    )
    .cost(COST),
    run: |ctx, args, reply| add_all(ctx, args.at(1), args.tail(2), InsertCall::ONE, reply),
};
/// CF.ADDNX.
pub const ADDNX: DataCommand = DataCommand {
    spec: doc(Spec::write("cf.addnx", 3, Keys::ONE), "key item", "Adds an item unless it seems to be there.")
        .cost(COST),
    run: |ctx, args, reply| {
        add_all(ctx, args.at(1), args.tail(2), InsertCall { only_new: Only::New, ..InsertCall::ONE }, reply)
    },
};
/// CF.INSERT.
pub const INSERT: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cf.insert", -4, Keys::ONE),
        INSERT_SYNTAX,
        "Adds items; creates the filter if there is none.",
    )
    .cost(COST),
    run: |ctx, args, reply| insert(ctx, args, "cf.insert", Only::Any, reply),
};
/// CF.INSERTNX.
pub const INSERTNX: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cf.insertnx", -4, Keys::ONE),
        INSERT_SYNTAX,
        "Adds items that do not seem to be there.",
    )
    .cost(COST),
    run: |ctx, args, reply| insert(ctx, args, "cf.insertnx", Only::New, reply),
};

/// The items that are added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Any,
    New,
}

/// The form of the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CuckooShape {
    Single,
    Array,
}

/// The parsed arguments of a call.
#[derive(Clone, Copy)]
struct InsertCall {
    capacity: i64,
    only_new: Only,
    shape: CuckooShape,
    // True if a missing filter is created.
    makes: bool,
}

impl InsertCall {
    const ONE: InsertCall =
        InsertCall { capacity: CAPACITY, only_new: Only::Any, shape: CuckooShape::Single, makes: true };
}

fn insert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &'static str,
    only_new: Only,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut call = InsertCall { only_new, shape: CuckooShape::Array, ..InsertCall::ONE };
    let mut reader = ArgReader::new(args, 2);
    let items = loop {
        let Some(word) = reader.peek() else { return Err(arity(name)) };
        reader.skip(1);
        match word.first().map_or(0, u8::to_ascii_lowercase) {
            b'i' => break reader.position(),
            b'c' => {
                call.capacity = int(reader.bytes().map_err(|_| arity(name))?, "Bad capacity")?;
                if !(4..=CAPACITY_MAX).contains(&call.capacity) {
                    let text = format!("Capacity must be in the range [cf-bucket-size * 2, {CAPACITY_MAX}]");
                    return Err(Fault::Text(text.into()));
                }
            }
            b'n' => call.makes = false,
            _ => return Err(Fault::text("Unknown argument received")),
        }
    };
    if items >= args.len() {
        return Err(arity(name));
    }
    add_all(ctx, args.at(1), args.tail(items), call, reply)
}

/// The result for one item.
#[derive(Clone, Copy)]
enum InsertAnswer {
    Added,
    Known,
    Failed(CuckooFault),
}

fn add_all(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    items: Args<'_>,
    call: InsertCall,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut place = ctx.at(key);
    match place.kind() {
        Some(Type::Cuckoo) => {}
        Some(_) => return Err(Fault::WrongType),
        None if call.makes => {
            let filter = Cuckoo::new(call.capacity.unsigned_abs(), SETTINGS).map_err(|_| NO_MEMORY)?;
            place.put_object(filter.wrap(), Expiry::None)?;
        }
        None => return Err(NOT_FOUND),
    }
    let edited = place.edit(|filter: &mut Cuckoo, arena, _| {
        if filter.tables_len() >= TABLES_MAX {
            return None;
        }
        let mut add = |item: &[u8]| {
            let hash = hash(item);
            if call.only_new == Only::New && filter.contains(arena, hash) {
                return InsertAnswer::Known;
            }
            filter.add(arena, hash).map_or_else(InsertAnswer::Failed, |()| InsertAnswer::Added)
        };
        Some(items.iter().map(&mut add).collect::<Vec<_>>())
    })?;
    let answers = edited.and_then(|edited| edited.result);
    let answers = answers.ok_or(Fault::text("Maximum expansions reached"))?;
    place.changed(SILENT);
    if call.shape == CuckooShape::Array {
        reply.array(answers.len());
    }
    answers.into_iter().for_each(|answer| write(answer, call, reply));
    Ok(())
}

fn write(answer: InsertAnswer, call: InsertCall, reply: &mut Reply<'_>) {
    // CF.INSERTNX has three answers, so integers in both protocols.
    let is_integer = call.only_new == Only::New && call.shape == CuckooShape::Array;
    match (answer, call.shape) {
        (InsertAnswer::Failed(CuckooFault::FilterFull), CuckooShape::Single) => reply.error("Filter is full"),
        (InsertAnswer::Failed(CuckooFault::NoRoom), CuckooShape::Single) => {
            reply.error("ERR Insufficient memory")
        }
        (InsertAnswer::Failed(_), CuckooShape::Array) if !is_integer && reply.is_resp3() => {
            reply.boolean(false)
        }
        (InsertAnswer::Failed(_), CuckooShape::Array) => reply.int(-1),
        (InsertAnswer::Added, _) if is_integer => reply.int(1),
        (InsertAnswer::Known, _) if is_integer => reply.int(0),
        (InsertAnswer::Added, _) => reply.boolean(true),
        (InsertAnswer::Known, _) => reply.boolean(false),
    }
}
