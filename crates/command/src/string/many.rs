//! Several strings at once: MGET, MSET, MSETNX, MSETEX.

use crate::keyspec;
use darter_base::number;
use darter_store::Expiry;
use darter_wire::{Args, Reply};

use super::get::reply_text;
use super::{EXPIRE_EVENT, SET_EVENT};
use crate::deadline::{self, Deadline};
use crate::incremental::survey::SurveySubject;
use crate::reader::ArgReader;
use crate::spec::{Group, Inlined, Keys, Marks, Spec};
use crate::{Ctx, DataCommand, Fault};

/// MGET.
pub const MGET: DataCommand = DataCommand {
    spec: Spec::read("mget", -2, Keys::REST)
        .tips(&["request_policy:multi_shard"])
        .inlined(Inlined::GetMany)
        .fast()
        .doc(Group::String, "1.0.0", "key [key ...]", "Returns the string values of several keys.")
        .cost("O(N) over the number of keys"),
    run: mget,
};

/// MSET.
pub const MSET: DataCommand = DataCommand {
    spec: Spec::write("mset", -3, Keys::PAIRS)
        .key_access("OW update")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .inlined(Inlined::SetMany)
        .mark(Marks::CHEAP)
        .doc(Group::String, "1.0.1", "key value [key value ...]", "Sets the string values of several keys.")
        .cost("O(N) over the number of keys"),
    run: mset,
};

/// MSETNX.
pub const MSETNX: DataCommand = DataCommand {
    spec: Spec::write("msetnx", -3, Keys::PAIRS)
        .key_access("OW insert")
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .doc(
            Group::String,
            "1.0.1",
            "key value [key value ...]",
            "Sets the string values of several keys unless one of them exists.",
        )
        .cost("O(N) over the number of keys"),
    run: msetnx,
};

/// MSETEX.
pub const MSETEX: DataCommand = DataCommand {
    spec: Spec::write("msetex", -4, Keys::Find(msetex_keys))
        .key_access("OW update")
        .key_groups(&[keyspec::KeySpec {
            access: keyspec::WRITTEN,
            begin: keyspec::Begin::Index(1),
            find: keyspec::Find::Count { step: 2 },
            notes: "",
        }])
        .flag(crate::Flags::MOVABLEKEYS)
        .doc(
            Group::String,
            "8.4.0",
            "numkeys key value [key value ...] [NX | XX] \
             [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets the string values of several keys and one deadline for all.",
        )
        .cost("O(N) over the number of keys"),
    run: msetex,
};

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.survey_many(SurveySubject::Values, args, reply) {
        return Ok(());
    }
    let keys = args.tail(1);
    reply.array(keys.len());
    for name in keys.iter() {
        match ctx.read_text(name) {
            Ok(Some(text)) => reply_text(reply, text),
            Ok(None) | Err(_) => reply.null(),
        }
    }
    Ok(())
}

/// Keys and values that alternate from argument `first` on, `count` pairs.
fn pairs(args: Args<'_>, first: usize, count: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
    (0..count).map(move |n| (args.at(first + 2 * n), args.at(first + 2 * n + 1)))
}

fn pairs_len(args: Args<'_>, command: &'static str) -> Result<usize, Fault> {
    let words = args.len().saturating_sub(1);
    if words.is_multiple_of(2) { Ok(words / 2) } else { Err(Fault::Arity(command.into())) }
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = pairs_len(args, "mset")?;
    for (name, value) in pairs(args, 1, count) {
        ctx.set_text(name, value, SET_EVENT)?;
    }
    reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = pairs_len(args, "msetnx")?;
    let is_free = pairs(args, 1, count).all(|(name, _)| !ctx.at(name).exists());
    if is_free {
        put_all(ctx, args, 1, count, Expiry::None)?;
    }
    reply.int(i64::from(is_free));
    Ok(())
}

fn put_all(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    first: usize,
    count: usize,
    expiry: Expiry,
) -> Result<(), Fault> {
    for (name, value) in pairs(args, first, count) {
        let mut place = ctx.at(name);
        place.put_text(value, expiry)?;
        place.changed(SET_EVENT);
        if matches!(expiry, Expiry::At(_)) {
            place.changed(EXPIRE_EVENT);
        }
    }
    Ok(())
}

fn msetex_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    let room = args.len().saturating_sub(2) / 2;
    let wanted = number::parse_i64(args.at(1)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    (0..wanted.min(room)).for_each(|n| visit(2 + 2 * n));
}

fn msetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = match number::parse_i64(args.at(1)) {
        Some(n) if (1..=i64::from(i32::MAX)).contains(&n) => usize::try_from(n).unwrap_or(usize::MAX),
        _ => return Err(Fault::text("ERR invalid numkeys value")),
    };
    if count > args.len().saturating_sub(2) / 2 {
        return Err(Fault::text("ERR wrong number of key-value pairs"));
    }
    let (mut deadline, mut keeps_ttl, mut presence) = (None, false, None);
    let mut reader = ArgReader::new(args, 2 + 2 * count);
    while !reader.is_done() {
        if !keeps_ttl && let Some(found) = Deadline::take(&mut reader) {
            deadline::put(&mut deadline, found)?;
        } else if deadline.is_none() && reader.take("KEEPTTL") {
            keeps_ttl = true;
        } else if presence != Some(true) && reader.take("NX") {
            presence = Some(false);
        } else if presence != Some(false) && reader.take("XX") {
            presence = Some(true);
        } else {
            return Err(Fault::Syntax);
        }
    }
    let expiry = match deadline {
        Some(deadline) => Expiry::At(deadline.resolve(ctx.now_ms, "msetex")?),
        None if keeps_ttl => Expiry::Keep,
        None => Expiry::None,
    };
    let holds = match presence {
        Some(wanted) => pairs(args, 2, count).all(|(name, _)| ctx.at(name).exists() == wanted),
        None => true,
    };
    if holds {
        put_all(ctx, args, 2, count, expiry)?;
    }
    reply.int(i64::from(holds));
    Ok(())
}
