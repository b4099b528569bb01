//! The way of written keys from the threads that serve to the one that writes the file.
//!
//! Threads never wait here: a walker looks at [`Pipe::is_crowded`] before it writes more, and writing clients are held
//! back by [`Pipe::is_full`]. So memory is bounded by what one turn of the threads can add.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Walkers rest while more than this waits to be written.
const CROWDED_BYTES: usize = 8 << 20;
/// Clients that write are held back while more than this waits.
const FULL_BYTES: usize = 48 << 20;
/// And while more than this is kept of large values that change while they are written.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Empty buffers kept for the next batches.
const SPARE_MAX: usize = 16;

/// Keys of one database, written one after another.
#[derive(Debug, Default)]
pub struct PipedBatch {
    /// The database.
    pub db: u32,
    /// The shard they are from.
    pub shard: u16,
    /// How many keys, or parts of keys.
    pub entries: u32,
    /// They are parts of lists and stay in this order.
    pub is_ordered: bool,
    /// Their bytes.
    pub bytes: Vec<u8>,
}

/// A queue of batches; see above.
#[derive(Debug, Default)]
pub struct Pipe {
    queue: Mutex<PipeQueue>,
    news: Condvar,
    // bytes in the queue or being written
    waiting_bytes: AtomicUsize,
    waiting_bytes_max: AtomicUsize,
    // bytes of values as they were, kept while they change
    kept_bytes: AtomicUsize,
    is_broken: AtomicBool,
}

#[derive(Debug, Default)]
struct PipeQueue {
    batches: VecDeque<PipedBatch>,
    spare: Vec<Vec<u8>>,
    is_closed: bool,
}

impl Pipe {
    /// Whether walkers should rest.
    pub fn is_crowded(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > CROWDED_BYTES
    }

    /// Whether clients that write should wait.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > FULL_BYTES || self.kept_bytes.load(Relaxed) > KEPT_BYTES_MAX
    }

    /// Adds to the bytes that are kept beside the queue; a negative number takes away.
    pub fn note_kept(&self, bytes: isize) {
        self.kept_bytes.fetch_add(bytes.cast_unsigned(), Relaxed);
    }

    /// Bytes that wait to be written.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Relaxed) as u64
    }

    /// The most that ever waited.
    pub fn waiting_bytes_max(&self) -> u64 {
        self.waiting_bytes_max.load(Relaxed) as u64
    }

    /// Whether what is put in here goes nowhere any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Lets go of what waits: the file cannot be written, or is not wanted any more.
    pub fn break_off(&self) {
        self.is_broken.store(true, Relaxed);
        let mut queue = self.lock();
        queue.batches.clear();
        self.waiting_bytes.store(0, Relaxed);
        self.news.notify_all();
    }

    /// Puts a batch in and gives an empty buffer back.
    pub fn send(&self, batch: PipedBatch) -> Vec<u8> {
        let mut queue = self.lock();
        if self.is_broken() {
            let mut bytes = batch.bytes;
            bytes.clear();
            return bytes;
        }
        let waiting = self.waiting_bytes.fetch_add(batch.bytes.len(), Relaxed) + batch.bytes.len();
        self.waiting_bytes_max.fetch_max(waiting, Relaxed);
        queue.batches.push_back(batch);
        let spare = queue.spare.pop().unwrap_or_default();
        drop(queue);
        self.news.notify_one();
        spare
    }

    /// The oldest batch; waits for one, and returns `None` when there will be none.
    pub fn take(&self) -> Option<PipedBatch> {
        let mut queue = self.lock();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                return Some(batch);
            }
            if queue.is_closed {
                return None;
            }
            let waited = self.news.wait_timeout(queue, Duration::from_millis(100));
            queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Takes an empty buffer back.
    pub fn give_back(&self, bytes: Vec<u8>) {
        let mut queue = self.lock();
        if bytes.capacity() > 0 && queue.spare.len() < SPARE_MAX {
            queue.spare.push(bytes);
        }
    }

    /// Takes back the buffer of a batch that has been written.
    pub fn written(&self, mut bytes: Vec<u8>) {
        let len = bytes.len();
        // What was let go of meanwhile is counted no more.
        let _ =
            self.waiting_bytes.fetch_update(Relaxed, Relaxed, |waiting| Some(waiting.saturating_sub(len)));
        bytes.clear();
        let mut queue = self.lock();
        if queue.spare.len() < SPARE_MAX && bytes.capacity() <= 2 * super::collector::BATCH_BYTES {
            queue.spare.push(bytes);
        }
    }

    /// No batch comes any more.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.news.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, PipeQueue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(len: usize) -> PipedBatch {
        PipedBatch { entries: 1, bytes: vec![7; len], ..PipedBatch::default() }
    }

    #[test]
    fn batches_come_out_in_order_and_what_waits_is_counted() {
        let pipe = Pipe::default();
        pipe.send(batch(CROWDED_BYTES));
        assert!(!pipe.is_crowded());
        pipe.send(batch(1));
        assert!(pipe.is_crowded() && !pipe.is_full());
        pipe.send(batch(FULL_BYTES - CROWDED_BYTES));
        assert!(pipe.is_full());
        pipe.close();
        let lens: Vec<usize> = std::iter::from_fn(|| {
            let batch = pipe.take()?;
            let len = batch.bytes.len();
            pipe.written(batch.bytes);
            Some(len)
        })
        .collect();
        assert_eq!(lens, [CROWDED_BYTES, 1, FULL_BYTES - CROWDED_BYTES]);
        assert!(!pipe.is_crowded());
    }

    #[test]
    fn a_broken_pipe_holds_nothing() {
        let pipe = Pipe::default();
        pipe.send(batch(FULL_BYTES + 1));
        let taken = pipe.take();
        pipe.break_off();
        pipe.send(batch(FULL_BYTES + 1));
        assert!(pipe.is_broken() && !pipe.is_full());
        pipe.written(taken.expect("sent").bytes);
        pipe.close();
        assert!(pipe.take().is_none());
    }
}
