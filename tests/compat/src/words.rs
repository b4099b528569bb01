//! What a `<name>` in a form may become: mostly sensible, sometimes at a limit, now and then nonsense.
//!
//! No word makes a server allocate much or block: offsets are small or far past the limit, never just below it.

use crate::form::Form;
use crate::rng::Rng;

/// Every name that `draw` knows.
pub const NAMES: &[&str] = &[
    "key",
    "akey",
    "value",
    "int",
    "index",
    "count",
    "float",
    "secs",
    "ms",
    "soon",
    "at",
    "atms",
    "pattern",
    "field",
    "member",
    "score",
    "zmin",
    "zmax",
    "lexmin",
    "lexmax",
    "db",
    "sid",
    "sidadd",
    "offset",
    "bit",
    "bitoffset",
    "bftype",
    "lon",
    "lat",
    "radius",
    "word",
    "channel",
    "elem",
    "flag",
    "timeout",
    "name",
    "lexkey",
    "many",
    "rank",
    "big",
    "user",
    "rule",
    "call",
];

/// Draws a word; an unknown name gives nothing, which `Form::parse` rules out.
pub fn draw(name: &str, rng: &mut Rng) -> Vec<u8> {
    match name {
        "key" => format!("k{}", rng.below(8)).into_bytes(),
        "lexkey" => format!("lex{}", rng.below(3)).into_bytes(),
        "many" => one_of_many(rng),
        "rank" => number(rng.between(-20_000, 20_000)),
        "big" => number(rng.between(0, 2)),
        "akey" => rng.pick(ODD_KEYS).to_vec(),
        "value" => value(rng),
        "int" => int(rng),
        "index" => index(rng),
        "count" => count(rng),
        "float" => float(rng),
        "secs" => expiry(rng, 100, 1_000_000),
        "ms" => expiry(rng, 100_000, 1_000_000_000),
        "soon" => number(rng.between(1, 3)),
        "at" => moment(rng, 1),
        "atms" => moment(rng, 1000),
        "pattern" => one_of(rng, PATTERNS),
        "field" => format!("f{}", rng.below(6)).into_bytes(),
        "member" | "elem" => member(rng),
        "score" => score(rng),
        "zmin" | "zmax" => score_limit(rng),
        "lexmin" | "lexmax" => one_of(rng, LEX_LIMITS),
        "db" => one_of(rng, DATABASES),
        "sid" => stream_id(rng),
        "sidadd" => stream_id_to_add(rng),
        "offset" => offset(rng),
        "bit" => {
            let bits: &[&str] = if rng.percent(96) { &["0", "1"] } else { &["2", "-1", "x"] };
            one_of(rng, bits)
        }
        "bitoffset" => bit_offset(rng),
        "bftype" => one_of(rng, BITFIELD_TYPES),
        "lon" => number(rng.between(-179, 179)),
        "lat" => number(rng.between(-84, 84)),

        "radius" => one_of(rng, &["0", "1", "100.5", "5000", "1000000", "-1", "x"]),
        "word" => one_of(rng, WORDS),
        "channel" => format!("ch{}", rng.below(4)).into_bytes(),
        "flag" => one_of(rng, &["NX", "XX", "GT", "LT", "CH", "KEEPTTL", "GET", "x", ""]),
        "timeout" => one_of(rng, &["0", "0.05", "0.1", "-1", "abc", "1e10", "nan"]),
        "name" => one_of(rng, &["n1", "n2", "n3"]),
        "user" => format!("u{}", rng.below(3)).into_bytes(),
        "rule" => one_of(rng, RULES),
        _ => Vec::new(),
    }
}

/// A command with its arguments, for what takes commands as arguments (`<call>` alone is as many arguments).
pub fn call(rng: &mut Rng) -> Vec<Vec<u8>> {
    Form::parse(rng.pick::<&str>(CALLS)).map_or(Vec::new(), |form| form.expand(rng))
}

/// Replaces an argument in a spoilt command: nothing of it is large enough to hurt, all of it is wrong somewhere.
pub fn nonsense(rng: &mut Rng) -> Vec<u8> {
    one_of(rng, NONSENSE)
}

