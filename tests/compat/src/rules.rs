//! The one table of what may differ between two correct servers, and the comparison by it.
//!
//! Whatever is not in the table is compared byte for byte. A rule says why it is needed; the accepted differences of
//! docs/differences.md that a stream can meet have a rule here.

use crate::reply::Reply;

/// How two replies of a command are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Byte for byte.
    Exact,
    /// The same items in any order.
    Unordered,
    /// The same pairs, of a flat list or a map, in any order.
    UnorderedPairs,
    /// Integers anywhere in the reply may be this far apart.
    Near(i64),
    /// Lists of maps, in whose values integers may be this far apart; those of these names may be anything.
    NearMaps(i64, &'static [&'static str]),
    /// Same type and, for lists, same length.
    Shape,
    /// Same type byte.
    Kind,
    /// Byte for byte, but two errors are the same whatever they say; pairs as in [`Compare::PairsExcept`].
    PairsOrErrors(&'static [&'static str]),
    /// Byte for byte, but the reference alone may fail with this error.
    FailsWith(&'static str),
    /// As [`Compare::ErrorWord`]; what is no integer is the lowest one in the reference.
    Script,
    /// The same pairs but for the values of these names; the order of the names counts.
    PairsExcept(&'static [&'static str]),
    /// Messages of one command may come in any order, counts within them too; other replies keep their places.
    Messages,
    /// Errors need only begin with the same word; anything else byte for byte.
    ErrorWord,
    /// Byte for byte, or an error of one side where the other saw no reason for one.
    OrError,
    /// As the words of access rules are shown since Redis 7.2: what is said of commands and of sanitizing is left out.
    Rules,
    /// Texts from these words on.
    From(&'static str),
    /// Lists of maps, of which only these names count.
    OnlyPairs(&'static [&'static str]),
    /// Byte for byte but for these words, of which the reference says the first and the other side the second.
    Renamed(&'static [(&'static str, &'static str)]),
}

impl Compare {
    /// Whether it says what errors are the same; else they are compared byte for byte.
    fn judges_errors(self) -> bool {
        use Compare::{ErrorWord, FailsWith, OrError, PairsOrErrors, Script};
        matches!(self, ErrorWord | OrError | PairsOrErrors(_) | FailsWith(_) | Script)
    }
}

/// A line of the table.
pub struct Rule {
    /// The command's name, with its subcommand where only that one differs.
    pub command: &'static str,
    /// Only when this word is among the arguments.
    pub with: Option<&'static str>,
    /// How its replies are compared.
    pub compare: Compare,
    /// Why.
    pub why: &'static str,
}

const fn rule(command: &'static str, compare: Compare, why: &'static str) -> Rule {
    Rule { command, with: None, compare, why }
}

const fn rule_with(command: &'static str, with: &'static str, compare: Compare, why: &'static str) -> Rule {
    Rule { command, with: Some(with), compare, why }
}

const HASHED: &str = "the order of a hash table is not promised";
const CHANCE: &str = "answers by chance";
const CLOCK: &str = "the two servers read the clock at different moments";
const CLAIMERS: &str = "since Redis 7.2 who claims becomes a consumer even if there is nothing to claim";
const OWN: &str = "describes the server itself";
const LUA: &str = "messages of the Lua interpreter name its internals; what is past an integer is the greatest one, NaN is 0";
const STALE_ERROR: &str = "7.0 looks at a number's error without clearing the one of an earlier command";
const NO_DOUBLE: &str = "ERR One or more scores can't be converted into double";

const RULES_SHOWN: &str =
    "since Redis 7.2 rules about commands are shown as they were given, and sanitize-payload always is";

