//! Command streams from a seed: which command, on which connection, after which pause.

use crate::form::Form;
use crate::grammar::{EVERY_TYPE, Family, KEYSPACE, Mode, Weighted};
use crate::rng::Rng;
use crate::words;

/// One step of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The connection it is sent on.
    pub connection: usize,
    /// The command and its arguments; in a raw stream the single item is all bytes.
    pub args: Vec<Vec<u8>>,
    /// Sent in the same write as the op before it.
    pub joined: bool,
    /// Milliseconds to wait before it.
    pub pause_ms: u64,
}

impl Op {
    /// The command's name in upper case.
    pub fn name(&self) -> String {
        self.args.first().map_or(String::new(), |name| name.escape_ascii().to_string().to_uppercase())
    }

    /// The command as it would be typed into redis-cli.
    pub fn line(&self) -> String {
        let quoted = |arg: &Vec<u8>| {
            let plain = !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(b));
            if plain { arg.escape_ascii().to_string() } else { format!("\"{}\"", arg.escape_ascii()) }
        };
        self.args.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// Draws the ops of a family.
pub struct Stream {
    family: &'static Family,
    forms: Vec<(u32, &'static str, Form)>,
    weights: usize,
    rng: Rng,
    ops: Vec<Op>,
    // connections inside MULTI
    in_multi: Vec<bool>,
}

impl Stream {
    /// A stream of `family` that follows from `seed`; commands whose upper-case name is in `without` are left out.
    /// Errors: a form that cannot be parsed.
    pub fn new(
        family: &'static Family,
        seed: u64,
        every_type: bool,
        without: &[String],
    ) -> Result<Self, String> {
        let extra: [&[Weighted]; 2] = match (family.mode, family.mixed_types) {
            (Mode::Direct, true) if every_type => [KEYSPACE, EVERY_TYPE],
            (Mode::Direct, true) => [KEYSPACE, &[]],
            _ => [&[], &[]],
        };
        let mut forms = Vec::new();
        for (weight, text) in family.forms.iter().chain(extra.into_iter().flatten()) {
            if family.mode == Mode::Raw {
                forms.push((*weight, *text, Form::parse("")?));
                continue;
            }
            let name = text.split(' ').next().unwrap_or("");
            if !without.iter().any(|w| w.eq_ignore_ascii_case(name)) {
                forms.push((*weight, *text, Form::parse(text)?));
            }
        }
        let weights = forms.iter().map(|(weight, ..)| *weight as usize).sum();
        Ok(Self {
            family,
            forms,
            weights,
            rng: Rng::new(seed),
            ops: Vec::new(),
            in_multi: vec![false; family.connections],
        })
    }

    /// The first `count` ops, or a few more.
    pub fn take(mut self, count: usize) -> Vec<Op> {
        while self.ops.len() < count && self.weights > 0 {
            self.draw();
        }
        self.ops
    }

    fn draw(&mut self) {
        let mut at = self.rng.below(self.weights);
        let mut chosen = 0;
        for (index, (weight, ..)) in self.forms.iter().enumerate() {
            chosen = index;
            if at < *weight as usize {
                break;
            }
            at -= *weight as usize;
        }
        let (_, text, form) = &self.forms[chosen];
        if self.family.mode == Mode::Raw {
            let bytes = self.raw_bytes(text);
            self.push(vec![bytes], false);
            return;
        }
        let mut args = form.expand(&mut self.rng);
        let soon = text.contains("<soon>");
        // Redis takes fields that have died out ten times a second.
        let pause_ms = if text.contains("FIELDS") { 250 } else { 8 };
        if self.rng.percent(10) {
            args[0].make_ascii_lowercase();
        }
        if !soon && self.rng.percent(self.family.spoilt_percent) {
            spoil(&mut args, &mut self.rng);
        }
        let joined = self.family.mode == Mode::Direct && self.rng.percent(60) && !is_scan(&args);
        self.push(args, joined);
        if soon {
            // Both servers must have let the key go before anything that counts keys.
            let keys = (0..8).map(|key| format!("k{key}").into_bytes());
            let exists = [b"EXISTS".to_vec()].into_iter().chain(keys).collect();
            self.ops.push(Op { connection: 0, args: exists, joined: false, pause_ms });
        }
    }

    fn push(&mut self, mut args: Vec<Vec<u8>>, joined: bool) {
        let connection = self.connection_for(&args);
        if self.is_refused_multi(connection, &args) {
            args = vec![b"PING".to_vec()];
        }
        // Nothing may follow a scan in its write: it would change the keys before the scan has come to its end.
        let joined = joined
            && self.ops.last().is_some_and(|last| last.connection == connection && !is_scan(&last.args));
        self.ops.push(Op { connection, args, joined, pause_ms: 0 });
    }

