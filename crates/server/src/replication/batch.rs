//! A batch of a master's stream: whole commands, none of them half a transaction, and what is known of each before any
//! shard is taken. `link` cuts and plans it, `apply` runs it; nothing here runs anything.

use darter_persist::journal::record::HEAD_BYTES;
use darter_replica::form::Former;
use darter_replica::merge::{Merger, NextRecord};
use darter_replica::records::RecordChunk;
use darter_replica::rewording::{Reworded, counts_from_now, reword};
use darter_replica::shared_bytes::{SharedBytes, place_in};
use darter_replica::stream::{self, StreamCommand};
use darter_store::change::Loss;
use darter_txn::LockSet;
use darter_wire::{Args, Span};

use super::split::BatchSplit;
use crate::engine::plan;
use crate::registry::{CommandEntry, RunKind};
use crate::shared::Shared;

/// A batch of a master of ours takes no more records,
const RECORDS_MAX: usize = 1024;
/// and any batch no more bytes, unless one transaction does.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// A batch for several threads is this many times as large, if as much waits. A called thread comes after some 50 us. Until then
/// the thread that has called it runs alone.
const LARGE_TIMES: usize = 4;

/// What bytes of a stream hold: whole commands, none of them half a transaction.
#[derive(Default)]
pub struct ApplyBatch {
    // those of the stream, then words that were put in their place
    bytes: Vec<u8>,
    // where most words of records are
    sources: Vec<SharedBytes>,
    /// Bytes of the stream.
    pub len: usize,
    spans: Vec<Span>,
    /// The commands in order.
    pub steps: Vec<ApplyStep>,
    /// The master asks how far this server is.
    pub asks_for_ack: bool,
    /// Of a master of ours: its records in order.
    pub records: Vec<RecordChunk>,
    // it is long enough for so many threads
    threads: usize,
    /// How it is divided among threads, if it is; known once it is planned.
    pub split: Option<BatchSplit>,
}

/// One command.
pub struct ApplyStep {
    /// What it is.
    pub act: Act,
    // where its words are: first, number
    words: (u32, u32),
    // what they are words of, OWN_BYTES or a number of `sources`
    source: u32,
    // why the key that it removes has gone
    loss: Loss,
    /// The clock it ran with at a master of ours, Unix ms; 0: not known.
    pub clock_ms: u64,
}

/// What a command of a stream is.
#[derive(Default)]
pub enum Act {
    /// Nothing about data.
    #[default]
    Pass,
    /// Another database.
    Select,
    /// A message.
    Publish,
    /// A message of a shard channel.
    PublishShard,
    /// What RESTORE has no words for, about the next command.
    Marks,
    /// A change.
    Run {
        /// Its row.
        entry: &'static CommandEntry,
        /// The hash of its only key.
        hash: Option<u64>,
        /// It notes times, which are those of this machine.
        notes_times: bool,
    },
    /// A key that the master has removed by itself, and the hash of its name.
    Lose(u64, Loss),
    /// It cannot be run here.
    Refuse(String),
}

impl ApplyBatch {
    /// Takes what is whole at the beginning of `received`; `None`: nothing is.
    ///
    /// Errors: the bytes are no commands.
    pub fn cut(received: &[u8]) -> Result<Option<ApplyBatch>, stream::Garbled> {
        let mut batch = ApplyBatch::default();
        let (mut at, mut is_open, mut command) = (0, false, StreamCommand::default());
        // Steps and words of what is whole.
        let mut whole = (0, 0, 0);
        loop {
            let rest = received.get(at..).unwrap_or_default();
            if !stream::read(rest, &mut command)? {
                break;
            }
            let word =
                |n: usize| command.words.get(n).and_then(|word| rest.get(word.clone())).unwrap_or_default();
            let is = |n: usize, name: &str| word(n).eq_ignore_ascii_case(name.as_bytes());
            is_open = is(0, "multi") || is_open && !is(0, "exec");
            batch.asks_for_ack |= is(0, "replconf") && is(1, "getack");
            let first = batch.spans.len() as u32;
            for word in &command.words {
                let (start, len) = (u32::try_from(at + word.start), u32::try_from(word.len()));
                let (Ok(start), Ok(len)) = (start, len) else {
                    return Err(stream::Garbled("a transaction is too long"));
                };
                batch.spans.push(Span { start, len });
            }
            batch.steps.push(ApplyStep {
                act: Act::Pass,
                words: (first, command.words.len() as u32),
                source: OWN_BYTES,
                loss: Loss::Removed,
                clock_ms: 0,
            });
            at += command.len;
            if !is_open {
                whole = (at, batch.steps.len(), batch.spans.len());
                if at >= BATCH_BYTES_MAX {
                    break;
                }
            }
        }
        batch.len = whole.0;
        batch.steps.truncate(whole.1);
        batch.spans.truncate(whole.2);
        batch.bytes = received.get(..batch.len).unwrap_or_default().to_vec();
        Ok((batch.len > 0).then_some(batch))
    }

