//! The thread of a master: brings the records of all threads into one stream and gives it to replicas.
//!
//! It begins with the first replica and stays. On a replica the stream comes from the master, byte by byte, and the
//! thread only hands it on.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use darter_persist::journal::part;
use darter_persist::journal::record::RecordHead;
use darter_replica::form::Former;
use darter_replica::history::{History, ReplId};
use darter_replica::merge::Merger;
use darter_replica::records::{RecordChunk, Records, StreamNumbers, renumber};
use darter_replica::shared_bytes::SharedBytes;
use darter_replica::stream;

use super::disk::{DiskIndex, StreamPoint};
use super::track::histories;
use super::{Replication, new_id};
use crate::backup::Increment;
use crate::clock::unix_ms;
use crate::journal::intake::{NotedRecords, QUEUE_BYTES_MAX};
use crate::shared::Shared;
use crate::sync::lock;

/// Whether changes were dropped.
type IsLost = bool;

/// The stream that is made here.
pub struct Feeding {
    merger: Merger,
    numbers: StreamNumbers,
    former: Former,
    // Who wants to know the offset before a sequence.
    marks: Vec<(u64, Sender<u64>)>,
    pinged: Instant,
    // The generation and the history of which a place was noted in the journal last.
    noted: Option<(u64, ReplId)>,
    // A mark that has come: what is known of it is to be noted.
    marked: Option<StreamPoint>,
    // The file of a backup that the stream goes to as well.
    increment: Option<Arc<Increment>>,
}

/// Time between two looks at replicas.
const LOOK: Duration = Duration::from_millis(100);
/// The same while a replica is behind, or somebody waits for one.
const LOOK_SOON: Duration = Duration::from_millis(1);
/// Time between two takes while changes come.
const NAP: Duration = Duration::from_micros(100);
/// The same while so much comes in that time that to wake for less is dear.
const LONG_NAP: Duration = Duration::from_micros(400);
const MUCH_BYTES: usize = 32 << 10;
/// Takes from the queue in one go by a thread that serves clients.
const TAKES_AT_ONCE: usize = 16;
/// Threads hand over what they have noted within this time, or are busy with something long.
const SETTLES: Duration = Duration::from_millis(20);
/// Room for the stream's next bytes that is kept.
const BYTES_KEPT_MAX: usize = 1 << 20;

impl Feeding {
    /// The sequence in the stream of one of the journal. What the journal has left out until now is taken first: a number
    /// from behind a jump that is not known yet would be too large.
    fn number_of(&mut self, shared: &Shared, sequence: u64) -> u64 {
        let jumps = shared.journal.intake.take_jumps();
        jumps.into_iter().for_each(|(from, to)| self.numbers.jump(from, to));
        self.numbers.stream_of(sequence)
    }
}

impl Replication {
    /// Begins to make a stream, if that is not done already, and starts the thread. `selected` is the database that the
    /// stream of the master before has selected last. The shards are to tell of changes from then on (`pubsub::listen`).
    pub fn begin_feeding(&self, shared: &'static Shared, selected: usize) {
        {
            let mut feeding = lock(&self.feeding);
            if feeding.is_none() {
                let journal = &shared.journal;
                journal.intake.switch(true);
                let (lanes, end) = (shared.handles.len() + 1, journal.end());
                let mut state = self.state();
                state.has_backlog = true;
                state.is_continuous = true;
                state.alone_since_s = unix_ms() / 1000;
                if selected != 0 {
                    let mut select = Vec::new();
                    stream::write(&mut select, &[b"SELECT", b"0"]);
                    state.backlog.append(&select);
                }
                if !std::mem::replace(&mut state.knows_sequences, true) {
                    state.records = Records::new(end, state.offset());
                }
                state.records.widen(lanes);
                let next = state.records.next();
                let numbers = StreamNumbers::new(end, next);
                if let Some(group) = shared.group.as_ref().filter(|group| group.acks == 0) {
                    // Its stream begins with the first follower, perhaps long after its reign.
                    group.commit.begin(next, &numbers);
                }
                *feeding = Some(Feeding {
                    merger: Merger::new(lanes, next),
                    numbers,
                    former: Former::default(),
                    marks: Vec::new(),
                    pinged: Instant::now(),
                    noted: None,
                    marked: None,
                    increment: None,
                });
            }
        }
        self.start_feeder(shared);
    }

