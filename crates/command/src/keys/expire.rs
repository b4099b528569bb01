//! EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT and PERSIST: deadlines of existing keys.

use darter_store::Event;
use darter_wire::{Args, Reply};

use crate::deadline::TimeUnit;
use crate::reader;
use crate::spec::{Group, Keys, Marks, Spec};
use crate::string::{EXPIRE_EVENT, PERSIST_EVENT};
use crate::{Ctx, DataCommand, Fault};

/// EXPIRE.
pub const EXPIRE: DataCommand = DataCommand {
    spec: Spec::shrink("expire", -3, Keys::ONE).mark(Marks::SAYS_TIMES).fast().doc(
        Group::Generic,
        "1.0.0",
        "key seconds [NX | XX | GT | LT]",
        "Sets the time to live of a key in seconds.",
    ),
    run: expire,
};

/// PEXPIRE.
pub const PEXPIRE: DataCommand = DataCommand {
    spec: Spec::shrink("pexpire", -3, Keys::ONE).mark(Marks::SAYS_TIMES).fast().doc(
        Group::Generic,
        "2.6.0",
        "key milliseconds [NX | XX | GT | LT]",
        "Sets the time to live of a key in milliseconds.",
    ),
    run: pexpire,
};

/// EXPIREAT.
pub const EXPIREAT: DataCommand = DataCommand {
    spec: Spec::shrink("expireat", -3, Keys::ONE).fast().doc(
        Group::Generic,
        "1.2.0",
        "key unix-time-seconds [NX | XX | GT | LT]",
        "Sets the Unix time in seconds at which a key dies.",
    ),
    run: expireat,
};

/// PEXPIREAT.
pub const PEXPIREAT: DataCommand = DataCommand {
    spec: Spec::shrink("pexpireat", -3, Keys::ONE).fast().doc(
        Group::Generic,
        "2.6.0",
        "key unix-time-milliseconds [NX | XX | GT | LT]",
        "Sets the Unix time in milliseconds at which a key dies.",
    ),
    run: pexpireat,
};

/// PERSIST.
pub const PERSIST: DataCommand = DataCommand {
    spec: Spec::shrink("persist", 2, Keys::ONE).fast().doc(
        Group::Generic,
        "2.2.0",
        "key",
        "Removes the deadline of a key.",
    ),
    run: persist,
};

fn expire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_deadline(ctx, args, TimeUnit::Seconds, "expire", reply)
}

fn pexpire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_deadline(ctx, args, TimeUnit::Millis, "pexpire", reply)
}

fn expireat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_deadline(ctx, args, TimeUnit::UnixSeconds, "expireat", reply)
}

fn pexpireat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    set_deadline(ctx, args, TimeUnit::UnixMillis, "pexpireat", reply)
}

/// The condition of a new deadline on the old one.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExpireRule {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl ExpireRule {
    /// Reads any number of `NX`, `XX`, `GT`, `LT`; `words` may contain nothing else.
    pub(crate) fn parse(words: Args<'_>) -> Result<ExpireRule, Fault> {
        let mut rule = ExpireRule::default();
        for word in words.iter() {
            let flag = if reader::is(word, "NX") {
                &mut rule.nx
            } else if reader::is(word, "XX") {
                &mut rule.xx
            } else if reader::is(word, "GT") {
                &mut rule.gt
            } else if reader::is(word, "LT") {
                &mut rule.lt
            } else {
                let text = format!("ERR Unsupported option {}", String::from_utf8_lossy(word));
                return Err(Fault::Text(text.into()));
            };
            *flag = true;
        }
        if rule.nx && (rule.xx || rule.gt || rule.lt) {
            return Err(Fault::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if rule.gt && rule.lt {
            return Err(Fault::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(rule)
    }

    /// Returns true if `new_ms` may replace `old_ms`; a missing deadline counts as later than any.
    pub(crate) fn allows(self, old_ms: Option<u64>, new_ms: i64) -> bool {
        let old_ms = old_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        match old_ms {
            None => !self.xx && !self.gt,
            Some(old_ms) => !(self.nx || self.gt && new_ms <= old_ms || self.lt && new_ms >= old_ms),
        }
    }
}

fn set_deadline(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    unit: TimeUnit,
    command: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let rule = ExpireRule::parse(args.tail(3))?;
    let (now_ms, keeps_dead) = (ctx.now_ms, ctx.env.import_mode);
    let when_ms = unit.unix_ms(reader::int(args.at(2))?, now_ms).ok_or(Fault::InvalidExpire(command))?;
    let mut place = ctx.at(args.at(1));
    if !place.exists() || !rule.allows(place.deadline_ms(), when_ms) {
        reply.int(0);
        return Ok(());
    }
    match u64::try_from(when_ms) {
        Ok(ms) if ms > now_ms || keeps_dead => {
            place.set_deadline(Some(ms))?;
            place.changed(EXPIRE_EVENT);
        }
        _ => {
            place.remove();
            place.changed(Event::DEL);
        }
    }
    reply.int(1);
    Ok(())
}

fn persist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    let had_deadline = place.deadline_ms().is_some();
    if had_deadline {
        place.set_deadline(None)?;
        place.changed(PERSIST_EVENT);
    }
    reply.int(i64::from(had_deadline));
    Ok(())
}
