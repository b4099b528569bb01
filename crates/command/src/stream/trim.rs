//! XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED], and that part of XADD

use darter_pack::tree::{Direction, StreamId};
use darter_store::change::{JournalReaders, JournalWords, Vocabulary};
use darter_store::{Arena, StreamValue};
use darter_wire::{Args, Reply};

use super::refs::{self, Refs};
use super::{event, id};
use crate::ctx::Env;
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XTRIM.
pub const XTRIM: DataCommand = DataCommand {
    spec: Spec::shrink("xtrim", -4, Keys::ONE)
        .key_access("RW delete")
        .tips(&["nondeterministic_output"])
        .doc(
            Group::Stream,
            "5.0.0",
            "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]",
            "Takes the oldest entries out of a stream.",
        )
        .cost("O(N) over the number of entries taken out"),
    run: xtrim,
};

/// The choice of the oldest entries to remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// All except this many of the last.
    MaxLen(u64),
    /// Those below this id.
    MinId(StreamId),
}

/// The options of a trim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trim {
    /// The entries to remove; `None` if not given.
    pub strategy: Option<Strategy>,
    // `~`: only whole nodes go.
    is_rough: bool,
    limit: Option<u64>,
    /// The treatment of pending entries of groups.
    pub refs: Refs,
}

