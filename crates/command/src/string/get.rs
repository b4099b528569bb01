//! GET, GETDEL and GETEX: the value, and the effect on the key.

use darter_base::long;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::{EXPIRE_EVENT, PERSIST_EVENT};
use crate::deadline::{self, Deadline};
use crate::incremental::reduce::AT_ONCE_BYTES;
use crate::incremental::survey::SurveySubject;
use crate::reader::ArgReader;
use crate::spec::{Group, Inlined, Keys, Marks, Spec};
use crate::{Ctx, DataCommand, Fault};

/// GET.
pub const GET: DataCommand = DataCommand {
    spec: Spec::read("get", 2, Keys::ONE).inlined(Inlined::Get).mark(Marks::WORDS_ARE_FEW).fast().doc(
        Group::String,
        "1.0.0",
        "key",
        "Returns the string value of a key.",
    ),
    run: get,
};

/// GETDEL.
pub const GETDEL: DataCommand = DataCommand {
    spec: Spec::shrink("getdel", 2, Keys::ONE).key_access("RW access delete").fast().doc(
        Group::String,
        "6.2.0",
        "key",
        "Returns the string value of a key and deletes the key.",
    ),
    run: getdel,
};

/// GETEX.
pub const GETEX: DataCommand = DataCommand {
    spec: Spec::shrink("getex", -2, Keys::ONE).mark(Marks::SAYS_TIMES).key_access("RW access update").key_notes("RW and UPDATE because it changes the TTL").fast().doc(
        Group::String,
        "6.2.0",
        "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        "Returns the string value of a key and sets or removes its deadline.",
    ),
    run: getex,
};

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.take_answer(reply) {
        return Ok(());
    }
    let may_slice = ctx.may_slice;
    match ctx.read_first_text(args)? {
        Some(text) if may_slice && text.len() > AT_ONCE_BYTES => {
            let len = text.len();
            if !ctx.leave_text(args.at(1), (0, len), reply) {
                ctx.survey(SurveySubject::Text, len, args, reply);
            }
        }
        Some(text) => reply_text(reply, text),
        None => reply.null(),
    }
    Ok(())
}

/// Answers a string value.
#[inline]
pub(crate) fn reply_text(reply: &mut Reply<'_>, text: darter_store::Text<'_>) {
    match text {
        darter_store::Text::Plain(bytes) if bytes.len() >= long::BYTES_MIN => reply.bulk_long(bytes),
        darter_store::Text::Plain(bytes) => reply.bulk(bytes),
        packed => reply.bulk_with(packed.len(), |out| packed.write_to(out)),
    }
}

fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.read(args.at(1));
    match place.text()? {
        None => reply.null(),
        Some(text) => {
            reply_text(reply, text);
            place.remove();
            place.changed(Event::DEL);
        }
    }
    Ok(())
}

fn getex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (mut deadline, mut persist) = (None, false);
    let mut reader = ArgReader::new(args, 2);
    while !reader.is_done() {
        if !persist && let Some(found) = Deadline::take(&mut reader) {
            deadline::put(&mut deadline, found)?;
        } else if deadline.is_none() && reader.take("PERSIST") {
            persist = true;
        } else {
            return Err(Fault::Syntax);
        }
    }
    let now_ms = ctx.now_ms;
    let mut place = ctx.read(args.at(1));
    let Some(text) = place.text()? else {
        reply.null();
        return Ok(());
    };
    reply_text(reply, text);
    if let Some(deadline) = deadline {
        let ms = deadline.resolve(now_ms, "getex")?;
        if deadline.unit().is_absolute() && ms <= now_ms {
            place.remove();
            place.changed(Event::DEL);
        } else {
            place.set_deadline(Some(ms))?;
            place.changed(EXPIRE_EVENT);
        }
    } else if persist && place.deadline_ms().is_some() {
        place.set_deadline(None)?;
        place.changed(PERSIST_EVENT);
    }
    Ok(())
}
