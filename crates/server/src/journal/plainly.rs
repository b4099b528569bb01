//! What is written of a command while replicas follow: words that Redis 7.0 knows, and that do the same at any time.
//!
//! A record is the same for files and for replicas. So while somebody follows, ids that the clock has chosen are written
//! out, claims name what they have claimed, and a command that Redis 7.0 lacks is noted as the values it has left.

use darter_command::Flags;
use darter_persist::journal::part;
use darter_store::stream_value::Stream;
use darter_txn::ShardSet;
use darter_wire::value::Value;
use darter_wire::{Args, OwnedArgs};

use super::note::{Ran, decoded, exact_trim, trim_is_new, write_value};

/// What a command needs while replicas follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plainly {
    /// Nothing: its words do the same everywhere.
    AsNoted,
    /// The values of its keys, as they are afterwards.
    Values,
    /// The id that it has chosen (XADD).
    Id,
    /// What it has claimed (XCLAIM, XAUTOCLAIM).
    Claims,
    /// What it has delivered (XREADGROUP).
    Deliveries,
    /// Itself, with the time that the clock has chosen for `*` at this word, and at each third behind it if the second is
    /// set (the time series).
    Times(usize, bool),
    /// The same for the word behind TIMESTAMP, which may be missing.
    TimeOption,
    /// Itself, if Redis 7.0 knows these words of it (BITOP, XTRIM).
    IfOld,
}

/// Commands that change data and do the same in Redis 7.0 as here.
const KNOWN: &[&str] = &[
    "append",
    "bitfield",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "copy",
    "decr",
    "decrby",
    "del",
    "expire",
    "expireat",
    "flushall",
    "flushdb",
    "geoadd",
    "getdel",
    "getex",
    "getset",
    "hdel",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lmove",
    "lmpop",
    "lpop",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "move",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "pfcount",
    "pfmerge",
    "psetex",
    "rename",
    "renamenx",
    "rpop",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "sdiffstore",
    "set",
    "setbit",
    "setex",
    "setnx",
    "setrange",
    "sinterstore",
    "smove",
    "srem",
    "sunionstore",
    "swapdb",
    "unlink",
    "xack",
    "xdel",
    "xgroup|create",
    "xgroup|createconsumer",
    "xgroup|delconsumer",
    "xgroup|destroy",
    "xgroup|setid",
    "xsetid",
    "zadd",
    "zdiffstore",
    "zincrby",
    "zinterstore",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "zrangestore",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "zunionstore",
];

/// What the command with these flags and this name needs.
pub fn of(name: &str, flags: Flags) -> Plainly {
    match name {
        "xadd" => Plainly::Id,
        "xclaim" | "xautoclaim" => Plainly::Claims,
        "xreadgroup" => Plainly::Deliveries,
        // A value would be the whole series, and say nothing of those that it feeds.
        "ts.add" => Plainly::Times(2, false),
        "ts.madd" => Plainly::Times(2, true),
        "ts.incrby" | "ts.decrby" => Plainly::TimeOption,
        "ts.alter" | "ts.create" | "ts.createrule" | "ts.del" | "ts.deleterule" => Plainly::AsNoted,
        "bitop" | "xtrim" => Plainly::IfOld,
        _ if !flags.any(Flags::WRITE) || KNOWN.contains(&name) => Plainly::AsNoted,
        _ => Plainly::Values,
    }
}

/// Writes what a command has done, if its words alone do not say it; false: they do.
pub fn write(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let is_written = match ran.entry.plainly {
        Plainly::AsNoted => return false,
        Plainly::Values => false,
        Plainly::IfOld if is_old(ran) => return false,
        Plainly::IfOld => false,
        Plainly::Times(at, repeats) => {
            let at = (at..ran.args.len()).step_by(3).take(if repeats { usize::MAX } else { 1 });
            write_times(out, ran, ran.args.iter().collect(), at, now_ms)
        }
        Plainly::TimeOption => {
            let mut words: Vec<&[u8]> = ran.args.iter().collect();
            let at = words.iter().position(|word| is(word, "timestamp")).unwrap_or_else(|| {
                words.splice(3..3, [b"TIMESTAMP".as_slice(), b"*"]);
                3
            });
            write_times(out, ran, words, std::iter::once(at + 1), now_ms)
        }
        Plainly::Id => write_id(out, set, ran, now_ms),
        Plainly::Claims => write_claims(out, ran, now_ms),
        Plainly::Deliveries => write_deliveries(out, set, ran, now_ms),
    };
    if !is_written {
        ran.entry.spec.each_key(ran.args, &mut |at| write_value(out, set, ran.db, ran.args.at(at), now_ms));
    }
    true
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn is_old(ran: Ran<'_>) -> bool {
    match ran.entry.spec.name {
        "bitop" => ["and", "or", "xor", "not"].iter().any(|op| is(ran.args.at(1), op)),
        _ => !trim_is_new(ran.args),
    }
}

/// Where the id of an XADD stands; `None`: it has options that Redis 7.0 lacks.
fn id_at(args: Args<'_>) -> Option<usize> {
    let mut at = 2;
    while at < args.len() {
        let word = args.at(at);
        at += match word {
            _ if is(word, "nomkstream") => 1,
            _ if is(word, "maxlen") || is(word, "minid") => {
                2 + usize::from(matches!(args.at(at + 1), b"=" | b"~"))
            }
            _ if is(word, "limit") => 2,
            _ if word == b"*" || word.first().is_some_and(u8::is_ascii_digit) => return Some(at),
            _ => return None,
        };
    }
    None
}

fn write_id(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let Some(Value::Bulk(id)) = decoded(ran.reply) else { return false };
    if id_at(ran.args).is_none() {
        return false;
    }
    let trimmed = exact_trim(set, ran, now_ms);
    let args = trimmed.as_ref().map_or(ran.args, OwnedArgs::args);
    let Some(at) = id_at(args) else { return false };
    let words = args.iter().enumerate().map(|(index, word)| if index == at { id.as_slice() } else { word });
    part::write_command(out, ran.db, args.len(), words);
    true
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
    let (claimed, others) = match (decoded(ran.reply), ran.entry.spec.name) {
        (Some(Value::Array(parts)), "xautoclaim") => match parts.as_slice() {
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
    !(claimed.is_empty() && others.is_empty())
}

fn write_deliveries(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> bool {
    let args = ran.args;
    let (group, consumer) = (args.at(2), args.at(3));
    let words: Vec<&[u8]> = args.iter().skip(4).take_while(|word| !is(word, "streams")).collect();
    let noack = words.iter().any(|word| is(word, "noack"));
    let Some(all) = decoded(ran.reply) else { return false };
    if words.iter().any(|word| is(word, "claim")) {
        return false;
    }
    let streams: Vec<(Vec<u8>, Vec<Value>)> = match all {
        Value::Array(streams) => streams.into_iter().filter_map(pair_of).collect(),
        Value::Map(pairs) => pairs.into_iter().filter_map(named).collect(),
        _ => return false,
    };
    let time = now_ms.to_string();
    for (key, entries) in streams {
        let ids = ids(&entries);
        if ids.is_empty() || !is_new(args, &key) {
            let words: [&[u8]; 5] = [b"xgroup", b"createconsumer", &key, group, consumer];
            part::write_command(out, ran.db, words.len(), words.into_iter());
            continue;
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
    let stream = shard.view_of::<Stream>(record).ok()?;
    let group = stream.root.group(group)?;
    let read = group.entries_read.map_or_else(|| "-1".to_owned(), |read| read.to_string());
    Some((format!("{}-{}", group.last_id.ms, group.last_id.seq), read))
}