/// Rules of users; more that allow than that take, so that commands are met that run.
const RULES: &[&str] = &[
    "+@all",
    "+@all",
    "+@all",
    "allcommands",
    "-@all",
    "nocommands",
    "+@read",
    "+@write",
    "+@string",
    "+@list",
    "+@set",
    "+@hash",
    "+@sortedset",
    "+@pubsub",
    "+@transaction",
    "+@scripting",
    "+@connection",
    "+@keyspace",
    "+@fast",
    "+@slow",
    "-@slow",
    "-@write",
    "-@dangerous",
    "-@blocking",
    "-@admin",
    "-@fast",
    "-@nosuch",
    "+@GEO",
    "+@bitmap",
    "+@stream",
    "+get",
    "+set",
    "-get",
    "-set",
    "+GET",
    "+nosuch",
    "-nosuch",
    "+acl",
    "-acl",
    "+acl|whoami",
    "-acl|whoami",
    "+multi",
    "+exec",
    "+config|get",
    "-config|set",
    "+config|nosuch",
    "+select|0",
    "+select|1",
    "-select",
    "+client",
    "-client|kill",
    "+object|encoding",
    "+eval",
    "+sort",
    "-sort",
    "+publish",
    "+auth",
    "+get|x|y",
    "+|",
    "+",
    "-",
    "~*",
    "~*",
    "allkeys",
    "resetkeys",
    "~k1",
    "~k[0-3]",
    "~k*",
    "%R~k4",
    "%W~k5",
    "%RW~k6",
    "%R~*",
    "%W~k*",
    "%~k",
    "%K~k",
    "%rw~k7",
    "~",
    "&*",
    "allchannels",
    "resetchannels",
    "&ch1",
    "&ch*",
    "&",
    "nonsense",
    "on",
    "reset",
];

/// Commands for users to be refused.
const CALLS: &[&str] = &[
    "GET <key>",
    "SET <key> v",
    "SET <key> v GET",
    "SET <key> get",
    "SET <key> v EX 100",
    "SETEX <key> 100 v",
    "GETSET <key> v",
    "GETDEL <key>",
    "GETEX <key> PERSIST",
    "APPEND <key> x",
    "STRLEN <key>",
    "INCR <key>",
    "DECRBY <key> 2",
    "MGET { <key> }",
    "MSET { <key> v }",
    "MSETNX { <key> v }",
    "SUBSTR <key> 0 1",
    "LCS <key> <key>",
    "DEL { <key> }",
    "UNLINK { <key> }",
    "EXISTS { <key> }",
    "TOUCH { <key> }",
    "TYPE <key>",
    "EXPIRE <key> 100",
    "PERSIST <key>",
    "TTL <key>",
    "RENAME <key> <key>",
    "RENAMENX <key> <key>",
    "COPY <key> <key>",
    "OBJECT FREQ <key>",
    "KEYS nosuch",
    "DBSIZE",
    "SORT <key>",
    "SORT <key> STORE <key>",
    "SORT <key> BY w*",
    "SORT <key> BY nosort",
    "SORT <key> GET x*",
    "SORT_RO <key> BY w*",
    "FLUSHDB",
    "SWAPDB 0 0",
    "LPUSH <key> x",
    "RPUSHX <key> x",
    "LPOP <key>",
    "LRANGE <key> 0 1",
    "LLEN <key>",
    "LMOVE <key> <key> LEFT RIGHT",
    "RPOPLPUSH <key> <key>",
    "LMPOP 2 <key> <key> LEFT",
    "LINSERT <key> BEFORE a b",
    "LSET <key> 0 x",
    "LTRIM <key> 0 1",
    "LREM <key> 0 x",
    "LPOS <key> x",
    "LINDEX <key> 0",
    "SADD <key> x",
    "SREM <key> x",
    "SMOVE <key> <key> x",
    "SCARD <key>",
    "SISMEMBER <key> x",
    "SMEMBERS <key>",
    "SINTER <key> <key>",
    "SINTERCARD 2 <key> <key>",
    "SUNIONSTORE <key> <key> <key>",
    "SDIFFSTORE <key> <key>",
    "SINTERSTORE <key> <key> <key>",
    "HSET <key> f v",
    "HGET <key> f",
    "HDEL <key> f",
    "HEXISTS <key> f",
    "HLEN <key>",
    "HSTRLEN <key> f",
    "HINCRBY <key> f 1",
    "HSETNX <key> f v",
    "HGETALL <key>",
    "ZADD <key> 1 x",
    "ZREM <key> x",
    "ZSCORE <key> x",
    "ZCARD <key>",
    "ZCOUNT <key> 0 1",
    "ZRANGE <key> 0 1",
    "ZRANGESTORE <key> <key> 0 1",
    "ZUNIONSTORE <key> 2 <key> <key>",
    "ZINTERSTORE <key> 1 <key>",
    "ZDIFF 2 <key> <key>",
    "ZINTERCARD 2 <key> <key>",
    "ZMPOP 1 <key> MIN",
    "ZPOPMIN <key>",
    "ZINCRBY <key> 1 x",
    "ZREMRANGEBYRANK <key> 0 0",
    "SETBIT <key> 1 1",
    "GETBIT <key> 1",
    "BITCOUNT <key>",
    "BITOP AND <key> <key> <key>",
    "BITFIELD <key> GET u4 0",
    "BITFIELD <key> SET u4 0 1",
    "BITFIELD <key> GET u4 0 INCRBY u4 0 1",
    "BITFIELD_RO <key> GET u4 0",
    "PFADD <key> x",
    "PFCOUNT <key> <key>",
    "PFMERGE <key> <key> <key>",
    "GEOADD <key> 1 1 x",
    "GEOPOS <key> x",
    "GEORADIUS <key> 1 1 1 m STORE <key>",
    "GEORADIUS <key> 1 1 1 m",
    "GEORADIUSBYMEMBER_RO <key> x 1 m",
    "GEOSEARCHSTORE <key> <key> FROMLONLAT 1 1 BYRADIUS 1 m",
    "XADD <key> 1-1 f v",
    "XLEN <key>",
    "XRANGE <key> - +",
    "XREAD STREAMS <key> <key> 0 0",
    "XDEL <key> 1-1",
    "XGROUP CREATE <key> g $",
    "XACK <key> g 1-1",
    "XTRIM <key> MAXLEN 5",
    "PUBLISH <channel> x",
    "SPUBLISH <channel> x",
    "PUBSUB CHANNELS nosuch",
    "WATCH <key>",
    "UNWATCH",
    "EVAL return·1 1 <key>",
    "EVAL return·1 0",
    "EVAL_RO return·1 2 <key> <key>",
    "FCALL nosuch 1 <key>",
    "PING",
    "ECHO x",
    "SELECT 0",
    "SELECT 1",
    "CONFIG GET maxmemory",
    "CONFIG SET nosuch x",
    "CLIENT GETNAME",
    "CLIENT KILL ID 99999999",
    "ACL WHOAMI",
    "ACL USERS",
    "COMMAND GETKEYS GET x",
    "LASTSAVE",
    "LATENCY RESET",
    "SCRIPT EXISTS x",
    "FUNCTION LIST",
    "GET",
    "SET <key>",
    "CLIENT NONSENSE",
    "RESTORE <key> 0 x",
    "DUMP nosuch",
    "PEXPIREAT <key> 99999999999999",
];

