//! Reads over ranges of an array, at once or in slices: the answer is that of the moment the command ran.
//!
//! Called by the commands that read ranges. The blocks of an array never change, so a copy of its root is all that a
//! read in slices needs; writers wait for nobody. Memory: the answer, until the client has it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use darter_store::{Arena, Array};
use darter_wire::{Args, Reply};

use crate::incremental::Operation;
use crate::{Ctx, Fault};

/// Texts that are read while the shard is held: some 20 microseconds.
const TEXTS_AT_ONCE: usize = 512;
/// Bytes of a long text that count as another text.
const TEXT_BYTES: usize = 256;
/// Blocks of an array that is read at once.
const BLOCKS_AT_ONCE: usize = 16;
/// Places of a block.
const BLOCK_PLACES: u64 = 64;
/// Answers that are no array.
const NO_ARRAY: usize = usize::MAX;

/// Places from the lower to the higher, and the end to begin with.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceSpan {
    pub low: u64,
    pub high: u64,
    pub is_reversed: bool,
}

/// What becomes of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Took {
    /// The next one may come.
    On,
    /// There is no room: it is to come again.
    Again,
    /// It was the last.
    Last,
}

/// What a command makes of texts.
pub(super) trait RangeCollector: Clone + Send + 'static {
    /// Begins a span.
    fn begin(&mut self, _span: PlaceSpan) {}
    /// Takes the next text and writes its part of the answer, up to about `bytes_max` bytes.
    fn take(&mut self, at: u64, text: &[u8], reply: &mut Reply<'_>, bytes_max: usize) -> Took;
    /// Writes what follows the texts of a span; returns false if there is no room for all of it.
    fn end(&mut self, _reply: &mut Reply<'_>, _bytes_max: usize) -> bool {
        true
    }
    /// The elements of the answer that are written; `None` if it is no array and [`RangeCollector::finish`] writes it.
    fn len(&self) -> Option<usize>;
    /// Writes an answer that is no array.
    fn finish(&mut self, _reply: &mut Reply<'_>) {}
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpanStage {
    New,
    Open,
    Read,
}

/// A read in progress.
#[derive(Clone)]
struct RangeRead<C> {
    spans: VecDeque<(PlaceSpan, SpanStage)>,
    collector: C,
}

/// Passes the texts of `spans` of the array at `name` to `collector`, and answers what it makes of them.
///
/// Errors: the value is no array.
pub(super) fn answer<C: RangeCollector>(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    spans: Vec<PlaceSpan>,
    collector: C,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let spans: VecDeque<(PlaceSpan, SpanStage)> =
        spans.into_iter().map(|span| (span, SpanStage::New)).collect();
    let places = spans.iter().map(|(span, _)| span.high - span.low).fold(0, u64::saturating_add);
    let may_slice = ctx.may_slice;
    let mut read = RangeRead { spans, collector };
    let key = ctx.read(name);
    let view = key.view::<Array>()?;
    let is_long = places > BLOCKS_AT_ONCE as u64 * BLOCK_PLACES
        && view.is_some_and(|view| view.root.blocks_len() > BLOCKS_AT_ONCE);
    if !(may_slice && is_long) {
        let begun = read.collector.len().is_some().then(|| reply.begin_array());
        match view {
            Some(view) => drop(read.step(view.root, view.arena, reply, (usize::MAX, usize::MAX))),
            None => read.pass_all(reply),
        }
        match (begun, read.collector.len()) {
            (Some(begun), Some(len)) => reply.end_array(begun, len),
            _ => read.collector.finish(reply),
        }
        return Ok(());
    }
    if !leave(ctx, name, read.clone(), reply) {
        ctx.may_slice = false;
        let spans = read.spans.into_iter().map(|(span, _)| span);
        return answer(ctx, name, spans.collect(), read.collector, reply);
    }
    Ok(())
}

fn leave<C: RangeCollector>(ctx: &mut Ctx<'_>, name: &[u8], read: RangeRead<C>, reply: &Reply<'_>) -> bool {
    let len = Arc::new(AtomicUsize::new(NO_ARRAY));
    let answer = RangeAnswer { body: Vec::new(), sent: 0, has_begun: false, len: Arc::clone(&len) };
    let (resp3, mut read) = (reply.is_resp3(), Some(read));
    let mut begin = |_, shard: &mut darter_store::Shard, db, key: darter_store::Key<'_>| {
        let (mut read, len) = (read.take()?, Arc::clone(&len));
        shard.begin_frozen(db, key, move |array: &Array, arena, out, bytes_max| {
            let mut reply = Reply::new(out, resp3);
            let is_done = read.step(array, arena, &mut reply, (bytes_max, TEXTS_AT_ONCE));
            if is_done {
                match read.collector.len() {
                    Some(elements) => len.store(elements, Ordering::Relaxed),
                    None => read.collector.finish(&mut reply),
                }
            }
            is_done
        })
    };
    ctx.read_later(&[name], &mut begin, Box::new(answer), reply)
}

impl<C: RangeCollector> RangeRead<C> {
    /// Reads up to `texts_max` texts and writes about `bytes_max` bytes; returns true at the end.
    fn step(
        &mut self,
        array: &Array,
        arena: &Arena,
        reply: &mut Reply<'_>,
        (bytes_max, texts_max): (usize, usize),
    ) -> bool {
        let mut left = texts_max;
        while let Some((span, stage)) = self.spans.front_mut() {
            let collector = &mut self.collector;
            if *stage == SpanStage::New {
                collector.begin(*span);
                *stage = SpanStage::Open;
            }
            // The last text, and what became of it; `Took::On` is a pause.
            let mut stopped = None;
            if *stage == SpanStage::Open {
                let mut visit = |at: u64, text: &[u8]| {
                    let took = collector.take(at, text, reply, bytes_max);
                    left = left.saturating_sub(1 + text.len() / TEXT_BYTES);
                    if took != Took::On || left == 0 || reply.len() >= bytes_max {
                        stopped = Some((at, took));
                    }
                    stopped.is_none()
                };
                match span.is_reversed {
                    true => array.each_reversed(arena, span.low, span.high, &mut visit),
                    false => array.each(arena, span.low, span.high, &mut visit),
                }
            }
            match stopped {
                Some((_, Took::Last)) => return true,
                Some((at, took)) => {
                    *stage = go_on(span, at, took);
                    return false;
                }
                None => *stage = SpanStage::Read,
            }
            if !self.collector.end(reply, bytes_max) {
                return false;
            }
            self.spans.pop_front();
        }
        true
    }

    /// The read of an array that is missing.
    fn pass_all(&mut self, reply: &mut Reply<'_>) {
        for (span, _) in std::mem::take(&mut self.spans) {
            self.collector.begin(span);
            self.collector.end(reply, usize::MAX);
        }
    }
}

/// Moves `span` to what is left of it after the text at `at`; returns its stage then.
fn go_on(span: &mut PlaceSpan, at: u64, took: Took) -> SpanStage {
    let is_there = took == Took::Again;
    let (end, next) = match span.is_reversed {
        true => (span.low, if is_there { at } else { at.saturating_sub(1) }),
        false => (span.high, if is_there { at } else { at.saturating_add(1) }),
    };
    if at == end && !is_there {
        return SpanStage::Read;
    }
    if span.is_reversed {
        span.high = next
    } else {
        span.low = next
    }
    SpanStage::Open
}

/// The elements of the answer so far, and how much of them is sent.
struct RangeAnswer {
    body: Vec<u8>,
    sent: usize,
    has_begun: bool,
    len: Arc<AtomicUsize>,
}

impl Operation for RangeAnswer {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        self.body.extend_from_slice(told);
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        if !std::mem::replace(&mut self.has_begun, true) && len != NO_ARRAY {
            reply.array(len);
        }
        let room = bytes_max.saturating_sub(reply.len()).max(1);
        let end = self.body.len().min(self.sent + room);
        reply.raw(self.body.get(self.sent..end).unwrap_or_default());
        self.sent = end;
        end == self.body.len()
    }

    fn bytes(&self) -> usize {
        self.body.capacity()
    }
}
