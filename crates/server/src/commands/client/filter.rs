//! The filters of CLIENT LIST and CLIENT KILL: the clients that match all filters.
//!
//! Valkey's words, which include Redis'; each may be negated by `NOT-`. A repeated word replaces the first, except
//! ID, whose numbers accumulate. Called by `list` and `kill`.

use std::sync::atomic::Ordering::Relaxed;

use darter_base::number;
use darter_command::reader::is;
use darter_command::{Fault, Reader};
use darter_wire::Args;

use super::list::{self, ClientType};
use crate::acl::Acl;
use crate::clients::ClientInfo;
use crate::sync::lock;

/// The subject of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Id,
    Type,
    Addr,
    Laddr,
    Ip,
    User,
    Name,
    LibName,
    LibVer,
    Flags,
    Capa,
    Db,
    Age,
    Idle,
}

/// The words, and their negations.
const WORDS: [(&str, &str, Kind); 12] = [
    ("ID", "NOT-ID", Kind::Id),
    ("TYPE", "NOT-TYPE", Kind::Type),
    ("ADDR", "NOT-ADDR", Kind::Addr),
    ("LADDR", "NOT-LADDR", Kind::Laddr),
    ("IP", "NOT-IP", Kind::Ip),
    ("USER", "NOT-USER", Kind::User),
    ("NAME", "NOT-NAME", Kind::Name),
    ("LIB-NAME", "NOT-LIB-NAME", Kind::LibName),
    ("LIB-VER", "NOT-LIB-VER", Kind::LibVer),
    ("FLAGS", "NOT-FLAGS", Kind::Flags),
    ("CAPA", "NOT-CAPA", Kind::Capa),
    ("DB", "NOT-DB", Kind::Db),
];
/// Those of CLIENT LIST's letters that no client has here.
const OTHER_FLAGS: &[u8] = b"NMuAriItmE";

enum Value<'a> {
    Ids(Vec<u64>),
    Type(ClientType),
    Text(&'a [u8]),
    Number(u64),
}

struct Term<'a> {
    kind: Kind,
    is_negated: bool,
    value: Value<'a>,
}

/// The differences between CLIENT LIST and CLIENT KILL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Shows the caller too, and takes any number for an id.
    List,
    /// Spares the caller.
    Kill,
}

/// The conditions on a client.
pub(super) struct Filter<'a> {
    terms: Vec<Term<'a>>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    /// The old form of CLIENT KILL: all clients from `addr`.
    pub fn from_addr(addr: &'a [u8]) -> Filter<'a> {
        let term = Term { kind: Kind::Addr, is_negated: false, value: Value::Text(addr) };
        Filter { terms: vec![term], spares_caller: false }
    }

    /// Reads the words after the subcommand.
    pub fn parse(args: Args<'a>, acl: &Acl, form: Form) -> Result<Filter<'a>, Fault> {
        let mut filter = Filter { terms: Vec::new(), spares_caller: form == Form::Kill };
        let mut reader = Reader::new(args, 2);
        while !reader.is_done() {
            if reader.take_with("SKIPME", 1) {
                filter.spares_caller = match reader.bytes()? {
                    arg if is(arg, "YES") => true,
                    arg if is(arg, "NO") => false,
                    _ => return Err(Fault::Syntax),
                };
            } else if reader.take_with("MAXAGE", 1) {
                filter.put(Kind::Age, false, Value::Number(seconds(&mut reader, "maxage")?));
            } else if reader.take_with("IDLE", 1) {
                filter.put(Kind::Idle, false, Value::Number(seconds(&mut reader, "idle")?));
            } else {
                let found = WORDS.iter().find_map(|(word, negated, kind)| {
                    let is_plain = reader.take_with(word, 1);
                    (is_plain || reader.take_with(negated, 1)).then_some((*kind, !is_plain))
                });
                let (kind, is_negated) = found.ok_or(Fault::Syntax)?;
                let value = match kind {
                    Kind::Id => Value::Ids(ids(&mut reader, form)?),
                    _ => value_of(kind, reader.bytes()?, acl)?,
                };
                filter.put(kind, is_negated, value);
            }
        }
        Ok(filter)
    }

    fn put(&mut self, kind: Kind, is_negated: bool, value: Value<'a>) {
        let known = self.terms.iter_mut().find(|term| term.kind == kind && term.is_negated == is_negated);
        match (known.map(|term| &mut term.value), value) {
            (Some(Value::Ids(known)), Value::Ids(more)) => known.extend(more),
            (Some(known), value) => *known = value,
            (None, value) => self.terms.push(Term { kind, is_negated, value }),
        }
    }

    /// The requested ids, if any.
    pub fn ids(&self) -> Option<&[u64]> {
        self.terms.iter().find_map(|term| match &term.value {
            Value::Ids(ids) if !term.is_negated => Some(&ids[..]),
            _ => None,
        })
    }

    /// Returns true if a client matches.
    pub fn fits(&self, info: &ClientInfo, caller: u64, now_ms: u64) -> bool {
        !(self.spares_caller && info.id == caller)
            && self.terms.iter().all(|term| term.fits(info, now_ms) != term.is_negated)
    }
}

impl Term<'_> {
    fn fits(&self, info: &ClientInfo, now_ms: u64) -> bool {
        let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
        match &self.value {
            Value::Ids(ids) => ids.contains(&info.id),
            Value::Type(kind) => *kind == ClientType::of(info),
            Value::Number(number) => match self.kind {
                Kind::Age => seconds(info.since_ms) >= *number,
                Kind::Idle => seconds(info.active_ms.load(Relaxed)) >= *number,
                _ => info.db.load(Relaxed) as u64 == *number,
            },
            Value::Text(text) => {
                let words = lock(&info.words);
                match self.kind {
                    Kind::Addr => *text == info.peer.as_bytes(),
                    Kind::Laddr => *text == info.local.as_bytes(),
                    Kind::Ip => *text == ip_of(&info.peer).as_bytes(),
                    Kind::User => *text == words.user.as_bytes(),
                    Kind::Name => *text == words.name.as_bytes(),
                    Kind::LibName => *text == words.lib_name.as_bytes(),
                    Kind::LibVer => *text == words.lib_ver.as_bytes(),
                    Kind::Capa => text.is_empty() || info.takes_redirects.load(Relaxed),
                    _ => {
                        let flags = list::flags(info);
                        text.iter().all(|letter| flags.as_bytes().contains(letter))
                    }
                }
            }
        }
    }
}