    /// Starts the thread, once.
    pub fn start_feeder(&self, shared: &'static Shared) {
        if self.feeder.swap(true, AcqRel) {
            return;
        }
        let spawned = thread::Builder::new().name("darter-feed".to_owned()).spawn(move || {
            shared.snapshots.roam();
            run(shared);
        });
        if let Err(error) = spawned {
            self.feeder.store(false, Relaxed);
            tracing::error!("replicas get nothing: {error}");
        }
    }

    /// Whether records with smaller sequences than `end` are not in the stream yet.
    pub fn is_feeding_before(&self, end: u64) -> bool {
        let feeding = lock(&self.feeding);
        feeding
            .as_ref()
            .is_some_and(|feeding| feeding.merger.next_sequence() < feeding.numbers.stream_of(end))
    }

    /// Whether a stream is made here.
    pub fn is_feeding(&self) -> bool {
        lock(&self.feeding).is_some()
    }

    /// Makes no stream any more: a master will send one.
    pub fn end_feeding(&self, shared: &Shared) {
        if shared.journal.is_on() {
            // What the journal gets from here on is no part of the stream: a start after a kill is not to count it.
            let fsync = shared.settings.live().persistence.appendfsync;
            shared.journal.note_alone(fsync, |out| {
                part::write_position(out, ReplId::NONE.as_str().as_bytes(), 0, 0);
            });
        }
        {
            let mut feeding = lock(&self.feeding);
            shared.journal.intake.switch(false);
            *feeding = None;
            self.state().disk = DiskIndex::default();
        }
        shared.backup.give_up("this server no longer makes a stream of changes");
    }

    /// Tells `to` the offset of the stream before the record with this sequence, as soon as that is known; false when no
    /// stream is made here.
    pub fn mark(&self, shared: &Shared, sequence: u64, to: Sender<u64>) -> bool {
        let mut feeding = lock(&self.feeding);
        if let Some(feeding) = feeding.as_mut() {
            let sequence = feeding.number_of(shared, sequence);
            feeding.marks.push((sequence, to));
        }
        feeding.is_some()
    }

    /// The sequence of the stream's next record, and the numbers of the stream that is made here.
    pub fn stream_position(&self, shared: &Shared) -> (u64, StreamNumbers) {
        let feeding = lock(&self.feeding);
        let next = self.state().records.next();
        let numbers = feeding.as_ref().map(|feeding| feeding.numbers.clone());
        (next, numbers.unwrap_or_else(|| StreamNumbers::new(shared.journal.end(), next)))
    }

    /// The sequence in the stream of a record of the journal; `None` when no stream is made here.
    pub fn stream_sequence(&self, shared: &Shared, sequence: u64) -> Option<u64> {
        lock(&self.feeding).as_mut().map(|feeding| feeding.number_of(shared, sequence))
    }

    /// Gives a backup the records of the stream, too; false when no stream is made here.
    pub fn feed_too(&self, increment: Arc<Increment>) -> bool {
        let mut feeding = lock(&self.feeding);
        if let Some(feeding) = feeding.as_mut() {
            feeding.increment = Some(increment);
        }
        feeding.is_some()
    }

    /// Gives no backup anything any more.
    pub fn feed_no_backup(&self) {
        if let Some(feeding) = lock(&self.feeding).as_mut() {
            feeding.increment = None;
        }
    }

