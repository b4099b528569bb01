//! Time series: samples added, changed, removed and queried by time.

mod add;
mod create;
mod feed;
mod filter;
mod gathering;
mod groups;
mod info;
mod joining;
mod labelled;
mod madd;
mod nrange;
mod options;
mod query;
mod range;
mod ranging;
mod read;
mod rules;
mod searching;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use feed::renamed;

use darter_series::query::SampleRows;
use darter_series::series::AddFault;
use darter_series::{DuplicatePolicy, Sample};
use darter_store::Event;
use darter_store::change::Class;
use darter_wire::{Args, Reply};

use crate::reader::is;
use crate::spec::{Group, Rarity, Reach, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    create::CREATE,
    create::ALTER,
    add::ADD,
    madd::MADD,
    step::INCRBY,
    step::DECRBY,
    range::DEL,
    range::GET,
    range::RANGE,
    range::REVRANGE,
    info::INFO,
    rules::CREATERULE,
    rules::DELETERULE,
    labelled::MGET,
    labelled::MRANGE,
    labelled::MREVRANGE,
    labelled::QUERYINDEX,
    labelled::QUERYLABELS,
    nrange::NRANGE,
    nrange::NREVRANGE,
    read::READ,
];

/// The policy for a second sample of the same time, if neither series nor command gives one.
const POLICY: DuplicatePolicy = DuplicatePolicy::Block;

const TOO_MANY: Fault = Fault::text("ERR TSDB: too many buckets");
const NO_KEY: Fault = Fault::text("ERR TSDB: the key does not exist");

/// The shards of the series that a key feeds, and of the one that feeds it, are held too.
const LINKED: Reach = Reach::Linked(|_| true, Rarity::Often);
/// The same, if the arguments ask for the bucket that is open in the source.
const LINKED_FOR_LATEST: Reach = Reach::Linked(asks_for_latest, Rarity::Often);

fn asks_for_latest(args: Args<'_>) -> bool {
    args.iter().any(|word| is(word, "LATEST"))
}

const fn doc(spec: Spec, since: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::Series, since, syntax, summary)
}

const fn event(name: &'static str) -> Event {
    Event::new(Class::MODULE, name)
}

/// The error of a sample that was not added.
fn not_added(fault: AddFault) -> Fault {
    match fault {
        AddFault::TooOld => Fault::text("ERR TSDB: Timestamp is older than retention"),
        AddFault::Blocked => Fault::text(
            "ERR TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode, or either \
             current or new value is NaN and DUPLICATE_POLICY is MAX/MIN/SUM",
        ),
        AddFault::Full => Fault::OutOfMemory,
    }
}

/// Writes a number of a sample: a float in RESP3, in RESP2 a line with as few digits as it needs. RedisTimeSeries
/// writes exponents as `1E308`, and fewer numbers with one than Redis.
fn write_number(reply: &mut Reply<'_>, number: f64) {
    const PLAIN: std::ops::Range<f64> = 1e-5..1e21;
    if reply.is_resp3() {
        return reply.double(number);
    }
    if number == 0.0 || !number.is_finite() || PLAIN.contains(&number.abs()) {
        reply.status(format!("{number}"));
    } else {
        reply.status(format!("{number:E}"));
    }
}

/// Writes rows: a time, and one number or several.
fn write_rows(reply: &mut Reply<'_>, rows: &SampleRows) {
    reply.array(rows.len());
    for (time, numbers) in rows.iter() {
        reply.array(1 + numbers.len());
        reply.int(time.cast_signed());
        numbers.iter().for_each(|&number| write_number(reply, number));
    }
}

fn write_sample(reply: &mut Reply<'_>, sample: Sample) {
    reply.array(2);
    reply.int(sample.time.cast_signed());
    write_number(reply, sample.value);
}