/// The table; the first line that fits counts.
pub const RULES: &[Rule] = &[
    rule("ACL LIST", Compare::Rules, RULES_SHOWN),
    rule("ACL GETUSER", Compare::Rules, RULES_SHOWN),
    rule("ACL DRYRUN", Compare::From(" has no permissions "), "since Redis 7.2 the user is named"),
    rule(
        "ACL LOG",
        Compare::OnlyPairs(&["count", "reason", "context", "object", "username"]),
        "entries have more fields since Redis 7.2; the rest describes clients and times",
    ),
    rule("ACL CAT", Compare::Kind, "Dragonfly's categories are known too, and commands that are newer"),
    rule("ACL GENPASS", Compare::Kind, CHANCE),
    rule("KEYS", Compare::Unordered, HASHED),
    rule("SMEMBERS", Compare::Unordered, HASHED),
    rule("SINTER", Compare::Unordered, HASHED),
    rule("SUNION", Compare::Unordered, HASHED),
    rule("SDIFF", Compare::Unordered, HASHED),
    rule("SPOP", Compare::Unordered, HASHED),
    rule("HKEYS", Compare::Unordered, HASHED),
    rule("HVALS", Compare::Unordered, HASHED),
    rule("HGETALL", Compare::UnorderedPairs, HASHED),
    rule_with("SORT", "nosort", Compare::Unordered, HASHED),
    rule_with("SORT_RO", "nosort", Compare::Unordered, HASHED),
    rule("SORT", Compare::FailsWith(NO_DOUBLE), STALE_ERROR),
    rule("SORT_RO", Compare::FailsWith(NO_DOUBLE), STALE_ERROR),
    rule_with(
        "SCAN",
        "TYPE",
        Compare::OrError,
        "since Redis 8 a name that is no type is an error, and the first",
    ),
    rule("SCAN", Compare::Shape, "only met inside EXEC, where it is not followed to its end"),
    rule("HSCAN", Compare::Shape, "only met inside EXEC, where it is not followed to its end"),
    rule("SSCAN", Compare::Shape, "only met inside EXEC, where it is not followed to its end"),
    rule("ZSCAN", Compare::Shape, "only met inside EXEC, where it is not followed to its end"),
    rule_with("GEOSEARCH", "ASC", Compare::Exact, "sorted"),
    rule_with("GEOSEARCH", "DESC", Compare::Exact, "sorted"),
    rule("BZPOPMIN", Compare::ErrorWord, "7.0 takes a timeout that overflows for a negative one"),
    rule("BZPOPMAX", Compare::ErrorWord, "7.0 takes a timeout that overflows for a negative one"),
    rule("BZMPOP", Compare::ErrorWord, "7.0 takes a timeout that overflows for a negative one"),
    rule("ZRANK", Compare::ErrorWord, "WITHSCORE came with 7.2, and with it another error"),
    rule("ZREVRANK", Compare::ErrorWord, "WITHSCORE came with 7.2, and with it another error"),
    rule("GEOSEARCH", Compare::Unordered, "unsorted results come in the order of the cells visited"),
    rule("PUBLISH", Compare::Messages, HASHED),
    rule("SPUBLISH", Compare::Messages, HASHED),
    rule("UNSUBSCRIBE", Compare::Messages, HASHED),
    rule("PUNSUBSCRIBE", Compare::Messages, HASHED),
    rule("SUNSUBSCRIBE", Compare::Messages, HASHED),
    rule("PUBSUB CHANNELS", Compare::Unordered, HASHED),
    rule("PUBSUB SHARDCHANNELS", Compare::Unordered, HASHED),
    rule("RANDOMKEY", Compare::Kind, CHANCE),
    rule("SRANDMEMBER", Compare::Shape, CHANCE),
    rule("HRANDFIELD", Compare::Shape, CHANCE),
    rule("ZRANDMEMBER", Compare::Shape, CHANCE),
    rule("TTL", Compare::Near(1), CLOCK),
    rule("PTTL", Compare::Near(5), CLOCK),
    rule("EXPIRETIME", Compare::Near(1), CLOCK),
    rule("PEXPIRETIME", Compare::Near(5), CLOCK),
    rule("HTTL", Compare::Near(1), CLOCK),
    rule("HPTTL", Compare::Near(500), CLOCK),
    rule("HEXPIRETIME", Compare::Near(1), CLOCK),
    rule("HPEXPIRETIME", Compare::Near(500), CLOCK),
    rule("OBJECT IDLETIME", Compare::Kind, "Darter keeps no time of the last use per key and answers 0"),
    rule("DBSIZE", Compare::Near(3), "dead keys that nobody asks for are removed at different moments"),
    rule(
        "OBJECT ENCODING",
        Compare::Renamed(&[
            ("quicklist", "listpack"),
            ("hashtable", "listpack"),
            ("skiplist", "listpack"),
            ("listpackex", "listpack"),
        ]),
        "since Redis 7.2 small lists and sets are listpacks; a hash that has no times is no listpackex; a sorted set that has shrunk is called by its size",
    ),
    rule_with("LPOS", "RANK", Compare::OrError, "since Redis 7.2 a rank of -2^63 is refused"),
    rule(
        "BITCOUNT",
        Compare::OrError,
        "arguments are checked first as since Redis 7.2; the end may be left out as in Valkey 8",
    ),
    rule("BITPOS", Compare::OrError, "since Redis 7.2 arguments are checked before the key is looked up"),
    rule("XPENDING", Compare::Near(50), CLOCK),
    rule("XINFO CONSUMERS", Compare::Kind, CLAIMERS),
    // Since Redis 8 what was trimmed unread counts as read, and a count that was said wrongly is not believed.
    rule("XINFO GROUPS", Compare::NearMaps(2, &["entries-read", "lag"]), CLAIMERS),
    rule("XGROUP CREATECONSUMER", Compare::Kind, CLAIMERS),
    rule("XREAD", Compare::ErrorWord, "since Redis 7.2 the error names the command"),
    rule("XREADGROUP", Compare::ErrorWord, "since Redis 7.2 the error names the command"),
    rule_with("XINFO", "FULL", Compare::Shape, CLOCK),
    rule(
        "XINFO STREAM",
        Compare::PairsExcept(&["radix-tree-keys", "radix-tree-nodes"]),
        "Redis describes its radix tree",
    ),
    rule("TIME", Compare::Kind, CLOCK),
    rule("LASTSAVE", Compare::Kind, CLOCK),
    rule("OBJECT REFCOUNT", Compare::Kind, "Redis shares small integers"),
    rule("OBJECT HELP", Compare::Kind, OWN),
    rule("XGROUP HELP", Compare::Kind, OWN),
    rule("DUMP", Compare::Kind, "the payload names the version of its format"),
    rule_with(
        "HELLO",
        "AUTH",
        Compare::PairsOrErrors(&["server", "version", "id", "modules"]),
        "since Redis 7.2 all arguments are read before the login is tried",
    ),
    rule("HELLO", Compare::PairsExcept(&["server", "version", "id", "modules"]), OWN),
    rule_with("CONFIG SET", "maxmemory-policy", Compare::ErrorWord, "the error lists the policies there are"),
    rule("CLIENT ID", Compare::Kind, OWN),
    rule("CLIENT INFO", Compare::Kind, OWN),
    rule("CLIENT LIST", Compare::Kind, OWN),
    rule("COMMAND COUNT", Compare::Kind, OWN),
    rule("COMMAND INFO", Compare::Shape, "flags and key specifications grow from version to version"),
    rule("CONFIG GET", Compare::UnorderedPairs, HASHED),
    rule("LOLWUT", Compare::Kind, OWN),
    rule("INFO", Compare::Kind, OWN),
    rule("MEMORY USAGE", Compare::Kind, OWN),
    rule("MEMORY DOCTOR", Compare::Kind, OWN),
    rule("LATENCY LATEST", Compare::Kind, CLOCK),
    rule("LATENCY RESET", Compare::Kind, CLOCK),
    rule("EVAL", Compare::Script, LUA),
    rule("EVAL_RO", Compare::Script, LUA),
    rule("FCALL", Compare::Script, LUA),
    rule("FUNCTION LOAD", Compare::ErrorWord, LUA),
];

