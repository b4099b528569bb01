//! A process on the simulated machine: the real writer with threads that write, answer, sync, take bases and switch, and the
//! real reader at its start.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use darter_base::crc::crc32c;
use darter_persist::files::Files;
use darter_persist::journal::folder;
use darter_persist::journal::manifest::Manifest;
use darter_persist::journal::part::{self, Parts, RecordPart};
use darter_persist::storage::{Local, StorageDirectory};

use super::files::FOLDER;
use super::machine::{Machine, Mutant, lock, wait, with_sequences};
use super::world::{FoundAtStart, World};
use crate::base::{self, BaseCut, Claimed, ReadBack};
use crate::log::{HeldFor, HeldLog, ThreadLog};
use crate::{Fsync, Journal, JournalHost};

pub const KEYS: usize = 6;

/// What a process is to do.
#[derive(Clone, Debug)]
pub struct ProcessPlan {
    pub threads: usize,
    pub fsync: Fsync,
    /// Turns of each thread.
    pub turns: u64,
    /// Bases are taken,
    pub takes_bases: bool,
    /// the journal is switched off and on,
    pub switches: bool,
    /// the setting of syncs changes,
    pub changes_fsync: bool,
    /// the disk is full now and then,
    pub fills_disk: bool,
    /// syncs fail now and then.
    pub fails_syncs: bool,
    /// Long records are written.
    pub is_long: bool,
}

/// A process that serves.
pub struct Process {
    machine: Machine,
    journal: Journal<Machine>,
    world: Arc<Mutex<World>>,
    plan: ProcessPlan,
    fsync: Mutex<Fsync>,
    keys: Vec<Mutex<()>>,
    /// Bases to be written.
    bases: Mutex<VecDeque<Base>>,
    has_ended: AtomicBool,
}

struct Base {
    generation: u64,
    cut: BaseCut,
    ids: Vec<usize>,
}

/// How a start ended.
pub enum Started {
    Serves(Box<Process>),
    /// The disk would not do what was needed: another attempt is made.
    Failed(String),
}

fn dir() -> PathBuf {
    PathBuf::from(FOLDER)
}