    /// Takes the records that are next, for up to `threads` threads; `None`: none is. No byte of most is copied.
    ///
    /// Errors: a record does not hold what it says.
    pub fn of_records(
        merger: &mut Merger,
        former: &mut Former,
        threads: usize,
    ) -> Result<Option<ApplyBatch>, String> {
        let (mut batch, mut taken, mut db) = (ApplyBatch::default(), BatchRecords::default(), 0);
        let is_large = threads > 1 && merger.waiting_bytes() >= LARGE_TIMES * BATCH_BYTES_MAX;
        let times = if is_large { LARGE_TIMES } else { 1 };
        batch.threads = if is_large { threads } else { 1 };
        let mut failed = None;
        let drained = merger.drain_while(|record| {
            batch.add_source(record.chunk);
            let (body, clock_ms) = (record.bytes.get(HEAD_BYTES..).unwrap_or_default(), record.head.clock_ms);
            let done = former.commands(body, clock_ms, |formed| {
                if formed.db != db {
                    db = formed.db;
                    batch.add(&[b"SELECT", db.to_string().as_bytes()], clock_ms);
                }
                batch.add(formed.words, clock_ms);
                if let Some(loss) = formed.loss
                    && let Some(step) = batch.steps.last_mut()
                {
                    step.loss = loss;
                }
            });
            match done {
                Ok(len) => batch.len += usize::try_from(len).unwrap_or(usize::MAX),
                Err(damage) => {
                    failed =
                        Some(format!("record {} of the master is damaged: {damage}", record.head.sequence));
                }
            }
            taken.add(record);
            failed.is_none() && taken.count < times * RECORDS_MAX && taken.len < times * BATCH_BYTES_MAX
        });
        if let Some(why) = failed.or(drained.err().map(|bad| bad.to_string())) {
            return Err(why);
        }
        if db != 0 {
            batch.add(&[b"SELECT", b"0"], 0);
        }
        batch.records = taken.finish();
        Ok((!batch.records.is_empty()).then_some(batch))
    }

    /// What follows may be words of a chunk of records.
    fn add_source(&mut self, chunk: &SharedBytes) {
        // Those of one thread of the master come one behind the other.
        if self.sources.last().is_none_or(|last| !last.is_same(chunk)) {
            self.sources.push(chunk.clone());
            self.steps.reserve(STEPS_ROOM);
            self.spans.reserve(STEPS_ROOM * 3);
        }
    }

    #[inline]
    fn add(&mut self, words: &[&[u8]], clock_ms: u64) {
        let (first, count) = (self.spans.len(), words.len() as u32);
        let source: &[u8] = self.sources.last().map_or(&[], |source| source);
        self.spans.reserve(words.len());
        for word in words {
            let Some(start) = place_in(source, word) else { break };
            self.spans.push(Span { start: start as u32, len: word.len() as u32 });
        }
        let source = (self.sources.len() as u32).saturating_sub(1);
        let (act, loss) = (Act::Pass, Loss::Removed);
        let mut step = ApplyStep { act, words: (first as u32, count), source, loss, clock_ms };
        if self.spans.len() - first != words.len() {
            self.spans.truncate(first);
            step.source = OWN_BYTES;
            for word in words {
                self.spans.push(Span { start: self.bytes.len() as u32, len: word.len() as u32 });
                self.bytes.extend_from_slice(word);
            }
        }
        self.steps.push(step);
    }

