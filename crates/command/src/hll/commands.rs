//! PFADD key [element ...], PFCOUNT key [key ...], PFMERGE destkey [sourcekey ...], PFDEBUG, PFSELFTEST

use crate::keyspec;
use darter_store::change::Class;
use darter_store::{Event, Expiry};
use darter_wire::{Args, Reply};

use super::estimate::{REGISTERS, count, place_of};
use super::format::{self, BrokenHll, HllForm, Registers};
use crate::reader::is;
use crate::spec::{Effect, Flags, Group, Keys, ReplicaForm, Spec};
use crate::string::put_raw;
use crate::{Ctx, DataCommand, Fault};

/// PFADD.
pub const PFADD: DataCommand = DataCommand {
    spec: Spec::write("pfadd", -2, Keys::ONE).key_access("RW insert").fast().doc(
        Group::Hyperloglog,
        "2.8.9",
        "key [element [element ...]]",
        "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.",
    ),
    run: pfadd,
};
/// PFCOUNT.
pub const PFCOUNT: DataCommand = DataCommand {
    spec: Spec::read("pfcount", -2, Keys::REST)
        .key_access("RW access")
        // It caches its count in the value.
        .effect(Effect::Itself)
        .flag(Flags::MAY_REPLICATE)
        .doc(
            Group::Hyperloglog,
            "2.8.9",
            "key [key ...]",
            "Returns the approximated cardinality of the set(s) observed by the HyperLogLog key(s).",
        )
        .cost("O(N)"),
    run: pfcount,
};
/// PFMERGE.
pub const PFMERGE: DataCommand = DataCommand {
    spec: Spec::write("pfmerge", -2, Keys::REST)
        .key_groups(&[keyspec::one(1, "RW access insert"), keyspec::rest(2, keyspec::READ)])
        .doc(
            Group::Hyperloglog,
            "2.8.9",
            "destkey [sourcekey [sourcekey ...]]",
            "Merges one or more HyperLogLog values into a single key.",
        )
        .cost("O(N)"),
    run: pfmerge,
};
/// PFDEBUG.
pub const PFDEBUG: DataCommand = DataCommand {
    spec: Spec::write("pfdebug", 3, Keys::Range { first: 2, last: 2, step: 1 })
        .replica_form(ReplicaForm::Values)
        .key_access("RW access")
        .flag(Flags::ADMIN)
        .doc(
            Group::Hyperloglog,
            "2.8.9",
            "subcommand key | SIMD ON | OFF",
            "Internal commands for debugging HyperLogLog values.",
        ),
    run: pfdebug,
};
/// PFSELFTEST.
pub const PFSELFTEST: DataCommand = DataCommand {
    spec: Spec::read("pfselftest", 1, Keys::None).flag(Flags::ADMIN).doc(
        Group::Hyperloglog,
        "2.8.9",
        "",
        "An internal command for testing HyperLogLog values.",
    ),
    run: pfselftest,
};

const PFADD_EVENT: Event = Event::new(Class::STRING, "pfadd");

impl From<BrokenHll> for Fault {
    fn from(broken: BrokenHll) -> Fault {
        match broken {
            BrokenHll::Foreign => Fault::text("WRONGTYPE Key is not a valid HyperLogLog string value."),
            BrokenHll::Corrupt => Fault::text("INVALIDOBJ Corrupted HLL object detected"),
        }
    }
}

fn pfadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let sparse_bytes_max = ctx.env.hll_sparse_max_bytes;
    let mut place = ctx.at(args.at(1));
    let (mut bytes, is_new) = match place.text()? {
        Some(text) => (text.bytes().into_owned(), false),
        None => (format::empty(), true),
    };
    let form = format::form(&bytes)?;
    let mut raised: Vec<(usize, u8)> = Vec::new();
    for element in args.tail(2).iter() {
        let (at, value) = place_of(element);
        if format::register(&bytes, at)? < value {
            raised.push((at, value));
            if form == HllForm::Dense {
                format::raise_dense(&mut bytes, at, value);
            }
        }
    }
    if !raised.is_empty() && form == HllForm::Sparse {
        let mut registers = [0; REGISTERS];
        format::merge(&bytes, &mut registers)?;
        raised.iter().for_each(|&(at, value)| registers[at] = registers[at].max(value));
        let mut rewritten = format::write(&registers, sparse_bytes_max);
        rewritten[8..format::HEAD].copy_from_slice(&bytes[8..format::HEAD]);
        bytes = rewritten;
    }
    let is_changed = is_new || !raised.is_empty();
    if is_changed {
        format::forget_count(&mut bytes);
        put_raw(&mut place, &bytes, Expiry::Keep)?;
        place.changed(PFADD_EVENT);
    }
    reply.int(i64::from(is_changed));
    Ok(())
}