fn base_bytes(ids: &[usize]) -> Vec<u8> {
    let mut bytes: Vec<u8> = ids.iter().flat_map(|id| (*id as u32).to_le_bytes()).collect();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

fn read_base(bytes: &[u8]) -> Option<Vec<usize>> {
    let (ids, crc) = bytes.split_last_chunk::<4>()?;
    let (ids, rest) = ids.as_chunks::<4>();
    let is_whole = rest.is_empty() && crc32c(ids.as_flattened()).to_le_bytes() == *crc;
    is_whole.then(|| ids.iter().map(|id| u32::from_le_bytes(*id) as usize).collect())
}

/// The number of the change that a record tells.
fn id_of(body: &[u8]) -> Option<usize> {
    let Ok(Some(RecordPart::Command { args, .. })) = Parts::new(body).try_next() else { return None };
    std::str::from_utf8(args.iter().nth(1)?).ok()?.split(':').next()?.parse().ok()
}

impl Process {
    /// Starts a process as `rewrite::start` of the server does.
    ///
    /// Errors: what was found is not what was promised, or a start is refused.
    pub fn start(
        machine: &Machine,
        world: &Arc<Mutex<World>>,
        plan: &ProcessPlan,
    ) -> Result<Started, String> {
        let dir = dir();
        let refused = |why: String| format!("a start is refused: {why}");
        let opened = folder::open(machine, &dir).map_err(|fault| refused(fault.to_string()))?;
        let journal = Journal::new(machine.clone(), plan.threads);
        let Some(mut files) = opened else {
            let found = FoundAtStart { is_sound: true, next: 1, ..FoundAtStart::default() };
            lock(world).check(&found)?;
            let begun = base::set_orphans_aside(machine, &dir)
                .and_then(|_| base::free_generation(machine, &dir))
                .and_then(|generation| {
                    let manifest = Manifest { generation, sequence: 1, ..Manifest::default() };
                    journal.begin_new(&dir, plan.fsync, manifest)
                });
            return match begun {
                Ok(()) => Ok(Process::serve(machine, world, plan, journal, &found)),
                Err(error) => Ok(Started::Failed(error.to_string())),
            };
        };
        let mut found = FoundAtStart { first: files.manifest.sequence, ..FoundAtStart::default() };
        if let Some(name) = &files.manifest.base {
            let bytes = machine.read(&dir.join(name)).map_err(|error| refused(format!("{name}: {error}")))?;
            found.base = read_base(&bytes).ok_or_else(|| refused(format!("{name} is damaged")))?;
        }
        while let Some((head, body)) = files.next_record().map_err(|error| refused(error.to_string()))? {
            let id = id_of(body).ok_or_else(|| format!("record {} makes no sense", head.sequence))?;
            found.records.push((head.sequence, id));
        }
        let (generation, base_generation) = (files.generation_max + 1, files.manifest.generation);
        let bytes = files.bytes;
        let ending = files.end().map_err(|error| refused(error.to_string()))?;
        (found.next, found.is_sound) = (ending.sequence, ending.is_sound());
        found.named = format!("{:?} {:?}", ending.broken, ending.torn);
        {
            let mut world = lock(world);
            world.check(&found)?;
            let read = found.base.iter().copied().chain(found.records.iter().map(|(_, id)| *id)).collect();
            world.pinned = Some(read);
        }
        let read_back = ReadBack { generation, base_generation, bytes, base_bytes: 0 };
        match journal.go_on_from(&dir, read_back, plan.fsync, &ending) {
            Ok(_) => Ok(Process::serve(machine, world, plan, journal, &found)),
            Err(error) => Ok(Started::Failed(error.to_string())),
        }
    }

    fn serve(
        machine: &Machine,
        world: &Arc<Mutex<World>>,
        plan: &ProcessPlan,
        journal: Journal<Machine>,
        found: &FoundAtStart,
    ) -> Started {
        journal.set_on();
        lock(world).go_on(found);
        Started::Serves(Box::new(Process {
            machine: machine.clone(),
            journal,
            world: world.clone(),
            fsync: Mutex::new(plan.fsync),
            plan: plan.clone(),
            keys: (0..KEYS).map(|_| Mutex::default()).collect(),
            bases: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// All that its threads do until it ends by itself.
    pub fn threads(&self) -> Vec<Box<dyn FnOnce() + Send + '_>> {
        let writers = (0..self.plan.threads).map(|thread| -> Box<dyn FnOnce() + Send + '_> {
            Box::new(move || ServingThread::new(self, thread as u16).run())
        });
        let others: [Box<dyn FnOnce() + Send + '_>; 3] =
            [Box::new(|| self.sync()), Box::new(|| self.keep()), Box::new(|| self.write_bases())];
        writers.chain(others).collect()
    }

    /// The first sequence that may be in memory alone because the disk was full: a kill loses what comes from there on.
    pub fn stuck_from(&self) -> u64 {
        let slots = self.journal.slots.iter().map(|slot| slot.unwritten.load(SeqCst));
        if self.machine.state().was_full { slots.fold(u64::MAX, u64::min) } else { u64::MAX }
    }

    /// What a clean stop does when the threads have ended.
    pub fn stop(&self) {
        self.journal.end_last();
    }

    fn chance(&self, of: u64) -> bool {
        self.machine.below(of) == 0
    }

    fn note_safe(&self) {
        let mut world = lock(&self.world);
        if self.journal.is_on() && !self.journal.lacks_base() && world.is_whole {
            world.safe_before = world.safe_before.max(self.journal.durable_before());
        }
    }

    /// The journal's thread.
    fn sync(&self) {
        while !self.has_ended.load(SeqCst) {
            let mut wishes = self.journal.do_chores(self, lock(&self.journal.wishes));
            wishes.now |= self.chance(6);
            if wishes.now || self.chance(4) {
                self.journal.sync_as_asked(self, wishes);
                self.note_safe();
            } else {
                drop(wishes);
            }
            wait();
        }
    }

    /// The thread that begins bases and sees to the settings.
    fn keep(&self) {
        for _ in 0..self.plan.turns {
            let plan = &self.plan;
            match self.machine.below(12) {
                0 | 1 if plan.takes_bases => self.begin_base(),
                2 if plan.switches => self.switch(),
                3 if plan.changes_fsync => {
                    let all = [Fsync::Always, Fsync::EverySecond, Fsync::No];
                    *lock(&self.fsync) = all[self.machine.below(3) as usize];
                    lock(&self.world).is_ringed = false;
                }
                4 if plan.fills_disk => {
                    let mut state = self.machine.state();
                    let room = if state.rng.below(3) == 0 { usize::MAX / 2 } else { 0 };
                    state.disk.room = room + state.rng.below(40_000) as usize;
                    lock(&self.world).is_ringed = false;
                }
                5 if plan.fails_syncs => {
                    self.machine.state().failing_syncs = 1;
                    lock(&self.world).is_ringed = false;
                }
                6 => self.note_foreign(),
                _ => {}
            }
            if self.journal.has_made_segments() {
                let _switch = self.journal.switching();
                if let Some(generation) = self.journal.take_awaited() {
                    self.cut(generation);
                }
            }
            wait();
        }
        self.has_ended.store(true, SeqCst);
        self.machine.state().disk.room = usize::MAX / 2;
    }

    fn begin_base(&self) {
        let _switch = self.journal.switching();
        if let Claimed::Now(generation) = self.journal.claim_base() {
            self.cut(generation);
        }
    }

    /// Takes a base's cut, with all shards held.
    fn cut(&self, generation: u64) {
        let _shards: Vec<_> = self.keys.iter().map(lock).collect();
        let cut = BaseCut::default();
        self.journal.cut(generation, self.machine.clock_ms(), &cut);
        let world = lock(&self.world);
        let is_there = |id: &usize| {
            let change = &world.changes[*id];
            change.is_alive && !change.is_void && change.is_done
        };
        let ids = (0..world.changes.len()).filter(is_there).collect();
        drop(world);
        lock(&self.bases).push_back(Base { generation, cut, ids });
    }

    /// The thread that writes bases.
    fn write_bases(&self) {
        while !self.has_ended.load(SeqCst) {
            let base = lock(&self.bases).pop_front();
            if let Some(base) = base {
                self.write_base(&base);
            }
            wait();
        }
    }

    fn write_base(&self, Base { generation, cut, ids }: &Base) {
        let name = folder::base_name(*generation, "darter");
        let bytes = base_bytes(ids);
        let folder = Local::of(self.machine.clone(), dir());
        let written = folder.create(&name).and_then(|mut file| {
            file.write_all(&bytes)
                .map_err(|error| darter_persist::storage::StorageFault::new(name.clone(), error))?;
            file.finish()
        });
        let written =
            written.map(|()| (name.as_str(), bytes.len() as u64)).map_err(|fault| fault.to_string());
        let epoch = lock(&self.world).epoch;
        if self.journal.adopt_base(*generation, cut, written, self) == Ok(true) {
            let mut world = lock(&self.world);
            world.adopt(ids);
            if world.epoch == epoch && self.journal.is_on() {
                world.is_whole = true;
            }
        }
    }

    fn switch(&self) {
        let _switch = self.journal.switching();
        let mut world = lock(&self.world);
        if self.journal.is_on() {
            self.journal.switch_off();
            world.switch();
        } else {
            drop(world);
            let clock_ms = self.machine.clock_ms();
            if self.journal.switch_on(dir(), *lock(&self.fsync), clock_ms).is_ok() {
                // Nobody has noted anything since, for `switch_on` does nothing after this.
                world = lock(&self.world);
                world.switch();
            }
        }
    }

    /// A change by a thread that serves nobody.
    fn note_foreign(&self) {
        if self.journal.is_failing() {
            return;
        }
        let key = self.machine.below(KEYS as u64) as usize;
        let _shard = lock(&self.keys[key]);
        let id = lock(&self.world).begin(vec![key]);
        let fsync = *lock(&self.fsync);
        let world = self.world.clone();
        with_sequences(Rc::new(move |sequence| note_sequence(&world, id, sequence)), || {
            self.journal.note_at(7, fsync, |out| write_record(out, id, &[key], 10));
        });
        lock(&self.world).changes[id].is_done = true;
    }
}

fn note_sequence(world: &Mutex<World>, id: usize, sequence: u64) {
    let mut world = lock(world);
    world.changes[id].sequence = Some(sequence);
    world.records += 1;
}

fn write_record(out: &mut Vec<u8>, id: usize, keys: &[usize], len: usize) {
    for key in keys {
        let word = format!("{id}:{}", "x".repeat(len));
        let args = [b"set".as_slice(), word.as_bytes(), &[b'0' + *key as u8]];
        part::write_command(out, 0, args.len(), args.into_iter());
    }
}

impl JournalHost for Process {
    fn fsync(&self) -> Fsync {
        *lock(&self.fsync)
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

    fn has_base(&self) {}
}

/// A thread that serves connections.
struct ServingThread<'a> {
    process: &'a Process,
    log: ThreadLog<Machine>,
    conns: Vec<SimulatedConn>,
}

/// A connection's output: an answer is a byte.
#[derive(Default)]
struct SimulatedConn {
    held: HeldLog,
    output: VecDeque<usize>,
}

impl<'a> ServingThread<'a> {
    fn new(process: &'a Process, thread: u16) -> ServingThread<'a> {
        let conns = (0..3).map(|_| SimulatedConn::default()).collect();
        ServingThread { process, log: ThreadLog::new(thread), conns }
    }

    fn run(mut self) {
        let Process { machine, journal, plan, .. } = self.process;
        for _ in 0..plan.turns {
            let conn = machine.below(3) as usize;
            for _ in 0..machine.below(4) {
                self.command(conn);
                if machine.below(4) == 0 {
                    self.log.write_early(journal);
                }
            }
            let fsync = *lock(&self.process.fsync);
            self.log.commit(journal, fsync, self.process);
            self.flush(fsync);
            if machine.below(4) == 0 {
                self.log.settle(journal, fsync, self.process);
            }
            wait();
        }
        let fsync = *lock(&self.process.fsync);
        self.log.commit_last(journal, fsync, self.process);
        self.flush(fsync);
        self.process.note_safe();
    }

    /// A command, or a transaction.
    fn command(&mut self, conn: usize) {
        let Process { machine, journal, plan, keys: shards, world, .. } = self.process;
        if journal.is_failing() {
            return;
        }
        let first = machine.below(KEYS as u64) as usize;
        let mut keys = vec![first];
        if machine.below(6) == 0 && first + 1 < KEYS {
            keys.push(first + 1);
        }
        let _shards: Vec<_> = keys.iter().map(|key| lock(&shards[*key])).collect();
        let len = match machine.below(20) {
            0 if plan.is_long => 20_000,
            1 | 2 if plan.is_long => 3_000,
            _ => machine.below(200) as usize,
        };
        let id = lock(world).begin(keys.clone());
        let noted = world.clone();
        let log = &mut self.log;
        with_sequences(Rc::new(move |sequence| note_sequence(&noted, id, sequence)), || {
            if keys.len() > 1 {
                log.begin_group();
                log.append(journal, 7, |out| write_record(out, id, &keys[..1], len));
                log.append(journal, 7, |out| write_record(out, id, &keys[1..], len));
                log.end_group(journal, 7);
            } else {
                log.append(journal, 7, |out| write_record(out, id, &keys, len));
            }
        });
        lock(world).changes[id].is_done = true;
        self.conns[conn].output.push_back(id);
    }

    /// Sends what may be sent.
    fn flush(&mut self, fsync: Fsync) {
        let Process { machine, journal, world, .. } = self.process;
        let is_failing = journal.is_failing();
        let is_early = machine.state().mutant == Mutant::EarlyAnswer;
        self.log.frees = false;
        for conn in &mut self.conns {
            let len = conn.output.len();
            let end = match self.log.holds && !is_early {
                true => self.log.may_send(&mut conn.held, len, is_failing, HeldFor::All),
                false => len,
            };
            let mut world = lock(world);
            let is_kept = journal.is_on() && world.is_whole;
            let epoch = world.epoch;
            for id in conn.output.drain(..end) {
                let change = &mut world.changes[id];
                change.is_answered = true;
                if is_kept && change.epoch == epoch {
                    change.survives_kill |= !is_failing;
                    change.survives_power |= fsync == Fsync::Always && !is_failing;
                }
                world.answered += 1;
            }
            conn.held.move_down(end);
        }
        self.log.has_news = false;
    }
}
