//! Signals as flags: SIGTERM, SIGINT and SIGHUP are counted and wake one reactor; SIGPIPE and SIGXFSZ are ignored.
//!
//! The handler does what async-signal-safety allows, an atomic add and a write to an eventfd, and nothing else.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::Waker;
use crate::sys;

/// A request from outside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: shut down.
    Terminate,
    /// SIGINT: shut down, from a keyboard.
    Interrupt,
    /// SIGHUP: reopen or reload.
    HangUp,
}

impl Signal {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
            Signal::HangUp => "SIGHUP",
        }
    }
}

/// The receiving end; the counts are the process's own, so keep one.
#[derive(Debug)]
pub struct Signals {
    seen: [u32; WATCHED.len()],
}

impl Signals {
    /// Installs the handlers. Each signal interrupts the reactor of `waker`, asleep or about to sleep. Installing again
    /// moves the signals to another reactor.
    pub fn install(waker: Waker) -> io::Result<Signals> {
        let seen = counts();
        // A handler may be using the former waker at this moment and nothing tells when it is done: leaked on purpose.
        WAKER.swap(Box::into_raw(Box::new(waker)), Ordering::AcqRel);
        for (number, _) in WATCHED {
            set_action(number, handle as extern "C" fn(libc::c_int) as libc::sighandler_t)?;
        }
        set_action(libc::SIGPIPE, libc::SIG_IGN)?;
        // A file that grows past `ulimit -f` is an error of the write, like a full disk.
        set_action(libc::SIGXFSZ, libc::SIG_IGN)?;
        Ok(Signals { seen })
    }

    /// Returns true if `take` has something. Cost: three loads.
    pub fn pending(&self) -> bool {
        counts() != self.seen
    }

    /// The next signal received, each arrival once (arrivals of one kind may merge in the kernel).
    pub fn take(&mut self) -> Option<Signal> {
        let now = counts();
        let i = (0..WATCHED.len()).find(|&i| now[i] != self.seen[i])?;
        self.seen[i] = self.seen[i].wrapping_add(1);
        Some(WATCHED[i].1)
    }
}

extern "C" fn handle(number: libc::c_int) {
    // SAFETY: errno's address is valid in every thread; write may change it under the interrupted code's feet.
    let errno = unsafe { *libc::__errno_location() };
    for (i, (watched, _)) in WATCHED.iter().enumerate() {
        if *watched == number {
            COUNTS[i].fetch_add(1, Ordering::Release);
        }
    }
    let waker = WAKER.load(Ordering::Acquire);
    if !waker.is_null() {
        // SAFETY: `install` is the only writer, it stores valid boxes and never frees one.
        unsafe { &*waker }.interrupt();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn set_action(number: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: sigaction is plain integers; all-zero is an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is borrowed for the call, and `handler` is SIG_IGN or a function of the expected signature.
    sys::check(unsafe { libc::sigaction(number, &raw const action, ptr::null_mut()) }).map(drop)
}

fn counts() -> [u32; WATCHED.len()] {
    COUNTS.each_ref().map(|count| count.load(Ordering::Acquire))
}

const WATCHED: [(libc::c_int, Signal); 3] =
    [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt), (libc::SIGHUP, Signal::HangUp)];
static COUNTS: [AtomicU32; WATCHED.len()] = [const { AtomicU32::new(0) }; WATCHED.len()];
static WAKER: AtomicPtr<Waker> = AtomicPtr::new(ptr::null_mut());
