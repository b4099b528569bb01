//! The filters of CLIENT LIST and CLIENT KILL: the clients that match all filters.
//!
//! Valkey's words, which include Redis'; each may be negated by `NOT-`. A repeated word replaces the first, except
//! ID, whose numbers accumulate. Called by `list` and `kill`.

use std::sync::atomic::Ordering::Relaxed;

use darter_base::number;
use darter_command::reader::is;
use darter_command::{ArgReader, Fault};
use darter_wire::Args;

use super::list::{self, ClientType};
use crate::acl::Acl;
use crate::clients::ClientInfo;
use crate::sync::lock;

/// The subject of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterKind {
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
const WORDS: [(&str, &str, FilterKind); 12] = [
    ("ID", "NOT-ID", FilterKind::Id),
    ("TYPE", "NOT-TYPE", FilterKind::Type),
    ("ADDR", "NOT-ADDR", FilterKind::Addr),
    ("LADDR", "NOT-LADDR", FilterKind::Laddr),
    ("IP", "NOT-IP", FilterKind::Ip),
    ("USER", "NOT-USER", FilterKind::User),
    ("NAME", "NOT-NAME", FilterKind::Name),
    ("LIB-NAME", "NOT-LIB-NAME", FilterKind::LibName),
    ("LIB-VER", "NOT-LIB-VER", FilterKind::LibVer),
    ("FLAGS", "NOT-FLAGS", FilterKind::Flags),
    ("CAPA", "NOT-CAPA", FilterKind::Capa),
    ("DB", "NOT-DB", FilterKind::Db),
];
/// Those of CLIENT LIST's letters that no client has here.
const OTHER_FLAGS: &[u8] = b"NuAriItmE";

enum FilterValue<'a> {
    Ids(Vec<u64>),
    Type(ClientType),
    Text(&'a [u8]),
    Number(u64),
}

struct Term<'a> {
    kind: FilterKind,
    is_negated: bool,
    value: FilterValue<'a>,
}

/// The differences between CLIENT LIST and CLIENT KILL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterForm {
    /// Shows the caller too, and takes any number for an id.
    List,
    /// Spares the caller.
    Kill,
}

/// The conditions on a client.
pub(super) struct ClientFilter<'a> {
    terms: Vec<Term<'a>>,
    spares_caller: bool,
}

