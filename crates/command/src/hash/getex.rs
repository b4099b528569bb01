//! HGETEX key [EX | PX | EXAT | PXAT time | PERSIST] FIELDS numfields field [field ...], HGETDEL

use darter_pack::table::Table;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::expire::{Clock, FIELDS_TWICE, NO_COUNT, NO_FIELDS, counted, fields, report, unknown};
use super::{Edit, HDEL_EVENT, at, event};
use crate::item::reply_item;
use crate::reader::is;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HGETEX.
pub const HGETEX: DataCommand = DataCommand {
    spec: Spec::write("hgetex", -5, Keys::ONE).key_access("RW access update")
        .fast()
        .doc(
            Group::Hash,
            "8.0.0",
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
            "Returns the values of fields and sets when they expire.",
        )
        .cost("O(N)"),
    run: hgetex,
};
/// HGETDEL.
pub const HGETDEL: DataCommand = DataCommand {
    spec: Spec::shrink("hgetdel", -5, Keys::ONE)
        .key_access("RW access delete")
        .fast()
        .doc(
            Group::Hash,
            "8.0.0",
            "key FIELDS numfields field [field ...]",
            "Returns the values of fields and deletes them.",
        )
        .cost("O(N)"),
    run: hgetdel,
};

/// The effect on the times of the fields that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Nothing,
    Persist,
    Expire(u64),
}

/// The clock that a word of HGETEX and HSETEX names.
pub(super) fn clock(word: &[u8]) -> Option<Clock> {
    const WORDS: [(&str, Clock); 4] = [
        ("ex", Clock::Seconds),
        ("px", Clock::Millis),
        ("exat", Clock::UnixSeconds),
        ("pxat", Clock::UnixMillis),
    ];
    WORDS.iter().find(|(name, _)| is(word, name)).map(|&(_, clock)| clock)
}

/// The options, in any order.
fn parse<'a>(args: Args<'a>, now_ms: u64) -> Result<(Then, Args<'a>), Fault> {
    let (mut then, mut fields) = (Then::Nothing, None);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        at += 1;
        if is(word, "fields") {
            if fields.is_some() {
                return Err(FIELDS_TWICE);
            }
            if at == args.len() {
                return Err(Fault::Arity("hgetex".into()));
            }
            let named = counted(args, at, 1, "ERR invalid number of fields")?;
            at += 1 + named.len();
            fields = Some(named);
            continue;
        }
        let clock = clock(word);
        if clock.is_none() && !is(word, "persist") {
            return Err(unknown(word));
        }
        if then != Then::Nothing {
            const ONE: &str = "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified";
            return Err(Fault::text(ONE));
        }
        then = match clock {
            None => Then::Persist,
            Some(clock) => {
                let time = args.get(at).ok_or(Fault::text("ERR missing expire time"))?;
                at += 1;
                Then::Expire(clock.unix_ms(time, now_ms, "hgetex")?)
            }
        };
    }
    Ok((then, fields.ok_or(NO_FIELDS)?))
}

fn hgetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    place.view::<Table>()?;
    let (then, fields) = parse(args, now_ms)?;
    reply.array(fields.len());
    let (mut updated, mut deleted) = (0, 0);
    let edited = place.edit(|table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        for field in fields.iter() {
            let Some(entry) = edit.get(field) else {
                reply.null();
                continue;
            };
            reply_item(reply, entry.value());
            match then {
                Then::Persist if entry.expiry_ms().is_some() => {
                    edit.set_expiry(field, None)?;
                    updated += 1;
                }
                Then::Expire(ms) if ms <= now_ms => deleted += usize::from(edit.take(field)),
                Then::Expire(ms) => {
                    edit.set_expiry(field, Some(ms))?;
                    updated += 1;
                }
                Then::Nothing | Then::Persist => {}
            }
        }
        Ok::<(), Fault>(())
    })?;
    let Some(edited) = edited else {
        fields.iter().for_each(|_| reply.null());
        return Ok(());
    };
    if then == Then::Persist && updated > 0 {
        place.changed(event("hpersist"));
    } else {
        report(&mut place, updated, deleted, edited.is_gone);
    }
    edited.result
}

fn hgetdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(1));
    place.view::<Table>()?;
    let fields = fields(args, 2, NO_COUNT)?;
    reply.array(fields.len());
    let edited = place.edit(|table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        let mut deleted = 0;
        for field in fields.iter() {
            match edit.get(field) {
                Some(entry) => reply_item(reply, entry.value()),
                None => reply.null(),
            }
            deleted += usize::from(edit.take(field));
        }
        deleted
    })?;
    let Some(edited) = edited else {
        fields.iter().for_each(|_| reply.null());
        return Ok(());
    };
    if edited.result > 0 {
        place.changed(HDEL_EVENT);
        if edited.is_gone {
            place.changed(Event::DEL);
        }
    }
    Ok(())
}
