//! `Mailbox`: many threads push, one drains all at once, oldest first.
//!
//! Used for what a thread must do itself: answers for its connections, jobs handed over to it. It wakes no thread.
//! The caller of `push` does, if the mailbox was empty or the reader's flag says that it sleeps.

use core::fmt;
use core::ptr;

use crate::sync::{AtomicPtr, Ordering};
use crate::waiter::{Chain, Waiter};

/// A many-to-one queue without a bound. Order is kept per pusher, and between pushers as their pushes took effect.
///
/// Pushes and [`Mailbox::is_empty`] are sequentially consistent. A reader sets a SeqCst flag "asleep", checks
/// `is_empty`, then sleeps; a pusher pushes, then reads the flag. One of them sees the other.
#[repr(align(128))]
pub struct Mailbox<T> {
    newest: AtomicPtr<Waiter<T>>,
}

// SAFETY: messages are moved in by any thread and out by any thread; nothing is lent through a shared mailbox.
unsafe impl<T: Send> Sync for Mailbox<T> {}
// SAFETY: a mailbox is the only owner of the nodes in it.
unsafe impl<T: Send> Send for Mailbox<T> {}

impl<T> Mailbox<T> {
    /// An empty mailbox; does not allocate.
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a message. Returns true if the mailbox was empty, so that the reader may need waking. Allocates the node.
    pub fn push(&self, message: T) -> bool {
        self.push_node(Waiter::new(message))
    }

    /// As [`Mailbox::push`], for a message already in a node. A job that waited moves on without an allocation.
    pub fn push_node(&self, message: Box<Waiter<T>>) -> bool {
        let node = Box::into_raw(message);
        // Relaxed: only compared against.
        let mut older = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: `node` is ours until the swap below publishes it.
            unsafe { (*node).next = older };
            // Release (in SeqCst) pairs with the Acquire swap of the reader. Later pushes are read-modify-writes of
            // the same word, so it also covers the pushes below this one. SeqCst for the sleeping flag, see the type;
            // on x86-64 it costs nothing more. A top that was drained and pushed again meanwhile is still the top.
            match self.newest.compare_exchange_weak(older, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return older.is_null(),
                Err(now) => older = now,
            }
        }
    }

    /// Returns true if nothing is in it. Cost: one load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::SeqCst).is_null()
    }

    /// Takes all messages, oldest first, still in their nodes. Cost: one load when empty.
    #[inline]
    pub fn drain_nodes(&self) -> Chain<T> {
        // Relaxed: the caller of a push that is missed here learns that the mailbox was empty.
        if self.newest.load(Ordering::Relaxed).is_null() {
            return Chain::new();
        }
        // Acquire pairs with the Release of each push.
        let newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the word held null or the top of a null-ended stack of published nodes; the swap made them ours.
        unsafe { Chain::from_newest(newest) }
    }

    /// Appends all messages to `out`, oldest first.
    pub fn drain(&self, out: &mut Vec<T>) {
        out.extend(self.drain_nodes().map(Waiter::into_inner));
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("is_empty", &self.is_empty()).finish()
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        drop(self.drain_nodes());
    }
}
