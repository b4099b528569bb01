//! CL.THROTTLE: a rate limit per key, by the generic cell rate algorithm.
//!
//! The key holds the time at which its bucket will be full again ("theoretical arrival time"), in nanoseconds since
//! 1970 as decimal text, and expires then.

use darter_store::Expiry;
use darter_wire::{Args, Reply};

use super::SET_EVENT;
use super::count::int_of;
use crate::reader;
use crate::spec::{Group, Keys, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CL.THROTTLE.
pub const THROTTLE: DataCommand = DataCommand {
    spec: Spec::write("cl.throttle", -5, Keys::ONE).replica_form(ReplicaForm::Values).fast().doc(
        Group::String,
        "1.0.0",
        "key max-burst count period [quantity]",
        "Takes from a rate limit and says whether it was exceeded.",
    ),
    run: throttle,
};

const NS_PER_SECOND: i128 = 1_000_000_000;
const NS_PER_MS: i128 = 1_000_000;

/// The limit: `burst` at once, and one more every `interval_ns`.
struct ThrottleLimit {
    burst: i128,
    interval_ns: i128,
}

impl ThrottleLimit {
    fn parse(args: Args<'_>) -> Result<(ThrottleLimit, i128), Fault> {
        let number = |at: usize, min: i64| match reader::int(args.at(at)) {
            Ok(n) if n >= min => Ok(i128::from(n)),
            _ => Err(Fault::NotInteger),
        };
        let (max_burst, count, period) = (number(2, 0)?, number(3, 1)?, number(4, 1)?);
        let quantity = match args.len() {
            5 => 1,
            6 => number(5, 0)?,
            _ => return Err(Fault::Syntax),
        };
        // 63 bits and 30 bits: the products fit
        Ok((ThrottleLimit { burst: max_burst + 1, interval_ns: period * NS_PER_SECOND / count }, quantity))
    }

    /// The time ahead of now up to which a bucket may be used.
    fn tolerance_ns(&self) -> Result<i128, Fault> {
        self.interval_ns.checked_mul(self.burst).ok_or(Fault::Overflow)
    }
}

fn throttle(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (limit, quantity) = ThrottleLimit::parse(args)?;
    let now_ns = i128::from(ctx.now_ms) * NS_PER_MS;
    let tolerance_ns = limit.tolerance_ns()?;
    let cost_ns = limit.interval_ns.checked_mul(quantity).ok_or(Fault::Overflow)?;

    let mut place = ctx.at(args.at(1));
    let arrival_ns = if place.exists() { i128::from(int_of(place.text()?)?) } else { now_ns };
    let next_ns = arrival_ns.max(now_ns).checked_add(cost_ns).ok_or(Fault::Overflow)?;
    let wait_ns = next_ns - tolerance_ns - now_ns;
    let is_limited = wait_ns > 0;

    let ahead_ns = if is_limited { arrival_ns.max(now_ns) } else { next_ns } - now_ns;
    if !is_limited && quantity > 0 {
        let next = i64::try_from(next_ns).map_err(|_| Fault::Overflow)?;
        let deadline_ms = u64::try_from(div_up(next_ns, NS_PER_MS)).map_err(|_| Fault::Overflow)?;
        place.put_text(
            itoa::Buffer::new().format(next).as_bytes(),
            Expiry::At(deadline_ms.max(ctx_floor(now_ns))),
        )?;
        place.changed(SET_EVENT);
    }
    // more than the bucket holds can never be granted: waiting does not help
    let retry = if is_limited && cost_ns <= tolerance_ns { div_up(wait_ns, NS_PER_SECOND) } else { -1 };
    let free_ns = tolerance_ns - ahead_ns;
    let remaining = if limit.interval_ns == 0 { limit.burst } else { free_ns.max(0) / limit.interval_ns };
    reply.array(5);
    for n in [i128::from(is_limited), limit.burst, remaining, retry, div_up(ahead_ns, NS_PER_SECOND)] {
        reply.int(i64::try_from(n).unwrap_or(i64::MAX));
    }
    Ok(())
}

/// The first millisecond after now: a key written now must not be dead yet.
fn ctx_floor(now_ns: i128) -> u64 {
    u64::try_from(now_ns / NS_PER_MS + 1).unwrap_or(u64::MAX)
}

fn div_up(n: i128, by: i128) -> i128 {
    (n + by - 1).div_euclid(by)
}
