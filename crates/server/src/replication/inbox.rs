//! What the threads that read flows have received, for the thread of the link.
//!
//! While a full sync is loaded records wait, first in memory, then in a file. Later a flow of which much waits is read no
//! further. The thread of the link always takes what is here, so the flow that has the record which all wait for is one of
//! which little waits.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use darter_persist::storage::Spool;
use darter_replica::frame::SyncEnd;
use darter_replica::merge::Merger;
use darter_replica::shared_bytes::SharedBytes;

use crate::sync::lock;

/// Bytes of records beyond the first gap that are kept for all flows together.
const WINDOW_BYTES: usize = 64 << 20;
/// While less waits at the link for older records, nobody counts it.
const UNCOUNTED_BYTES: usize = 1 << 20;
/// Records in memory while a full sync is loaded; more go to a file.
const LOADING_BYTES_MAX: usize = 32 << 20;

/// See above.
pub struct Inbox {
    queue: Mutex<InboxQueue>,
    news: Condvar,
    room: Condvar,
    is_over: AtomicBool,
    // the link has said that it holds bytes
    holds: AtomicBool,
    lane_bytes_max: usize,
    folder: PathBuf,
}

struct InboxQueue {
    records: VecDeque<(usize, SharedBytes)>,
    // what waits of each lane, here and at the link
    waiting: Vec<usize>,
    held: Vec<usize>,
    bytes: usize,
    // what was stored behind `records`: lane and length, and where the first begins
    stored: VecDeque<(usize, usize)>,
    stored_at: u64,
    file: Option<(File, Spool)>,
    is_loading: bool,
    news: News,
    // the link waits for something new, and so many flows for room: nobody else is woken, which is a call each time
    is_awaited: bool,
    waits_for_room: usize,
}

/// What else was received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Blocks that are loaded.
    pub blocks: u64,
    /// The end of the full sync.
    pub cut: Option<SyncEnd>,
    /// The sequence of the master's next record, as it said last.
    pub next: u64,
    /// The clock of the master then.
    pub clock_ms: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Sequences below are committed, as the master said last; 0: it does not say.
    pub committed: u64,
    /// Why a flow has ended.
    pub failed: Option<FlowFailure>,
}

/// Why a flow has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowFailure {
    /// The connection, or what came on it.
    Lost(String),
    /// It would end the same way again.
    Hopeless(String),
}

impl Inbox {
    /// The inbox of so many flows; files go to `folder`.
    pub fn new(flows: usize, folder: PathBuf) -> Inbox {
        let queue = InboxQueue {
            records: VecDeque::new(),
            waiting: vec![0; flows],
            held: vec![0; flows],
            bytes: 0,
            stored: VecDeque::new(),
            stored_at: 0,
            file: None,
            is_loading: false,
            news: News::default(),
            is_awaited: false,
            waits_for_room: 0,
        };
        Inbox {
            queue: Mutex::new(queue),
            news: Condvar::new(),
            room: Condvar::new(),
            is_over: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            lane_bytes_max: WINDOW_BYTES / flows.max(1),
            folder,
        }
    }

    /// Takes records of a flow; waits while too many of it are here.
    ///
    /// Errors: the file cannot be written.
    pub fn put(&self, lane: usize, records: SharedBytes) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        while !self.is_over() && queue.is_full(lane, self.lane_bytes_max) {
            queue.waits_for_room += 1;
            queue = match self.room.wait_timeout(queue, PATIENCE) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
            queue.waits_for_room -= 1;
        }
        if queue.is_loading && queue.bytes >= LOADING_BYTES_MAX || !queue.stored.is_empty() {
            if queue.file.is_none() {
                let spool = Spool::new(&self.folder).map_err(|fault| io::Error::other(fault.to_string()))?;
                queue.file = Some((spool.1, spool.0));
            }
            if let Some((_, spool)) = &mut queue.file {
                spool.write_all(&records)?;
            }
            queue.stored.push_back((lane, records.len()));
            queue.add(lane, records.len());
        } else {
            queue.bytes += records.len();
            queue.add(lane, records.len());
            queue.records.push_back((lane, records));
        }
        self.wake_link(queue);
        Ok(())
    }

    fn wake_link(&self, mut queue: MutexGuard<'_, InboxQueue>) {
        if std::mem::take(&mut queue.is_awaited) {
            drop(queue);
            self.news.notify_one();
        }
    }

    fn wake_flows(&self, queue: MutexGuard<'_, InboxQueue>) {
        if queue.waits_for_room > 0 {
            drop(queue);
            self.room.notify_all();
        }
    }

    /// Takes the records that came first.
    ///
    /// Errors: the file cannot be read.
    pub fn take(&self) -> io::Result<Option<(usize, SharedBytes)>> {
        let mut queue = lock(&self.queue);
        if let Some((lane, records)) = queue.records.pop_front() {
            queue.bytes -= records.len();
            queue.remove(lane, records.len());
            self.wake_flows(queue);
            return Ok(Some((lane, records)));
        }
        let Some((lane, len)) = queue.stored.pop_front() else { return Ok(None) };
        let mut records = vec![0; len];
        if let Some((file, _)) = &queue.file {
            file.read_exact_at(&mut records, queue.stored_at)?;
        }
        queue.stored_at += len as u64;
        queue.remove(lane, len);
        if queue.stored.is_empty() {
            (queue.file, queue.stored_at) = (None, 0);
        }
        self.wake_flows(queue);
        Ok(Some((lane, records.into())))
    }

    /// Waits for something new, up to `patience`: records, or that more than `committed` is.
    pub fn wait(&self, committed: u64, patience: Duration) {
        let mut queue = lock(&self.queue);
        let is_known = queue.news.committed <= committed && queue.news.failed.is_none();
        if queue.records.is_empty() && queue.stored.is_empty() && is_known {
            queue.is_awaited = true;
            let mut queue = match self.news.wait_timeout(queue, patience) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
            queue.is_awaited = false;
        }
    }

    /// Notes what waits of each lane at the link. A flow that is said to hold much is read no further, so the link calls this
    /// again when it holds little.
    pub fn hold(&self, merger: &Merger) {
        let holds = merger.waiting_bytes() >= UNCOUNTED_BYTES;
        if !holds && !self.holds.load(Relaxed) {
            return;
        }
        self.holds.store(holds, Relaxed);
        let mut queue = lock(&self.queue);
        let held = queue.held.iter_mut().enumerate();
        held.for_each(|(lane, place)| *place = if holds { merger.lane_bytes(lane) } else { 0 });
        self.wake_flows(queue);
    }

    /// A full sync is loaded: records wait until that has ended.
    pub fn begin_loading(&self) {
        lock(&self.queue).is_loading = true;
    }

    /// The full sync is loaded.
    pub fn end_loading(&self) {
        lock(&self.queue).is_loading = false;
    }

    /// What was received besides records.
    pub fn news(&self) -> News {
        lock(&self.queue).news.clone()
    }

    /// Sequences below are committed; 0: the master does not say.
    pub fn committed(&self) -> u64 {
        lock(&self.queue).news.committed
    }

    /// Notes something that was received.
    pub fn note(&self, act: impl FnOnce(&mut News)) {
        let mut queue = lock(&self.queue);
        act(&mut queue.news);
        self.wake_link(queue);
    }

    /// Notes something whose records are put at once: the link is woken for both together.
    pub fn note_before(&self, act: impl FnOnce(&mut News)) {
        act(&mut lock(&self.queue).news);
    }

    /// Notes why a flow has ended, unless another one has before.
    pub fn fail(&self, why: FlowFailure) {
        self.note(|news| {
            news.failed.get_or_insert(why);
        });
    }

    /// Ends the threads that read flows.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.room.notify_all();
    }

    /// Whether nobody wants more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