/// Answers to raw bytes that may replace the reference's, with the reason.
pub const ACCEPTED_RAW: &[(&str, &str)] = &[(
    "invalid CRLF in request",
    "Redis passes over the byte after a carriage return, and the two after an argument, unread",
)];

/// Whether a raw answer of the server under test is an accepted difference.
pub fn accepted_raw(answer: &[u8]) -> bool {
    ACCEPTED_RAW.iter().any(|(text, _)| answer.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// Why a request may be answered otherwise, if its bytes are such.
pub fn accepted_request(bytes: &[u8], left: &[u8], right: &[u8]) -> Option<&'static str> {
    let is_inline = !bytes.starts_with(b"*");
    if bytes.contains(&0) && (is_inline || right.starts_with(left)) {
        return Some("Redis looks for the end of a line no further than a zero byte, and waits");
    }
    if is_inline && bytes.starts_with(b"POST ") {
        return Some("Redis closes, Darter speaks HTTP");
    }
    let is_lone = |pair: &[u8]| pair[0] == b'\r' && pair[1] != b'\n';
    bytes.windows(2).any(is_lone).then_some("Redis passes over the byte after a carriage return unread")
}

/// The line of the table for a command; `None`: byte for byte.
pub fn find(args: &[Vec<u8>]) -> Option<&'static Rule> {
    let is =
        |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    RULES.iter().find(|rule| {
        let named = match rule.command.split_once(' ') {
            Some((name, sub)) => is(0, name) && is(1, sub),
            None => is(0, rule.command),
        };
        named && rule.with.is_none_or(|word| (1..args.len()).any(|at| is(at, word)))
    })
}

