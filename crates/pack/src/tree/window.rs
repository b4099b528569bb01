//! Reading a long stretch of an ordered collection in steps, in its state at the start, while it changes.
//!
//! A window knows which present members belong to the stretch: runs of ranks, with gaps for members inserted since. A
//! member that is about to be removed is written into its place in the window. A change therefore costs only what it
//! touches, whatever the length of the stretch, and neither side waits for the other. Called by the collections
//! before and after they change. A collection without readers pays one test of a null pointer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::Direction;
use super::stream::StreamEntry;
use crate::entry::Item;

/// A member as a reader of the collection sees it.
pub enum SeenLeaf<'a> {
    /// A member of a set, an item of a list.
    Item(Item<'a>),
    /// A field and its value.
    Field(Item<'a>, Item<'a>),
    /// A member and its score.
    Scored(Item<'a>, f64),
    /// An entry of a stream.
    Logged(StreamEntry<'a>),
}

/// Encodes a member. Called with the shard held, so it must be quick.
pub type Tell = Arc<dyn Fn(SeenLeaf<'_>, &mut Vec<u8>) + Send + Sync>;

/// One stretch that is being read.
pub struct TreeWindow {
    number: u32,
    direction: Direction,
    tell: Tell,
    // By rank, rising.
    spans: VecDeque<WindowSpan>,
    // The rank after the last span: the sum of all their members.
    end: u64,
    kept_bytes: usize,
}

/// Members outside the stretch or read already; then members that were removed, encoded; then members still to be
/// read.
#[derive(Default)]
struct WindowSpan {
    skip: u64,
    kept: VecDeque<Box<[u8]>>,
    live: u64,
}

/// Emits the given number of members from a rank on, in a direction.
pub(super) type Each<'e> = &'e dyn Fn(u64, u64, Direction, &mut dyn FnMut(SeenLeaf<'_>));

impl TreeWindow {
    /// The `len` members from rank `first` on, to be read in `direction`.
    fn new(number: u32, first: u64, len: u64, direction: Direction, tell: Tell) -> TreeWindow {
        let spans = VecDeque::from([WindowSpan { skip: first, kept: VecDeque::new(), live: len }]);
        TreeWindow { number, direction, tell, spans, end: first + len, kept_bytes: 0 }
    }

    /// Notes that `count` members were inserted and are now at `rank` and after it.
    fn inserted(&mut self, rank: u64, count: u64) {
        let mut at = 0;
        for i in 0..self.spans.len() {
            let span = &mut self.spans[i];
            at += span.skip;
            if rank <= at {
                span.skip += count;
                self.end += count;
                return;
            }
            if rank < at + span.live {
                let before = rank - at;
                let rest = WindowSpan { skip: count, kept: VecDeque::new(), live: span.live - before };
                span.live = before;
                self.spans.insert(i + 1, rest);
                self.end += count;
                return;
            }
            at += span.live;
        }
    }

    /// Notes that `count` members from `rank` on are about to be removed; `each` still finds them there.
    fn removing(&mut self, rank: u64, count: u64, each: Each<'_>) {
        // All ranks are those before the change.
        let (mut rank, mut left) = (rank, count);
        let (mut at, mut i) = (0, 0);
        while left > 0 && i < self.spans.len() {
            let (skip, live) = (self.spans[i].skip, self.spans[i].live);
            let (from, to) = (at + skip, at + skip + live);
            at = to;
            if rank < from {
                let cut = left.min(from - rank);
                self.spans[i].skip -= cut;
                self.end -= cut;
                (rank, left) = (rank + cut, left - cut);
            }
            if left > 0 && rank < to {
                let cut = left.min(to - rank);
                let kept = self.keep(rank, cut, each);
                self.end -= cut;
                i += self.put(i, rank - from, live - (rank - from) - cut, kept);
                (rank, left) = (rank + cut, left - cut);
            }
            i += 1;
        }
    }

    /// Inserts the encoded removed members into span `i`, between its first `before` members and the `rest`. Returns
    /// the number of spans inserted after it.
    fn put(&mut self, i: usize, before: u64, rest: u64, mut kept: VecDeque<Box<[u8]>>) -> usize {
        let span = &mut self.spans[i];
        if before == 0 {
            span.kept.append(&mut kept);
            span.live = rest;
            return 0;
        }
        span.live = before;
        if rest == 0
            && let Some(next) = self.spans.get_mut(i + 1).filter(|next| next.skip == 0)
        {
            kept.into_iter().rev().for_each(|text| next.kept.push_front(text));
            return 0;
        }
        self.spans.insert(i + 1, WindowSpan { skip: 0, kept, live: rest });
        1
    }

    /// Encodes the `count` members from `rank` on. The parts are in order of rank, and each part is in reading order.
    fn keep(&mut self, rank: u64, count: u64, each: Each<'_>) -> VecDeque<Box<[u8]>> {
        let mut kept = VecDeque::new();
        let mut done = 0;
        while done < count {
            let len = RUN_LEN.min(count - done);
            let mut text = Vec::new();
            self.write(rank + done, len, each, &mut text);
            self.kept_bytes += text.len();
            kept.push_back(text.into_boxed_slice());
            done += len;
        }
        kept
    }

    /// Writes the `len` members from `rank` on in reading order.
    fn write(&self, rank: u64, len: u64, each: Each<'_>, out: &mut Vec<u8>) {
        let from = match self.direction {
            Direction::Up => rank,
            Direction::Down => rank + len - 1,
        };
        each(from, len, self.direction, &mut |seen| (self.tell)(seen, out));
    }

    /// Writes the next members until `out` has `bytes_max`; returns true if that was all.
    fn step(&mut self, each: Each<'_>, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        while out.len() < bytes_max {
            let is_up = self.direction == Direction::Up;
            let span = if is_up { self.spans.front_mut() } else { self.spans.back_mut() };
            let Some(span) = span else { return true };
            let text = match is_up {
                true => span.kept.pop_front(),
                false if span.live == 0 => span.kept.pop_back(),
                false => None,
            };
            if let Some(text) = text {
                self.kept_bytes -= text.len();
                out.extend_from_slice(&text);
            } else if span.live == 0 {
                self.pass(is_up);
            } else {
                let len = span.live.min(RUN_LEN);
                span.live -= len;
                let rank = if is_up { span.skip } else { self.end - len };
                if is_up {
                    span.skip += len;
                } else {
                    self.end -= len;
                }
                self.write(rank, len, each, out);
            }
        }
        false
    }

    /// Leaves a span that is read.
    fn pass(&mut self, is_up: bool) {
        if is_up {
            let skip = self.spans.pop_front().map_or(0, |span| span.skip);
            if let Some(next) = self.spans.front_mut() {
                next.skip += skip;
            }
        } else if let Some(span) = self.spans.pop_back() {
            self.end -= span.skip;
        }
    }
}

impl fmt::Debug for TreeWindow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Window").field("number", &self.number).field("spans", &self.spans.len()).finish()
    }
}

/// All windows of one collection; 8 bytes if there is none.
#[derive(Debug, Default)]
pub(crate) struct Windows(Option<Box<OpenWindow>>);

#[derive(Debug, Default)]
struct OpenWindow {
    windows: Vec<TreeWindow>,
}

/// The amount that a reader holds, beside the members it has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aside {
    /// Encoded removed members that are not read yet, in bytes.
    pub bytes: usize,
    /// Pieces of the stretch, which a change may have to search.
    pub pieces: usize,
}

impl Windows {
    pub(crate) const NONE: Windows = Windows(None);

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut TreeWindow> {
        self.0.iter_mut().flat_map(|open| &mut open.windows)
    }

    pub(super) fn open(&mut self, number: u32, first: u64, len: u64, direction: Direction, tell: Tell) {
        let window = TreeWindow::new(number, first, len, direction, tell);
        self.0.get_or_insert_default().windows.push(window);
    }

    pub(super) fn close(&mut self, number: u32) {
        let Some(open) = &mut self.0 else { return };
        open.windows.retain(|window| window.number != number);
        if open.windows.is_empty() {
            self.0 = None;
        }
    }

    pub(super) fn inserted(&mut self, rank: u64, count: u64) {
        self.iter_mut().for_each(|window| window.inserted(rank, count));
    }

    pub(super) fn removing(&mut self, rank: u64, count: u64, each: Each<'_>) {
        self.iter_mut().for_each(|window| window.removing(rank, count, each));
    }

    /// Advances a window. Returns true if it is read completely, or does not exist.
    pub(super) fn step(&mut self, number: u32, each: Each<'_>, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let window = self.iter_mut().find(|window| window.number == number);
        window.is_none_or(|window| window.step(each, out, bytes_max))
    }

    /// The amounts that a window holds.
    pub(super) fn aside(&mut self, number: u32) -> Aside {
        let window = self.iter_mut().find(|window| window.number == number);
        window.map_or(Aside::default(), |w| Aside { bytes: w.kept_bytes, pieces: w.spans.len() })
    }
}

/// Members written between two checks of the output's length: about a microsecond.
const RUN_LEN: u64 = 64;

/// Gives an ordered collection the methods of a stepwise reader. It must have `windows_mut`, `settle_windows`, and
/// `each`, which emits members from a rank on. The field `$hidden`, if given, counts trimmed members in front that
/// only these ranks include.
macro_rules! readable {
    ($name:ty $(, $hidden:ident)?) => {
        impl $name {
            /// Begins to read the `len` members from rank `first` on in steps, in their present state, whatever
            /// changes meanwhile. `number` names the reader, which ends with [`Self::end_read`].
            pub fn begin_read(
                &mut self,
                number: u32,
                first: u64,
                len: u64,
                direction: $crate::tree::Direction,
                tell: $crate::tree::window::Tell,
            ) {
                $(let first = first + self.$hidden;)?
                self.windows_mut().open(number, first, len, direction, tell);
            }

            /// Writes the next members for a reader until `out` is longer than `bytes_max`. Returns true if that was
            /// all.
            pub fn read_step(
                &mut self,
                arena: &darter_slab::Arena,
                number: u32,
                out: &mut Vec<u8>,
                bytes_max: usize,
            ) -> bool {
                let mut windows = std::mem::take(self.windows_mut());
                let is_done = windows.step(
                    number,
                    &|first, len, direction, see| self.each(arena, first, len, direction, see),
                    out,
                    bytes_max,
                );
                *self.windows_mut() = windows;
                is_done
            }

            /// The amounts that a reader holds.
            pub fn read_aside(&mut self, number: u32) -> $crate::tree::window::Aside {
                self.windows_mut().aside(number)
            }

            /// Forgets a reader.
            pub fn end_read(&mut self, number: u32) {
                self.windows_mut().close(number);
                self.settle_windows();
            }

            /// To be called before `count` members from `rank` on are removed.
            #[cold]
            #[inline(never)]
            fn before_removal(&mut self, arena: &darter_slab::Arena, rank: u64, count: u64) {
                let mut windows = std::mem::take(self.windows_mut());
                windows.removing(rank, count, &|first, len, direction, see| {
                    self.each(arena, first, len, direction, see);
                });
                *self.windows_mut() = windows;
            }

            /// To be called after `count` members were inserted at `rank`.
            #[cold]
            #[inline(never)]
            fn after_insertion(&mut self, rank: u64, count: u64) {
                self.windows_mut().inserted(rank, count);
            }
        }
    };
}
pub(super) use readable;

#[cfg(test)]
mod tests;
