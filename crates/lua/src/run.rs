//! The context of the thread's running script: its host, and buffers that its commands reuse.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{self, AssertUnwindSafe};

use darter_wire::{Args, Span};

use crate::host::Host;
use crate::scratch;

thread_local! {
    static RUN: ScriptRun = const { ScriptRun::new() };
}

struct ScriptRun {
    // Set for the length of `with_host`, and taken out while the host runs a command.
    host: Cell<Option<*mut (dyn Host + 'static)>>,
    is_resp3: Cell<bool>,
    words: RefCell<ScriptWords>,
    reply: RefCell<Vec<u8>>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

/// The words of one command.
#[derive(Default)]
pub(crate) struct ScriptWords {
    pub bytes: Vec<u8>,
    pub spans: Vec<Span>,
}

impl ScriptWords {
    const fn new() -> ScriptWords {
        ScriptWords { bytes: Vec::new(), spans: Vec::new() }
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Ends a word that began at byte `start`. Errors: all words together pass 4 GiB.
    pub fn end_word(&mut self, start: usize) -> Result<(), ScriptTooLong> {
        let (start, len) = match (u32::try_from(start), u32::try_from(self.bytes.len() - start)) {
            (Ok(start), Ok(len)) => (start, len),
            _ => return Err(ScriptTooLong),
        };
        self.spans.push(Span { start, len });
        Ok(())
    }
}

/// The words of a command are longer than can be counted.
pub(crate) struct ScriptTooLong;

impl ScriptRun {
    const fn new() -> ScriptRun {
        ScriptRun {
            host: Cell::new(None),
            is_resp3: Cell::new(false),
            words: RefCell::new(ScriptWords::new()),
            reply: RefCell::new(Vec::new()),
            panic: Cell::new(None),
        }
    }
}

/// Runs `script`, whose commands are run by `host` until it returns. A panic of the host continues here.
pub fn with_host<R>(host: &mut dyn Host, script: impl FnOnce() -> R) -> R {
    struct Restore(Option<*mut (dyn Host + 'static)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUN.with(|run| run.host.set(self.0));
        }
    }
    // SAFETY: only the lifetime changes. The pointer is used by commands of this thread alone, which find it in
    // `RUN`. It is removed from `RUN` when `restore` is dropped, which is before the borrow of `host` ends.
    let erased = unsafe { mem::transmute::<*mut (dyn Host + '_), *mut (dyn Host + 'static)>(host) };
    let restore = Restore(RUN.with(|run| run.host.replace(Some(erased))));
    let ended = script();
    drop(restore);
    let panic = RUN.with(|run| {
        shrink(&mut run.words.borrow_mut().bytes);
        shrink(&mut run.reply.borrow_mut());
        // SAFETY: the script has ended, so none of its functions runs.
        unsafe { scratch::shrink() };
        run.panic.take()
    });
    match panic {
        Some(payload) => panic::resume_unwind(payload),
        None => ended,
    }
}

/// Returns true if this thread's script has asked for replies of RESP3.
pub fn is_resp3() -> bool {
    RUN.with(|run| run.is_resp3.get())
}

/// Sets the protocol of replies to the script.
pub fn set_resp3(is_resp3: bool) {
    RUN.with(|run| run.is_resp3.set(is_resp3));
}

/// Calls [`Host::breathe`] of this thread's host; called by the hook.
pub fn breathe() {
    RUN.with(|run| run.lend(|host| host.breathe()));
}

/// Why a command was not run.
pub(crate) enum NotRun<E> {
    /// Its words could not be read.
    Unread(E),
    /// No script runs, or its host panicked.
    NoHost,
}

/// Lets `read` assemble the words of a command, and lends them with the host to `ask`. `read` must not call back.
#[inline]
pub(crate) fn with_command<E, R>(
    read: impl FnOnce(&mut ScriptWords) -> Result<(), E>,
    ask: impl FnOnce(&mut dyn Host, Args<'_>, &ScriptCall<'_>) -> R,
) -> Result<R, NotRun<E>> {
    RUN.with(|run| {
        let mut words = run.words.borrow_mut();
        words.clear();
        read(&mut words).map_err(NotRun::Unread)?;
        let args = Args::new(&words.bytes, &words.spans);
        run.lend(|host| ask(host, args, &ScriptCall(run))).ok_or(NotRun::NoHost)
    })
}

/// Runs a command and returns the position of its reply, valid until the next command of this thread.
#[inline]
pub(crate) fn call<E>(
    read: impl FnOnce(&mut ScriptWords) -> Result<(), E>,
) -> Result<(*const u8, usize), NotRun<E>> {
    with_command(read, |host, args, ScriptCall(run)| {
        let mut reply = run.reply.borrow_mut();
        reply.clear();
        host.call(args, run.is_resp3.get(), &mut reply);
        (reply.as_ptr(), reply.len())
    })
}

/// The resources of a command of this run, beside its words.
pub(crate) struct ScriptCall<'a>(&'a ScriptRun);

impl ScriptRun {
    /// Lends the host to `ask`; `None` if no script runs, or its host panicked.
    #[inline]
    fn lend<R>(&self, ask: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let host = self.host.take()?;
        // SAFETY: the pointer comes from `with_host`, which has not returned, because it takes the pointer back. It
        // was taken out of `RUN`, so no other code uses it meanwhile.
        let asked = panic::catch_unwind(AssertUnwindSafe(|| ask(unsafe { &mut *host })));
        match asked {
            Ok(answer) => {
                self.host.set(Some(host));
                Some(answer)
            }
            Err(payload) => {
                self.panic.set(Some(payload));
                None
            }
        }
    }
}

/// A buffer that one large command has used is not kept.
fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

const KEPT_BYTES: usize = 64 << 10;
