//! The parse window: commands of one connection that are parsed, looked up and hashed before the first of them runs.
//!
//! One a thread, filled by the connection that is served; nothing in it outlives the bytes it was parsed from.

use darter_wire::{Args, Like, ReplyBuffer, Short, Span};

use crate::dispatch::{self, Resolved};
use crate::registry::CommandEntry;
use crate::thread_state::ThreadState;

/// Commands parsed ahead of the one that runs.
pub const WINDOW_LEN: usize = 32;

/// Commands of one connection, in order.
pub struct ConnWindow {
    /// Arguments of the commands that have more than [`OWN_SPANS`].
    pub spans: Vec<Span>,
    /// Where their short replies are put together.
    pub reply_buffer: ReplyBuffer,
    // The first `len` are in use. An array, because a vector would look for room at each command.
    commands: Box<[Prepared; WINDOW_LEN]>,
    len: usize,
}

impl Default for ConnWindow {
    fn default() -> ConnWindow {
        let ready = Resolved { entry: None, cell: None, hash: 0 };
        let own = [Span { start: 0, len: 0 }; OWN_SPANS];
        let none = Prepared { ready, own, args_len: 0, alike_len: 0, key_head_len: 0, after: 0 };
        ConnWindow {
            spans: Vec::new(),
            reply_buffer: ReplyBuffer::default(),
            commands: Box::new([none; WINDOW_LEN]),
            len: 0,
        }
    }
}

/// A command of the window.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// Its command and key, resolved.
    pub ready: Resolved,
    // Its arguments where there are no more, else `own[0].start` is the first of them in the window's spans.
    own: [Span; OWN_SPANS],
    args_len: u32,
    /// Commands behind it that are known to have its entry, its number of arguments and the first
    /// [`Prepared::key_head_len`] bytes of its key.
    pub alike_len: u16,
    /// Bytes; 0 where `alike_len` is.
    pub key_head_len: u16,
    /// Where it ends in the buffer.
    pub after: usize,
}

/// Arguments that a command keeps itself: one more would be copied with every GET.
const OWN_SPANS: usize = darter_wire::ARGS_MAX - 1;

impl ConnWindow {
    /// Forgets all commands. Cost: nothing is freed.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.len = 0;
    }

    /// The commands in it.
    #[inline]
    pub fn commands(&self) -> &[Prepared] {
        self.commands.get(..self.len).unwrap_or_default()
    }

    /// Number of commands in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The commands and where their short replies go.
    #[inline]
    pub fn parts(&mut self) -> (&[Prepared], &[Span], &mut ReplyBuffer) {
        (self.commands.get(..self.len).unwrap_or_default(), &self.spans, &mut self.reply_buffer)
    }

    #[inline(always)]
    fn add(&mut self, planned: Prepared) {
        if let Some(place) = self.commands.get_mut(self.len) {
            *place = planned;
            self.len += 1;
        }
        debug_assert!(self.len <= WINDOW_LEN);
    }

    /// Adds a command whose arguments are the window's spans from `first` on.
    pub fn push(&mut self, ready: Resolved, first: usize, after: usize) {
        let args = self.spans.get(first..).unwrap_or_default();
        let args_len = args.len();
        let mut own = [Span { start: first as u32, len: 0 }; OWN_SPANS];
        if args_len <= OWN_SPANS {
            own.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
        }
        self.add(Prepared { ready, own, args_len: args_len as u32, alike_len: 0, key_head_len: 0, after });
    }

    /// Adds a request that was read in one piece.
    #[inline(always)]
    pub fn push_short(&mut self, ready: Resolved, short: &Short<'_>) {
        let planned = Prepared::of(ready, short, &mut self.spans);
        self.add(planned);
    }
}

