//! Waking a reactor from another thread, at the price of a load when it is awake.
//!
//! The sleeper raises a flag, then checks again for work; the poster leaves its work, then reads the flag. With a
//! full fence between the two steps on both sides, one of them always sees the other.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::sys;

/// A handle that ends the sleep of one reactor. Cheap to clone, usable from any thread and from signal handlers.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Sleep>);

#[derive(Debug)]
#[repr(align(128))] // posters read the flag often: no neighbour's writes on its line
struct Sleep {
    sleeping: AtomicBool,
    eventfd: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        // SAFETY: eventfd takes no pointers.
        let eventfd = sys::owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Waker(Arc::new(Sleep { sleeping: AtomicBool::new(false), eventfd })))
    }

    /// Ends the reactor's sleep if it sleeps.
    ///
    /// Post the work first, where the `may_sleep` of that reactor's turn sees it, then call this. An awake reactor
    /// gets no signal. Cost: a fence and a load; a system call only for a sleeper, once per sleep.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.0.sleeping.load(Ordering::Relaxed) && self.0.sleeping.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Returns true if the reactor sleeps, or is about to, and no thread has woken it yet.
    pub fn is_asleep(&self) -> bool {
        self.0.sleeping.load(Ordering::Acquire)
    }

    /// Makes the current or next sleep end at once, even if `may_sleep` returns false. Always a system call.
    pub fn interrupt(&self) {
        self.ring();
    }

    /// Raises the flag; the caller must look for work after this and before it sleeps.
    #[inline]
    pub(crate) fn before_sleep(&self) {
        self.0.sleeping.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn after_sleep(&self) {
        self.0.sleeping.store(false, Ordering::Relaxed);
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    fn ring(&self) {
        let one: u64 = 1;
        // A full counter (EAGAIN) has an edge pending anyway, and nothing else can go wrong with our own eventfd.
        // SAFETY: write reads the eight bytes of `one`; it is async-signal-safe.
        let _ = unsafe { libc::write(self.raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}