impl Trim {
    /// Reads one option, if the next argument begins one.
    pub fn take(&mut self, read: &mut ArgReader<'_>) -> Result<bool, Fault> {
        if read.take_with("maxlen", 1) {
            self.begin(read)?;
            let len = u64::try_from(read.int()?)
                .map_err(|_| Fault::text("ERR The MAXLEN argument must be >= 0."))?;
            self.strategy = Some(Strategy::MaxLen(len));
        } else if read.take_with("minid", 1) {
            self.begin(read)?;
            self.strategy = Some(Strategy::MinId(id::parse(read.bytes()?, 0)?));
        } else if read.take_with("limit", 1) {
            let limit = u64::try_from(read.int()?);
            self.limit = Some(limit.map_err(|_| Fault::text("ERR The LIMIT argument must be >= 0."))?);
        } else if let Some(refs) = Refs::take(read) {
            self.refs = refs;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn begin(&mut self, read: &mut ArgReader<'_>) -> Result<(), Fault> {
        if self.strategy.is_some() {
            return Err(Fault::text(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        self.is_rough = read.take_with("~", 1);
        if !self.is_rough {
            read.take_with("=", 1);
        }
        Ok(())
    }

    /// Checks the options together, when all are read.
    pub fn check(&self, must_trim: bool) -> Result<(), Fault> {
        if self.limit.is_some_and(|limit| limit > 0) && self.strategy.is_none() {
            return Err(Fault::text(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if must_trim && self.strategy.is_none() {
            return Err(Fault::text("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if self.limit.is_some() && !self.is_rough {
            return Err(Fault::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        Ok(())
    }

    /// Whether the journal has to word it otherwise for `readers`: the same words may leave another stream behind when
    /// they run again, or are new to Redis 7.0.
    pub fn is_reworded(&self, readers: JournalReaders) -> bool {
        match readers {
            JournalReaders::None => false,
            JournalReaders::Files => self.is_rough,
            JournalReaders::Replicas => self.is_rough || self.refs != Refs::Keep,
        }
    }

    /// Appends the words that take out the same entries from a stream like this one was, which has `left` now; returns
    /// which servers know them.
    pub fn write(&self, left: u64, words: &mut JournalWords) -> Vocabulary {
        let refs = match self.refs {
            Refs::Keep => None,
            Refs::Delete => Some(b"DELREF".as_slice()),
            Refs::Acked => Some(b"ACKED".as_slice()),
        };
        refs.into_iter().for_each(|word| words.push(word));
        match self.strategy {
            None => {}
            Some(Strategy::MinId(id)) if !self.is_rough => {
                words.push(b"MINID");
                words.push(&id::text(id));
            }
            Some(strategy) => {
                let len = match strategy {
                    Strategy::MaxLen(len) if !self.is_rough => len,
                    _ => left,
                };
                words.push(b"MAXLEN");
                words.push(b"=");
                words.push(len.to_string().as_bytes());
            }
        }
        if refs.is_some() { Vocabulary::New } else { Vocabulary::Old }
    }

    /// Removes the entries; returns their number.
    pub fn apply(&self, stream: &mut StreamValue, arena: &mut Arena, env: &Env) -> u64 {
        let len = stream.len();
        let excess = match self.strategy {
            None => return 0,
            Some(Strategy::MaxLen(max)) => len.saturating_sub(max),
            Some(Strategy::MinId(min)) => stream.log().rank(arena, min),
        };
        if excess == 0 {
            return 0;
        }
        let count = if self.is_rough {
            self.rough(excess, len, Nodes::of(stream, node_len(stream, arena, env)), env)
        } else {
            excess
        };
        if count == 0 { 0 } else { refs::trim(stream, arena, count, self.refs) }
    }

    /// Number of entries removed of `excess` if Redis removes whole nodes.
    fn rough(&self, excess: u64, len: u64, nodes: Nodes, env: &Env) -> u64 {
        let limit = self.limit.unwrap_or(match env.stream_node_max_entries.saturating_mul(100) {
            0 => 10_000,
            limit => limit.min(1_000_000),
        });
        let count = nodes.within(excess, len);
        if limit == 0 { count } else { count.min(nodes.within(limit, len)) }
    }
}

/// Returns the number of entries in a full node of Redis: the limit of entries, or fewer if the limit of bytes is reached.
fn node_len(stream: &StreamValue, arena: &Arena, env: &Env) -> u64 {
    let by_bytes = match env.stream_node_max_bytes {
        0 => u64::MAX,
        max => (max / first_entry_bytes(stream, arena)).max(1),
    };
    match env.stream_node_max_entries.min(by_bytes) {
        0 if by_bytes == u64::MAX => stream.log().first_leaf_len(arena).max(1),
        0 => by_bytes,
        len => len,
    }
}

/// Bytes that the first entry would take in a node of Redis, whose entries share their names; the others are taken to be
/// like it.
fn first_entry_bytes(stream: &StreamValue, arena: &Arena) -> u64 {
    let first = stream.log().iter(arena, 0, Direction::Up).next();
    let fields = first.into_iter().flat_map(|entry| entry.fields);
    ENTRY_HEAD_BYTES + fields.map(|(_, value)| value.len() as u64 + VALUE_HEAD_BYTES).sum::<u64>()
}

/// Flags, the distance of the id, the number of elements, with their lengths.
const ENTRY_HEAD_BYTES: u64 = 10;
/// The lengths before and behind a value.
const VALUE_HEAD_BYTES: u64 = 3;

/// The nodes that Redis would have: their size, and the rest of the first.
#[derive(Clone, Copy)]
struct Nodes {
    size: u64,
    first: u64,
}

impl Nodes {
    fn of(stream: &StreamValue, size: u64) -> Nodes {
        let gone = stream.added().saturating_sub(stream.len());
        Nodes { size, first: size - gone % size }
    }

    /// Number of entries of the whole nodes among the first `count` of `len` entries.
    fn within(self, count: u64, len: u64) -> u64 {
        match count.checked_sub(self.first) {
            _ if count >= len => len,
            None => 0,
            Some(rest) => self.first + rest / self.size * self.size,
        }
    }
}

fn xtrim(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut trim = Trim::default();
    let mut read = ArgReader::new(args, 2);
    while !read.is_done() {
        if !trim.take(&mut read)? {
            return Err(Fault::Syntax);
        }
    }
    trim.check(true)?;
    let env = ctx.env;
    let mut place = ctx.at(args.at(1));
    let gone =
        place.edit::<StreamValue, _>(|stream, arena, _| (trim.apply(stream, arena, env), stream.len()))?;
    let (gone, left) = gone.map_or((0, 0), |edited| edited.result);
    if gone > 0 {
        place.changed(event("xtrim"));
        if trim.is_reworded(ctx.journal_readers(args.at(1))) {
            let mut words = JournalWords::from_iter([b"xtrim".as_slice(), args.at(1)]);
            let vocabulary = trim.write(left, &mut words);
            ctx.journal_as(args.at(1), vocabulary, words.iter());
        }
    }
    reply.int(gone as i64);
    Ok(())
}
