//! SORT BY and GET of a long collection: its elements sorted by the values that a pattern finds, and answers found by
//! other patterns.
//!
//! First the elements are read, then the keys of BY. The elements are sorted. Then the keys of GET are read for the
//! wanted elements: 64 keys of one shard at a time. Each key is watched from before its read until all are read, as
//! in [`super::survey`]. Called by `Incremental`, for SORT. Memory: elements, weights and answers, and some 30 bytes
//! for each key.

use std::cmp::Ordering;

use darter_store::reads::Stretch;
use darter_store::{Key, Keyed};
use darter_txn::ShardPart;
use darter_txn::watch::WatchFlag;
use darter_wire::{Args, Reply};

use super::members::{TextAt, Texts};
use super::operation::{self, NextSlice, Operation, ResultTo};
use super::pointer::Pointer;
use super::rounds::{KEYS_AT_ONCE, Rounds};
use super::sorted::{InOrder, Sorted};
use super::sorting::ScoreOf;
use super::survey::{KEYS_PER_SLICE, SurveyAt};
use super::{FoundValue, StagedForm, StagedWrite, told_members, write_told};
use crate::{Ctx, Fault};

/// The options of SORT.
pub struct SortKeyRequest {
    /// The pattern to sort by; `None` leaves the elements unsorted.
    pub by: Option<Pointer>,
    /// The patterns answered for each element; empty for the element itself.
    pub gets: Vec<Pointer>,
    /// Reads a weight; `None` compares texts.
    pub score_of: Option<ScoreOf>,
    /// DESC.
    pub is_descending: bool,
    /// STORE.
    pub is_stored: bool,
    /// The first element answered, and the number; negative: from the start, and all.
    pub range: (i64, i64),
}

/// Elements on their way.
pub struct SortLookup {
    asked: SortKeyRequest,
    at: SurveyAt,
    flag: WatchFlag,
    texts: Texts,
    // All elements; after sorting, only the wanted ones, in order.
    elements: Vec<TextAt>,
    stage: SortStage,
    // The keys read at this stage, and the value for each number.
    rounds: Rounds,
    found: Vec<Option<TextAt>>,
    // Keys read at earlier stages, still watched.
    past: Vec<Rounds>,
    sorted: Sorted<Weighed>,
    // Elements weighed so far, or answers given.
    done: usize,
    reply: Vec<u8>,
    fault: Option<Fault>,
    due_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortStage {
    /// Elements come in.
    Reading,
    /// Keys of weights are read.
    Looking,
    /// The weights are sorted.
    Weighing,
    /// Elements come out of it.
    Choosing,
    /// Keys of answers are read.
    Getting,
    /// Answers are put together.
    Telling,
    Done,
}

/// An element and its weight.
#[derive(Clone, Copy, Debug)]
struct Weighed {
    element: TextAt,
    weight: LookupWeight,
    nth: u32,
}

#[derive(Clone, Copy, Debug)]
enum LookupWeight {
    Score(f64),
    Text(Option<TextAt>),
}

impl InOrder for Weighed {
    fn order(&self, other: &Weighed, texts: &Texts, is_descending: bool) -> Ordering {
        let text = |at: TextAt| texts.get(at);
        let order = match (self.weight, other.weight) {
            (LookupWeight::Score(a), LookupWeight::Score(b)) => {
                a.total_cmp(&b).then_with(|| text(self.element).cmp(text(other.element)))
            }
            (LookupWeight::Text(a), LookupWeight::Text(b)) => a.map(text).cmp(&b.map(text)),
            // All are weighed alike.
            (LookupWeight::Score(_), LookupWeight::Text(_))
            | (LookupWeight::Text(_), LookupWeight::Score(_)) => Ordering::Equal,
        };
        let order = if is_descending { order.reverse() } else { order };
        order.then(self.nth.cmp(&other.nth))
    }
}

/// Elements that are weighed, chosen or answered in some 100 microseconds.
const ELEMENTS_AT_ONCE: usize = 1024;
/// Bytes found in one slice.
const FOUND_BYTES: usize = 64 << 10;

impl SortLookup {
    /// Takes an element in.
    fn add(&mut self, text: &[u8]) {
        let text = self.texts.push(text);
        self.elements.push(text);
    }

    /// Continues the work that needs no shard. Returns true if the wanted elements and their answers are complete.
    fn work(&mut self) -> bool {
        match self.stage {
            SortStage::Reading => self.begin(),
            SortStage::Looking | SortStage::Getting if !self.rounds.is_full() => self.take_in_keys(),
            SortStage::Looking => self.begin_weighing(),
            SortStage::Weighing => self.weigh(),
            SortStage::Choosing => self.choose(),
            SortStage::Getting => (self.stage, self.done) = (SortStage::Telling, 0),
            SortStage::Telling | SortStage::Done => {}
        }
        matches!(self.stage, SortStage::Telling | SortStage::Done)
    }