    /// The data has become another in a way that no record tells: what replicas have is worth nothing.
    pub fn begin_anew(&self, shared: &Shared) {
        let _applying = lock(&self.applying);
        let mut feeding = lock(&self.feeding);
        let mut state = self.state();
        if !state.is_continuous && state.replicas.is_empty() {
            return;
        }
        state.history = History::new(new_id());
        state.is_continuous = feeding.is_some();
        if let Some(feeding) = feeding.as_mut() {
            // In this order: whatever has its place behind the end comes.
            shared.journal.intake.resume();
            let (lanes, end) = (shared.handles.len() + 1, shared.journal.end());
            let next = state.records.next();
            (feeding.merger, feeding.numbers) = (Merger::new(lanes, next), StreamNumbers::new(end, next));
            feeding.marks.clear();
            (feeding.noted, feeding.marked) = (None, None);
            state.disk = DiskIndex::default();
            if feeding.increment.take().is_some() {
                shared.backup.give_up("the data was replaced");
            }
        }
        let offset = state.offset();
        state.restart(offset);
        state.drop_replicas(shared);
    }

    /// More changes came than could be brought into the stream: what is missing cannot be told any more.
    fn begin_anew_after_loss(&self, shared: &Shared) {
        self.counts.lost.fetch_add(1, Relaxed);
        let replicas = self.state().replicas.len();
        tracing::error!(
            "changes came faster than they could be made ready for replicas ({} MiB wait at most): {replicas} \
             replicas get a snapshot",
            QUEUE_BYTES_MAX >> 20
        );
        self.begin_anew(shared);
    }

    /// Brings what was handed over until now into the stream, on whichever thread asks: the offset that is told then counts
    /// every change that was answered.
    pub fn feed_now(&self, shared: &Shared) {
        let mut bytes = Vec::new();
        for _ in 0..TAKES_AT_ONCE {
            if shared.journal.intake.is_empty() {
                // What another thread has taken is in the stream when it lets go.
                drop(lock(&self.feeding));
                break;
            }
            self.feed(shared, &mut bytes);
            // Replicas are to get it.
            shared.journal.intake.poke();
        }
        // While writers wait somebody compares offsets: what other threads are about to hand over is to count.
        let (end, began) = (shared.journal.end(), Instant::now());
        while shared.pause.is_on(unix_ms()) && self.is_feeding_before(end) && began.elapsed() < SETTLES {
            thread::sleep(NAP);
            self.feed(shared, &mut bytes);
            shared.journal.intake.poke();
        }
    }

    /// Takes records into the stream. Returns the sequence that is next, and whether some were lost.
    fn feed(&self, shared: &Shared, bytes: &mut Vec<u8>) -> Option<(u64, IsLost)> {
        let mut feeding = lock(&self.feeding);
        let Feeding { merger, numbers, former, marks, increment, marked, .. } = feeding.as_mut()?;
        let waiting = shared.journal.intake.take(merger.waiting_bytes());
        let mut is_lost = waiting.is_lost;
        waiting.jumps.into_iter().for_each(|(from, to)| numbers.jump(from, to));
        let mut lanes = Vec::with_capacity(waiting.records.len());
        for NotedRecords { slot, mut bytes, mut last } in waiting.records {
            if !numbers.are_those_of_journal() {
                last = renumber(&mut bytes, |sequence| numbers.stream_of(sequence));
            }
            let bytes = SharedBytes::from(bytes);
            merger.push(usize::from(slot), bytes.clone());
            lanes.push((slot, RecordChunk::new(bytes, last)));
        }
        // Bytes of the stream are made only for those who want them.
        let (base, forms) = {
            let mut state = self.state();
            lanes.into_iter().for_each(|(slot, chunk)| state.records.push(slot.into(), chunk));
            (state.offset(), increment.is_some() || state.wants_resp())
        };
        bytes.clear();
        let mut end = base;
        let drained = merger.drain(|head: RecordHead, body| {
            if !marks.is_empty() {
                tell_marks(marks, head.sequence, end);
            }
            if !forms && head.resp_bytes() != 0 {
                // Whoever noted it has counted it, and it is no place.
                end += head.resp_bytes();
                return;
            }
            if part::stream_place(body).is_some_and(|place| place.journal == 0) {
                let journal = numbers.journal_of(head.sequence);
                *marked = Some(StreamPoint { journal, stream: head.sequence, offset: end });
            }
            let before = bytes.len();
            let made = match forms {
                true => former.write(body, head.clock_ms, bytes).map(|()| (bytes.len() - before) as u64),
                false => former.commands(body, head.clock_ms, |_| {}),
            };
            match made {
                Ok(len) => end += len,
                Err(damage) => tracing::error!("a change is not sent to replicas: {damage}"),
            }
            if let Some(increment) = increment {
                let sequence = numbers.journal_of(head.sequence);
                increment.take(sequence, bytes.get(before..).unwrap_or_default());
            }
        });
        if let Err(bad) = drained {
            tracing::error!("the stream of changes cannot go on: {bad}");
            is_lost = true;
        }
        let next = merger.next_sequence();
        tell_marks(marks, next, end);
        if let Some(group) = &shared.group
            && group.commit.note_fed(next, numbers)
        {
            shared.journal.release(shared);
        }
        let next = numbers.journal_of(next);
        {
            let mut state = self.state();
            match forms {
                true => state.backlog.append(bytes),
                false => state.backlog.skip(end - base),
            }
            let stream = merger.next_sequence();
            state.records.settle(stream, end);
            if shared.journal.is_on() && !shared.journal.lacks_base() {
                state.disk.note(StreamPoint { journal: next, stream, offset: end });
            }
        }
        bytes.shrink_to(BYTES_KEPT_MAX);
        Some((next, is_lost))
    }

