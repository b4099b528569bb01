//! The connection to the target of a migration: keys as commands, and their answers, none of which may be a refusal.
//!
//! The target answers as it answers any client: once the key is as safe there as its own writes are.

use crate::engine::cluster::links;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::SlotMigration;
use darter_replica::stream;
use darter_wire::value::{self, DecodeLimits, Value};

use super::copy::SlotCopy;
use super::pieces::OpenPieces;
use super::{ExportStop, now_s, offers};
use crate::replication::link;
use crate::replication::wire::Wire;
use crate::shared::Shared;

/// See above.
pub struct ImportTarget {
    shared: &'static Shared,
    id: String,
    wire: Wire,
    out: Vec<u8>,
    db: usize,
    // commands that were sent and not answered, and their bytes
    unanswered: usize,
    unanswered_bytes: usize,
    // while commands wait for what is sent
    until: Option<Instant>,
}

/// A key as it is to be at the target.
pub struct SentKey {
    /// Its database.
    pub db: usize,
    /// Its name.
    pub name: Box<[u8]>,
    /// What it is to be.
    pub value: SentValue,
}

/// What a key is to be at the target.
pub enum SentValue {
    /// It is to be missing.
    Missing,
    /// A value as a whole.
    Whole {
        /// As DUMP returns it.
        payload: Vec<u8>,
        /// When it expires, Unix ms; 0: never.
        deadline_ms: u64,
        /// Words of RESTORE for what the payload has no place for.
        marks: Vec<Vec<u8>>,
    },
    /// A value in pieces.
    Pieces(OpenPieces),
}

impl SentValue {
    /// Bytes that were read. One in pieces counts as some, since a shard has few readers at a time.
    pub fn read_bytes(&self) -> usize {
        match self {
            SentValue::Whole { payload, .. } => payload.len(),
            SentValue::Pieces(_) => PIECES_BYTES,
            SentValue::Missing => 0,
        }
    }
}

/// Bytes that a value in pieces counts as.
const PIECES_BYTES: usize = 64 << 10;
/// Bytes that wait for an answer, and bytes that are sent at once.
const UNANSWERED_BYTES_MAX: usize = 4 << 20;
const BATCH_BYTES: usize = 256 << 10;
/// The target answers within this time,
const PATIENCE: Duration = Duration::from_secs(20);
/// and knows of the migration within this one.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// It changes the map within this time; later the source asks the store.
const COMMITS_WITHIN: Duration = Duration::from_secs(2);
/// The same of a migration that a control plane has to push to it.
const CONFIGURED_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

fn known_within(shared: &Shared) -> Duration {
    if offers::are_needed(shared) { CONFIGURED_WITHIN } else { KNOWN_WITHIN }
}

impl ImportTarget {
    /// Connects and logs in as to a master. Errors: the target cannot be reached, or refuses.
    pub fn connect(shared: &'static Shared, one: &SlotMigration) -> Result<ImportTarget, ExportStop> {
        let map = shared.cluster.map();
        let live = shared.settings.live();
        let (host, port) = one.place(&map, links::of_nodes(&live)).ok_or("the target is not in the map")?;
        let failed =
            |error: io::Error| ExportStop::Passing(format!("{host}:{port} cannot be reached: {error}"));
        let wire = Wire::to_node(host, port, &live.tls).map_err(failed)?;
        let (id, out) = (one.id.clone(), Vec::new());
        let mut target =
            ImportTarget { shared, id, wire, out, db: 0, unanswered: 0, unanswered_bytes: 0, until: None };
        target.out = link::login_request(&live);
        if !target.out.is_empty() {
            (target.unanswered, target.unanswered_bytes) = (1, target.out.len());
            target.flush()?;
        }
        Ok(target)
    }

    /// Says which migration it is, in which attempt. Errors: the target does not take the keys.
    pub fn introduce(&mut self, one: &SlotMigration) -> Result<(), ExportStop> {
        let began = Instant::now();
        loop {
            if offers::are_needed(self.shared) {
                self.push_take(one);
            }
            self.push(&[b"DARTER", b"IMPORT", one.id.as_bytes(), one.attempt.to_string().as_bytes()]);
            match self.flush() {
                Err(ExportStop::Passing(why))
                    if why.contains("TRYAGAIN") && began.elapsed() < known_within(self.shared) =>
                {
                    if self.shared.cluster.map().migration(&one.id).is_none_or(|found| !found.is_active()) {
                        return Err(ExportStop::Ended);
                    }
                    self.read_refused()?;
                    thread::sleep(LOOK);
                }
                done => return done,
            }
        }
    }

    /// Says at a target with a map of its own which attempt of the migration begins.
    fn push_take(&mut self, one: &SlotMigration) {
        let (attempt, slots) = (one.attempt.to_string(), &one.slots);
        let numbers = slots.iter().flat_map(|range| [range.start.to_string(), range.end.to_string()]);
        let numbers: Vec<String> = numbers.collect();
        let mut words: Vec<&[u8]> = vec![b"DARTER", b"TAKE", one.source.as_bytes(), one.id.as_bytes()];
        words.extend([attempt.as_bytes(), one.runner.as_bytes()]);
        words.extend(numbers.iter().map(String::as_bytes));
        self.push(&words);
    }