    /// All elements are in.
    fn begin(&mut self) {
        match self.asked.by {
            None => {
                if self.asked.is_descending {
                    self.elements.reverse();
                }
                let (start, end) = self.wanted(self.elements.len());
                self.elements.truncate(end);
                self.elements.drain(..start);
                self.begin_getting();
            }
            Some(Pointer::Itself) => self.begin_weighing(),
            Some(_) => self.begin_rounds(SortStage::Looking, self.elements.len()),
        }
    }

    fn begin_rounds(&mut self, stage: SortStage, len: usize) {
        let rounds = Rounds::new(self.at.db, self.at.router.clone(), len, &self.flag);
        self.past.push(std::mem::replace(&mut self.rounds, rounds));
        self.found = vec![None; len];
        self.stage = stage;
    }

    /// The pattern and the element of a number.
    fn asked_at(&self, nth: usize) -> (Option<&Pointer>, &[u8]) {
        let (pointer, at) = match self.stage {
            SortStage::Looking => (self.asked.by.as_ref(), nth),
            _ => {
                let len = self.asked.gets.len().max(1);
                (self.asked.gets.get(nth % len), nth / len)
            }
        };
        (pointer, self.elements.get(at).map_or(&[][..], |element| self.texts.get(*element)))
    }

    fn take_in_keys(&mut self) {
        let until = self.found.len().min(self.rounds.taken() + KEYS_AT_ONCE);
        for nth in self.rounds.taken()..until {
            let (pointer, element) = self.asked_at(nth);
            let key = pointer.and_then(|pointer| pointer.key(element));
            self.rounds.add(key.as_deref());
        }
    }

    fn begin_weighing(&mut self) {
        (self.stage, self.done) = (SortStage::Weighing, 0);
    }

    fn weigh(&mut self) {
        let is_itself = self.asked.by == Some(Pointer::Itself);
        for _ in 0..ELEMENTS_AT_ONCE {
            let nth = self.done;
            let Some(&element) = self.elements.get(nth) else {
                self.sorted.seal(&self.texts);
                self.done = 0;
                self.elements = Vec::new();
                self.stage = SortStage::Choosing;
                return;
            };
            let text = if is_itself { Some(element) } else { self.found.get(nth).copied().flatten() };
            let weight = match (self.asked.score_of, text) {
                (None, text) => Ok(LookupWeight::Text(text)),
                (Some(_), None) => Ok(LookupWeight::Score(0.0)),
                (Some(score_of), Some(text)) => score_of(self.texts.get(text)).map(LookupWeight::Score),
            };
            match weight {
                Ok(weight) => self.sorted.push(&self.texts, Weighed { element, weight, nth: nth as u32 }),
                Err(fault) => {
                    self.fault = Some(fault);
                    (self.elements, self.found) = (Vec::new(), Vec::new());
                    self.stage = SortStage::Done;
                    return;
                }
            }
            self.done += 1;
        }
    }

    fn choose(&mut self) {
        let (start, end) = self.wanted(self.sorted.len());
        for _ in 0..ELEMENTS_AT_ONCE {
            let next = if self.done < end { self.sorted.next(&self.texts) } else { None };
            let Some(next) = next else { return self.begin_getting() };
            if self.done >= start {
                self.elements.push(next.element);
            }
            self.done += 1;
        }
    }

    /// The first wanted element and the one after the last.
    fn wanted(&self, len: usize) -> (usize, usize) {
        let (offset, count) = self.asked.range;
        let start = usize::try_from(offset.max(0)).unwrap_or(usize::MAX).min(len);
        (start, usize::try_from(count).map_or(len, |count| start.saturating_add(count).min(len)))
    }

    fn begin_getting(&mut self) {
        self.begin_rounds(SortStage::Getting, self.elements.len() * self.asked.gets.len());
    }

    /// Passes up to `answers_max` answers to `give`, element by element; returns true if those were the last.
    fn tell_answers(&mut self, answers_max: usize, mut give: impl FnMut(Option<&[u8]>)) -> bool {
        let gets_len = self.asked.gets.len();
        let len = if gets_len == 0 { self.elements.len() } else { self.found.len() };
        let until = len.min(self.done + answers_max);
        for nth in self.done..until {
            let is_itself = gets_len == 0
                || self.asked.gets.get(nth % gets_len).is_some_and(|get| *get == Pointer::Itself);
            let text = match is_itself {
                true => self.elements.get(nth / gets_len.max(1)).copied(),
                false => self.found.get(nth).copied().flatten(),
            };
            give(text.map(|text| self.texts.get(text)));
        }
        self.done = until;
        until == len || self.fault.is_some()
    }