    /// Notes in the journal where the stream stands, once in each generation of its files and for each history: a start after
    /// a kill goes on there. A mark comes first; what is known of it follows when the stream has come to it.
    fn note_place(&self, shared: &Shared) {
        let journal = &shared.journal;
        let is_whole = || journal.is_on() && !journal.lacks_base() && self.is_journal_whole(shared);
        if shared.snapshots.ending.is_on() || shared.is_stopping.load(Relaxed) || !is_whole() {
            return;
        }
        let (place, texts) = {
            let mut feeding = lock(&self.feeding);
            let Some(feeding) = feeding.as_mut() else { return };
            let mut state = self.state();
            let now = (journal.generation(), state.history.id);
            let marked = feeding.marked.take();
            if marked.is_none() && feeding.noted.replace(now) == Some(now) {
                return;
            }
            state.disk.is_noted = marked.is_some();
            (marked.unwrap_or(StreamPoint { journal: 0, stream: 0, offset: 0 }), histories(&state.history))
        };
        let fsync = shared.settings.live().persistence.appendfsync;
        journal.note_alone(fsync, |out| {
            part::write_stream(out, (place.journal, place.stream), place.offset, &texts);
        });
    }

    /// Sends a ping if it is time, and asks for acknowledgements if somebody waits for them. Both are messages of the journal:
    /// offsets count them, on every node.
    fn add_own(&self, shared: &Shared, ping_s: u64, asks: bool) {
        // The last snapshot is to hold all that replicas hear of, or they need a full sync after the next start.
        if shared.snapshots.ending.is_on() {
            return;
        }
        let (pings, asks) = {
            let mut feeding = lock(&self.feeding);
            let Some(feeding) = feeding.as_mut() else { return };
            let state = self.state();
            if state.replicas.is_empty() {
                return;
            }
            let pings = feeding.pinged.elapsed() >= Duration::from_secs(ping_s);
            if pings {
                feeding.pinged = Instant::now();
            }
            // Replicas of ours tell by themselves.
            (pings, asks && state.has_foreign())
        };
        let fsync = shared.settings.live().persistence.appendfsync;
        if pings {
            shared.journal.note_message(fsync, &[b"PING"]);
        }
        if asks {
            shared.journal.note_message(fsync, &[b"REPLCONF", b"GETACK", b"*"]);
        }
    }
}

fn tell_marks(marks: &mut Vec<(u64, Sender<u64>)>, sequence: u64, offset: u64) {
    marks.retain(|(wanted, to)| {
        let is_due = *wanted <= sequence;
        if is_due {
            // Who wanted to know may have gone.
            let _ = to.send(offset);
        }
        !is_due
    });
}

