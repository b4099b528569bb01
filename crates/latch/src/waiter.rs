//! `Waiter`, the heap node a job waits in, and `Chain`, a FIFO of such nodes with one owner.
//!
//! The link is inside the node, so a job moves from a shard's inbox to its owner's queue to a mailbox without an
//! allocation. Nothing here is atomic: shared stacks are in `cell` and `mailbox`.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// A heap node that carries `W` through the queues of this crate; dereferences to it.
pub struct Waiter<W> {
    /// The next newer node in a queue, the next older node in a shared stack. Meaningless outside both.
    pub(crate) next: *mut Waiter<W>,
    load: W,
}

// SAFETY: `next` is followed only by the owner of the queue or stack that holds the node, never through a
// `Box<Waiter>` or a reference. A node on its own may therefore move to another thread if its content may.
unsafe impl<W: Send> Send for Waiter<W> {}
// SAFETY: a shared reference gives access to nothing but `&W`.
unsafe impl<W: Sync> Sync for Waiter<W> {}

impl<W> Waiter<W> {
    /// A node with `load` in it: the only allocation that waiting costs.
    pub fn new(load: W) -> Box<Waiter<W>> {
        Box::new(Waiter { next: ptr::null_mut(), load })
    }

    /// Frees the node and returns its content.
    #[expect(clippy::boxed_local, reason = "the node lives in a box everywhere; this is its end")]
    pub fn into_inner(self: Box<Self>) -> W {
        self.load
    }
}

impl<W> Deref for Waiter<W> {
    type Target = W;

    #[inline]
    fn deref(&self) -> &W {
        &self.load
    }
}

impl<W> DerefMut for Waiter<W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut W {
        &mut self.load
    }
}

impl<W: fmt::Debug> fmt::Debug for Waiter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiter").field(&self.load).finish()
    }
}

/// A FIFO of waiters that one thread owns; an iterator, oldest first. Drops the waiters left in it.
pub struct Chain<W> {
    head: *mut Waiter<W>, // oldest; null when empty
    tail: *mut Waiter<W>, // newest; meaningless when `head` is null
    owns: PhantomData<Box<Waiter<W>>>,
}

// SAFETY: a chain is the only owner of its nodes.
unsafe impl<W: Send> Send for Chain<W> {}
// SAFETY: a shared reference can only tell whether the chain is empty.
unsafe impl<W> Sync for Chain<W> {}

impl<W> Chain<W> {
    /// An empty chain; does not allocate.
    #[inline]
    pub const fn new() -> Self {
        Self { head: ptr::null_mut(), tail: ptr::null_mut(), owns: PhantomData }
    }

    /// Returns true if no waiter is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Adds the newest waiter.
    pub fn push_back(&mut self, waiter: Box<Waiter<W>>) {
        let node = Box::into_raw(waiter);
        // SAFETY: `node` has just come from a box, so no other thread can reach it.
        unsafe { (*node).next = ptr::null_mut() };
        if self.head.is_null() {
            self.head = node;
        } else {
            // SAFETY: `head` is not null, so `tail` is the last node of the chain, which owns it.
            unsafe { (*self.tail).next = node };
        }
        self.tail = node;
    }

    /// Removes the oldest waiter.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Box<Waiter<W>>> {
        let node = NonNull::new(self.head)?;
        // SAFETY: the chain owns its nodes, each made by `Box::into_raw`, and forgets this one on the next line.
        let waiter = unsafe { Box::from_raw(node.as_ptr()) };
        self.head = waiter.next;
        Some(waiter)
    }

    /// Turns a stack into a queue: `newest` links to ever older nodes, the chain starts with the oldest. O(nodes).
    ///
    /// # Safety
    /// `newest` is null or the top of a null-ended list of nodes from `Box::into_raw`, which the caller owns and
    /// gives up.
    pub(crate) unsafe fn from_newest(newest: *mut Waiter<W>) -> Self {
        let mut head = ptr::null_mut();
        let mut node = newest;
        while !node.is_null() {
            // SAFETY: the caller owns every node of the list and ends it with null.
            let older = unsafe { core::mem::replace(&mut (*node).next, head) };
            head = node;
            node = older;
        }
        Self { head, tail: newest, owns: PhantomData }
    }
}

impl<W> Iterator for Chain<W> {
    type Item = Box<Waiter<W>>;

    #[inline]
    fn next(&mut self) -> Option<Box<Waiter<W>>> {
        self.pop_front()
    }
}

impl<W> Default for Chain<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> fmt::Debug for Chain<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

impl<W> Drop for Chain<W> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}
