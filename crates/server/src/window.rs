//! The parse window: commands of one connection that are parsed, looked up and hashed before the first of them runs.
//!
//! One a thread, filled by the connection that is served; nothing in it outlives the bytes it was parsed from.

use darter_wire::{Args, Like, Short, Span, Stage};

use crate::core::Core;
use crate::dispatch::{self, Ready};
use crate::registry::Entry;

/// Commands parsed ahead of the one that runs.
pub const WINDOW_LEN: usize = 32;

/// Commands of one connection, in order.
#[derive(Default)]
pub struct Window {
    /// Arguments of the commands that have more than [`OWN_SPANS`].
    pub spans: Vec<Span>,
    /// The commands; at most [`WINDOW_LEN`].
    pub commands: Vec<Planned>,
    /// Where their short replies are put together.
    pub stage: Stage,
}

/// A command of the window.
#[derive(Clone, Copy)]
pub struct Planned {
    /// What is known of it.
    pub ready: Ready,
    // Its arguments where there are no more, else `own[0].start` is the first of them in the window's spans.
    own: [Span; OWN_SPANS],
    args_len: u32,
    /// Where it ends in the buffer.
    pub after: usize,
}

/// Arguments that a command keeps itself.
const OWN_SPANS: usize = 3;

impl Window {
    /// Forgets all commands. Cost: nothing is freed.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.commands.clear();
    }

    /// Adds a command whose arguments are the window's spans from `first` on.
    pub fn push(&mut self, ready: Ready, first: usize, after: usize) {
        let args = self.spans.get(first..).unwrap_or_default();
        let args_len = args.len();
        let mut own = [Span { start: first as u32, len: 0 }; OWN_SPANS];
        if args_len <= OWN_SPANS {
            own.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
        }
        self.commands.push(Planned { ready, own, args_len: args_len as u32, after });
    }

    /// Adds a request that was read in one piece.
    #[inline(always)]
    pub fn push_short(&mut self, ready: Ready, short: &Short<'_>) {
        let planned = Planned { ready, own: short.spans, args_len: short.args_len, after: short.end };
        self.commands.push(planned);
    }
}

impl Window {
    /// Adds the requests that follow `short`, which was read at offset `at` of `buf` and prepared as `ready`, as far as
    /// they begin like it and there is room; returns where the next one begins.
    pub fn push_alike(
        &mut self,
        core: &Core,
        buf: &[u8],
        at: usize,
        short: &Short<'_>,
        ready: Ready,
    ) -> usize {
        let like = Like::of(buf, at, short).zip(ready.entry);
        match like {
            Some((like, entry)) if short.args_len == 3 => {
                self.push_like::<true>(core, buf, short.end, &like, entry)
            }
            Some((like, entry)) => self.push_like::<false>(core, buf, short.end, &like, entry),
            None => short.end,
        }
    }

    #[inline(never)]
    fn push_like<const VALUED: bool>(
        &mut self,
        core: &Core,
        buf: &[u8],
        mut at: usize,
        like: &Like,
        entry: &'static Entry,
    ) -> usize {
        let mut rest = buf.get(at..).unwrap_or_default();
        while self.commands.len() < WINDOW_LEN
            && let Some((short, next)) = like.request::<VALUED>(rest, at)
            && let Some(ready) = dispatch::prepare_like(core, entry, &short)
        {
            self.push_short(ready, &short);
            (at, rest) = (short.end, next);
        }
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

impl Planned {
    /// Its arguments, with the buffer and the window's spans it was parsed into.
    #[inline]
    pub fn args<'a>(&'a self, buf: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        let args_len = self.args_len as usize;
        let first = self.own[0].start as usize;
        let own = self.own.get(..args_len);
        Args::new(buf, own.or_else(|| spans.get(first..first + args_len)).unwrap_or_default())
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