const ODD_KEYS: &[&[u8]] = &[b"", b"a b", b"\x00\xff\r\n", b"{tag}x", b"k0", b"\xe2\x82\xac"];
const WORDS: &[&str] = &["hello", "hallo", "foobar", "a", "the quick brown fox", ""];
const PATTERNS: &[&str] = &[
    "*", "k*", "k?", "k[0-3]", "k[^0-3]", "[k]1", "\\k1", "*1*", "", "**", "k[1", "x*", "k\\?", "f*", "?",
    "[a-z]*", "k[3-0]", "*[", "\\",
];
const LEX_LIMITS: &[&str] = &["-", "+", "[a", "(a", "[m1", "(m3", "[z", "(z", "[", "(", "a", "", "[m5"];
const DATABASES: &[&str] = &["0", "0", "0", "1", "1", "2", "9", "15", "16", "-1", "abc", "1.5", ""];
const BITFIELD_TYPES: &[&str] =
    &["u1", "u4", "u8", "u16", "i8", "i16", "i5", "u63", "i64", "u64", "i65", "u0", "x8"];
const NONSENSE: &[&str] = &[
    "",
    "abc",
    "-1",
    "0",
    "1.5",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    " 1",
    "1 ",
    "+1",
    "01",
    "1e3",
    "nan",
    "inf",
    "k1",
    "*",
    "NX",
    "LIMIT",
    "WITHSCORES",
    "-",
    "100000",
];

fn one_of(rng: &mut Rng, words: &[&str]) -> Vec<u8> {
    text(rng.pick::<&str>(words))
}

fn text(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn number(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=5 => number(rng.between(-20, 200)),
        6..=9 => one_of(rng, WORDS),
        10 => float(rng),
        11 => int(rng),
        12 => Vec::new(),
        13 | 14 => bytes(rng, 20),
        15 => vec![b'x'; rng.below(300)],
        16 => one_of(
            rng,
            &["9223372036854775807", "-9223372036854775808", "9223372036854775806", "1e17", "3.0"],
        ),
        17 if rng.percent(20) => bytes(rng, 20_000),
        _ => format!("value-{}", rng.below(50)).into_bytes(),
    }
}

fn bytes(rng: &mut Rng, len_max: usize) -> Vec<u8> {
    let len = rng.below(len_max + 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn int(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=13 => number(rng.between(-10, 100)),
        14 => text("9223372036854775807"),
        15 => text("-9223372036854775808"),
        16 => text("-9223372036854775807"),
        _ => nonsense(rng),
    }
}

fn index(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=17 => number(rng.between(-12, 12)),
        _ => nonsense(rng),
    }
}

fn count(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=17 => number(rng.between(0, 9)),
        18 => number(rng.between(-9, -1)),
        _ => one_of(rng, &["abc", "1000", "", "1.0"]),
    }
}