impl ConnWindow {
    /// Adds the requests that follow `short`, which was read at offset `at` of `buf` and prepared as `ready`, as far as
    /// they begin like it and there is room; returns where the next one begins. The first `key_head_len` bytes of their
    /// keys are compared as well, where that costs nothing.
    pub fn push_alike(
        &mut self,
        local: &ThreadState,
        buf: &[u8],
        at: usize,
        short: &Short<'_>,
        ready: Resolved,
        key_head_len: usize,
    ) -> usize {
        let like = Like::of(buf, at, short, key_head_len).zip(ready.entry);
        let Some((like, entry)) = like else { return short.end };
        let len = self.len;
        let at = match (short.args_len, local.shared.router.hasher().is_by_slot()) {
            (2, false) => self.push_like::<0, false>(local, buf, short.end, &like, entry),
            (3, false) => self.push_like::<1, false>(local, buf, short.end, &like, entry),
            (4, false) => self.push_like::<2, false>(local, buf, short.end, &like, entry),
            (_, false) => self.push_like::<3, false>(local, buf, short.end, &like, entry),
            (2, true) => self.push_like::<0, true>(local, buf, short.end, &like, entry),
            (3, true) => self.push_like::<1, true>(local, buf, short.end, &like, entry),
            (4, true) => self.push_like::<2, true>(local, buf, short.end, &like, entry),
            (_, true) => self.push_like::<3, true>(local, buf, short.end, &like, entry),
        };
        if like.key_head_len > 0
            && let Some(first) = len.checked_sub(1).and_then(|last| self.commands.get_mut(last))
        {
            (first.alike_len, first.key_head_len) = ((self.len - len) as u16, like.key_head_len as u16);
        }
        at
    }

    #[inline(never)]
    fn push_like<const VALUES: usize, const BY_SLOT: bool>(
        &mut self,
        local: &ThreadState,
        buf: &[u8],
        mut at: usize,
        like: &Like,
        entry: &'static CommandEntry,
    ) -> usize {
        let mut rest = buf.get(at..).unwrap_or_default();
        let mut added = 0;
        for place in self.commands.iter_mut().skip(self.len) {
            let Some((short, next)) = like.request::<VALUES>(rest, at) else { break };
            let Some(ready) = dispatch::prepare_like::<BY_SLOT>(local, entry, &short) else { break };
            *place = Prepared::of(ready, &short, &mut self.spans);
            (at, rest) = (short.end, next);
            added += 1;
        }
        self.len += added;
        at
    }
}

/// What a span outside of its buffer would be; there is none. A call that is never made costs less than a choice of
/// two values each time.
#[cold]
#[inline(never)]
fn no_arg() -> &'static [u8] {
    &[]
}

impl Prepared {
    /// A request that was read in one piece; `spans` are the window's.
    #[inline(always)]
    fn of(ready: Resolved, short: &Short<'_>, spans: &mut Vec<Span>) -> Prepared {
        let [mut first, b, c, d, _] = short.spans;
        if short.args_len as usize > OWN_SPANS {
            first.start = spans.len() as u32;
            spans.extend_from_slice(&short.spans);
        }
        let (own, args_len) = ([first, b, c, d], short.args_len);
        Prepared { ready, own, args_len, alike_len: 0, key_head_len: 0, after: short.end }
    }

    /// Its arguments, with the buffer and the window's spans it was parsed into.
    #[inline]
    pub fn args<'a>(&'a self, buf: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        let args_len = self.args_len as usize;
        let first = self.own[0].start as usize;
        let own = self.own.get(..args_len);
        Args::new(buf, own.or_else(|| spans.get(first..first + args_len)).unwrap_or_default())
    }

    /// Argument 1, with the buffer and the window's spans it was parsed into; empty where there is none.
    #[inline(always)]
    pub fn key<'a>(&'a self, buf: &'a [u8], spans: &'a [Span]) -> &'a [u8] {
        if (2..=OWN_SPANS as u32).contains(&self.args_len) {
            return self.own_arg::<1>(buf);
        }
        self.args(buf, spans).at(1)
    }

    /// Number of its arguments.
    #[inline]
    pub fn args_len(&self) -> usize {
        self.args_len as usize
    }

    /// Argument 1 or 2 of a command that has no more than that.
    #[inline(always)]
    pub fn own_arg<'a, const I: usize>(&self, buf: &'a [u8]) -> &'a [u8] {
        const { assert!(I < OWN_SPANS) };
        match self.own[I].of(buf) {
            Some(arg) => arg,
            None => no_arg(),
        }
    }
}