    /// Whether it is MULTI or WATCH inside MULTI, after which the reference's EXEC runs and ours, as Valkey's, does not.
    fn is_refused_multi(&mut self, connection: usize, args: &[Vec<u8>]) -> bool {
        let is = |names: &[&str]| names.iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
        let inside = &mut self.in_multi[connection];
        if is(&["MULTI", "WATCH"]) && *inside {
            return true;
        }
        if args.len() == 1 && is(&["MULTI", "EXEC", "DISCARD", "RESET", "QUIT"]) {
            *inside = is(&["MULTI"]);
        }
        false
    }

    /// Blocking commands keep away from connection 0, so that something can always release them.
    fn connection_for(&mut self, args: &[Vec<u8>]) -> usize {
        let connections = self.family.connections;
        if self.family.name == "blocking" {
            let blocks = args[0].first().is_some_and(|b| b.eq_ignore_ascii_case(&b'B'));
            return if blocks { 1 + self.rng.below(connections - 1) } else { 0 };
        }
        self.rng.below(connections)
    }

    fn raw_bytes(&mut self, text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        if self.rng.percent(self.family.spoilt_percent) && !bytes.is_empty() {
            let at = self.rng.below(bytes.len());
            match self.rng.below(3) {
                0 => bytes.truncate(at),
                1 => bytes[at] = *self.rng.pick(b"\r\n$*-0\x00 \""),
                _ => bytes.insert(at, *self.rng.pick(b"\r\n$*-1\xff \"")),
            }
        }
        bytes
    }
}

/// Whether it starts a scan, which the runner follows to its end.
pub fn is_scan(args: &[Vec<u8>]) -> bool {
    let is = |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    (is(0, b"SCAN") && is(1, b"0"))
        || ((is(0, b"HSCAN") || is(0, b"SSCAN") || is(0, b"ZSCAN")) && is(2, b"0"))
}

/// Commands that a wrong argument would make block, sleep, answer by chance or by the clock, describe the server, or do
/// a part of what they say before it is met.
const NEVER_SPOILT: &[&str] = &[
    "COMMAND",
    "CONFIG",
    "WAIT",
    "DEBUG",
    "CLIENT",
    "HELLO",
    "SPOP",
    "XCLAIM",
    "XAUTOCLAIM",
    "XPENDING",
    "HSCAN",
    "HSETEX",
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
];

/// Words whose presence forbids exchanging arguments: a value could become a time to live of a few milliseconds.
const TIMED: &[&str] =
    &["EX", "PX", "EXPIRE", "PEXPIRE", "HEXPIRE", "HPEXPIRE", "SETEX", "PSETEX", "RESTORE"];

/// Spoils a command in one place.
fn spoil(args: &mut Vec<Vec<u8>>, rng: &mut Rng) {
    let any_of = |args: &[Vec<u8>], words: &[&str]| {
        args.iter().any(|arg| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes())))
    };
    // A name range is only defined while all scores of its key are equal.
    let sets_lex_scores = args[0].eq_ignore_ascii_case(b"ZADD") && args[1].starts_with(b"lex");
    // A weight that is no pattern leaves a set in the order of its hash table.
    let weighs = any_of(args, &["BY"]);
    if any_of(&args[..1], NEVER_SPOILT) || sets_lex_scores || weighs {
        return;
    }
    let timed = any_of(args, TIMED);
    let last = args.len() - 1;
    match rng.below(6) {
        0 => {
            args.pop();
        }
        1 => args.push(words::nonsense(rng)),
        2 if last > 0 => {
            args.remove(1 + rng.below(last));
        }
        3 if last > 0 => {
            let at = 1 + rng.below(last);
            args.insert(at, args[at].clone());
        }
        4 if last > 1 && !timed => {
            let (a, b) = (1 + rng.below(last), 1 + rng.below(last));
            args.swap(a, b);
        }
        _ if last > 0 => {
            let at = 1 + rng.below(last);
            args[at] = words::nonsense(rng);
            // XADD's `*` is the time.
            if args[at] == b"*" {
                args[at] = b"**".to_vec();
            }
        }
        _ => args.push(words::nonsense(rng)),
    }
    if args.is_empty() {
        args.push(b"PING".to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::FAMILIES;

    #[test]
    fn every_family_makes_the_same_stream_twice() {
        for family in FAMILIES {
            let ops = |seed| Stream::new(family, seed, true, &[]).unwrap().take(500);
            assert_eq!(ops(7), ops(7), "{}", family.name);
            assert_ne!(ops(7), ops(8), "{}", family.name);
        }
    }

    #[test]
    fn a_command_can_be_left_out() {
        let family = FAMILIES.iter().find(|f| f.name == "strings").unwrap();
        let ops = Stream::new(family, 1, true, &["SET".to_owned()]).unwrap().take(2000);
        assert!(ops.iter().all(|op| op.name() != "SET"));
    }

    #[test]
    fn nothing_shares_a_write_with_a_scan() {
        let family = FAMILIES.iter().find(|f| f.name == "keys").unwrap();
        let ops = Stream::new(family, 3, true, &[]).unwrap().take(5000);
        for pair in ops.windows(2) {
            assert!(!(pair[1].joined && (is_scan(&pair[0].args) || is_scan(&pair[1].args))));
        }
        assert!(ops.iter().any(|op| op.joined));
    }
}