fn pfcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() == 2 {
        return pfcount_one(ctx, args.at(1), reply);
    }
    let registers = merged(ctx, args.tail(1))?;
    reply.int(count(&registers) as i64);
    Ok(())
}

fn pfcount_one(ctx: &mut Ctx<'_>, key: &[u8], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.read(key);
    let Some(text) = place.text()? else {
        reply.int(0);
        return Ok(());
    };
    let mut bytes = text.bytes().into_owned();
    format::form(&bytes)?;
    let counted = match format::cached_count(&bytes) {
        Some(counted) => counted,
        None => {
            let mut registers = [0; REGISTERS];
            format::merge(&bytes, &mut registers)?;
            let counted = count(&registers);
            format::cache_count(&mut bytes, counted);
            put_raw(&mut place, &bytes, Expiry::Keep)?;
            // No event, but the bytes have changed: Redis counts that too.
            place.counted();
            counted
        }
    };
    reply.int(counted as i64);
    Ok(())
}

/// The registers of several keys together; missing ones count for nothing.
fn merged(ctx: &mut Ctx<'_>, keys: Args<'_>) -> Result<Registers, Fault> {
    let mut registers = [0; REGISTERS];
    for key in keys.iter() {
        if let Some(text) = ctx.read_text(key)? {
            format::merge(&text.bytes(), &mut registers)?;
        }
    }
    Ok(registers)
}

fn pfmerge(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut is_dense = false;
    let mut registers = [0; REGISTERS];
    for key in args.tail(1).iter() {
        if let Some(text) = ctx.read_text(key)? {
            is_dense |= format::form(&text.bytes())? == HllForm::Dense;
            format::merge(&text.bytes(), &mut registers)?;
        }
    }
    let sparse_bytes_max = if is_dense { 0 } else { ctx.env.hll_sparse_max_bytes };
    let mut bytes = format::write(&registers, sparse_bytes_max);
    let mut place = ctx.at(args.at(1));
    if let Some(old) = place.text()? {
        bytes[8..format::HEAD].copy_from_slice(&old.bytes()[8..format::HEAD]);
    }
    format::forget_count(&mut bytes);
    put_raw(&mut place, &bytes, Expiry::Keep)?;
    place.changed(PFADD_EVENT);
    reply.ok();
    Ok(())
}

fn pfdebug(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // The compiler chooses the instructions for merging.
    if is(args.at(1), "simd") && (is(args.at(2), "on") || is(args.at(2), "off")) {
        reply.ok();
        return Ok(());
    }
    let mut place = ctx.at(args.at(2));
    let Some(text) = place.text()? else { return Err(Fault::text("ERR The specified key does not exist")) };
    let bytes = text.bytes().into_owned();
    let form = format::form(&bytes)?;
    let word = args.at(1);
    if is(word, "encoding") {
        reply.status(if form == HllForm::Dense { "dense" } else { "sparse" });
    } else if is(word, "decode") {
        if form == HllForm::Dense {
            return Err(Fault::text("ERR HLL encoding is not sparse"));
        }
        reply.bulk(format::describe(&bytes)?.as_bytes());
    } else if is(word, "getreg") || is(word, "todense") {
        let mut registers = [0; REGISTERS];
        format::merge(&bytes, &mut registers)?;
        if form == HllForm::Sparse {
            put_raw(&mut place, &format::write_dense(&registers), Expiry::Keep)?;
        }
        if is(word, "todense") {
            reply.int(i64::from(form == HllForm::Sparse));
        } else {
            reply.array(REGISTERS);
            registers.iter().for_each(|&value| reply.int(i64::from(value)));
        }
    } else {
        let word = String::from_utf8_lossy(word).into_owned();
        return Err(Fault::Text(format!("ERR Unknown PFDEBUG subcommand '{word}'").into()));
    }
    Ok(())
}

/// Fills registers in both forms and counts, as PFSELFTEST requires.
fn pfselftest(_: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut registers = [0; REGISTERS];
    let mut dense = format::write_dense(&registers);
    for n in 0..100_000u64 {
        let (at, value) = place_of(&n.to_le_bytes());
        registers[at] = registers[at].max(value);
        if format::register(&dense, at)? < value {
            format::raise_dense(&mut dense, at, value);
        }
    }
    let mut back = [0; REGISTERS];
    format::merge(&dense, &mut back)?;
    if back != registers || count(&registers).abs_diff(100_000) > 3000 {
        return Err(Fault::text("ERR TESTFAILED registers or estimate are wrong"));
    }
    reply.ok();
    Ok(())
}