fn float(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "0",
        "-0",
        "1e5",
        "1.5e-7",
        "3.0",
        "-2.50",
        "inf",
        "-inf",
        "nan",
        "1e400",
        "0x10",
        ".5",
        "5.",
        "abc",
        "",
        " 1.5",
        "1.7976931348623157e308",
        "17179869184.000001",
        "0.1",
        "1e-320",
    ];
    if rng.percent(60) {
        format!("{}.{}", rng.between(-100, 100), rng.below(1000)).into_bytes()
    } else {
        one_of(rng, ODD)
    }
}

fn expiry(rng: &mut Rng, low: i64, high: i64) -> Vec<u8> {
    match rng.below(20) {
        0..=16 => number(rng.between(low, high)),
        17 => one_of(rng, &["0", "-1", "-100"]),
        18 => one_of(rng, &["9223372036854775807", "9223372036854775", "-9223372036854775808"]),
        _ => nonsense(rng),
    }
}

/// A moment far ahead or long past; `unit` per second.
fn moment(rng: &mut Rng, unit: i64) -> Vec<u8> {
    match rng.below(20) {
        0..=15 => number((4_000_000_000 + rng.between(0, 1_000_000)) * unit + rng.between(0, unit - 1)),
        16 | 17 => number(rng.between(1, 1_000_000)),
        18 => one_of(rng, &["0", "-1", "9223372036854775807"]),
        _ => nonsense(rng),
    }
}

fn member(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=9 => format!("m{}", rng.below(8)).into_bytes(),
        10..=15 => number(rng.between(-3, 20)),
        16 => bytes(rng, 12),
        17 => vec![b'y'; 60 + rng.below(20)],
        18 => one_of(rng, &["", "a", "z", "9223372036854775807", "1.5", "007"]),
        _ => format!("m{}", rng.below(300)).into_bytes(),
    }
}

/// Members of large collections: numbers of all widths and texts of all lengths out of some tens of thousands.
fn one_of_many(rng: &mut Rng) -> Vec<u8> {
    let member = rng.between(0, 30_000);
    match member % 10 {
        0..=3 => number(member * 331),
        4 => number(-member),
        5 => number(member << 32),
        6 => format!("member:{member}").into_bytes(),
        7 => vec![b'a' + (member % 26) as u8; (member % 90) as usize],
        _ => format!("{member:x}{}", "z".repeat((member % 23) as usize)).into_bytes(),
    }
}

fn score(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=11 => number(rng.between(-5, 20)),
        12..=15 => format!("{}.{}", rng.between(-5, 20), rng.below(100)).into_bytes(),
        16 => one_of(
            rng,
            &["inf", "-inf", "+inf", "1e300", "-1e-300", "3.0", "0.1", "1e17", "123456789012345678"],
        ),
        17 => one_of(rng, &["nan", "abc", "", "1e400"]),
        _ => number(rng.between(-100_000, 100_000)),
    }
}

fn score_limit(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0 => text("-inf"),
        1 => text("+inf"),
        2 | 3 => [b"(".to_vec(), score(rng)].concat(),
        _ => score(rng),
    }
}

fn stream_id(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=9 => format!("{}-{}", rng.below(6), rng.below(6)).into_bytes(),
        10..=12 => number(rng.between(0, 6)),
        13 => text("-"),
        14 => text("+"),
        15 => text("0"),
        16 => format!("({}-{}", rng.below(6), rng.below(6)).into_bytes(),
        17 => text("18446744073709551615-18446744073709551615"),
        _ => one_of(rng, &["$", ">", "abc", "1-", "-1", "1-2-3", "", "18446744073709551616-0"]),
    }
}

/// Ids that grow often enough to be taken; never `*`, whose answer is the time.
fn stream_id_to_add(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=11 => format!("{}-{}", rng.below(50), rng.below(9)).into_bytes(),
        12..=15 => format!("{}-*", rng.below(50)).into_bytes(),
        16 => number(rng.between(0, 50)),
        17 => text("0-0"),
        _ => one_of(rng, &["abc", "1-", "-", "+", "1-2-3", ""]),
    }
}

fn offset(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=17 => number(rng.between(0, 40)),
        _ => one_of(rng, &["-1", "536870912", "9223372036854775807", "abc", "1000"]),
    }
}

fn bit_offset(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..=16 => number(rng.between(0, 100)),
        17 => format!("#{}", rng.below(10)).into_bytes(),
        _ => one_of(rng, &["-1", "4294967296", "9223372036854775807", "abc", "#-1", "#"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_draws_something_over_time() {
        let mut rng = Rng::new(4);
        // `form` draws a call itself
        for name in NAMES.iter().filter(|name| **name != "call") {
            assert!((0..200).any(|_| !draw(name, &mut rng).is_empty()), "<{name}> is always empty");
        }
    }
}
