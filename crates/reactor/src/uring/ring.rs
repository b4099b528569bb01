//! One io_uring instance: set-up, queueing operations without ever losing one, waiting, and taking completions.
//!
//! Called by the io_uring driver. It knows nothing of connections.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{Buffers, GROUP};
use crate::token::{TokenKind, with_kind};

pub(super) struct UringRing {
    io: IoUring,
    // Entries for which the kernel's queue had no room, submitted first at the next wait.
    backlog: VecDeque<squeue::Entry>,
    // Bound to its thread; happens at the first submission.
    enabled: bool,
}

/// A completion, in our terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// Kind and name as `with_kind` joined them.
    pub(super) data: u64,
    /// The result of the operation, or a negated errno.
    pub(super) result: i32,
    /// True if the operation continues; false for its last completion.
    pub(super) more: bool,
    /// The receive buffer that is ours now.
    pub(super) buffer: Option<u16>,
}

impl fmt::Debug for UringRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("backlog", &self.backlog.len()).field("enabled", &self.enabled).finish()
    }
}

impl UringRing {
    /// Opens a ring that belongs to no thread yet. Errors: the kernel is older than 6.1 or forbids io_uring.
    pub(super) fn open(completions_len: u32) -> io::Result<UringRing> {
        let io = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(completions_len.max(SUBMISSIONS_LEN * 2).next_power_of_two())
            .build(SUBMISSIONS_LEN)?;
        Ok(UringRing { io, backlog: VecDeque::new(), enabled: false })
    }

    /// Lends receive buffers to the kernel.
    ///
    /// # Safety
    /// The buffers must outlive every `receive` of this ring.
    pub(super) unsafe fn lend(&self, buffers: &Buffers) -> io::Result<()> {
        // SAFETY: as promised by the caller.
        unsafe { buffers.lend(&self.io.submitter()) }
    }

    /// Returns true if operations may be in flight in the kernel.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Receives into lent buffers until cancelled, closed or out of buffers.
    pub(super) fn receive(&mut self, fd: RawFd, name: u64) {
        let entry = opcode::RecvMulti::new(Fd(fd), GROUP).build();
        self.push(entry.user_data(with_kind(name, TokenKind::Receive)));
    }

    /// Accepts until cancelled or failed.
    pub(super) fn accept(&mut self, fd: RawFd, name: u64) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let entry = opcode::AcceptMulti::new(Fd(fd)).flags(flags).build();
        self.push(entry.user_data(with_kind(name, TokenKind::Accept)));
    }

    /// Completes once when `fd` takes bytes to send.
    pub(super) fn poll_writable(&mut self, fd: RawFd, name: u64) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLOUT as u32).build();
        self.push(entry.user_data(with_kind(name, TokenKind::Poll)));
    }

    /// Completes once when `fd` has bytes, or the end of its stream.
    pub(super) fn poll_readable(&mut self, fd: RawFd, name: u64) {
        let entry = opcode::PollAdd::new(Fd(fd), (libc::POLLIN | libc::POLLRDHUP) as u32).build();
        self.push(entry.user_data(with_kind(name, TokenKind::Readable)));
    }

    /// Completes every time the eventfd is rung; its counter need not be read.
    pub(super) fn watch(&mut self, eventfd: RawFd) {
        let entry = opcode::PollAdd::new(Fd(eventfd), libc::POLLIN as u32).multi(true).build();
        self.push(entry.user_data(with_kind(0, TokenKind::Wake)));
    }

    /// Cancels a receive; the outcome completes under `name` with kind `Cancel`.
    pub(super) fn cancel_receive(&mut self, name: u64) {
        self.cancel(with_kind(name, TokenKind::Receive), with_kind(name, TokenKind::Cancel));
    }

    /// Cancels an accept; the outcome completes under `name` with kind `CancelAccept`.
    pub(super) fn cancel_accept(&mut self, name: u64) {
        self.cancel(with_kind(name, TokenKind::Accept), with_kind(name, TokenKind::CancelAccept));
    }

    /// Cancels every operation on a descriptor; their number completes under `name` with kind `Cancel`.
    pub(super) fn cancel_all(&mut self, fd: RawFd, name: u64) {
        let which = CancelBuilder::fd(Fd(fd)).all();
        self.push(opcode::AsyncCancel2::new(which).build().user_data(with_kind(name, TokenKind::Cancel)));
    }

    /// Cancels everything.
    pub(super) fn cancel_everything(&mut self) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        self.push(entry.user_data(with_kind(u64::MAX, TokenKind::Cancel)));
    }

    /// Submits queued operations and waits up to `timeout`, forever for `None`, until there is a completion.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enable()?;
        self.drain_backlog();
        let submitted = match timeout {
            Some(Duration::ZERO) => {
                let queue = self.io.submission();
                if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                    return Ok(());
                }
                drop(queue);
                self.io.submit()
            }
            None => self.io.submit_and_wait(1),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        forgive(submitted)
    }

    /// The next completion the kernel posted.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Completion> {
        let entry = self.io.completion().next()?;
        Some(Completion {
            data: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
            buffer: cqueue::buffer_select(entry.flags()),
        })
    }

    fn cancel(&mut self, which: u64, data: u64) {
        let which = CancelBuilder::user_data(which);
        self.push(opcode::AsyncCancel2::new(which).build().user_data(data));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() && self.try_push(&entry) {
            return;
        }
        // Full: submit the queue to the kernel now, or at the next wait if it does not take it (its error is reported
        // there).
        if self.backlog.is_empty()
            && self.enable().is_ok()
            && self.io.submit().is_ok()
            && self.try_push(&entry)
        {
            return;
        }
        self.backlog.push_back(entry);
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the entries built above point at no memory of ours; receives write only to the lent buffers, which
        // outlive the ring's operations by the contract of `lend`. A descriptor closed too early gives EBADF.
        unsafe { self.io.submission().push(entry) }.is_ok()
    }

    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if self.try_push(&entry) {
                continue;
            }
            if self.io.submit().is_err() || !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.io.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }
}

/// A timeout, a signal and a full completion queue are not faults: the caller checks the completions.
fn forgive(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

const SUBMISSIONS_LEN: u32 = 256;
