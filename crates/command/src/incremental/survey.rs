//! Many keys, or one very long string, read in slices: MGET and EXISTS of thousands, GET of megabytes.
//!
//! Each key is watched from before its read until all are read, so that the answer is the state of one moment. If one
//! changes, the command restarts, as for stored results ([`super::staged`]). Called by `Incremental`. Memory: the
//! values and some 30 bytes for each key.

use darter_store::{Key, Keyed, Text};
use darter_txn::watch::WatchFlag;
use darter_txn::{Router, ShardPart};
use darter_wire::{Args, OwnedArgs, Reply};

use super::operation::{NextSlice, Operation, OperationStage, ResultTo};
use super::reduce::PIECE_BYTES;
use super::rounds::{KEYS_AT_ONCE, Rounds};
use super::{FoundValue, StagedForm, StagedWrite};
use crate::Ctx;
use crate::slices::LEN_MAX;
use crate::string::range::range_of;

/// The answer about the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SurveySubject {
    /// Their strings, in an array.
    Values,
    /// The number of existing ones.
    Presence,
    /// The same, each of them used.
    Uses,
    /// The string of the only key.
    Text,
    /// The bytes between two offsets of the string of the only key.
    Range(i64, i64),
}

/// Keys that are read for an answer.
pub struct Survey {
    what: SurveySubject,
    at: SurveyAt,
    // The command's words, after they were copied; the keys follow its name.
    words: Option<OwnedArgs>,
    keys_len: usize,
    rounds: Rounds,
    // Position of the next slice within the key's string.
    from: usize,
    to: usize,
    // Values one after another, and the position of each key's value. For a single key, the whole reply.
    told: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
    count: usize,
    // Expiry of the first of the keys read.
    due_ms: u64,
    is_broken: bool,
    // Values up to here are in `reply`.
    answered: usize,
    reply: Vec<u8>,
}

/// The place, time and recipient of an answer.
#[derive(Clone)]
pub(super) struct SurveyAt {
    pub db: usize,
    pub now_ms: u64,
    pub router: Router,
    pub resp3: bool,
    pub pauses_uses: bool,
}

impl SurveyAt {
    /// The present place and time, for the command over `name`, whose shard is held.
    pub fn new(ctx: &mut Ctx<'_>, name: &[u8], resp3: bool) -> SurveyAt {
        let key = ctx.key(name);
        let pauses_uses = ctx.shards_mut().part_mut(key).shard.pauses_uses();
        SurveyAt {
            db: ctx.db,
            now_ms: ctx.now_ms,
            router: ctx.shards_mut().router().clone(),
            resp3,
            pauses_uses,
        }
    }
}

/// Keys read in one slice: some 20 microseconds if each waits for memory.
pub(super) const KEYS_PER_SLICE: usize = 64;
/// Bytes around a value in its reply.
const FRAME_BYTES: usize = 32;

impl Survey {
    /// A survey without reads yet, with room for `room` bytes.
    fn new(what: SurveySubject, at: SurveyAt, keys_len: usize, flag: &WatchFlag, room: usize) -> Survey {
        let rounds = Rounds::new(at.db, at.router.clone(), keys_len, flag);
        Survey {
            what,
            at,
            words: None,
            keys_len,
            rounds,
            from: 0,
            to: 0,
            told: Vec::with_capacity(room + FRAME_BYTES),
            spans: Vec::new(),
            count: 0,
            due_ms: u64::MAX,
            is_broken: false,
            answered: 0,
            reply: Vec::new(),
        }
    }

    /// Continues the work that needs no shard; returns true if that was all.
    fn work(&mut self) -> bool {
        let Some(words) = &self.words else { return true };
        let keys = words.args().tail(1);
        if !self.rounds.is_full() {
            let until = self.keys_len.min(self.rounds.taken() + KEYS_AT_ONCE);
            self.spans.resize(if self.is_of_values() { self.keys_len } else { 0 }, None);
            for nth in self.rounds.taken()..until {
                self.rounds.add(Some(keys.at(nth)));
            }
            return false;
        }
        self.put_together()
    }

    fn is_of_values(&self) -> bool {
        self.what == SurveySubject::Values
    }

    /// Assembles the reply; returns true if it is complete.
    fn put_together(&mut self) -> bool {
        match self.what {
            SurveySubject::Text | SurveySubject::Range(..) => self.reply = std::mem::take(&mut self.told),
            SurveySubject::Presence | SurveySubject::Uses => {
                Reply::new(&mut self.reply, self.at.resp3).int_len(self.count)
            }
            SurveySubject::Values => {
                if self.answered == 0 {
                    self.reply.reserve_exact(self.told.len() + (self.spans.len() + 1) * FRAME_BYTES);
                    Reply::new(&mut self.reply, self.at.resp3).array(self.spans.len());
                }
                let bytes_max = self.reply.len() + 4 * PIECE_BYTES;
                let mut reply = Reply::new(&mut self.reply, self.at.resp3);
                for span in self.spans.iter().skip(self.answered).take(KEYS_AT_ONCE) {
                    let value = span.and_then(|(from, to)| self.told.get(from..to));
                    reply.bulk_or_null(value);
                    self.answered += 1;
                    if reply.len() > bytes_max {
                        break;
                    }
                }
                return self.answered == self.spans.len();
            }
        }
        true
    }

