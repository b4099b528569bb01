//! Records on their way to replicas: each thread hands over what it has noted, a thread of replication takes it.
//!
//! What waits here is bounded, and no command waits for room with a shard held: where more comes than is taken, all of it
//! is dropped, and so is what comes until [`Intake::resume`]. The stream has lost its thread then, and replication begins a
//! new one. That it does not come to that where processors are scarce, a thread rests for a moment at the end of a turn
//! while half of the room is taken, and for longer while three quarters are ([`Intake::rest`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::lock;

/// Where threads hand records over. Nothing is kept while it is off.
#[derive(Debug)]
pub struct Intake {
    is_on: AtomicBool,
    queue: Mutex<IntakeQueue>,
    wake: Condvar,
    room: Condvar,
    bytes_max: usize,
}

/// What was handed over and not taken.
#[derive(Debug, Default)]
struct IntakeQueue {
    waiting: WaitingRecords,
    // bytes of `waiting.records`
    bytes: usize,
    // bytes taken that wait elsewhere for older records
    held_bytes: usize,
    is_lost: bool,
    is_poked: bool,
    // who waits: a condition variable makes a system call for nobody, too
    takers: u32,
    resting: u32,
}

/// Records of a thread, one behind the other.
#[derive(Debug)]
pub struct NotedRecords {
    /// The thread's slot.
    pub slot: u16,
    /// The records.
    pub bytes: Vec<u8>,
    /// Sequence of the last.
    pub last: u64,
}

/// Records that are taken at once.
#[derive(Debug, Default)]
pub struct WaitingRecords {
    /// Records, those of a thread in their order.
    pub records: VecDeque<NotedRecords>,
    /// Sequences that nobody is given: from, to.
    pub jumps: Vec<(u64, u64)>,
    /// More came than was taken, and it was dropped.
    pub is_lost: bool,
}

/// Bytes that wait at most, but for the piece that goes beyond it.
pub const QUEUE_BYTES_MAX: usize = 48 << 20;
/// A thread that has brought more than is taken rests for no longer.
const REST_MAX: Duration = Duration::from_millis(10);
/// The same while three quarters of the room are taken: the taker has had no processor for a while, and what is lost by going on
/// costs all replicas a full sync.
const LONG_REST_MAX: Duration = Duration::from_millis(250);
/// Bytes taken at once, but for the piece that goes beyond it.
const TAKEN_BYTES_MAX: usize = 4 << 20;

impl IntakeQueue {
    /// Forgets all but who waits; returns what waited.
    fn empty(&mut self) -> WaitingRecords {
        let IntakeQueue { takers, resting, .. } = *self;
        std::mem::replace(self, IntakeQueue { takers, resting, ..IntakeQueue::default() }).waiting
    }

    fn taken_room(&self) -> usize {
        self.bytes + self.held_bytes
    }

    fn is_empty(&self) -> bool {
        self.waiting.records.is_empty() && self.waiting.jumps.is_empty()
    }
}

impl Default for Intake {
    fn default() -> Intake {
        Intake::bounded(QUEUE_BYTES_MAX)
    }
}

impl Intake {
    fn bounded(bytes_max: usize) -> Intake {
        Intake {
            is_on: AtomicBool::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            room: Condvar::new(),
            bytes_max,
        }
    }

    /// Returns true if a consumer takes records.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// Begins to take records, or ends it; what waits is dropped.
    pub fn switch(&self, on: bool) {
        let mut queue = lock(&self.queue);
        let old = queue.empty();
        self.is_on.store(on, SeqCst);
        drop(queue);
        drop(old);
    }

    /// Takes records again after some were lost; those that are noted from now on come.
    pub fn resume(&self) {
        let old = lock(&self.queue).empty();
        drop(old);
    }

    /// Hands over records of a thread; returns whether the thread should rest before it brings more.
    pub fn give(&self, records: NotedRecords) -> bool {
        let mut queue = lock(&self.queue);
        if !self.is_on() || queue.is_lost {
            return false;
        }
        let mut dropped = None;
        if queue.taken_room() >= self.bytes_max {
            dropped = Some(std::mem::take(&mut queue.waiting));
            (queue.bytes, queue.is_lost) = (0, true);
        } else {
            queue.bytes += records.bytes.capacity();
            queue.waiting.records.push_back(records);
        }
        let is_full = self.is_full(&queue);
        self.wake_taker(queue);
        drop(dropped);
        is_full
    }

    /// Waits until half of the room is free, for 10 ms at most, or 250 ms if it is nearly full. The caller holds no shard.
    pub fn rest(&self) {
        let mut queue = lock(&self.queue);
        queue.resting += 1;
        let is_full = |queue: &mut IntakeQueue| !queue.is_lost && self.is_full(queue);
        let rest_max = if queue.taken_room() > self.bytes_max / 4 * 3 { LONG_REST_MAX } else { REST_MAX };
        let waited = self.room.wait_timeout_while(queue, rest_max, is_full);
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.resting -= 1;
    }

    fn wake_taker(&self, queue: MutexGuard<'_, IntakeQueue>) {
        let waits = queue.takers > 0;
        drop(queue);
        if waits {
            self.wake.notify_one();
        }
    }

    fn is_full(&self, queue: &IntakeQueue) -> bool {
        queue.taken_room() > self.bytes_max / 2
    }