    /// Reads what is left of answers that may be refusals.
    fn read_refused(&mut self) -> Result<(), ExportStop> {
        while self.unanswered > 0 {
            match self.read(0) {
                Err(ExportStop::Passing(why)) if why.contains("TRYAGAIN") => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Sends a key, sooner or later. Errors: an earlier one was refused, or the connection is broken.
    pub fn send(&mut self, copying: &SlotCopy, key: &SentKey) -> Result<(), ExportStop> {
        match &key.value {
            SentValue::Missing => self.command(key.db, &[b"DEL", &key.name]),
            SentValue::Pieces(pieces) => pieces.send(copying, self, (key.db, &key.name)),
            SentValue::Whole { payload, deadline_ms, marks } => {
                let deadline = deadline_ms.to_string();
                let mut words: Vec<&[u8]> =
                    vec![b"RESTORE", &key.name, deadline.as_bytes(), payload, b"REPLACE", b"ABSTTL"];
                words.extend(marks.iter().map(Vec::as_slice));
                self.command(key.db, &words)
            }
        }
    }

    /// Sends a command about a key in a database, sooner or later. Errors: the same.
    pub fn command(&mut self, db: usize, words: &[&[u8]]) -> Result<(), ExportStop> {
        if self.db != db {
            self.db = db;
            self.push(&[b"SELECT", db.to_string().as_bytes()]);
        }
        self.push(words);
        if self.out.len() >= BATCH_BYTES {
            self.write()?;
        }
        self.wait_for_room(UNANSWERED_BYTES_MAX)
    }

    /// Waits until the commands without an answer have at most this many bytes. The target runs all that it has received before
    /// it serves another client. Errors: the same.
    pub fn wait_for_room(&mut self, unanswered_bytes_max: usize) -> Result<(), ExportStop> {
        while self.unanswered_bytes > unanswered_bytes_max {
            self.read(self.unanswered / 2)?;
        }
        Ok(())
    }

    /// Gives the target until `until` for all that is sent from now on.
    pub fn must_answer_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Has the process that has the keys make the slots its own; it serves them then. `pause_ms`: for which writers have waited;
    /// `keys`: those of the slots.
    ///
    /// Errors: it has not said that it did, whatever it does.
    pub fn commit(&mut self, pause_ms: u64, keys: u64) -> Result<(), ExportStop> {
        self.until = Some(Instant::now() + COMMITS_WITHIN);
        let (pause_ms, keys) = (pause_ms.to_string(), keys.to_string());
        self.push(&[b"DARTER", b"COMMIT", pause_ms.as_bytes(), keys.as_bytes()]);
        self.flush()
    }

    /// Sends what is left, and waits until all is answered.
    pub fn flush(&mut self) -> Result<(), ExportStop> {
        self.write()?;
        self.read(0)
    }

    fn push(&mut self, words: &[&[u8]]) {
        let before = self.out.len();
        stream::write(&mut self.out, words);
        self.unanswered += 1;
        self.unanswered_bytes += self.out.len() - before;
    }

    fn write(&mut self) -> Result<(), ExportStop> {
        let sent = self.wire.send(&self.out);
        let (outgoing, bytes) = (&self.shared.cluster.outgoing, self.out.len() as u64);
        outgoing.sent_bytes.fetch_add(bytes, Relaxed);
        outgoing.note(&self.id, |progress| progress.sent_bytes += bytes);
        self.out.clear();
        sent.map_err(broken)
    }

    /// Reads answers until at most `left` are missing.
    fn read(&mut self, left: usize) -> Result<(), ExportStop> {
        if !self.out.is_empty() {
            self.write()?;
        }
        let mut heard = Instant::now();
        while self.unanswered > left {
            // What follows a value answers in any form.
            let answer = value::decode(self.wire.received(), &DecodeLimits::default());
            let answer =
                answer.map_err(|_| ExportStop::Passing("the target answers with no reply".to_owned()))?;
            let Some((answer, len)) = answer else {
                if self.wire.fill().map_err(broken)? > 0 {
                    heard = Instant::now();
                } else if heard.elapsed() > PATIENCE || self.until.is_some_and(|until| Instant::now() > until)
                {
                    return Err(ExportStop::Passing("the target does not answer".to_owned()));
                }
                continue;
            };
            self.wire.use_up(len);
            self.unanswered_bytes -= self.unanswered_bytes / self.unanswered;
            self.unanswered -= 1;
            if let Value::Error(line) = answer {
                return Err(refusal(&String::from_utf8_lossy(&line)));
            }
        }
        self.shared.cluster.outgoing.note(&self.id, |progress| progress.heard_s = now_s());
        Ok(())
    }
}

fn broken(error: io::Error) -> ExportStop {
    ExportStop::Passing(format!("the connection to the target is broken: {error}"))
}

/// What a refusal of the target comes to.
fn refusal(line: &str) -> ExportStop {
    let why = format!("the target refuses: {line}");
    if PASSING.iter().any(|code| line.contains(code)) {
        ExportStop::Passing(why)
    } else {
        ExportStop::Failed(why)
    }
}

/// Codes of refusals by a target that loads, or that does not know the map yet, or the store.
const PASSING: [&str; 6] = ["TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "BUSY"];