/// Whether two replies to `args` are the same as far as the table goes.
pub fn same(args: &[Vec<u8>], left: &Reply, right: &Reply) -> bool {
    if left == right || (gives_doubles(args) && same_but_digits(left, right)) {
        return true;
    }
    if is_refusal(left) && is_refusal(right) {
        // Since Redis 7.2 the text names the user.
        return true;
    }
    let Some(rule) = find(args) else { return false };
    if (left.is_error() || right.is_error()) && !rule.compare.judges_errors() {
        return false;
    }
    match rule.compare {
        // Messages are compared together, by `same_messages`.
        Compare::Exact | Compare::Messages => false,
        Compare::Unordered => sorted(left) == sorted(right) && left.kind() == right.kind(),
        Compare::UnorderedPairs => pairs(left) == pairs(right) && left.kind() == right.kind(),
        Compare::Near(distance) => near(left, right, distance),
        Compare::NearMaps(distance, names) => near_maps(left, right, distance, names),
        Compare::Shape => {
            left.kind() == right.kind() && left.items().map(<[_]>::len) == right.items().map(<[_]>::len)
        }
        Compare::Kind => left.kind() == right.kind(),
        Compare::OrError => left.is_error() || right.is_error(),
        Compare::Renamed(words) => words
            .iter()
            .any(|(l, r)| left.bytes() == Some(l.as_bytes()) && right.bytes() == Some(r.as_bytes())),
        Compare::PairsExcept(names) => same_pairs_except(left, right, names),
        Compare::PairsOrErrors(names) => match (left.is_error(), right.is_error()) {
            (false, false) => same_pairs_except(left, right, names),
            (left, right) => left && right,
        },
        Compare::FailsWith(text) => left.is_error() && left.bytes() == Some(text.as_bytes()),
        Compare::Script if left.is_error() => right.is_error() && first_word(left) == first_word(right),
        Compare::Script => same_but_limits(left, right),
        Compare::Rules => without_commands(left) == without_commands(right),
        Compare::From(words) => same_from(left, right, words),
        Compare::OnlyPairs(names) => only_pairs(left, names) == only_pairs(right, names),
        Compare::ErrorWord => left.is_error() && right.is_error() && first_word(left) == first_word(right),
    }
}

/// Whether the replies and messages that `args` caused on one connection are the same as far as the table goes.
/// `own`: it is the connection that `args` was sent on.
pub fn same_messages(args: &[Vec<u8>], own: bool, left: &[Reply], right: &[Reply]) -> bool {
    let reordered = find(args).is_some_and(|rule| rule.compare == Compare::Messages);
    // Which command a late reply belongs to is not known; a rule can only fit the one just sent.
    let same_reply = |(left, right): (&Reply, &Reply)| {
        left == right
            || same_but_digits(left, right)
            || (own && same(args, left, right))
            || (reordered && left.items().is_some() && right.items().is_some())
    };
    let (left, right) =
        if reordered { (pushes_last(left), pushes_last(right)) } else { (all(left), all(right)) };
    left.len() == right.len()
        && left.iter().copied().zip(right.iter().copied()).all(same_reply)
        && (!reordered || sorted_message_items(&left) == sorted_message_items(&right))
}

fn all(replies: &[Reply]) -> Vec<&Reply> {
    replies.iter().collect()
}

/// Since Redis 7.2 a message to oneself comes behind the reply to what sent it.
fn pushes_last(replies: &[Reply]) -> Vec<&Reply> {
    let mut replies = all(replies);
    replies.sort_by_key(|reply| reply.kind() == b'>');
    replies
}

fn sorted_message_items<'a>(replies: &[&'a Reply]) -> Vec<&'a Reply> {
    let mut items: Vec<&Reply> = replies.iter().filter_map(|reply| reply.items()).flatten().collect();
    items.sort_unstable();
    items
}

/// Whether a difference under this rule may come from the clock alone.
pub fn by_clock(args: &[Vec<u8>]) -> bool {
    find(args).is_some_and(|rule| matches!(rule.compare, Compare::Near(_)))
}