    /// Continues the reply; returns true if it is complete.
    fn put_together(&mut self) -> bool {
        let mut out = std::mem::take(&mut self.reply);
        let mut reply = Reply::new(&mut out, self.at.resp3);
        if self.done == 0 {
            reply.array(self.elements.len() * self.asked.gets.len().max(1));
        }
        let is_done = self.tell_answers(ELEMENTS_AT_ONCE, |answer| reply.bulk_or_null(answer));
        self.reply = out;
        is_done
    }
}

impl Operation for SortLookup {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        match self.stage {
            SortStage::Reading => NextSlice::Read,
            SortStage::Looking | SortStage::Getting => {
                self.rounds.shard().map_or(NextSlice::Work, NextSlice::Step)
            }
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        told_members(told).for_each(|member| self.add(member.text));
        Vec::new()
    }

    /// Reads some keys, with their shard held.
    fn step(&mut self, part: &mut ShardPart, _draft: Option<u32>) {
        self.rounds.visit(part);
        part.shard.pause_uses(self.at.pauses_uses);
        let bytes_max = self.texts.bytes() + FOUND_BYTES;
        let mut keys_left = KEYS_PER_SLICE;
        while let Some((hash, nth)) = self.rounds.next() {
            let (pointer, element) = self.asked_at(nth);
            if let Some(pointer) = pointer
                && let Some(name) = pointer.key(element)
            {
                let key = Key { bytes: &name, hash };
                let place = Keyed::read(&mut part.shard, self.at.db, key, self.at.now_ms);
                let pointed = pointer.look(&place);
                self.due_ms = self.due_ms.min(pointed.due_ms);
                let text = pointed.value.map(|value| self.texts.push(&value));
                if let Some(found) = self.found.get_mut(nth) {
                    *found = text;
                }
            }
            self.rounds.pass();
            keys_left -= 1;
            if keys_left == 0 || self.texts.bytes() > bytes_max {
                break;
            }
        }
        part.shard.pause_uses(false);
        self.rounds.leave();
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> operation::OperationStage {
        match self.work() {
            true if self.asked.is_stored => operation::OperationStage::Storing,
            true => operation::OperationStage::Answering,
            false => operation::OperationStage::Reading,
        }
    }

    /// The reply is put together aside: a key may change until it is complete.
    fn answer(&mut self, _reply: &mut Reply<'_>, _bytes_max: usize) -> bool {
        self.put_together()
    }

    fn store(&mut self, _args: Args<'_>, members_max: usize, told: &mut Vec<u8>) -> bool {
        self.tell_answers(members_max, |text| write_told(told, text.unwrap_or_default(), 0.0))
    }

    /// The fault of a weight.
    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns true if a value that was read has expired.
    fn is_stale(&self, ctx: &mut Ctx<'_>, _draft_shard: Option<u16>) -> bool {
        self.due_ms <= ctx.now_ms
    }

    /// The whole reply.
    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.reply), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        let words = self.elements.capacity() * size_of::<TextAt>()
            + self.found.capacity() * size_of::<Option<TextAt>>();
        let rounds = self.rounds.bytes() + self.past.iter().map(Rounds::bytes).sum::<usize>();
        self.texts.bytes() + words + rounds + self.sorted.bytes() + self.reply.capacity()
    }
}

impl Ctx<'_> {
    /// Leaves it to slices to sort the collection at `name`, read by `stretch`, for its client or for the key `dest`.
    /// The body runs again afterwards, and finds it as [`Ctx::staged`].
    #[cold]
    pub fn sort_by_lookup(
        &mut self,
        (name, stretch): (&[u8], Stretch),
        asked: SortKeyRequest,
        dest: Option<&[u8]>,
        resp3: bool,
    ) -> bool {
        let at = SurveyAt::new(self, name, resp3);
        let staged = StagedWrite::new(self, dest.unwrap_or(name), StagedForm::List, &[name]);
        let flag = staged.flag().clone();
        let rounds = Rounds::new(at.db, at.router.clone(), 0, &flag);
        let sorted = Sorted::new(asked.is_descending);
        let lookup = SortLookup {
            asked,
            at,
            flag,
            texts: Texts::default(),
            elements: Vec::new(),
            stage: SortStage::Reading,
            rounds,
            found: Vec::new(),
            past: Vec::new(),
            sorted,
            done: 0,
            reply: Vec::new(),
            fault: None,
            due_ms: u64::MAX,
        };
        self.begin_incremental(&[(name, stretch)], Box::new(lookup), resp3, Some(staged))
    }
}
