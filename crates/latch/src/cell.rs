//! `Cell`, a shard behind its ownership word, and `Held`, the token of the thread that owns it.
//!
//! The word is free, owned, or owned with a stack of waiting jobs. A job is pushed only onto an owned word. The word
//! becomes free only from "owned, no job waits". Both are one compare-and-swap on the word, so a queued job always
//! has an owner that will run it.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr;

use crate::sync::{AtomicPtr, Ordering, spin_loop};
use crate::waiter::{Chain, Waiter};

/// One shard: its data, its ownership, and the jobs `W` that wait for it. Lives as long as the process.
///
/// Shape: 128-byte aligned, two cache lines, because neighbours are fetched in pairs.
#[repr(C, align(128))]
pub struct Cell<T, W> {
    // null: free, and `queue` is empty | OWNED: owned | else: owned, and this is the newest job pushed since
    word: AtomicPtr<Waiter<W>>,
    queue: UnsafeCell<Chain<W>>, // the owner's: jobs taken off the word, all older than any still on it
    id: u16,
    data: UnsafeCell<T>, // the owner's
}

// SAFETY: `queue` and `data` are reached only through `Held`. The word ensures that one `Held` exists at a time.
// Sharing a cell therefore moves its data, and the jobs other threads leave, from thread to thread.
unsafe impl<T: Send, W: Send> Sync for Cell<T, W> {}
// SAFETY: a cell that can still be moved has never been taken (taking needs `&'static`); it owns what it holds.
unsafe impl<T: Send, W: Send> Send for Cell<T, W> {}

/// The job was left in the shard's queue. The present owner, or a later one, will run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedJob;

/// The ownership of a shard, with its next job.
pub type Turn<T, W> = (Held<T, W>, Box<Waiter<W>>);

impl<T, W> Cell<T, W> {
    /// Offset of the data in the cell, in bytes.
    pub const DATA_AT: usize = mem::offset_of!(Self, data);

    /// A free shard. `id` is its index in the slice of cells.
    pub fn new(id: u16, data: T) -> Self {
        Self {
            word: AtomicPtr::new(ptr::null_mut()),
            queue: UnsafeCell::new(Chain::new()),
            id,
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the data of a cell that was never leaked, or of one whose model has ended.
    #[cfg(test)]
    pub(crate) fn into_data(self) -> T {
        self.data.into_inner()
    }

    /// The index given to [`Cell::new`].
    #[inline]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Asks the processor for the two lines with the word and the head of the data, to be written soon.
    #[inline(always)]
    pub fn prefetch(&self) {
        let first = ptr::from_ref(self).cast::<i8>();
        prefetch_for_write(first);
        prefetch_for_write(first.wrapping_add(64));
    }

    /// Takes the shard if it is free. Cost: one compare-and-swap.
    #[inline]
    pub fn try_take(&'static self) -> Option<Held<T, W>> {
        // Acquire pairs with the Release in `Held::release`: the last owner's changes are visible here. Relaxed on
        // failure: nothing is read on the strength of "busy".
        self.word
            .compare_exchange(ptr::null_mut(), owned(), Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Held::new(self))
    }

    /// Takes the shard if it is free, polling up to `spins` times while it is busy. Gives up immediately if jobs wait
    /// for it, because they come first.
    #[inline]
    pub fn take_spinning(&'static self, spins: u32) -> Option<Held<T, W>> {
        match self.try_take() {
            Some(held) => Some(held),
            None => self.poll(spins),
        }
    }

    #[cold]
    fn poll(&'static self, spins: u32) -> Option<Held<T, W>> {
        for _ in 0..spins {
            spin_loop();
            // A plain read keeps the line shared while the owner works; only a free word is worth a swap.
            // Relaxed: a hint, `try_take` decides.
            let seen = self.word.load(Ordering::Relaxed);
            if seen.is_null() {
                if let Some(held) = self.try_take() {
                    return Some(held);
                }
            } else if seen != owned() {
                return None;
            }
        }
        None
    }

    /// Takes the shard if it is free and returns the waiter too. Otherwise queues the waiter behind those already
    /// waiting. Once queued, the job may be running elsewhere before this returns.
    pub fn take_or_queue(&'static self, waiter: Box<Waiter<W>>) -> Result<Turn<T, W>, QueuedJob> {
        let node = Box::into_raw(waiter);
        // Relaxed: the value is only compared against, whatever is done follows a successful swap.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let (want, order) = if seen.is_null() {
                // Acquire as in `try_take`.
                (owned(), Ordering::Acquire)
            } else {
                let older = if seen == owned() { ptr::null_mut() } else { seen };
                // SAFETY: `node` is ours until a swap below publishes it.
                unsafe { (*node).next = older };
                // Release pairs with the Acquire swap in `Held::release`, which makes the link and the job visible to
                // the thread that removes them. Pushes on top of ours are read-modify-writes of the same word, so
                // that swap sees ours whichever push it reads from. A top that was removed and pushed again meanwhile
                // (ABA) is still the top, so the link is right.
                (node, Ordering::Release)
            };
            match self.word.compare_exchange_weak(seen, want, order, Ordering::Relaxed) {
                // SAFETY: `node` was not published, the word went from free to owned.
                Ok(_) if seen.is_null() => return Ok((Held::new(self), unsafe { Box::from_raw(node) })),
                Ok(_) => return Err(QueuedJob),
                Err(now) => seen = now,
            }
        }
    }
}

