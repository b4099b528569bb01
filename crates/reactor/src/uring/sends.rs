//! Many sends with one system call: a separate ring, which is empty when that call has returned.
//!
//! Used by the io_uring driver for sends to many connections together. It never waits for a peer: a send that the
//! kernel cannot take now has taken nothing.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use crate::sys;

/// The ring; belongs to the thread that opened it.
pub(super) struct Sends {
    io: IoUring,
}

/// Most sends in one call.
pub(super) const SENDS_MAX: usize = 512;

impl Sends {
    /// Opens the ring. Errors: the kernel refuses another one.
    pub(super) fn open() -> io::Result<Sends> {
        let io = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(SENDS_MAX as u32)?;
        Ok(Sends { io })
    }

    /// Sends at most [`SENDS_MAX`] pieces, each to its socket; appends the result of each, as of `sys::send`, to
    /// `took`.
    pub(super) fn send(&mut self, pieces: &[(RawFd, &[u8])], took: &mut Vec<io::Result<usize>>) {
        let first = took.len();
        let pieces = pieces.get(..SENDS_MAX).unwrap_or(pieces);
        let mut left = 0;
        for &(fd, bytes) in pieces {
            took.push(Ok(0));
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), len).flags(sys::SEND_FLAGS).build();
            // SAFETY: `bytes` is borrowed until this function returns, and it does not before all have completed.
            if unsafe { self.io.submission().push(&send.user_data(left as u64)) }.is_err() {
                // No room in the ring for any piece: this one is retried as if its buffer were full.
                break;
            }
            left += 1;
        }
        took.resize_with(first + pieces.len(), || Ok(0));
        while left > 0 {
            let called = self.io.submit_and_wait(left);
            for done in self.io.completion() {
                left -= 1;
                let at = first + done.user_data() as usize;
                if let Some(took) = took.get_mut(at) {
                    *took = sys::sent_by_ring(done.result());
                }
            }
            if let Err(error) = called
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                // The kernel may still read the bytes, and their release is unknown, so they must not be freed.
                eprintln!("darter: io_uring: {error}");
                std::process::abort();
            }
        }
    }
}

impl std::fmt::Debug for Sends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sends")
    }
}