    /// The bytes of the stream.
    pub fn stream(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The words of a step.
    pub fn args(&self, step: &ApplyStep) -> Args<'_> {
        let (first, len) = (step.words.0 as usize, step.words.1 as usize);
        let bytes = match self.sources.get(step.source as usize) {
            Some(chunk) => chunk,
            None => self.bytes.as_slice(),
        };
        Args::new(bytes, self.spans.get(first..first + len).unwrap_or_default())
    }

    /// Finds out what the commands are, and which shards they need.
    pub fn plan(&mut self, shared: &Shared, clock_ms: u64) -> LockSet {
        let mut steps = std::mem::take(&mut self.steps);
        let mut plan =
            BatchPlan { shared, wanted: WantedShards::new(shared.router.shards_len()), last: None };
        // Records of ours say no times that count from now (`Former`).
        let may_count_from_now = self.records.is_empty();
        for step in &mut steps {
            step.act = match step.loss {
                Loss::Removed => plan.act(self.args(step)),
                loss => plan.lose(self.args(step), loss),
            };
            if let Act::Run { entry, .. } = step.act
                && may_count_from_now
                && entry.spec.has(darter_command::Marks::SAYS_TIMES)
                && counts_from_now(&self.args(step).iter().collect::<Vec<_>>())
            {
                self.make_absolute(step, clock_ms);
                step.act = plan.act(self.args(step));
            }
        }
        let wanted = plan.wanted.set();
        self.steps = steps;
        if self.threads > 1 {
            let dbs_len = shared.settings.live().dbnum as usize;
            self.split = BatchSplit::of(self, (&wanted, &shared.router), dbs_len, self.threads);
        }
        wanted
    }

    /// Masters before Redis 7.0 send times that count from now.
    fn make_absolute(&mut self, step: &mut ApplyStep, clock_ms: u64) {
        let args = self.args(step);
        let words: Vec<&[u8]> = args.iter().collect();
        let Reworded::As(words) = reword(&words, None, clock_ms) else { return };
        let words: Vec<Vec<u8>> = words.into_iter().map(|word| word.into_owned()).collect();
        step.words = (self.spans.len() as u32, words.len() as u32);
        step.source = OWN_BYTES;
        for word in words {
            self.spans.push(Span { start: self.bytes.len() as u32, len: word.len() as u32 });
            self.bytes.extend_from_slice(&word);
        }
    }
}

/// Room for the steps of a common batch, made at once: its values have some 200 bytes.
const STEPS_ROOM: usize = 256;
/// Words that are in no chunk of records.
const OWN_BYTES: u32 = u32::MAX;

/// The records of a batch while they are taken: parts of chunks, or copies where the parts would be short.
#[derive(Default)]
struct BatchRecords {
    count: usize,
    len: usize,
    last: u64,
    part: SharedBytes,
    copied: Vec<u8>,
    copied_last: u64,
    done: Vec<RecordChunk>,
}

/// Shorter parts of a chunk are copied.
const PART_BYTES_MIN: usize = 4 << 10;

impl BatchRecords {
    fn add(&mut self, record: NextRecord<'_>) {
        let range = record.at..record.at + record.bytes.len();
        if !self.part.join(record.chunk, range.clone()) {
            self.end_part();
            self.part = record.chunk.part(range);
        }
        self.count += 1;
        self.len += record.bytes.len();
        self.last = record.head.sequence;
    }

    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        if part.len() < PART_BYTES_MIN {
            self.copied.extend_from_slice(&part);
            self.copied_last = self.last;
            return;
        }
        self.end_copied();
        self.done.push(RecordChunk::new(part, self.last));
    }

    fn end_copied(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        if !copied.is_empty() {
            self.done.push(RecordChunk::new(copied.into(), self.copied_last));
        }
    }

    fn finish(mut self) -> Vec<RecordChunk> {
        self.end_part();
        self.end_copied();
        self.done
    }
}

/// Shards that are needed.
struct WantedShards {
    is_there: Vec<bool>,
}

impl WantedShards {
    fn new(shards: u16) -> WantedShards {
        WantedShards { is_there: vec![false; usize::from(shards)] }
    }

    fn add(&mut self, id: u16) {
        if let Some(one) = self.is_there.get_mut(usize::from(id)) {
            *one = true;
        }
    }

    fn set(&self) -> LockSet {
        let mut set = LockSet::new();
        (0_u16..).zip(&self.is_there).filter(|(_, is)| **is).for_each(|(id, _)| set.add(id));
        set.seal();
        set
    }
}