impl<T, W> fmt::Debug for Cell<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Ownership of a shard: the only way to its data. Give it back with [`Held::release`].
///
/// Dropping it also releases the shard, but only if no job waits. A job that is never run would hang its client, so
/// the process stops with a message instead. A caller that catches panics must keep the token outside the closure and
/// stop the process itself: the drop would release half-changed data.
#[must_use = "a shard is given back with release(), which may return a job to run"]
pub struct Held<T: 'static, W: 'static> {
    cell: &'static Cell<T, W>,
    // As `&mut T` for the auto traits. Otherwise a shared `Held` would lend `&T` to threads on which `T` is not safe.
    data: PhantomData<&'static mut T>,
}

impl<T, W> Held<T, W> {
    /// Only for a caller that has just moved the word from free to owned, or has taken a token apart.
    #[inline(always)]
    fn new(cell: &'static Cell<T, W>) -> Self {
        Self { cell, data: PhantomData }
    }

    /// The index of the shard.
    #[inline]
    pub fn id(&self) -> u16 {
        self.cell.id
    }

    /// Returns true if jobs wait: a hint for long work that could stop early. Cost: two plain loads.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        // Relaxed: a hint; a job missed now is found by `release`.
        let word = self.cell.word.load(Ordering::Relaxed);
        // SAFETY: `queue` is the owner's, and `self` is the owner.
        word != owned() || unsafe { !(*self.cell.queue.get()).is_empty() }
    }

    /// Releases the shard. If jobs wait for it, returns the oldest with the ownership: run it, then release again.
    /// Cost: one compare-and-swap if no job waits.
    #[inline]
    pub fn release(self) -> Option<Turn<T, W>> {
        let cell = self.cell;
        mem::forget(self);
        // SAFETY: `queue` is the owner's, we are the owner until the swap below, and the borrow ends before it.
        let next = unsafe { (*cell.queue.get()).pop_front() };
        if let Some(waiter) = next {
            return Some((Held::new(cell), waiter));
        }
        // Release pairs with the Acquire of the next owner. Relaxed on failure: `take_inbox` does the reading.
        match cell.word.compare_exchange(owned(), ptr::null_mut(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => None,
            Err(_) => take_inbox(cell),
        }
    }
}

/// Moves the jobs off the word into the owner's queue and returns the oldest. The caller owns `cell`, `queue` is empty.
#[cold]
fn take_inbox<T, W>(cell: &'static Cell<T, W>) -> Option<Turn<T, W>> {
    // Acquire pairs with the Release of each push. No Release: the cell stays ours, the data is not handed on here.
    let newest = cell.word.swap(owned(), Ordering::Acquire);
    debug_assert!(!newest.is_null() && newest != owned(), "only pushes change the word under its owner");
    // SAFETY: the word held the top of a stack of nodes that `take_or_queue` published, the oldest linking to null;
    // the swap made them ours.
    let mut jobs = unsafe { Chain::from_newest(newest) };
    let oldest = jobs.pop_front();
    // SAFETY: `queue` is the owner's and we are the owner; it is empty, so nothing is lost by the assignment.
    unsafe { *cell.queue.get() = jobs };
    oldest.map(|waiter| (Held::new(cell), waiter))
}

impl<T, W> Deref for Held<T, W> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: one `Held` exists per owned cell, and this borrow is of that one.
        unsafe { &*self.cell.data.get() }
    }
}

impl<T, W> DerefMut for Held<T, W> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the borrow is unique.
        unsafe { &mut *self.cell.data.get() }
    }
}

impl<T, W> Drop for Held<T, W> {
    fn drop(&mut self) {
        if let Some((held, waiter)) = Held::new(self.cell).release() {
            eprintln!("darter: shard {} was dropped while jobs wait for it; stopping", held.id());
            // Neither may be dropped on the way out.
            mem::forget((held, waiter));
            std::process::abort();
        }
    }
}

impl<T, W> fmt::Debug for Held<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The word of an owned cell whose inbox is empty. Never the address of a node: those are aligned.
#[inline(always)]
fn owned<W>() -> *mut Waiter<W> {
    ptr::without_provenance_mut(1)
}

/// Asks the processor for the line in which `value` begins, to be written soon. Cost: an instruction, no wait.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_for_write(ptr::from_ref(value).cast());
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn prefetch_for_write(line: *const i8) {
    // For the first x86-64, the compiler's own hint for writing fetches the line for reading only. The write that
    // follows would then have to ask the core that wrote last again. SAFETY: a prefetch is a hint, it cannot fault
    // and changes no register; a processor without this one does nothing.
    unsafe { core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) };
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn prefetch_for_write(line: *const i8) {
    // SAFETY: a prefetch is a hint, it cannot fault and changes no register.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly))
    };
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
fn prefetch_for_write(_line: *const i8) {}