    /// Notes that nobody is given a sequence in `from..to`. `make` moves the counter and returns both: no record from behind
    /// the jump can be taken before the jump is known.
    pub fn jump(&self, make: impl FnOnce() -> (u64, u64)) {
        let mut queue = lock(&self.queue);
        let (from, to) = make();
        if self.is_on() && !queue.is_lost && from < to {
            queue.waiting.jumps.push((from, to));
        }
    }

    /// Takes the jumps that are not known yet, without any record.
    pub fn take_jumps(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut lock(&self.queue).waiting.jumps)
    }

    /// Wakes who waits: something else has happened.
    pub fn poke(&self) {
        let mut queue = lock(&self.queue);
        queue.is_poked = true;
        self.wake_taker(queue);
    }

    /// Bytes that wait here.
    pub fn bytes(&self) -> usize {
        lock(&self.queue).bytes
    }

    /// Waits until something was handed over or somebody has poked, for up to `patience`.
    pub fn wait(&self, patience: Duration) {
        let is_idle = |queue: &mut IntakeQueue| queue.is_empty() && !queue.is_poked && !queue.is_lost;
        let mut queue = lock(&self.queue);
        queue.takers += 1;
        let waited = self.wake.wait_timeout_while(queue, patience, is_idle);
        let mut queue = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        queue.takers -= 1;
        queue.is_poked = false;
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// Takes some of what was handed over. `held_bytes` were taken before and wait for older records; they count. Who
    /// takes has to bring it into the stream before anybody else takes more.
    pub fn take(&self, held_bytes: usize) -> WaitingRecords {
        let mut queue = lock(&self.queue);
        queue.held_bytes = held_bytes;
        let mut taken = WaitingRecords {
            jumps: std::mem::take(&mut queue.waiting.jumps),
            is_lost: queue.is_lost,
            ..WaitingRecords::default()
        };
        let mut taken_bytes = 0;
        while taken_bytes < TAKEN_BYTES_MAX {
            let Some(records) = queue.waiting.records.pop_front() else { break };
            taken_bytes += records.bytes.capacity();
            taken.records.push_back(records);
        }
        queue.bytes -= taken_bytes.min(queue.bytes);
        if queue.resting > 0 && !self.is_full(&queue) {
            self.room.notify_all();
        }
        // They are in memory still while they are formed.
        queue.held_bytes += taken_bytes;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(slot: u16, bytes: usize) -> NotedRecords {
        NotedRecords { slot, bytes: vec![7; bytes], last: 1 }
    }

    fn filled(pieces: usize) -> Intake {
        let intake = Intake::bounded(1000);
        intake.switch(true);
        for _ in 0..pieces {
            intake.give(some(3, 100));
        }
        intake
    }

    #[test]
    fn what_waits_is_bounded_and_lost_as_a_whole() {
        let intake = filled(10);
        assert_eq!(intake.bytes(), 1000);
        intake.give(some(3, 100));
        intake.jump(|| (1, 2));
        assert_eq!(intake.bytes(), 0, "nothing of a stream with a hole is of use");
        let taken = intake.take(0);
        assert!(taken.is_lost && taken.records.is_empty() && taken.jumps.is_empty());
        intake.give(some(3, 100));
        assert!(intake.take(0).is_lost, "until somebody begins anew");
        intake.resume();
        intake.give(some(4, 100));
        let taken = intake.take(0);
        assert_eq!((taken.is_lost, taken.records.len(), intake.bytes()), (false, 1, 0));
    }

    #[test]
    fn what_waits_for_older_records_counts() {
        let intake = filled(5);
        assert_eq!(intake.take(600).records.len(), 5);
        intake.give(some(3, 100));
        assert!(intake.take(1000).is_lost, "taken pieces count until the next look");
        intake.resume();
        intake.give(some(3, 100));
        assert_eq!(intake.take(0).records.len(), 1);
    }

    #[test]
    fn one_large_piece_is_no_reason_to_lose_anything() {
        let intake = filled(9);
        intake.give(some(3, 1_000_000));
        assert_eq!(intake.take(0).records.len(), 10);
    }

    #[test]
    fn who_brings_more_than_is_taken_rests_for_a_moment() {
        let intake = filled(5);
        intake.rest();
        assert!(intake.give(some(3, 100)), "half of the room is taken");
        // Nobody takes anything: it goes on all the same.
        intake.rest();
        std::thread::scope(|scope| {
            scope.spawn(|| intake.rest());
            intake.take(0);
        });
        intake.take(0);
        assert!(!intake.give(some(3, 100)));
    }

    #[test]
    fn who_brings_more_rests_for_longer_when_the_room_is_nearly_full() {
        let intake = filled(8);
        let began = std::time::Instant::now();
        intake.rest();
        assert!(began.elapsed() >= LONG_REST_MAX, "nobody takes anything");
    }

    #[test]
    fn a_jump_is_known_before_any_record_behind_it() {
        let intake = filled(0);
        intake.jump(|| {
            // A thread takes a sequence behind the jump and hands its record over.
            std::thread::scope(|scope| {
                let giving = scope.spawn(|| intake.queue.try_lock().is_err());
                assert!(giving.join().expect("no panic"), "the record waits for the jump");
            });
            (5, 9)
        });
        intake.give(some(3, 100));
        assert_eq!(intake.take_jumps(), [(5, 9)]);
        let taken = intake.take(0);
        assert_eq!((taken.jumps.len(), taken.records.len()), (0, 1), "told once");
    }

    #[test]
    fn nothing_is_kept_while_it_is_off() {
        let intake = filled(3);
        intake.switch(false);
        intake.give(some(3, 100));
        assert_eq!((intake.bytes(), intake.take(0).records.len()), (0, 0));
    }
}
