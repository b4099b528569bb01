//! HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...], HPEXPIRE, HEXPIREAT, HPEXPIREAT,
//! HPERSIST

use darter_pack::table::Table;
use darter_store::{Event, Keyed};
use darter_wire::{Args, Reply};

use super::{Edit, HDEL_EVENT, HEXPIRE_EVENT, at, event};
use crate::reader::{self, is};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn spec(name: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::write(name, -6, Keys::ONE).fast().doc(Group::Hash, "7.4.0", syntax, summary).cost("O(N)")
}

/// HEXPIRE.
pub const HEXPIRE: DataCommand = DataCommand {
    spec: spec(
        "hexpire",
        "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets how many seconds from now fields of a hash expire.",
    ),
    run: |ctx, args, reply| expire(ctx, args, reply, Clock::Seconds, "hexpire"),
};
/// HPEXPIRE.
pub const HPEXPIRE: DataCommand = DataCommand {
    spec: spec(
        "hpexpire",
        "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets how many milliseconds from now fields of a hash expire.",
    ),
    run: |ctx, args, reply| expire(ctx, args, reply, Clock::Millis, "hpexpire"),
};
/// HEXPIREAT.
pub const HEXPIREAT: DataCommand = DataCommand {
    spec: spec(
        "hexpireat",
        "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the Unix time in seconds at which fields of a hash expire.",
    ),
    run: |ctx, args, reply| expire(ctx, args, reply, Clock::UnixSeconds, "hexpireat"),
};
/// HPEXPIREAT.
pub const HPEXPIREAT: DataCommand = DataCommand {
    spec: spec(
        "hpexpireat",
        "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the Unix time in milliseconds at which fields of a hash expire.",
    ),
    run: |ctx, args, reply| expire(ctx, args, reply, Clock::UnixMillis, "hpexpireat"),
};
/// HPERSIST.
pub const HPERSIST: DataCommand = DataCommand {
    spec: Spec::shrink("hpersist", -5, Keys::ONE)
        .fast()
        .doc(
            Group::Hash,
            "7.4.0",
            "key FIELDS numfields field [field ...]",
            "Removes the expiry of fields of a hash.",
        )
        .cost("O(N)"),
    run: hpersist,
};

/// The unit and the origin of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clock {
    Seconds,
    Millis,
    UnixSeconds,
    UnixMillis,
}

impl Clock {
    /// The Unix time in milliseconds that `arg` means.
    ///
    /// Errors: not an integer, negative, or past 2^46 milliseconds, which names `command`.
    pub fn unix_ms(self, arg: &[u8], now_ms: u64, command: &'static str) -> Result<u64, Fault> {
        let n = reader::int(arg)?;
        let n = u64::try_from(n).map_err(|_| Fault::text("ERR invalid expire time, must be >= 0"))?;
        let scale = if matches!(self, Clock::Seconds | Clock::UnixSeconds) { 1000 } else { 1 };
        let base = if matches!(self, Clock::Seconds | Clock::Millis) { now_ms } else { 0 };
        let ms = n.checked_mul(scale).and_then(|ms| ms.checked_add(base));
        ms.filter(|&ms| ms <= TIME_MS_MAX).ok_or(Fault::InvalidExpire(command))
    }
}

/// Latest time a field may expire at.
const TIME_MS_MAX: u64 = (1 << 46) - 1;