/// An address without its port and brackets.
fn ip_of(addr: &str) -> &str {
    let ip = addr.rsplit_once(':').map_or(addr, |(ip, _)| ip);
    ip.trim_start_matches('[').trim_end_matches(']')
}

fn value_of<'a>(kind: Kind, arg: &'a [u8], acl: &Acl) -> Result<Value<'a>, Fault> {
    let shown = || String::from_utf8_lossy(arg).into_owned();
    match kind {
        Kind::Type => return Ok(Value::Type(ClientType::parse(arg)?)),
        Kind::Db => {
            let db = number::parse_i64(arg).and_then(|db| u64::try_from(db).ok());
            return db.map(Value::Number).ok_or(Fault::text("ERR DB is not an integer or out of range"));
        }
        Kind::User if !std::str::from_utf8(arg).is_ok_and(|name| acl.user(name).is_some()) => {
            return Err(Fault::Text(format!("ERR No such user '{}'", shown()).into()));
        }
        Kind::Flags
            if !arg.iter().all(|letter| list::LETTERS.contains(letter) || OTHER_FLAGS.contains(letter)) =>
        {
            let text = format!("ERR Unknown flags found in the provided filter: {}", shown());
            return Err(Fault::Text(text.into()));
        }
        Kind::Capa if !arg.iter().all(|letter| *letter == b'r') => {
            let text = format!("ERR Unknown capa found in the provided filter: {}", shown());
            return Err(Fault::Text(text.into()));
        }
        _ => {}
    }
    Ok(Value::Text(arg))
}

/// The numbers of clients, one or more, up to the next word.
fn ids(reader: &mut Reader<'_>, form: Form) -> Result<Vec<u64>, Fault> {
    let mut ids = Vec::new();
    loop {
        let wrong = match form {
            Form::List => Fault::text("ERR Invalid client ID"),
            Form::Kill => Fault::text("ERR client-id should be greater than 0"),
        };
        let id = number::parse_i64(reader.bytes()?).ok_or(wrong)?;
        match u64::try_from(id) {
            Ok(id) if id > 0 => ids.push(id),
            _ if form == Form::List => {}
            _ => return Err(Fault::text("ERR client-id should be greater than 0")),
        }
        let goes_on = match (reader.peek(), form) {
            (None, _) => false,
            (Some(word), Form::List) => !is_word(word),
            (Some(word), Form::Kill) => number::parse_i64(word).is_some(),
        };
        if !goes_on {
            return Ok(ids);
        }
    }
}

fn is_word(arg: &[u8]) -> bool {
    ["SKIPME", "MAXAGE", "IDLE"].iter().any(|word| is(arg, word))
        || WORDS.iter().any(|(word, negated, _)| is(arg, word) || is(arg, negated))
}

fn seconds(reader: &mut Reader<'_>, what: &str) -> Result<u64, Fault> {
    let wrong = || Fault::Text(format!("ERR {what} is not an integer or out of range").into());
    let seconds = number::parse_i64(reader.bytes()?).ok_or_else(wrong)?;
    let too_small = || Fault::Text(format!("ERR {what} should be greater than 0").into());
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).ok_or_else(too_small)
}
