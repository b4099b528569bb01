//! The ways by which one command reaches a server: each must give the same reply, the same events and the same counts.

use std::collections::BTreeMap;
use std::io;

use crate::connection::Connection;
use crate::reply::Reply;
use crate::stream::Op;

/// How the commands of a stream are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// As they are.
    #[default]
    Direct,
    /// Each in a transaction of its own.
    Exec,
    /// Each by a script of its own, in RESP2: there Lua's values keep every reply but the kind of a null.
    Script,
    /// Each by a function of a library, as by a script.
    Function,
}

const LIBRARY: &str = "#!lua name=ways\nredis.register_function('way', function(keys, words) \
                       return redis.pcall(unpack(words)) end)";
const SCRIPT: &[u8] = b"return redis.pcall(unpack(ARGV))";

impl Way {
    /// The way called `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "direct" => Some(Self::Direct),
            "exec" => Some(Self::Exec),
            "script" => Some(Self::Script),
            "function" => Some(Self::Function),
            _ => None,
        }
    }

    /// Makes a server ready for it, which may have forgotten its functions.  Errors: the server refuses.
    pub fn prepare(self, connection: &mut Connection) -> io::Result<()> {
        if self != Self::Function {
            return Ok(());
        }
        let answer = connection.ask(&["FUNCTION", "LOAD", "REPLACE", LIBRARY])?;
        if answer.is_error() { Err(io::Error::other(format!("FUNCTION LOAD: {answer}"))) } else { Ok(()) }
    }

    /// Sends the commands of `batch` in one write.
    pub fn send(self, connection: &mut Connection, batch: &[Op]) -> io::Result<()> {
        let words = |list: &[&[u8]]| list.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let commands: Vec<Vec<Vec<u8>>> = match self {
            Self::Direct => batch.iter().map(|op| op.args.clone()).collect(),
            Self::Exec => {
                let wrapped = |op: &Op| [words(&[b"MULTI"]), op.args.clone(), words(&[b"EXEC"])];
                batch.iter().flat_map(wrapped).collect()
            }
            Self::Script | Self::Function => {
                let head: &[&[u8]] =
                    if self == Self::Script { &[b"EVAL", SCRIPT, b"0"] } else { &[b"FCALL", b"way", b"0"] };
                let wrapped = |op: &Op| [words(head), op.args.clone()].concat();
                batch.iter().map(wrapped).collect()
            }
        };
        connection.send(commands.iter().map(Vec::as_slice))
    }

    /// Reads the reply to one command.
    pub fn read(self, connection: &mut Connection) -> io::Result<Reply> {
        if self != Self::Exec {
            return connection.next();
        }
        let (_, queued, done) = (connection.next()?, connection.next()?, connection.next()?);
        match done {
            Reply::List(b'*', mut items) if items.len() == 1 => Ok(items.remove(0)),
            _ => Ok(queued),
        }
    }

    /// A reply as this way gives it.
    pub fn expected(self, reply: &Reply) -> Reply {
        match (self, reply) {
            (Self::Direct, _) => reply.clone(),
            // Where nothing may wait, BRPOPLPUSH answers a null text and no null array, as in Redis.
            (_, Reply::Line(b'*' | b'$', null)) if null == b"-1" => Reply::Line(b'$', null.clone()),
            // Lua's errors end with their last word.
            (Self::Script | Self::Function, Reply::Line(b'-', text)) => {
                Reply::Line(b'-', text.trim_ascii_end().to_vec())
            }
            // Lua's numbers are doubles.
            (Self::Script | Self::Function, Reply::Line(b':', digits)) => {
                Reply::Line(b':', through_double(digits))
            }
            (Self::Script | Self::Function, Reply::List(kind, items)) => {
                Reply::List(*kind, items.iter().map(|item| self.expected(item)).collect())
            }
            _ => reply.clone(),
        }
    }

    /// Whether `reply` is an error of the way itself in place of the error that was expected.
    pub fn replaces(self, expected: &Reply, reply: &Reply) -> bool {
        const OWN: [&[u8]; 3] = [
            b"ERR Wrong number of args calling Redis command from script",
            b"ERR Unknown Redis command called from script",
            b"ERR This Redis command is not allowed from script",
        ];
        matches!(self, Self::Script | Self::Function)
            && expected.is_error()
            && reply.bytes().is_some_and(|text| OWN.contains(&text))
    }
}

fn through_double(digits: &[u8]) -> Vec<u8> {
    const EXACT: u64 = 1 << 53;
    let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok());
    match number.filter(|number| number.unsigned_abs() > EXACT) {
        Some(number) => (number as f64 as i64).to_string().into_bytes(),
        None => digits.to_vec(),
    }
}

/// What the server has counted of each command: calls, rejected and failed ones; without those that a way adds itself, and
/// without scans, which take as many calls as the places of the keys want.
pub fn counts(connection: &mut Connection) -> io::Result<BTreeMap<String, (u64, u64, u64)>> {
    let info = connection.ask(&["INFO", "commandstats"])?;
    let text = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((name, fields)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
            continue;
        };
        if matches!(
            name,
            "multi"
                | "exec"
                | "eval"
                | "fcall"
                | "function|load"
                | "info"
                | "hello"
                | "client|setinfo"
                | "config|resetstat"
                | "scan"
                | "hscan"
                | "sscan"
                | "zscan"
        ) {
            continue;
        }
        let field = |wanted: &str| {
            let pair = fields.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='));
            pair.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        counts.insert(name.to_owned(), (field("calls"), field("rejected_calls"), field("failed_calls")));
    }
    Ok(counts)
}