    /// Reads a key, or a further piece of a long string.
    fn read(&mut self, part: &mut ShardPart, key: Key<'_>, nth: usize) {
        let SurveyAt { db, now_ms, .. } = self.at;
        if self.from > 0 {
            let text = part.shard.peek(db, key, 0).and_then(|record| record.text());
            return self.take_piece(text);
        }
        let place = match self.what {
            SurveySubject::Presence => Keyed::untouched(&mut part.shard, db, key, now_ms),
            SurveySubject::Values | SurveySubject::Uses => Keyed::read(&mut part.shard, db, key, now_ms),
            // Its body has counted the hit.
            SurveySubject::Text | SurveySubject::Range(..) => Keyed::find(&mut part.shard, db, key, now_ms),
        };
        self.due_ms = self.due_ms.min(place.deadline_ms().unwrap_or(u64::MAX));
        let text = place.text();
        match (self.what, text) {
            (SurveySubject::Presence | SurveySubject::Uses, _) => self.count += usize::from(place.exists()),
            (SurveySubject::Values, Ok(Some(text))) => {
                (self.from, self.to) = (0, text.len());
                if let Some(span) = self.spans.get_mut(nth) {
                    *span = Some((self.told.len(), self.told.len() + text.len()));
                }
                return self.take_piece(Some(text));
            }
            (SurveySubject::Values, _) => {}
            (SurveySubject::Text | SurveySubject::Range(..), Err(_)) => self.is_broken = true,
            (SurveySubject::Text, Ok(None)) => Reply::new(&mut self.told, self.at.resp3).null(),
            (SurveySubject::Text | SurveySubject::Range(..), Ok(text)) => {
                let text = text.unwrap_or(Text::Plain(b""));
                let range =
                    if let SurveySubject::Range(start, end) = self.what { (start, end) } else { (0, -1) };
                (self.from, self.to) = range_of(text.len(), range.0, range.1).unwrap_or_default();
                Reply::new(&mut self.told, self.at.resp3).bulk_header(self.to - self.from);
                return self.take_piece(Some(text));
            }
        }
        self.rounds.pass();
    }

    /// Takes a piece of a string; the key is complete with its last one.
    fn take_piece(&mut self, text: Option<Text<'_>>) {
        let to = self.to.min(self.from + PIECE_BYTES);
        match text {
            Some(text) => text.range_to(self.from, to, &mut self.told),
            // The key was removed, so the result is useless.
            None => self.is_broken = true,
        }
        self.from = to;
        if to == self.to || self.is_broken {
            if !self.is_of_values() {
                Reply::new(&mut self.told, self.at.resp3).bulk_end();
            }
            (self.from, self.to) = (0, 0);
            self.rounds.pass();
        }
    }
}

impl Operation for Survey {
    /// No shard while keys are hashed, and when all are read.
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        self.rounds.shard().map_or(NextSlice::Work, NextSlice::Step)
    }

    /// Makes room for the next slice.
    fn take(&mut self, _nth: u32, _told: &[u8], args: Args<'_>) -> Vec<u8> {
        self.words.get_or_insert_with(|| args.to_owned());
        self.told.reserve((self.to - self.from).max(PIECE_BYTES) + FRAME_BYTES);
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, _draft: Option<u32>) {
        let Some(words) = self.words.take() else { return };
        if self.from == 0 {
            self.rounds.visit(part);
        }
        part.shard.pause_uses(self.at.pauses_uses);
        let bytes_max = self.told.len() + PIECE_BYTES;
        let mut keys_left = KEYS_PER_SLICE;
        while let Some((hash, nth)) = self.rounds.next() {
            let key = Key { bytes: words.args().at(1 + nth), hash };
            self.read(part, key, nth);
            keys_left -= 1;
            if keys_left == 0 || self.told.len() >= bytes_max {
                break;
            }
        }
        part.shard.pause_uses(false);
        self.words = Some(words);
        self.rounds.leave();
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        if self.work() { OperationStage::Done } else { OperationStage::Reading }
    }

    fn is_stale(&self, ctx: &mut Ctx<'_>, _draft_shard: Option<u16>) -> bool {
        self.is_broken || self.due_ms <= ctx.now_ms
    }

    /// The whole reply.
    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.reply), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        let keys = self.rounds.bytes() + self.spans.capacity() * size_of::<Option<(usize, usize)>>();
        let words = self.words.as_ref().map_or(0, OwnedArgs::heap_bytes);
        self.told.capacity() + self.reply.capacity() + keys + words
    }
}

impl Ctx<'_> {
    /// Leaves a command over many keys to slices, or answers it when they are done; false if the body must do it now.
    pub fn survey_many(&mut self, what: SurveySubject, args: Args<'_>, reply: &mut Reply<'_>) -> bool {
        self.take_answer(reply)
            || self.may_slice && args.len() as u64 > LEN_MAX && self.survey(what, 0, args, reply)
    }

    /// Answers with the result assembled in slices.
    #[inline]
    pub fn take_answer(&mut self, reply: &mut Reply<'_>) -> bool {
        self.staged.is_some() && self.tell_answer(reply)
    }

    #[cold]
    fn tell_answer(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(staged) = self.staged.take() {
            reply.take_over(staged.found.bytes);
        }
        true
    }

    /// Leaves reading the keys, all words of `args` but the first, to slices; `len` is their total length if known.
    #[cold]
    pub fn survey(&mut self, what: SurveySubject, len: usize, args: Args<'_>, reply: &Reply<'_>) -> bool {
        let name = args.at(1);
        let at = SurveyAt::new(self, name, reply.is_resp3());
        let staged = StagedWrite::new(self, name, StagedForm::List, &[]);
        let keys_len =
            if matches!(what, SurveySubject::Text | SurveySubject::Range(..)) { 1 } else { args.len() - 1 };
        let survey = Survey::new(what, at, keys_len, staged.flag(), len);
        self.begin_incremental(&[], Box::new(survey), false, Some(staged))
    }
}