/// Whether a command may tell of a change that the reference makes and tells nobody of: a BITFIELD whose steps failed.
pub fn tells_more(args: &[Vec<u8>]) -> bool {
    let has = |word: &[u8]| args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
    has(b"bitfield") && has(b"fail")
}

/// The key that a command stores a result at which the reference alone may fail to store.
pub fn stored_alone(args: &[Vec<u8>]) -> Option<&[u8]> {
    find(args).filter(|rule| matches!(rule.compare, Compare::FailsWith(_)))?;
    let at = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"store"))?;
    args.get(at + 1).map(Vec::as_slice)
}

/// Whether replies to `args` hold doubles, which Redis prints with their shortest digits only since 7.2.
fn gives_doubles(args: &[Vec<u8>]) -> bool {
    let Some(name) = args.first() else { return false };
    let starts = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    starts(b"Z") || starts(b"BZ") || starts(b"GEO")
}

/// Whether two replies differ only in how the digits of doubles are written.
fn same_but_digits(left: &Reply, right: &Reply) -> bool {
    match (left, right) {
        (Reply::List(a, mine), Reply::List(b, theirs)) => {
            a == b
                && mine.len() == theirs.len()
                && mine.iter().zip(theirs).all(|(m, t)| same_but_digits(m, t))
        }
        (Reply::Text(b'$', mine), Reply::Text(b'$', theirs))
        | (Reply::Line(b',', mine), Reply::Line(b',', theirs)) => {
            let bits = |text: &[u8]| Some(std::str::from_utf8(text).ok()?.parse::<f64>().ok()?.to_bits());
            mine == theirs || (mine.len() >= 5 && bits(mine).is_some() && bits(mine) == bits(theirs))
        }
        _ => left == right,
    }
}

fn sorted(reply: &Reply) -> Option<Vec<&Reply>> {
    let mut items: Vec<&Reply> = reply.items()?.iter().collect();
    items.sort_unstable();
    Some(items)
}

fn pairs(reply: &Reply) -> Option<Vec<&[Reply]>> {
    let mut pairs: Vec<&[Reply]> = reply.items()?.chunks(2).collect();
    pairs.sort_unstable();
    Some(pairs)
}

fn near(left: &Reply, right: &Reply, distance: i64) -> bool {
    if let (Some(left), Some(right)) = (left.integer(), right.integer()) {
        // Negative integers are answers such as "no such key", not times.
        return left == right || (left >= 0 && right >= 0 && left.abs_diff(right) <= distance.unsigned_abs());
    }
    match (left, right) {
        (Reply::List(a, mine), Reply::List(b, theirs)) => {
            a == b && mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(m, t)| near(m, t, distance))
        }
        _ => left == right,
    }
}

fn near_maps(left: &Reply, right: &Reply, distance: i64, names: &[&str]) -> bool {
    let (Some(mine), Some(theirs)) = (left.items(), right.items()) else { return false };
    let same_pair = |m: &[Reply], t: &[Reply]| {
        m.first() == t.first()
            && (is_one_of(&m[0], names) || near(&m[m.len() - 1], &t[t.len() - 1], distance))
    };
    let same_map = |m: &Reply, t: &Reply| {
        let (Some(mine), Some(theirs)) = (m.items(), t.items()) else { return false };
        m.kind() == t.kind()
            && mine.len() == theirs.len()
            && mine.chunks(2).zip(theirs.chunks(2)).all(|(m, t)| same_pair(m, t))
    };
    left.kind() == right.kind()
        && mine.len() == theirs.len()
        && mine.iter().zip(theirs).all(|(m, t)| same_map(m, t))
}

/// Whether two replies differ only in what is no integer of 64 bits: the lowest there, here the highest, or 0 for NaN.
fn same_but_limits(left: &Reply, right: &Reply) -> bool {
    match (left, right) {
        (Reply::List(a, mine), Reply::List(b, theirs)) => {
            a == b
                && mine.len() == theirs.len()
                && mine.iter().zip(theirs).all(|(m, t)| same_but_limits(m, t))
        }
        _ => {
            left == right
                || (left.integer() == Some(i64::MIN) && matches!(right.integer(), Some(0 | i64::MAX)))
        }
    }
}