fn run(shared: &'static Shared) {
    let replication = &shared.replication;
    let (mut patience, mut bytes) = (LOOK, Vec::new());
    let mut looked = Instant::now();
    let (mut has_fed, mut is_much, mut told) = (false, false, 0);
    loop {
        if has_fed && !replication.has_waits() {
            // What comes one by one is taken together, and those who bring it need not wake this thread each time.
            thread::sleep(if is_much { LONG_NAP } else { NAP });
        }
        shared.journal.intake.wait(patience);
        let waiting = shared.journal.intake.bytes();
        (has_fed, is_much) = (waiting > 0, waiting >= MUCH_BYTES);
        let fed = replication.feed(shared, &mut bytes);
        if fed.is_some_and(|(_, is_lost)| is_lost) {
            replication.begin_anew_after_loss(shared);
        }
        let next = fed.map(|(next, _)| next);
        let live = shared.settings.live();
        if next.is_some() {
            replication.note_place(shared);
        }
        let kept_bytes = if next.is_some() { live.replication.backlog_disk_bytes } else { 0 };
        shared.journal.keep_segments(kept_bytes);
        let asks = replication.place_waits(next) | replication.asks_for_acks.swap(false, Relaxed);
        // What comes at the end of the server reaches nobody, and its offset would be nobody's.
        if !shared.snapshots.ending.is_on() && !shared.is_stopping.load(Relaxed) {
            replication.add_own(shared, live.replication.ping_s, asks);
        }
        let mut state = replication.state();
        state.note_time(unix_ms());
        let carried = shared.committed_stream();
        let is_behind = state.distribute(shared);
        if has_fed && !is_behind {
            // Every frame says what is committed: those with records tell all.
            told = told.max(carried);
        }
        state.drop_slow(shared, &live);
        state.trim(live.replication.backlog_bytes);
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            look_after(shared, &mut state);
        }
        if std::mem::replace(&mut told, shared.committed_stream()) != shared.committed_stream() {
            state.beat(shared);
        }
        let is_over = is_over(shared, &state);
        drop(state);
        if is_over {
            forget_backlog(shared);
        }
        let has_waits = replication.answer_waits(shared);
        let is_soon = is_behind || has_waits || is_committing(shared, told);
        patience = if is_soon { LOOK_SOON } else { LOOK };
    }
}

fn look_after(shared: &Shared, state: &mut super::ReplicationState) {
    let now_ms = unix_ms();
    let live = shared.settings.live();
    state.look_after(shared, now_ms);
    if !state.replicas.is_empty() {
        state.alone_since_s = now_ms / 1000;
    }
    shared.replication.count_good(state, live.replication.max_lag_s);
}

/// Returns true if something is not committed yet, or members have not heard that it is.
fn is_committing(shared: &Shared, told: u64) -> bool {
    let committed = shared.committed_stream();
    committed > 0
        && (committed != told || shared.group.as_ref().is_some_and(|group| group.commit.waiting() > 0))
}

/// Whether nobody has followed this master for so long that nobody will come back.
fn is_over(shared: &Shared, state: &super::ReplicationState) -> bool {
    let ttl_s = shared.settings.live().replication.backlog_ttl_s;
    let alone_s = (unix_ms() / 1000).saturating_sub(state.alone_since_s);
    let has_backup = shared.backup.status().stage.is_open();
    state.has_backlog
        && shared.group.is_none()
        && !has_backup
        && ttl_s > 0
        && alone_s > ttl_s
        && state.replicas.is_empty()
        && state.master.is_none()
}

fn forget_backlog(shared: &Shared) {
    let replication = &shared.replication;
    let _applying = lock(&replication.applying);
    if replication.is_replica() {
        return;
    }
    replication.end_feeding(shared);
    let mut state = replication.state();
    state.history = History::new(new_id());
    let offset = state.offset();
    state.restart(offset);
    state.knows_sequences = false;
    state.has_backlog = false;
    state.is_continuous = false;
    tracing::info!("the backlog is freed: no replica was connected for repl-backlog-ttl");
}
