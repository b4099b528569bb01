//! SET and the older commands that are parts of it: SETNX, SETEX, PSETEX, GETSET.

use darter_store::Expiry;
use darter_wire::{Args, Reply};

use super::compare::{ValueCondition, compares};
use super::get::reply_text;
use super::{EXPIRE_EVENT, SET_EVENT};
use crate::deadline::{self, Deadline, TimeUnit};
use crate::reader::ArgReader;
use crate::spec::{Group, Inlined, Keys, Marks, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SET.
pub const SET: DataCommand = DataCommand {
    spec: Spec::write("set", -3, Keys::ONE).mark(Marks::SAYS_TIMES).key_access("RW access update variable_flags").key_notes("RW and ACCESS due to the optional `GET` argument").inlined(Inlined::Set).mark(Marks::CHEAP).mark(Marks::WORDS_ARE_FEW).access_by(access).doc(
        Group::String,
        "1.0.0",
        "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] [STICK]",
        "Sets the string value of a key, whatever its type was.",
    ),
    run: set,
};

fn access(call: Args<'_>) -> &'static str {
    match () {
        () if call.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"get")) => "RW access update",
        () if compares(call.tail(3)) => "RW update",
        () => "OW update",
    }
}

/// SETNX.
pub const SETNX: DataCommand = DataCommand {
    spec: Spec::write("setnx", 3, Keys::ONE)
        .key_access("OW insert")
        .deprecated("2.6.12", "`SET` with the `NX` argument")
        .mark(Marks::WORDS_ARE_FEW)
        .fast()
        .doc(Group::String, "1.0.0", "key value", "Sets the string value of a key unless the key exists."),
    run: setnx,
};

/// SETEX.
pub const SETEX: DataCommand = DataCommand {
    spec: Spec::write("setex", 4, Keys::ONE)
        .mark(Marks::SAYS_TIMES)
        .key_access("OW update")
        .deprecated("2.6.12", "`SET` with the `EX` argument")
        .doc(
            Group::String,
            "2.0.0",
            "key seconds value",
            "Sets the string value of a key and its time to live.",
        ),
    run: setex,
};

/// PSETEX.
pub const PSETEX: DataCommand = DataCommand {
    spec: Spec::write("psetex", 4, Keys::ONE)
        .mark(Marks::SAYS_TIMES)
        .key_access("OW update")
        .deprecated("2.6.12", "`SET` with the `PX` argument")
        .doc(
            Group::String,
            "2.6.0",
            "key milliseconds value",
            "Sets the string value of a key and its time to live in milliseconds.",
        ),
    run: psetex,
};

/// GETSET.
pub const GETSET: DataCommand = DataCommand {
    spec: Spec::write("getset", 3, Keys::ONE)
        .key_access("RW access update")
        .deprecated("6.2.0", "`SET` with the `GET` argument")
        .mark(Marks::WORDS_ARE_FEW)
        .fast()
        .doc(Group::String, "1.0.0", "key value", "Returns the string value of a key and sets another."),
    run: getset,
};

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() != 3 {
        return set_with(ctx, args, reply);
    }
    if ctx.leave_write(args.at(1), 2, Expiry::None, args) {
        return Ok(());
    }
    ctx.set_first_text(args, args.at(2), SET_EVENT)?;
    reply.ok();
    Ok(())
}

/// The options after `SET key value`.
#[derive(Default)]
struct SetOptions<'a> {
    condition: Option<ValueCondition<'a>>,
    deadline: Option<Deadline<'a>>,
    keeps_ttl: bool,
    answers_old: bool,
    sticks: bool,
}

impl<'a> SetOptions<'a> {
    fn parse(args: Args<'a>) -> Result<SetOptions<'a>, Fault> {
        let mut options = SetOptions::default();
        let mut reader = ArgReader::new(args, 3);
        while !reader.is_done() {
            if let Some(condition) = ValueCondition::take(&mut reader, true)? {
                // the same word may come twice, as in Redis
                if options.condition.is_some_and(|there| there != condition || !there.is_about_presence()) {
                    return Err(Fault::Syntax);
                }
                options.condition = Some(condition);
            } else if !options.keeps_ttl
                && let Some(deadline) = Deadline::take(&mut reader)
            {
                deadline::put(&mut options.deadline, deadline)?;
            } else if options.deadline.is_none() && reader.take("KEEPTTL") {
                options.keeps_ttl = true;
            } else if reader.take("GET") {
                options.answers_old = true;
            } else if reader.take("STICK") {
                options.sticks = true;
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    fn expiry(&self, now_ms: u64) -> Result<Expiry, Fault> {
        match self.deadline {
            Some(deadline) => Ok(Expiry::At(deadline.resolve(now_ms, "set")?)),
            None if self.keeps_ttl => Ok(Expiry::Keep),
            None => Ok(Expiry::None),
        }
    }
}

#[inline(never)]
fn set_with(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = SetOptions::parse(args)?;
    let expiry = options.expiry(ctx.now_ms)?;
    let name = args.at(1);
    if ctx.may_leave_write(args.at(2)) {
        let holds = options.condition.map_or(Ok(true), |condition| condition.holds(&ctx.at(name)))?;
        if holds && ctx.leave_write(name, 2, expiry, args) {
            return Ok(());
        }
    }
    let mut place = if options.answers_old { ctx.read(name) } else { ctx.at(name) };
    if options.answers_old {
        match place.text()? {
            Some(text) => reply_text(reply, text),
            None => reply.null(),
        }
    }
    if let Some(condition) = options.condition
        && !condition.holds(&place)?
    {
        if !options.answers_old {
            reply.null();
        }
        return Ok(());
    }
    place.put_text(args.at(2), expiry)?;
    if options.sticks {
        place.set_sticky(true);
    }
    place.changed(SET_EVENT);
    if matches!(expiry, Expiry::At(_)) {
        place.changed(EXPIRE_EVENT);
    }
    if !options.answers_old {
        reply.ok();
    }
    Ok(())
}

fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_left = ctx.may_leave_write(args.at(2))
        && !ctx.at(args.at(1)).exists()
        && ctx.leave_write(args.at(1), 2, Expiry::None, args);
    if is_left {
        return Ok(());
    }
    let mut place = ctx.at(args.at(1));
    if place.exists() {
        reply.int(0);
    } else {
        place.put_text(args.at(2), Expiry::None)?;
        place.changed(SET_EVENT);
        reply.int(1);
    }
    Ok(())
}

fn setex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_for(ctx, args, TimeUnit::Seconds, "setex", reply)
}

fn psetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_for(ctx, args, TimeUnit::Millis, "psetex", reply)
}

fn set_for(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    unit: TimeUnit,
    command: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let ms = Deadline::new(args.at(2), unit).resolve(ctx.now_ms, command)?;
    if ctx.leave_write(args.at(1), 3, Expiry::At(ms), args) {
        return Ok(());
    }
    let mut place = ctx.at(args.at(1));
    place.put_text(args.at(3), Expiry::At(ms))?;
    place.changed(SET_EVENT);
    place.changed(EXPIRE_EVENT);
    reply.ok();
    Ok(())
}

fn getset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.leave_write(args.at(1), 2, Expiry::None, args) {
        return Ok(());
    }
    let mut place = ctx.read(args.at(1));
    match place.text()? {
        Some(text) => reply_text(reply, text),
        None => reply.null(),
    }
    place.put_text(args.at(2), Expiry::None)?;
    place.changed(SET_EVENT);
    Ok(())
}