fn same_pairs_except(left: &Reply, right: &Reply, names: &[&str]) -> bool {
    let (Some(mine), Some(theirs)) = (left.items(), right.items()) else { return false };
    let is_free = |name: &Reply| is_one_of(name, names);
    left.kind() == right.kind()
        && mine.len() == theirs.len()
        && mine.chunks(2).zip(theirs.chunks(2)).all(|(m, t)| m == t || (m[0] == t[0] && is_free(&m[0])))
}

fn is_one_of(name: &Reply, names: &[&str]) -> bool {
    name.bytes().is_some_and(|name| names.iter().any(|one| one.as_bytes() == name))
}

/// A reply about users without what it says of commands and of `sanitize-payload`.
fn without_commands(reply: &Reply) -> Reply {
    match reply {
        Reply::List(kind, items) => {
            let is_shown = |item: &&Reply| item.bytes() != Some(b"sanitize-payload");
            Reply::List(*kind, items.iter().filter(is_shown).map(without_commands).collect())
        }
        Reply::Text(kind, text) => {
            let is_shown = |word: &&[u8]| {
                *word != b"sanitize-payload" && !word.starts_with(b"+") && !word.starts_with(b"-")
            };
            let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').filter(is_shown).collect();
            Reply::Text(*kind, words.join(&b' '))
        }
        Reply::Line(..) => reply.clone(),
    }
}

fn same_from(left: &Reply, right: &Reply, words: &str) -> bool {
    let tail = |reply: &Reply| {
        let text = String::from_utf8_lossy(reply.bytes()?).into_owned();
        text.find(words).map(|at| text[at..].to_owned())
    };
    left.kind() == right.kind() && tail(left).is_some() && tail(left) == tail(right)
}

/// The pairs with these names of each map in a list.
fn only_pairs<'a>(reply: &'a Reply, names: &[&str]) -> Option<Vec<Vec<&'a [Reply]>>> {
    let is_wanted = |pair: &&[Reply]| is_one_of(&pair[0], names);
    let pairs = |map: &'a Reply| Some(map.items()?.chunks(2).filter(is_wanted).collect());
    reply.items()?.iter().map(pairs).collect()
}

/// Whether a reply says that the user may not, itself or as the reason why EXEC runs nothing.
fn is_refusal(reply: &Reply) -> bool {
    let aborted: &[u8] = b"EXECABORT Transaction discarded because of: ";
    let text = reply.bytes().map(|text| text.strip_prefix(aborted).unwrap_or(text));
    reply.is_error() && text.is_some_and(|text| text.starts_with(b"NOPERM "))
}

