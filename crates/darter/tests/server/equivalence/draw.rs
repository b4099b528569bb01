//! Random commands from the rows themselves: each follows the notation of its [`Spec::syntax`].
//!
//! Called by the equivalence test. A source of choices decides, so that a
//! sequence follows from a seed or from a fuzzer's bytes. No command that is drawn blocks, sleeps or reads the clock.

use darter_command::syntax::{self, Arg, SyntaxKind};
use darter_command::{DataCommand, FAMILIES, Flags, Group, Spec};
use darter_wire::OwnedArgs;

/// Keys that commands use.
pub const KEYS: usize = 8;

/// Decides what is drawn.
pub trait Choices {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize;

    /// True once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Commands that answer or act by chance or by the clock, describe memory, empty everything at another time than their
/// own, or test the server.
const LEFT_OUT: &[&str] =
    &["spop", "pfselftest", "pfdebug", "cl.throttle", "memory|usage", "json.debug", "json.debug|memory"];

/// The rows of a family that may be drawn.
pub fn rows(family: &'static [DataCommand]) -> Vec<&'static Spec> {
    let has_sub = |spec: &Spec| {
        family.iter().any(|row| row.spec.name.split_once('|').is_some_and(|(name, _)| name == spec.name))
    };
    let may = |spec: &&Spec| {
        !spec.flags.any(Flags::BLOCKING.with(Flags::NOSCRIPT))
            && !has_sub(spec)
            && !LEFT_OUT.contains(&spec.name)
            && !spec.name.starts_with("debug")
            && !matches!(spec.group, Group::Server | Group::Cluster)
    };
    family.iter().map(|row| &row.spec).filter(may).collect()
}

/// All families, each with a name for messages.
pub fn families() -> impl Iterator<Item = (&'static str, Vec<&'static Spec>)> {
    FAMILIES.iter().map(|family| (family[0].spec.group.name(), rows(family)))
}

/// A key of the pool.
pub fn key(at: usize) -> Vec<u8> {
    format!("k{at}").into_bytes()
}

/// A command of `spec`; now and then one that is wrong.
pub fn command(spec: &Spec, choices: &mut impl Choices) -> Vec<Vec<u8>> {
    let mut drawn = Drawn { args: Vec::new(), count_at: None, repeated: 0, group: spec.group };
    drawn.args.extend(spec.name.split('|').map(|word| word.to_ascii_uppercase().into_bytes()));
    drawn.all(&syntax::parse(spec.syntax), choices);
    let named = spec.name.split('|').count();
    let mut args = drawn.args;
    let slices: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let owned = OwnedArgs::from_slices(&slices);
    let mut places = Vec::new();
    spec.each_key(owned.args(), &mut |at| places.push(at));
    for at in places {
        args[at] = key(choices.below(KEYS));
    }
    if choices.once_in(20) {
        spoil(&mut args, named, choices);
    }
    args
}

/// A command that is being drawn.
struct Drawn {
    args: Vec<Vec<u8>>,
    /// Where the number of what is repeated next belongs.
    count_at: Option<usize>,
    /// The number of the last repetition.
    repeated: usize,
    group: Group,
}

impl Drawn {
    fn all(&mut self, args: &[Arg], choices: &mut impl Choices) {
        args.iter().for_each(|arg| self.one(arg, choices));
    }

    fn one(&mut self, arg: &Arg, choices: &mut impl Choices) {
        // No limit of a wait, and no time of the clock.
        let (is_limit, is_time) =
            (arg.token.as_deref() == Some("BLOCK"), arg.token.as_deref() == Some("TIMESTAMP"));
        if is_limit || (arg.is_optional && !is_time && choices.once_in(2)) {
            return;
        }
        let times = match (arg.is_multiple, arg.name.as_str()) {
            (false, _) => 1,
            (true, "id") if self.repeated > 0 => self.repeated,
            (true, _) => 1 + choices.below(3),
        };
        if arg.is_multiple {
            self.repeated = times;
            if let Some(at) = self.count_at.take() {
                self.args[at] = times.to_string().into_bytes();
            }
        }
        for round in 0..times {
            if let Some(token) = arg.token.as_ref().filter(|_| round == 0 || arg.repeats_token) {
                self.args.push(token.clone().into_bytes());
            }
            match arg.kind {
                SyntaxKind::PureToken => {}
                SyntaxKind::OneOf => {
                    // `*` is the clock's time.
                    let inner: Vec<&Arg> =
                        arg.inner.iter().filter(|arg| arg.token.as_deref() != Some("*")).collect();
                    self.one(inner[choices.below(inner.len())], choices);
                }
                SyntaxKind::Block => self.all(&arg.inner, choices),
                kind => {
                    if arg.name.starts_with("num") && arg.name != "num-matches" {
                        self.count_at = Some(self.args.len());
                    }
                    let value = value(&arg.name, kind, self.group, choices);
                    self.args.push(value);
                }
            }
        }
    }
}

/// A value for the argument `name`, mostly a good one.
fn value(name: &str, kind: SyntaxKind, group: Group, choices: &mut impl Choices) -> Vec<u8> {
    let words: &[&str] = match (name, group) {
        ("value", Group::Json) => {
            &["1", "2.5", "\"x\"", "null", "{\"a\":1,\"b\":[1,2,\"c\"]}", "[3,1,2]", "true"]
        }
        ("path", _) => &["$", "$.a", "$.b", "$.b[0]", "$..a", ".", ".a", "$.b[-1:]"],
        ("cursor" | "iterator", _) => &["0"],
        ("group", _) => &["g0", "g1"],
        ("consumer", _) => &["alice", "bob"],
        ("id" | "start" | "end" | "last-id" | "lastid" | "max-deleted-id" | "threshold", Group::Stream) => {
            &["1-1", "2-1", "3-1", "4-1", "5-1", "6", "7-2", "0", "-", "+", "9-1", "20-1", "(2-1"]
        }
        ("encoding", _) => &["u8", "i16", "u3", "i64"],
        ("min" | "max" | "start" | "stop", Group::SortedSet) => {
            &["-inf", "+inf", "0", "1", "(2", "-1", "3", "[m1", "-", "+", "(m4"]
        }
        ("aggregator", _) => &["avg", "sum", "min", "max", "count", "last"],
        ("filterExpr", _) => &["l=v", "l!=v", "l=", "x=(v,w)"],
        ("label", _) => &["l", "x"],
        ("timestamp" | "fromTimestamp" | "toTimestamp" | "from_timestamp" | "to_timestamp", _) => {
            &["10", "20", "30", "40", "55", "70", "100"]
        }
        ("destination-db" | "db" | "index1" | "index2", Group::Generic) => &["0", "1", "2"],
        ("type", _) => &["string", "list", "hash", "zset"],
        ("quantile" | "error_rate" | "error" | "probability", _) => &["0.5", "0.01", "0.1", "0.9"],
        ("capacity" | "width" | "depth" | "topk" | "compression" | "bucketsize", _) => &["4", "10", "50"],
        ("expansion" | "maxiterations", _) => &["1", "2"],
        ("vertices", _) => &["3"],
        _ => match kind {
            SyntaxKind::Key => return key(choices.below(KEYS)),
            SyntaxKind::Double => &["1", "-2", "0.5", "3.25", "100", "-inf", "2"],
            SyntaxKind::Pattern => &["*", "k*", "m?", "[a-k]*", "nosort"],
            SyntaxKind::UnixTime if name.ends_with("milliseconds") => &["4102444800000", "4102444805000"],
            SyntaxKind::UnixTime => &["4102444800", "4102444805"],
            SyntaxKind::Integer => match name {
                "seconds" => &["1000", "5000"],
                "milliseconds" | "ttl" => &["1000000", "5000000"],
                _ => &["0", "1", "2", "3", "-1", "-2", "5", "10", "100"],
            },
            _ => &[
                "m0",
                "m1",
                "m2",
                "m3",
                "m4",
                "1",
                "2",
                "7",
                "-3",
                "1.5",
                "",
                "a longer value of some words",
            ],
        },
    };
    if choices.once_in(40) {
        return WRONG[choices.below(WRONG.len())].to_vec();
    }
    words[choices.below(words.len())].as_bytes().to_vec()
}

const WRONG: &[&[u8]] = &[b"", b"x", b"-1", b"9223372036854775807", b"1e400", b"nan", b"\xff\0", b"0"];

/// Spoils a command in one place behind the `named` words of its name.
fn spoil(args: &mut Vec<Vec<u8>>, named: usize, choices: &mut impl Choices) {
    let others = args.len() - named;
    match choices.below(3) {
        0 if others > 0 => drop(args.pop()),
        1 if others > 0 => {
            let at = named + choices.below(others);
            args[at] = WRONG[choices.below(WRONG.len())].to_vec();
        }
        _ => args.push(b"more".to_vec()),
    }
}