impl<'a> ClientFilter<'a> {
    /// The old form of CLIENT KILL: all clients from `addr`.
    pub fn from_addr(addr: &'a [u8]) -> ClientFilter<'a> {
        let term = Term { kind: FilterKind::Addr, is_negated: false, value: FilterValue::Text(addr) };
        ClientFilter { terms: vec![term], spares_caller: false }
    }

    /// Reads the words after the subcommand.
    pub fn parse(args: Args<'a>, acl: &Acl, form: FilterForm) -> Result<ClientFilter<'a>, Fault> {
        let mut filter = ClientFilter { terms: Vec::new(), spares_caller: form == FilterForm::Kill };
        let mut reader = ArgReader::new(args, 2);
        while !reader.is_done() {
            if reader.take_with("SKIPME", 1) {
                filter.spares_caller = match reader.bytes()? {
                    arg if is(arg, "YES") => true,
                    arg if is(arg, "NO") => false,
                    _ => return Err(Fault::Syntax),
                };
            } else if reader.take_with("MAXAGE", 1) {
                filter.put(FilterKind::Age, false, FilterValue::Number(seconds(&mut reader, "maxage")?));
            } else if reader.take_with("IDLE", 1) {
                filter.put(FilterKind::Idle, false, FilterValue::Number(seconds(&mut reader, "idle")?));
            } else {
                let found = WORDS.iter().find_map(|(word, negated, kind)| {
                    let is_plain = reader.take_with(word, 1);
                    (is_plain || reader.take_with(negated, 1)).then_some((*kind, !is_plain))
                });
                let (kind, is_negated) = found.ok_or(Fault::Syntax)?;
                let value = match kind {
                    FilterKind::Id => FilterValue::Ids(ids(&mut reader, form)?),
                    _ => value_of(kind, reader.bytes()?, acl)?,
                };
                filter.put(kind, is_negated, value);
            }
        }
        Ok(filter)
    }

    fn put(&mut self, kind: FilterKind, is_negated: bool, value: FilterValue<'a>) {
        let known = self.terms.iter_mut().find(|term| term.kind == kind && term.is_negated == is_negated);
        match (known.map(|term| &mut term.value), value) {
            (Some(FilterValue::Ids(known)), FilterValue::Ids(more)) => known.extend(more),
            (Some(known), value) => *known = value,
            (None, value) => self.terms.push(Term { kind, is_negated, value }),
        }
    }

    /// The requested ids, if any.
    pub fn ids(&self) -> Option<&[u64]> {
        self.terms.iter().find_map(|term| match &term.value {
            FilterValue::Ids(ids) if !term.is_negated => Some(&ids[..]),
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
            FilterValue::Ids(ids) => ids.contains(&info.id),
            FilterValue::Type(kind) => *kind == ClientType::of(info),
            FilterValue::Number(number) => match self.kind {
                FilterKind::Age => seconds(info.since_ms) >= *number,
                FilterKind::Idle => seconds(info.active_ms.load(Relaxed)) >= *number,
                _ => info.db.load(Relaxed) as u64 == *number,
            },
            FilterValue::Text(text) => {
                let words = lock(&info.words);
                match self.kind {
                    FilterKind::Addr => *text == info.peer.as_bytes(),
                    FilterKind::Laddr => *text == info.local.as_bytes(),
                    FilterKind::Ip => *text == ip_of(&info.peer).as_bytes(),
                    FilterKind::User => *text == words.user.as_bytes(),
                    FilterKind::Name => *text == words.name.as_bytes(),
                    FilterKind::LibName => *text == words.lib_name.as_bytes(),
                    FilterKind::LibVer => *text == words.lib_ver.as_bytes(),
                    FilterKind::Capa => text.is_empty() || info.takes_redirects.load(Relaxed),
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

fn value_of<'a>(kind: FilterKind, arg: &'a [u8], acl: &Acl) -> Result<FilterValue<'a>, Fault> {
    let shown = || String::from_utf8_lossy(arg).into_owned();
    match kind {
        FilterKind::Type => return Ok(FilterValue::Type(ClientType::parse(arg)?)),
        FilterKind::Db => {
            let db = number::parse_i64(arg).and_then(|db| u64::try_from(db).ok());
            return db
                .map(FilterValue::Number)
                .ok_or(Fault::text("ERR DB is not an integer or out of range"));
        }
        FilterKind::User if !std::str::from_utf8(arg).is_ok_and(|name| acl.user(name).is_some()) => {
            return Err(Fault::Text(format!("ERR No such user '{}'", shown()).into()));
        }
        FilterKind::Flags
            if !arg.iter().all(|letter| list::LETTERS.contains(letter) || OTHER_FLAGS.contains(letter)) =>
        {
            let text = format!("ERR Unknown flags found in the provided filter: {}", shown());
            return Err(Fault::Text(text.into()));
        }
        FilterKind::Capa if !arg.iter().all(|letter| *letter == b'r') => {
            let text = format!("ERR Unknown capa found in the provided filter: {}", shown());
            return Err(Fault::Text(text.into()));
        }
        _ => {}
    }
    Ok(FilterValue::Text(arg))
}

/// The numbers of clients, one or more, up to the next word.
fn ids(reader: &mut ArgReader<'_>, form: FilterForm) -> Result<Vec<u64>, Fault> {
    let mut ids = Vec::new();
    loop {
        let wrong = match form {
            FilterForm::List => Fault::text("ERR Invalid client ID"),
            FilterForm::Kill => Fault::text("ERR client-id should be greater than 0"),
        };
        let id = number::parse_i64(reader.bytes()?).ok_or(wrong)?;
        match u64::try_from(id) {
            Ok(id) if id > 0 => ids.push(id),
            _ if form == FilterForm::List => {}
            _ => return Err(Fault::text("ERR client-id should be greater than 0")),
        }
        let goes_on = match (reader.peek(), form) {
            (None, _) => false,
            (Some(word), FilterForm::List) => !is_word(word),
            (Some(word), FilterForm::Kill) => number::parse_i64(word).is_some(),
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

fn seconds(reader: &mut ArgReader<'_>, what: &str) -> Result<u64, Fault> {
    let wrong = || Fault::Text(format!("ERR {what} is not an integer or out of range").into());
    let seconds = number::parse_i64(reader.bytes()?).ok_or_else(wrong)?;
    let too_small = || Fault::Text(format!("ERR {what} should be greater than 0").into());
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).ok_or_else(too_small)
}