fn first_word(reply: &Reply) -> Option<&[u8]> {
    reply.bytes()?.split(|b| *b == b' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|arg| arg.as_bytes().to_vec()).collect()
    }

    fn reply(text: &str) -> Reply {
        Reply::read(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn doubles_of_sorted_sets_may_have_other_digits() {
        let long = reply("*2\r\n+a\r\n$19\r\n-2.1699999999999999\r\n");
        let short = reply("*2\r\n+a\r\n$5\r\n-2.17\r\n");
        assert!(same(&args("ZRANGE z 0 -1 WITHSCORES"), &long, &short));
        assert!(!same(&args("LRANGE z 0 -1"), &long, &short));
    }

    #[test]
    fn unordered_replies_are_sorted_and_others_not() {
        let (ab, ba) = (reply("*2\r\n+a\r\n+b\r\n"), reply("*2\r\n+b\r\n+a\r\n"));
        assert!(same(&args("keys *"), &ab, &ba));
        assert!(!same(&args("LRANGE l 0 -1"), &ab, &ba));
        assert!(!same(&args("SMEMBERS s"), &ab, &reply("~2\r\n+a\r\n+b\r\n")));
        assert!(!same(
            &args("HGETALL h"),
            &reply("*4\r\n+a\r\n+b\r\n+c\r\n+d\r\n"),
            &reply("*4\r\n+a\r\n+d\r\n+c\r\n+b\r\n")
        ));
    }

    #[test]
    fn times_may_be_near_but_missing_is_missing() {
        assert!(same(&args("PTTL k"), &reply(":100\r\n"), &reply(":96\r\n")));
        assert!(!same(&args("PTTL k"), &reply(":100\r\n"), &reply(":90\r\n")));
        assert!(!same(&args("TTL k"), &reply(":-1\r\n"), &reply(":-2\r\n")));
        assert!(!same(&args("TTL k"), &reply(":0\r\n"), &reply(":-1\r\n")));
    }

    #[test]
    fn what_groups_have_read_may_differ_and_nothing_else_of_them() {
        let groups = |name: &str, pending: u32, lag: &str| {
            reply(&format!("*1\r\n*6\r\n+name\r\n+{name}\r\n+pending\r\n:{pending}\r\n+lag\r\n{lag}\r\n"))
        };
        let is_same = |right: &Reply| same(&args("XINFO GROUPS s"), &groups("g", 10, ":-27"), right);
        assert!(is_same(&groups("g", 12, ":1")) && is_same(&groups("g", 10, "$-1")));
        assert!(!is_same(&groups("g", 13, ":-27")) && !is_same(&groups("h", 10, ":-27")));
    }

    #[test]
    fn errors_are_compared_even_under_a_rule() {
        assert!(!same(&args("KEYS"), &reply("-ERR a\r\n"), &reply("-ERR b\r\n")));
        assert!(same(&args("EVAL x 0"), &reply("-ERR a\r\n"), &reply("-ERR b\r\n")));
        assert!(!same(&args("EVAL x 0"), &reply("-ERR a\r\n"), &reply("-NOSCRIPT b\r\n")));
        assert!(!same(&args("INFO"), &reply("$1\r\na\r\n"), &reply("-ERR b\r\n")));
        let stale = reply("-ERR One or more scores can't be converted into double\r\n");
        assert!(same(&args("SORT k"), &stale, &reply("*0\r\n")));
        assert!(!same(&args("SORT k"), &reply("*0\r\n"), &stale));
        let (least, most) = (reply(":-9223372036854775808\r\n"), reply(":9223372036854775807\r\n"));
        assert!(same(&args("EVAL x 0"), &least, &most));
        assert!(!same(&args("EVAL x 0"), &most, &least));
        assert!(same(&args("HELLO 2 AUTH a b"), &reply("-WRONGPASS\r\n"), &reply("-ERR\r\n")));
    }

    #[test]
    fn subcommands_and_words_choose_the_rule() {
        assert_eq!(find(&args("object refcount k")).unwrap().compare, Compare::Kind);
        let (old, new) = (reply("$9\r\nquicklist\r\n"), reply("$8\r\nlistpack\r\n"));
        assert!(same(&args("OBJECT ENCODING k"), &old, &new));
        assert!(!same(&args("OBJECT ENCODING k"), &new, &old));
        assert_eq!(find(&args("SORT k BY nosort")).unwrap().compare, Compare::Unordered);
        assert!(matches!(find(&args("SORT k")).unwrap().compare, Compare::FailsWith(_)));
    }

    #[test]
    fn messages_may_change_places_but_not_with_the_reply() {
        let all = |text: &str| -> Vec<Reply> {
            let mut rest = text.as_bytes();
            std::iter::from_fn(|| Reply::read(&mut rest).ok()).collect()
        };
        let (a, b) = ("*2\r\n+a\r\n:1\r\n", "*2\r\n+b\r\n:0\r\n");
        let (a0, b1) = ("*2\r\n+a\r\n:0\r\n", "*2\r\n+b\r\n:1\r\n");
        let publish = args("PUBLISH c x");
        assert!(same_messages(&publish, false, &all(&[a, b].concat()), &all(&[b1, a0].concat())));
        assert!(!same_messages(&args("GET c"), false, &all(&[a, b].concat()), &all(&[b, a].concat())));
        assert!(!same_messages(&publish, true, &all(&[a, ":1\r\n"].concat()), &all(&[":1\r\n", a].concat())));
        assert!(!same_messages(&publish, false, &all(a), &all(b)));
        let push = a.replace('*', ">");
        assert!(same_messages(
            &publish,
            true,
            &all(&[&push, ":1\r\n"].concat()),
            &all(&[":1\r\n", &push].concat())
        ));
        assert!(!same_messages(
            &publish,
            true,
            &all(&[&push, ":1\r\n"].concat()),
            &all(&[":2\r\n", &push].concat())
        ));
    }

    #[test]
    fn hello_may_name_another_server() {
        let left = reply("*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n");
        let right = reply("*4\r\n$6\r\nserver\r\n$6\r\ndarter\r\n$5\r\nproto\r\n:2\r\n");
        let wrong = reply("*4\r\n$6\r\nserver\r\n$6\r\ndarter\r\n$5\r\nproto\r\n:3\r\n");
        assert!(same(&args("HELLO 2"), &left, &right));
        assert!(!same(&args("HELLO 2"), &left, &wrong));
    }
}
