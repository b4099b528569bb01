//! Rewrites a command for replicas: words that Redis 7.0 knows, and that do the same at any time.
//!
//! A record is the same for files and for replicas. So while somebody follows, ids that the clock has chosen are written
//! out, claims name what they have claimed, and a command that Redis 7.0 lacks is noted as the values it has left.

use darter_command::spec::ReplicaForm;
use darter_persist::journal::part;
use darter_store::stream_value::StreamValue;
use darter_txn::ShardSet;
use darter_wire::Args;
use darter_wire::value::{self, DecodeLimits, Value};

use super::note::{Ran, write_value};

/// Writes what a command has done, if its words alone do not say it; false: they do.
pub fn write(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let is_written = match ran.entry.replica_form {
        ReplicaForm::Words | ReplicaForm::ByAge => return false,
        ReplicaForm::Values => false,
        ReplicaForm::Time(at) => {
            write_times(out, ran, ran.args.iter().collect(), std::iter::once(at), now_ms)
        }
        ReplicaForm::Times(at) => {
            write_times(out, ran, ran.args.iter().collect(), (at..ran.args.len()).step_by(3), now_ms)
        }
        ReplicaForm::TimeOption => {
            let mut words: Vec<&[u8]> = ran.args.iter().collect();
            let at = words.iter().position(|word| is(word, "timestamp")).unwrap_or_else(|| {
                words.splice(3..3, [b"TIMESTAMP".as_slice(), b"*"]);
                3
            });
            write_times(out, ran, words, std::iter::once(at + 1), now_ms)
        }
        ReplicaForm::Claims | ReplicaForm::AutoClaims => write_claims(out, ran, now_ms),
        ReplicaForm::Deliveries => write_deliveries(out, set, ran, now_ms),
    };
    if !is_written {
        ran.entry.spec.each_key(ran.args, &mut |at| write_value(out, set, ran.db, ran.args.at(at), now_ms));
    }
    true
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Writes a command that adds samples: `words`, with `now_ms` for the clock's time at the places `at`.
fn write_times(
    out: &mut Vec<u8>,
    ran: Ran<'_>,
    words: Vec<&[u8]>,
    at: impl Iterator<Item = usize>,
    now_ms: u64,
) -> bool {
    let now = now_ms.to_string();
    let mut words: Vec<&[u8]> = words;
    for at in at {
        if let Some(word) = words.get_mut(at).filter(|word| **word == b"*") {
            *word = now.as_bytes();
        }
    }
    part::write_command(out, ran.db, words.len(), words.into_iter());
    true
}

/// A reply, if all of it is there.
fn decoded(reply: &[u8]) -> Option<Value> {
    let limits = DecodeLimits { bulk_bytes_max: u64::MAX, ..DecodeLimits::default() };
    Some(value::decode(reply, &limits).ok().flatten()?.0)
}

/// Ids among the elements of a reply: of entries, or ids themselves.
fn ids(elements: &[Value]) -> Vec<Vec<u8>> {
    let id = |element: &Value| match element {
        Value::Bulk(id) => Some(id.clone()),
        Value::Array(entry) => entry.first().and_then(Value::as_bytes).map(<[u8]>::to_vec),
        _ => None,
    };
    elements.iter().filter_map(id).collect()
}

fn write_claims(out: &mut Vec<u8>, ran: Ran<'_>, now_ms: u64) -> bool {
    let args = ran.args;
    let (key, group, consumer) = (args.at(1), args.at(2), args.at(3));
    let mut kept: Vec<&[u8]> = Vec::new();
    let (claimed, others) = match (decoded(ran.reply), ran.entry.replica_form) {
        (Some(Value::Array(parts)), ReplicaForm::AutoClaims) => match parts.as_slice() {
            [_, Value::Array(claimed), Value::Array(gone)] => (ids(claimed), ids(gone)),
            _ => return false,
        },
        (Some(Value::Array(claimed)), _) => {
            let claimed = ids(&claimed);
            let is_id = |word: &&[u8]| word.first().is_some_and(u8::is_ascii_digit);
            let asked = args.iter().skip(5).take_while(is_id).map(<[u8]>::to_vec);
            let others = asked.filter(|id| !claimed.contains(id)).collect();
            (claimed, others)
        }
        _ => return false,
    };
    let time = now_ms.to_string();
    let mut options = args.iter().skip(5).skip_while(|word| word.first().is_some_and(u8::is_ascii_digit));
    let mut moment = time.clone().into_bytes();
    while let Some(option) = options.next() {
        if is(option, "force") || is(option, "justid") {
            kept.push(option);
        } else if is(option, "retrycount") || is(option, "lastid") {
            kept.extend([option, options.next().unwrap_or_default()]);
        } else if is(option, "time") {
            moment = options.next().unwrap_or_default().to_vec();
        } else if is(option, "idle") {
            let idle = options.next().and_then(darter_base::number::parse_i64).unwrap_or(0);
            moment = now_ms.saturating_sub(u64::try_from(idle).unwrap_or(0)).to_string().into_bytes();
        } else {
            // COUNT, whose work is done.
            options.next();
        }
    }
    let mut claim = |min_idle: &[u8], ids: &[Vec<u8>], rest: &[&[u8]]| {
        if ids.is_empty() {
            return;
        }
        let head: [&[u8]; 5] = [b"xclaim", key, group, consumer, min_idle];
        let words = head.into_iter().chain(ids.iter().map(Vec::as_slice)).chain(rest.iter().copied());
        part::write_command(out, ran.db, head.len() + ids.len() + rest.len(), words);
    };
    let mut rest: Vec<&[u8]> = vec![b"TIME", &moment];
    rest.append(&mut kept);
    claim(b"0", &claimed, &rest);
    // Nobody claims these; those whose entry is gone are forgotten.
    claim(b"9223372036854775807", &others, &[]);
    if claimed.is_empty() && others.is_empty() {
        // The consumer is new, and nothing was there to claim.
        write_consumer(out, ran.db, key, group, consumer);
    }
    true
}

/// Writes that a group has a consumer, which it may have already.
fn write_consumer(out: &mut Vec<u8>, db: usize, key: &[u8], group: &[u8], consumer: &[u8]) {
    let words: [&[u8]; 5] = [b"xgroup", b"createconsumer", key, group, consumer];
    part::write_command(out, db, words.len(), words.into_iter());
}

fn write_deliveries(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let args = ran.args;
    let (group, consumer) = (args.at(2), args.at(3));
    let words: Vec<&[u8]> = args.iter().skip(4).take_while(|word| !is(word, "streams")).collect();
    let noack = words.iter().any(|word| is(word, "noack"));
    if words.iter().any(|word| is(word, "claim")) {
        return false;
    }
    if ran.reply.is_empty() {
        return !noack && write_readers(out, set, ran, now_ms);
    }
    let Some(all) = decoded(ran.reply) else { return false };
    let mut streams: Vec<(Vec<u8>, Vec<Value>)> = match all {
        Value::Array(streams) => streams.into_iter().filter_map(pair_of).collect(),
        Value::Map(pairs) => pairs.into_iter().filter_map(named).collect(),
        Value::Null | Value::NullArray => Vec::new(),
        _ => return false,
    };
    // A reply leaves out the streams in which nothing was there to read. The consumer may be new to them too.
    if ran.served.is_none() {
        ran.entry.spec.each_key(args, &mut |at| {
            let key = args.at(at);
            let is_left_out = !streams.iter().any(|(name, _)| name == key);
            if is_left_out && is_untold(set, ran.db, key, (group, consumer), now_ms) {
                streams.push((key.to_vec(), Vec::new()));
            }
        });
    }
    let time = now_ms.to_string();
    for (key, entries) in streams {
        let ids = ids(&entries);
        if ids.is_empty() || !is_new(args, &key) {
            write_consumer(out, ran.db, &key, group, consumer);
            continue;
        }
        if noack && is_untold(set, ran.db, &key, (group, consumer), now_ms) {
            write_consumer(out, ran.db, &key, group, consumer);
        }
        let Some((last, read)) = place_of(set, ran.db, &key, group, now_ms) else { return false };
        if !noack {
            let head: [&[u8]; 5] = [b"xclaim", &key, group, consumer, b"0"];
            let tail: [&[u8]; 8] = [
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                b"1",
                b"FORCE",
                b"JUSTID",
                b"LASTID",
                last.as_bytes(),
            ];
            let words = head.into_iter().chain(ids.iter().map(Vec::as_slice)).chain(tail);
            part::write_command(out, ran.db, head.len() + ids.len() + tail.len(), words);
        }
        let words: [&[u8]; 7] =
            [b"xgroup", b"setid", &key, group, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
        part::write_command(out, ran.db, words.len(), words.into_iter());
    }
    true
}

/// Whether `key` was read for entries that nobody has been given (`>`).
fn is_new(args: Args<'_>, key: &[u8]) -> bool {
    let Some(at) = (4..args.len()).find(|at| is(args.at(*at), "streams")) else { return false };
    let count = (args.len() - at - 1) / 2;
    (0..count).any(|n| args.at(at + 1 + n) == key && args.at(at + 1 + count + n) == b">")
}

fn pair_of(stream: Value) -> Option<(Vec<u8>, Vec<Value>)> {
    match stream {
        Value::Array(pair) => {
            let mut pair = pair.into_iter();
            named((pair.next()?, pair.next()?))
        }
        _ => None,
    }
}

fn named((key, entries): (Value, Value)) -> Option<(Vec<u8>, Vec<Value>)> {
    match entries {
        Value::Array(entries) => Some((key.as_bytes()?.to_vec(), entries)),
        _ => None,
    }
}

/// Writes that the groups have the consumer of a command without a reply: it waits, or its client wants none. False:
/// the consumer may have been given something.
fn write_readers(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let args = ran.args;
    let (group, consumer) = (args.at(2), args.at(3));
    let mut keys = Vec::new();
    ran.entry.spec.each_key(args, &mut |at| keys.push(args.at(at)));
    let is_new = keys.iter().all(|key| is_untold(set, ran.db, key, (group, consumer), now_ms));
    if is_new {
        keys.iter().for_each(|key| write_consumer(out, ran.db, key, group, consumer));
    }
    is_new
}

/// Whether a consumer is there that was given nothing yet, so that no claim in the stream has named it.
fn is_untold(
    set: &mut ShardSet<'_>,
    db: usize,
    name: &[u8],
    (group, consumer): (&[u8], &[u8]),
    now_ms: u64,
) -> bool {
    let key = set.router().key(name);
    let shard = &set.part(key).shard;
    let stream = shard.peek(db, key, now_ms).and_then(|record| shard.view_of::<StreamValue>(record).ok());
    let found = stream.as_ref().and_then(|stream| stream.root.group(group)?.find(consumer));
    found.is_some_and(|consumer| consumer.active_ms.is_none())
}

/// The last id that a group was given, and the number of entries it has read (-1: not known).
fn place_of(
    set: &mut ShardSet<'_>,
    db: usize,
    name: &[u8],
    group: &[u8],
    now_ms: u64,
) -> Option<(String, String)> {
    let key = set.router().key(name);
    let shard = &set.part(key).shard;
    let record = shard.peek(db, key, now_ms)?;
    let stream = shard.view_of::<StreamValue>(record).ok()?;
    let group = stream.root.group(group)?;
    let read = group.entries_read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
    Some((format!("{}-{}", group.last_id.ms, group.last_id.seq), read))
}