impl InboxQueue {
    fn add(&mut self, lane: usize, bytes: usize) {
        if let Some(waiting) = self.waiting.get_mut(lane) {
            *waiting += bytes;
        }
    }

    fn remove(&mut self, lane: usize, bytes: usize) {
        if let Some(waiting) = self.waiting.get_mut(lane) {
            *waiting = waiting.saturating_sub(bytes);
        }
    }

    fn is_full(&self, lane: usize, bytes_max: usize) -> bool {
        let of = |bytes: &[usize]| bytes.get(lane).copied().unwrap_or(0);
        !self.is_loading && of(&self.waiting) + of(&self.held) >= bytes_max
    }
}

/// Time between two looks of a thread that waits for room.
const PATIENCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, body_bytes: usize) -> SharedBytes {
        let mut out = Vec::new();
        let draft = darter_persist::journal::record::RecordDraft::begin(&mut out);
        out.resize(out.len() + body_bytes, 7);
        draft.finish(&mut out, sequence, 5);
        out.into()
    }

    fn taken(inbox: &Inbox) -> Option<(usize, u8, usize)> {
        let (lane, records) = inbox.take().expect("a file that can be read")?;
        Some((lane, records.first().copied().unwrap_or(0), records.len()))
    }

    #[test]
    fn what_comes_during_a_load_is_kept_in_order_beyond_memory() {
        let inbox = Inbox::new(2, std::env::temp_dir());
        inbox.begin_loading();
        for n in 0..40_u8 {
            inbox.put(usize::from(n % 2), vec![n; 1 << 20].into()).expect("a file");
        }
        assert!(lock(&inbox.queue).stored.len() >= 8, "not all of it is in memory");
        inbox.end_loading();
        inbox.put(1, vec![40].into()).expect("nothing to write");
        for n in 0..32_u8 {
            assert_eq!(taken(&inbox), Some((usize::from(n % 2), n, 1 << 20)));
        }
        let rest: Vec<u8> = std::iter::from_fn(|| taken(&inbox)).map(|(_, first, _)| first).collect();
        assert_eq!(rest, (32..41).collect::<Vec<u8>>(), "what comes after the load stands behind");
        assert!(taken(&inbox).is_none() && lock(&inbox.queue).file.is_none());
    }

    #[test]
    fn a_flow_of_which_much_waits_is_read_no_further_and_others_are() {
        let inbox = Inbox::new(2, std::env::temp_dir());
        inbox.put(0, vec![0; WINDOW_BYTES / 2].into()).expect("room");
        inbox.put(1, vec![1; 10].into()).expect("room");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| inbox.put(0, vec![2; 10].into()));
            assert_eq!(taken(&inbox), Some((0, 0, WINDOW_BYTES / 2)));
            late.join().expect("no panic").expect("room");
        });
        // The link holds one long record that waits for an older one.
        let mut merger = Merger::new(2, 1);
        merger.push(0, record(2, WINDOW_BYTES / 2));
        inbox.hold(&merger);
        let is_full = |lane| lock(&inbox.queue).is_full(lane, WINDOW_BYTES / 2);
        assert!(is_full(0) && !is_full(1));
        // It has applied that record, and nothing else has come since.
        merger.push(1, record(1, 10));
        merger.drain(|_, _| {}).expect("whole records");
        inbox.hold(&merger);
        assert!(!is_full(0), "what is no longer held holds up nobody");
        inbox.end();
        inbox.put(0, vec![3; 10].into()).expect("it waits for nobody who has gone");
    }
}
