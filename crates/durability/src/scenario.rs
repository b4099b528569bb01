//! A process that writes a journal, for tests: the real writer over simulated files, without threads.

use std::cell::Cell;
use std::path::Path;

use darter_base::rng::Rng;
use darter_persist::journal::folder;
use darter_persist::journal::part::{self, Parts, RecordPart};

use super::log::ThreadLog;
use super::*;
use crate::base::ReadBack;
use crate::crash::files::FOLDER;
use crate::crash::machine::Machine;

/// Threads of a process.
pub const THREADS: u16 = 3;

/// A process that writes a journal.
pub struct ScenarioWriting {
    pub journal: Journal<Machine>,
    pub logs: Vec<ThreadLog<Machine>>,
    /// What a start would have to find, with sequences.
    pub words: Vec<(u64, Vec<u8>)>,
}

/// A host of a journal with one setting, on which nobody waits.
pub struct QuietHost {
    pub fsync: Fsync,
    /// What the members of a group have acknowledged: everything below this sequence. `None`: there is no group.
    pub committed: Option<Cell<u64>>,
}

impl JournalHost for QuietHost {
    fn fsync(&self) -> Fsync {
        self.fsync
    }

    fn rests(&self) -> bool {
        false
    }

    fn wake(&self, _: usize) {}

    fn wake_cron(&self) {}

    fn answer_waiting(&self) {}

    fn has_waiting(&self) -> bool {
        false
    }

    fn committed_before(&self) -> Option<u64> {
        self.committed.as_ref().map(Cell::get)
    }

    fn has_base(&self) {}
}

impl ScenarioWriting {
    /// Starts a process on an empty journal whose manifest names these gaps. Its threads have rings if the files keep their
    /// blocks.
    pub fn fresh(files: &Machine, gaps: Vec<(u64, u64)>) -> ScenarioWriting {
        let dir = Path::new(FOLDER);
        let segments = Some(Vec::new());
        let first = Manifest { generation: 1, sequence: 1, segments, gaps, ..Manifest::default() };
        files.create_dir(dir).and_then(|()| first.store(files, dir)).expect("room");
        ScenarioWriting::start(files, dir).0
    }

    /// A process that goes on with what is in `dir`, and whether that was sound.
    pub fn start(files: &Machine, dir: &Path) -> (ScenarioWriting, bool) {
        let mut journal = folder::open(files, dir).expect("readable").expect("a journal");
        let mut words = Vec::new();
        while let Some((head, body)) = journal.next_record().expect("readable") {
            words.push((head.sequence, word_of(body)));
        }
        let generation = journal.generation_max + 1;
        let base_generation = journal.manifest.generation;
        let ending = journal.end().expect("readable");
        let journal = Journal::new(files.clone(), usize::from(THREADS));
        let read_back = ReadBack { generation, base_generation, bytes: 0, base_bytes: 0 };
        let aside = journal.go_on_from(dir, read_back, Fsync::EverySecond, &ending).expect("writable");
        journal.set_on();
        assert!(aside.is_empty() || !ending.is_sound());
        let logs = (0..THREADS).map(ThreadLog::new).collect();
        (ScenarioWriting { journal, logs, words }, ending.is_sound())
    }

    /// Begins a generation whose segments are made now.
    pub fn begin(&mut self, generation: u64) {
        self.journal.make_ahead(generation, Fsync::EverySecond).expect("room");
        self.journal.generation.store(generation, Ordering::SeqCst);
        self.journal.is_on.store(true, Ordering::SeqCst);
    }

    /// Records of all threads, some of them long; windows are moved now and then, and synced.
    pub fn write(&mut self, records: usize, rng: &mut Rng) {
        for _ in 0..records {
            self.write_quietly(1, rng);
            let thread = rng.below(u64::from(THREADS)) as usize;
            match rng.below(60) {
                0 => self.journal.move_windows(),
                1 => self.journal.sync_all(),
                2 => self.logs[thread].end_turn(&self.journal),
                _ => {}
            }
        }
    }

    /// The same, and nothing is moved or synced unless a ring is full.
    pub fn write_quietly(&mut self, records: usize, rng: &mut Rng) {
        for _ in 0..records {
            let thread = rng.below(u64::from(THREADS)) as usize;
            let word =
                format!("word{}:{}", rng.below(1 << 40), "x".repeat(rng.below(900) as usize)).into_bytes();
            let sequence = self.journal.end();
            self.logs[thread].append(&self.journal, 7, |out| {
                part::write_command(out, 0, 2, [b"set".as_slice(), &word].into_iter());
            });
            self.words.push((sequence, word));
        }
    }

    /// The same by threads that are still there.
    pub fn write_but(&mut self, dead: &[usize], records: usize, rng: &mut Rng) {
        for n in 0..records {
            let thread = (0..usize::from(THREADS)).filter(|thread| !dead.contains(thread)).cycle().nth(n);
            let thread = thread.expect("one is left");
            let (word, sequence) = (format!("late{}", rng.below(1 << 40)).into_bytes(), self.journal.end());
            self.logs[thread].append(&self.journal, 7, |out| {
                part::write_command(out, 0, 2, [b"set".as_slice(), &word].into_iter());
            });
            self.words.push((sequence, word));
        }
    }
}

/// The second word of the command in a record.
pub fn word_of(body: &[u8]) -> Vec<u8> {
    let Ok(Some(RecordPart::Command { args, .. })) = Parts::new(body).try_next() else { panic!("a command") };
    args.iter().nth(1).expect("a word").to_vec()
}