/// State while steps are looked at.
struct BatchPlan<'s> {
    shared: &'s Shared,
    wanted: WantedShards,
    // the name that was looked up last, how many words there were, and the row
    last: Option<(Vec<u8>, usize, &'static CommandEntry)>,
}

impl BatchPlan<'_> {
    fn lose(&mut self, args: Args<'_>, loss: Loss) -> Act {
        let key = self.shared.router.key(args.at(1));
        self.wanted.add(self.shared.router.shard_of(key.hash));
        Act::Lose(key.hash, loss)
    }

    fn act(&mut self, args: Args<'_>) -> Act {
        let name = args.at(0);
        match &self.last {
            Some((last, len, entry)) if *len == args.len() && last == name => return self.run(entry, args),
            _ => {}
        }
        let is = |own: &str| name.eq_ignore_ascii_case(own.as_bytes());
        match name.len() {
            4 if is("ping") || is("exec") => return Act::Pass,
            5 if is("multi") => return Act::Pass,
            6 if is("select") => return Act::Select,
            7 if is("publish") => return Act::Publish,
            8 if is("spublish") => return Act::PublishShard,
            8 if is("replconf") => return if marks_of(args).is_some() { Act::Marks } else { Act::Pass },
            _ => {}
        }
        let Some(entry) = self.find(args) else {
            return Act::Refuse(format!(
                "the master sent '{}', which is not known here",
                name.escape_ascii()
            ));
        };
        self.run(entry, args)
    }

    fn run(&mut self, entry: &'static CommandEntry, args: Args<'_>) -> Act {
        let router = &self.shared.router;
        let mut hash = None;
        match entry.run {
            RunKind::Data(_) if entry.is_single => {
                let key = router.key(args.at(1));
                self.wanted.add(router.shard_of(key.hash));
                hash = Some(key.hash);
            }
            RunKind::Data(_) => {
                plan::lock_set(&entry.spec, args, router).ids().iter().for_each(|id| self.wanted.add(*id));
            }
            _ => (0..router.shards_len()).for_each(|id| self.wanted.add(id)),
        }
        let notes_times = args.at(0).first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'x'));
        Act::Run { entry, hash, notes_times }
    }

    fn find(&mut self, args: Args<'_>) -> Option<&'static CommandEntry> {
        let name = args.at(0);
        let found = self.shared.replication.command(self.shared, name)?;
        let entry = if found.subs.is_empty() { found } else { found.sub(args.at(1))? };
        if !entry.spec.accepts(args.len()) {
            return None;
        }
        if found.subs.is_empty() {
            self.last = Some((name.to_vec(), args.len(), entry));
        }
        Some(entry)
    }
}

/// What stands before a RESTORE of one of ours, about what RESTORE has no words for (`darter_replica::form`).
pub fn marks_of(args: Args<'_>) -> Option<&[u8]> {
    let is_capability = args.len() == 3 && args.at(1).eq_ignore_ascii_case(b"capa");
    args.get(2).filter(|_| is_capability)?.strip_prefix(darter_replica::form::MARKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_of(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            stream::write(&mut out, &words);
        }
        out
    }

    #[test]
    fn half_a_transaction_is_not_part_of_a_batch() {
        let first = stream_of(&["SET a 1"]);
        let open = [first.clone(), stream_of(&["MULTI", "SET b 2"])].concat();
        let batch = ApplyBatch::cut(&open).expect("commands").expect("one is whole");
        assert_eq!(batch.stream(), first);
        let all = [open, stream_of(&["EXEC", "REPLCONF GETACK *"])].concat();
        let batch = ApplyBatch::cut(&all).expect("commands").expect("all are whole");
        assert!(batch.stream() == all && batch.steps.len() == 5 && batch.asks_for_ack);
        let said: Vec<&[u8]> = batch.args(&batch.steps[2]).iter().collect();
        assert_eq!(said, [b"SET".as_slice(), b"b", b"2"]);
        assert!(ApplyBatch::cut(&stream_of(&["MULTI", "SET b 2"])).expect("commands").is_none());
        assert!(ApplyBatch::cut(b"").expect("nothing").is_none());
        assert!(ApplyBatch::cut(b"+OK\r\n").is_err());
    }
}
