//! OBJECT and STICK: the encoding of a value, and whether it may be evicted.

use crate::category::Categories;
use crate::spec::Marks;
use darter_base::number;
use darter_store::{Keyed, Text, Type};
use darter_wire::{Args, Reply};

use crate::ctx::Env;
use crate::spec::{Flags, Group, Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

/// OBJECT, the container.
pub const OBJECT: DataCommand = DataCommand {
    spec: Spec { flags: Flags::NONE, ..Spec::read("object", -2, Keys::None).mark(Marks::NO_GROUP_CATEGORY) }
        .doc(Group::Generic, "2.2.3", "", "Tells about the value of a key."),
    run: help,
};

/// OBJECT ENCODING.
pub const ENCODING: DataCommand = DataCommand {
    spec: Spec::read("object|encoding", 3, SECOND).key_access("RO").tips(&["nondeterministic_output"]).doc(
        Group::Generic,
        "2.2.3",
        "key",
        "Returns the name that Redis gives to how a value of this kind and size is kept.",
    ),
    run: encoding,
};

/// OBJECT FREQ.
pub const FREQ: DataCommand = DataCommand {
    spec: Spec::read("object|freq", 3, SECOND).key_access("RO").tips(&["nondeterministic_output"]).doc(
        Group::Generic,
        "4.0.0",
        "key",
        "Returns how often a key was used, if the eviction policy counts it.",
    ),
    run: freq,
};

/// OBJECT IDLETIME.
pub const IDLETIME: DataCommand = DataCommand {
    spec: Spec::read("object|idletime", 3, SECOND).key_access("RO").tips(&["nondeterministic_output"]).doc(
        Group::Generic,
        "2.2.3",
        "key",
        "Returns the seconds since a key was used, or 0 if they are not recorded.",
    ),
    run: idletime,
};

/// OBJECT REFCOUNT.
pub const REFCOUNT: DataCommand =
    DataCommand {
        spec: Spec::read("object|refcount", 3, SECOND)
            .key_access("RO")
            .tips(&["nondeterministic_output"])
            .doc(Group::Generic, "2.2.3", "key", "Returns the number of references to a value, which is 1."),
        run: refcount,
    };

/// OBJECT HELP.
pub const HELP: DataCommand = DataCommand {
    spec: Spec::other("object|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
        Group::Generic,
        "6.2.0",
        "",
        "Lists the subcommands of OBJECT.",
    ),
    run: help,
};

/// STICK, as Dragonfly has it.
pub const STICK: DataCommand = DataCommand {
    spec: Spec::shrink("stick", -2, Keys::REST)
        .replica_form(ReplicaForm::Values)
        .category(Categories::KEYSPACE)
        .fast()
        .doc(Group::Generic, "1.0.0", "key [key ...]", "Keeps keys from eviction; counts those newly kept.")
        .cost("O(N) over the number of keys"),
    run: stick,
};

/// Longer strings are `raw`.
const EMBSTR_LEN_MAX: usize = 44;

fn encoding(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let env = ctx.env;
    let place = ctx.at(args.at(2));
    match encoding_of(&place, env) {
        Some(name) => reply.bulk(name.as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// The name of the encoding that Redis would choose for the value, if the key exists.
pub(crate) fn encoding_of(place: &Keyed<'_>, env: &Env) -> Option<&'static str> {
    let record = place.record()?;
    Some(match record.value_type() {
        Type::String => match record.text()? {
            _ if record.was_edited() => "raw",
            Text::Plain(bytes) if !record.is_float() && number::parse_i64(bytes).is_some() => "int",
            text if text.len() <= EMBSTR_LEN_MAX => "embstr",
            _ => "raw",
        },
        Type::List => crate::list::encoding(place.view().ok()??, env),
        Type::Set => crate::set::encoding(place.view().ok()??, env),
        Type::Hash => crate::hash::encoding(place.view().ok()??, env),
        Type::Zset => crate::zset::encoding(place.view().ok()??, env),
        Type::Stream => "stream",
        Type::Array => "sliced-array",
        _ => "raw",
    })
}

fn freq(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_counted = ctx.env.policy_is_lfu;
    let place = ctx.at(args.at(2));
    match (place.exists(), is_counted) {
        (false, _) => reply.null(),
        (true, true) => {
            let seen = FREQ_NEW + i64::from(place.eviction_rank());
            let said = place.said_frequency().map(i64::from);
            // The observed frequency counts if it is above that of a new key and above the one set by RESTORE.
            reply.int(said.filter(|said| seen == FREQ_NEW || *said > seen).unwrap_or(seen));
        }
        (true, false) => {
            return Err(Fault::text(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                 when switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

/// OBJECT FREQ of a key that was just written, as in Redis; higher values are eviction ranks.
pub(super) const FREQ_NEW: i64 = 5;

fn idletime(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_kept = !ctx.env.policy_is_lfu;
    let mut place = ctx.at(args.at(2));
    match (place.exists(), is_kept) {
        (false, _) => reply.null(),
        (true, true) => {
            reply.int(i64::try_from(place.idle_seconds().unwrap_or_default()).unwrap_or(i64::MAX))
        }
        (true, false) => {
            return Err(Fault::text(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

/// Integers from 0 on that Redis keeps once for all keys.
const SHARED_INTS: i64 = 10_000;

fn refcount(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // With such a policy Redis notes uses in each value, which therefore cannot be shared.
    let may_share = !ctx.env.policy_counts_uses;
    let place = ctx.at(args.at(2));
    let Some(record) = place.record() else {
        reply.null();
        return Ok(());
    };
    // Small integers count as shared: each takes only the memory of its digits.
    let is_shared = matches!(record.text(), Some(Text::Plain(bytes))
        if may_share && !record.was_edited() && !record.is_float()
            && number::parse_i64(bytes).is_some_and(|n| (0..SHARED_INTS).contains(&n)));
    reply.int(if is_shared { i64::from(i32::MAX) } else { 1 });
    Ok(())
}

fn help(_: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Name of the encoding that Redis would choose for the value.",
        "FREQ <key>",
        "    How often the key was used, under an LFU policy.",
        "IDLETIME <key>",
        "    Seconds since the key was used.",
        "REFCOUNT <key>",
        "    References to the value.",
        "HELP",
        "    This text.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.status(line));
    Ok(())
}

fn stick(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = args.tail(1).iter().filter(|name| ctx.at(name).set_sticky(true)).count();
    reply.int_len(count);
    Ok(())
}