/// The fields of `FIELDS numfields field [field ...]`, whose first word is argument `at`.
pub(super) fn fields<'a>(args: Args<'a>, at: usize, no_number: &'static str) -> Result<Args<'a>, Fault> {
    if !args.get(at).is_some_and(|word| is(word, "fields")) {
        return Err(Fault::text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let numfields = match args.get(at + 1).map(reader::int) {
        Some(Ok(n)) if n >= 1 => n.unsigned_abs(),
        _ => return Err(Fault::text(no_number)),
    };
    let fields = args.tail(at + 2);
    if numfields != fields.len() as u64 {
        return Err(Fault::text("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(fields)
}

pub(super) const NO_COUNT: &str = "ERR Number of fields must be a positive integer";

/// The words after FIELDS, among options in any order: `numfields` times `each` words. `at` is the position of
/// numfields.
///
/// Errors: `no_number`, or too few words.
pub(super) fn counted<'a>(
    args: Args<'a>,
    at: usize,
    each: usize,
    no_number: &'static str,
) -> Result<Args<'a>, Fault> {
    let numfields = args.get(at).map(reader::int);
    let Some(n) = numfields.and_then(Result::ok).and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 1)
    else {
        return Err(Fault::text(no_number));
    };
    let (rest, len) = (args.tail(at + 1), n.unsigned_abs() as usize * each);
    if len > rest.len() { Err(Fault::text("ERR wrong number of arguments")) } else { Ok(rest.head(len)) }
}

pub(super) const FIELDS_TWICE: Fault = Fault::text("ERR FIELDS keyword specified multiple times");
pub(super) const NO_FIELDS: Fault = Fault::text("ERR missing FIELDS argument");

pub(super) fn unknown(word: &[u8]) -> Fault {
    Fault::Text(format!("ERR unknown argument: {}", String::from_utf8_lossy(word)).into())
}

/// The condition for replacing an old time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpireCondition {
    Always,
    IfNone,
    IfSome,
    IfLater,
    IfEarlier,
}

impl ExpireCondition {
    fn of(arg: &[u8]) -> Option<ExpireCondition> {
        const WORDS: [(&str, ExpireCondition); 4] = [
            ("nx", ExpireCondition::IfNone),
            ("xx", ExpireCondition::IfSome),
            ("gt", ExpireCondition::IfLater),
            ("lt", ExpireCondition::IfEarlier),
        ];
        WORDS.iter().find(|(word, _)| is(arg, word)).map(|&(_, condition)| condition)
    }

    /// A field without a time expires later than any other.
    fn holds(self, old_ms: Option<u64>, new_ms: u64) -> bool {
        match self {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => old_ms.is_none(),
            ExpireCondition::IfSome => old_ms.is_some(),
            ExpireCondition::IfLater => old_ms.is_some_and(|old| new_ms > old),
            ExpireCondition::IfEarlier => old_ms.is_none_or(|old| new_ms < old),
        }
    }
}

/// The condition and the fields of HEXPIRE and similar commands, in any order.
fn condition_and_fields<'a>(args: Args<'a>) -> Result<(ExpireCondition, Args<'a>), Fault> {
    let (mut condition, mut is_ambiguous, mut fields) = (ExpireCondition::Always, false, None);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        at += 1;
        if is(word, "fields") {
            if fields.is_some() {
                return Err(FIELDS_TWICE);
            }
            if args.len() < at + 2 {
                return Err(Fault::text("ERR FIELDS requires at least numfields and one field argument"));
            }
            let named = counted(args, at, 1, "ERR Parameter `numFields` should be greater than 0")?;
            at += 1 + named.len();
            fields = Some(named);
        } else if let Some(given) = ExpireCondition::of(word) {
            is_ambiguous |= condition != ExpireCondition::Always && condition != given;
            condition = given;
        } else {
            return Err(unknown(word));
        }
    }
    let fields = fields.ok_or(NO_FIELDS)?;
    if is_ambiguous {
        return Err(Fault::text("ERR Multiple condition flags specified"));
    }
    Ok((condition, fields))
}

fn expire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    clock: Clock,
    name: &'static str,
) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    place.view::<Table>()?;
    let when_ms = clock.unix_ms(args.at(2), now_ms, name)?;
    let (condition, fields) = condition_and_fields(args)?;
    reply.array(fields.len());
    let (mut updated, mut deleted) = (0, 0);
    let edited = place.edit(|table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        for field in fields.iter() {
            let old_ms = edit.get(field).map(|entry| entry.expiry_ms());
            reply.int(match old_ms {
                None => NO_FIELD,
                Some(old_ms) if !condition.holds(old_ms, when_ms) => NOT_MET,
                Some(_) if when_ms <= now_ms => {
                    edit.take(field);
                    deleted += 1;
                    DELETED
                }
                Some(_) => {
                    edit.set_expiry(field, Some(when_ms))?;
                    updated += 1;
                    DONE
                }
            });
        }
        Ok::<(), Fault>(())
    })?;
    let Some(edited) = edited else {
        fields.iter().for_each(|_| reply.int(NO_FIELD));
        return Ok(());
    };
    report(&mut place, updated, deleted, edited.is_gone);
    edited.result
}

/// Reports that fields were given times, or were deleted because these are past.
pub(super) fn report(place: &mut Keyed<'_>, updated: usize, deleted: usize, is_gone: bool) {
    if deleted > 0 {
        place.changed(HDEL_EVENT);
    } else if updated > 0 {
        place.changed(HEXPIRE_EVENT);
    }
    if is_gone {
        place.changed(Event::DEL);
    }
}

fn hpersist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    place.view::<Table>()?;
    let fields = fields(args, 2, NO_COUNT)?;
    reply.array(fields.len());
    let edited = place.edit(|table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        let mut changed = false;
        for field in fields.iter() {
            reply.int(match edit.get(field).map(|entry| entry.expiry_ms()) {
                None => NO_FIELD,
                Some(None) => NO_TIME,
                Some(Some(_)) => {
                    edit.set_expiry(field, None)?;
                    changed = true;
                    DONE
                }
            });
        }
        Ok::<bool, Fault>(changed)
    })?;
    match edited {
        None => fields.iter().for_each(|_| reply.int(NO_FIELD)),
        Some(edited) => {
            if edited.result? {
                place.changed(event("hpersist"));
            }
        }
    }
    Ok(())
}

pub(super) const NO_FIELD: i64 = -2;
pub(super) const NO_TIME: i64 = -1;
const NOT_MET: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;
