//! Parts of a string: APPEND, PREPEND, SETRANGE, GETRANGE, SUBSTR, STRLEN.

use darter_store::change::Class;
use darter_store::{Event, Expiry, Text};
use darter_wire::{Args, Reply};

use crate::incremental::reduce::AT_ONCE_BYTES;
use crate::incremental::survey::SurveySubject;
use crate::reader;
use crate::spec::{Group, Keys, Marks, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// APPEND.
pub const APPEND: DataCommand = DataCommand {
    spec: Spec::write("append", 3, Keys::ONE).key_access("RW insert").mark(Marks::WORDS_ARE_FEW).fast().doc(
        Group::String,
        "2.0.0",
        "key value",
        "Adds bytes to the end of a string, which is made when missing.",
    ),
    run: append,
};

/// PREPEND, as Dragonfly has it.
pub const PREPEND: DataCommand = DataCommand {
    spec: Spec::write("prepend", 3, Keys::ONE)
        .replica_form(ReplicaForm::Values)
        .key_access("RW insert")
        .fast()
        .doc(
            Group::String,
            "1.0.0",
            "key value",
            "Adds bytes to the front of a string, which is made when missing.",
        )
        .cost("O(N) over the length of the string"),
    run: prepend,
};

/// SETRANGE.
pub const SETRANGE: DataCommand = DataCommand {
    spec: Spec::write("setrange", 4, Keys::ONE)
        .doc(
            Group::String,
            "2.2.0",
            "key offset value",
            "Overwrites a string from an offset on; zeros fill the gap before it.",
        )
        .cost("O(M) over the length of the bytes given, O(N) when the string grows"),
    run: setrange,
};

/// GETRANGE.
pub const GETRANGE: DataCommand = DataCommand {
    spec: Spec::read("getrange", 4, Keys::ONE)
        .doc(Group::String, "2.4.0", "key start end", "Returns the bytes of a string between two offsets.")
        .cost("O(N) over the length of the answer"),
    run: getrange,
};

/// SUBSTR.
pub const SUBSTR: DataCommand = DataCommand {
    spec: Spec::read("substr", 4, Keys::ONE)
        .deprecated("2.0.0", "`GETRANGE`")
        .doc(Group::String, "1.0.0", "key start end", "Returns the bytes of a string between two offsets.")
        .cost("O(N) over the length of the answer"),
    run: getrange,
};

/// STRLEN.
pub const STRLEN: DataCommand = DataCommand {
    spec: Spec::read("strlen", 2, Keys::ONE).key_access("RO").fast().doc(
        Group::String,
        "2.2.0",
        "key",
        "Returns the length of a string in bytes.",
    ),
    run: strlen,
};

const APPEND_EVENT: Event = Event::new(Class::STRING, "append");
const PREPEND_EVENT: Event = Event::new(Class::STRING, "prepend");
const SETRANGE_EVENT: Event = Event::new(Class::STRING, "setrange");

/// `a + b`, unless that is more than `max`.
fn joint_len(a: usize, b: usize, max: u64) -> Result<usize, Fault> {
    a.checked_add(b).filter(|&len| len as u64 <= max).ok_or(Fault::TooLong)
}

fn append(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    join(ctx, args, APPEND_EVENT, reply)
}

fn prepend(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    join(ctx, args, PREPEND_EVENT, reply)
}

fn join(ctx: &mut Ctx<'_>, args: Args<'_>, event: Event, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (more, max) = (args.at(2), ctx.env.proto_max_bulk_len);
    if ctx.may_leave_write(more) && leave_join(ctx, args, event)? {
        return Ok(());
    }
    let mut place = ctx.at(args.at(1));
    let len = match place.text()?.map(Text::len) {
        None => {
            place.put_text(more, Expiry::None)?;
            more.len()
        }
        Some(old_len) => {
            let len = joint_len(old_len, more.len(), max)?;
            let (value, is_drafted) = place.edit_text_as_drafted(len)?;
            if event == PREPEND_EVENT {
                value.copy_within(..old_len, more.len());
                value[..more.len()].copy_from_slice(more);
            } else if !is_drafted {
                value[old_len..].copy_from_slice(more);
            }
            len
        }
    };
    place.changed(event);
    reply.int_len(len);
    Ok(())
}

/// Leaves adding a long value to slices; false if it must be added at once.
#[cold]
fn leave_join(ctx: &mut Ctx<'_>, args: Args<'_>, event: Event) -> Result<bool, Fault> {
    let (more, max) = (args.at(2), ctx.env.proto_max_bulk_len);
    let old_len = ctx.at(args.at(1)).text()?.map(Text::len);
    match old_len {
        None => Ok(ctx.leave_write(args.at(1), 2, Expiry::None, args)),
        Some(old_len) if event == APPEND_EVENT => {
            let len = joint_len(old_len, more.len(), max)?;
            Ok(ctx.leave_growth(args.at(1), (old_len, len), Some(2), args))
        }
        Some(_) => Ok(false),
    }
}

fn setrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let patch = args.at(3);
    let offset =
        usize::try_from(reader::int(args.at(2))?).map_err(|_| Fault::text("ERR offset is out of range"))?;
    let limit = joint_len(offset, patch.len(), ctx.env.proto_max_bulk_len);
    if !patch.is_empty() && limit.as_ref().is_ok_and(|end| ctx.may_leave_growth(*end)) {
        let old_len = ctx.at(args.at(1)).text()?.map_or(0, Text::len);
        let ends = (old_len, offset + patch.len());
        if old_len <= offset && ctx.leave_growth(args.at(1), ends, Some(3), args) {
            return Ok(());
        }
    }
    let mut place = ctx.at(args.at(1));
    let old_len = place.text()?.map_or(0, Text::len);
    if patch.is_empty() {
        reply.int_len(old_len);
        return Ok(());
    }
    let end = limit?;
    let (value, is_drafted) = place.edit_text_as_drafted(end.max(old_len))?;
    // A draft has it, unless the string has become longer since.
    if !is_drafted || old_len > offset {
        value[offset..end].copy_from_slice(patch);
    }
    place.changed(SETRANGE_EVENT);
    reply.int_len(end.max(old_len));
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, end) = (reader::int(args.at(2))?, reader::int(args.at(3))?);
    if ctx.take_answer(reply) {
        return Ok(());
    }
    let may_slice = ctx.may_slice;
    let text = ctx.read_text(args.at(1))?.unwrap_or(Text::Plain(b""));
    match range_of(text.len(), start, end) {
        Some((from, to)) if may_slice && to - from > AT_ONCE_BYTES => {
            if !ctx.leave_text(args.at(1), (from, to), reply) {
                ctx.survey(SurveySubject::Range(start, end), to - from, args, reply);
            }
        }
        Some((from, to)) => reply.bulk(&text.range(from, to)),
        None => reply.bulk(b""),
    }
    Ok(())
}

/// The bytes `from..to` for the offsets `start` and `end` of a string; negative ones count from its end.
pub(crate) fn range_of(len: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    let len = i64::try_from(len).ok()?;
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let from_front = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end {
        return None;
    }
    Some((usize::try_from(start).ok()?, usize::try_from(end).ok()? + 1))
}

fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(ctx.read(args.at(1)).text()?.map_or(0, Text::len));
    Ok(())
}
