//! A large batch divided among threads: which of its commands are run together, in parts that share no shard.
//!
//! The shards of all of it stay held until all of it has run, and its end is one for all parts (`apply`). A part has the
//! commands of its shards in their order. `link` divides a batch when it is planned; nothing here runs anything.

use std::mem::take;
use std::ops::Range;

use darter_txn::{LockSet, Router};

use super::batch::{Act, ApplyBatch, ApplyStep};
use crate::engine::plan;
use crate::registry::RunKind;

/// Threads that run parts of one batch: the thread of the link makes no more ready than they run.
pub const THREADS_MAX: usize = 8;
/// Fewer commands in a row are run by one thread: to wake another takes as long.
const STEPS_MIN: usize = 128;
/// Parts for each thread, so that one that comes late has some left. More are dear: each goes over all of the batch's memory.
const PARTS_EACH: usize = 4;

/// The runs of a batch's steps, in their order; at least one is divided.
#[derive(Debug)]
pub struct BatchSplit {
    /// All steps belong to one of them.
    pub runs: Vec<StepRun>,
}

/// Steps in a row.
#[derive(Debug)]
pub enum StepRun {
    /// They are run one after the other, with all shards: one of them is about several shards or about none, or there are few.
    InOrder(Range<usize>),
    /// They are run in parts.
    Divided {
        /// By their shards, ascending.
        parts: Vec<SplitPart>,
        /// The database that is selected behind them, if they select one.
        db: Option<usize>,
    },
}

/// Steps for one thread.
#[derive(Clone, Debug)]
pub struct SplitPart {
    /// The first of its shards; it has those of the batch from there to the first of the next part.
    pub first: u16,
    /// Numbers of the batch's steps, in their order.
    pub steps: Vec<u32>,
    // the number of its last SELECT
    select: Option<u32>,
}

impl BatchSplit {
    /// Divides a planned batch with the shards `wanted` over `threads` threads; `None`: it is run in order.
    pub fn of(
        batch: &ApplyBatch,
        (wanted, router): (&LockSet, &Router),
        dbs_len: usize,
        threads: usize,
    ) -> Option<BatchSplit> {
        let shards = wanted.ids();
        let parts_len = shards.len().min(threads * PARTS_EACH);
        if threads < 2 || parts_len < 2 || batch.steps.len() < STEPS_MIN {
            return None;
        }
        let mut splitter = Splitter::new(router, shards, parts_len);
        for (number, step) in batch.steps.iter().enumerate() {
            if splitter.add(batch, number, step, dbs_len).is_none() {
                splitter.close(number);
                splitter.open.first = number + 1;
            }
        }
        splitter.finish(batch.steps.len())
    }
}

/// The database that a SELECT names, if it is one of `dbs_len`.
pub fn selected(word: &[u8], dbs_len: usize) -> Option<usize> {
    let db = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    db.filter(|db| *db < dbs_len)
}

/// State while steps are looked at.
struct Splitter<'r> {
    router: &'r Router,
    // the number of the part that each shard is in
    part_of: Vec<usize>,
    // no steps: what a run begins with
    empty: Vec<SplitPart>,
    open: OpenRun,
    runs: Vec<StepRun>,
    // steps before are in a run
    done: usize,
}

/// A run that may be divided.
#[derive(Default)]
struct OpenRun {
    first: usize,
    len: usize,
    parts: Vec<SplitPart>,
    select: Option<u32>,
    marks: Option<u32>,
    db: Option<usize>,
}

impl<'r> Splitter<'r> {
    fn new(router: &'r Router, shards: &[u16], parts_len: usize) -> Splitter<'r> {
        let mut part_of = vec![0; usize::from(router.shards_len())];
        let mut empty: Vec<SplitPart> = Vec::with_capacity(parts_len);
        for (at, id) in shards.iter().enumerate() {
            let part = at * parts_len / shards.len();
            if part == empty.len() {
                empty.push(SplitPart { first: *id, steps: Vec::new(), select: None });
            }
            if let Some(place) = part_of.get_mut(usize::from(*id)) {
                *place = part;
            }
        }
        let open = OpenRun { parts: empty.clone(), ..OpenRun::default() };
        Splitter { router, part_of, empty, open, runs: Vec::new(), done: 0 }
    }

    /// Adds a step to the open run; `None`: it belongs to no part.
    fn add(&mut self, batch: &ApplyBatch, number: usize, step: &ApplyStep, dbs_len: usize) -> Option<()> {
        let (open, router, number) = (&mut self.open, self.router, number as u32);
        let id = match &step.act {
            Act::Pass => return Some(()),
            Act::Select => {
                open.db = Some(selected(batch.args(step).at(1), dbs_len)?);
                open.select = Some(number);
                return Some(());
            }
            // They are about the next change, whichever that is.
            Act::Marks => {
                open.marks = Some(number);
                return Some(());
            }
            Act::Run { hash: Some(hash), .. } | Act::Lose(hash, _) => router.shard_of(*hash),
            Act::Run { entry, .. } => {
                let RunKind::Data(_) = entry.run else { return None };
                let [id] = *plan::lock_set(&entry.spec, batch.args(step), router).ids() else {
                    return None;
                };
                id
            }
            Act::Publish | Act::PublishShard | Act::Refuse(_) => return None,
        };
        let part = open.parts.get_mut(*self.part_of.get(usize::from(id))?)?;
        if part.select != open.select {
            part.select = open.select;
            part.steps.extend(open.select);
        }
        if let Act::Run { .. } = step.act {
            part.steps.extend(open.marks.take());
        }
        part.steps.push(number);
        open.len += 1;
        Some(())
    }

    /// Ends the open run before the step `end`.
    fn close(&mut self, end: usize) {
        if self.open.len < STEPS_MIN {
            // It stays among those that are run in order.
            let mut parts = take(&mut self.open.parts);
            parts.iter_mut().for_each(|part| {
                part.steps.clear();
                part.select = None;
            });
            self.open = OpenRun { parts, ..OpenRun::default() };
            return;
        }
        let open = take(&mut self.open);
        self.end_in_order(open.first);
        self.runs.push(StepRun::Divided { parts: open.parts, db: open.db });
        self.done = end;
        self.open.parts = self.empty.clone();
    }

    fn end_in_order(&mut self, end: usize) {
        if self.done < end {
            self.runs.push(StepRun::InOrder(self.done..end));
        }
    }

    fn finish(mut self, len: usize) -> Option<BatchSplit> {
        self.close(len);
        self.end_in_order(len);
        let is_divided = self.runs.iter().any(|run| matches!(run, StepRun::Divided { .. }));
        is_divided.then_some(BatchSplit { runs: self.runs })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::sync::Arc;

    use darter_base::rng::Rng;
    use darter_config::{Settings, Startup};
    use darter_replica::stream;

    use super::*;
    use crate::shared::Shared;

    const DBS: usize = 16;

    fn shared() -> &'static Shared {
        let flags = ["split", "--proactor_threads=2", "--shards=16"].map(OsString::from);
        let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
            panic!("the settings are valid")
        };
        let live = settings.live();
        crate::start::build(Arc::new(*settings), &live, 2).expect("address space")
    }

    fn planned(shared: &Shared, lines: &[String]) -> (ApplyBatch, LockSet) {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            stream::write(&mut bytes, &words);
        }
        let mut batch = ApplyBatch::cut(&bytes).expect("commands").expect("whole");
        assert_eq!(batch.steps.len(), lines.len(), "it is no longer than a batch may be");
        let wanted = batch.plan(shared, 5);
        (batch, wanted)
    }

    fn split(shared: &Shared, lines: &[String], threads: usize) -> Option<BatchSplit> {
        let (batch, wanted) = planned(shared, lines);
        BatchSplit::of(&batch, (&wanted, &shared.router), DBS, threads)
    }

    fn sets(range: Range<usize>) -> Vec<String> {
        range.map(|n| format!("SET key{n} {n}")).collect()
    }

    /// The lengths of the runs, those that are divided as negative numbers: of commands in their parts.
    fn lengths(split: Option<BatchSplit>) -> Vec<i64> {
        let runs = split.map(|split| split.runs).unwrap_or_default();
        let len = |run: &StepRun| match run {
            StepRun::InOrder(range) => range.len() as i64,
            StepRun::Divided { parts, .. } => {
                -(parts.iter().map(|part| part.steps.len()).sum::<usize>() as i64)
            }
        };
        runs.iter().map(len).collect()
    }

    #[test]
    fn what_is_about_several_shards_or_none_is_run_in_order() {
        let shared = shared();
        let among = |odd: &str| {
            lengths(split(shared, &[sets(0..200), vec![odd.to_owned()], sets(200..400)].concat(), 2))
        };
        let in_order =
            ["MSET a 1 b 2 c 3 d 4 e 5", "FLUSHALL", "PUBLISH c m", "SPUBLISH c m", "FUNCTION FLUSH"];
        for odd in in_order.into_iter().chain(["NOSUCH a", "SELECT 99"]) {
            assert_eq!(among(odd), [-200, 1, -200], "{odd}");
        }
        // These have one shard, or are about no data.
        for (odd, len) in [("DEL a", 401), ("MSET a 1", 401), ("RENAME {a}1 {a}1", 401), ("PING", 400)] {
            assert_eq!(among(odd).iter().sum::<i64>(), -len, "{odd}");
        }
    }

    #[test]
    fn few_commands_or_threads_or_shards_are_not_divided() {
        let shared = shared();
        assert_eq!(lengths(split(shared, &sets(0..STEPS_MIN), 2)), [-(STEPS_MIN as i64)]);
        assert!(split(shared, &sets(0..STEPS_MIN - 1), 2).is_none());
        assert!(split(shared, &sets(0..STEPS_MIN), 1).is_none());
        assert!(split(shared, &vec!["SET a 1".to_owned(); 300], 2).is_none());
        // Too few in a row, and enough behind them.
        let odd = vec!["MSET a 1 b 2 c 3 d 4".to_owned()];
        let lines = [sets(0..100), odd.clone(), sets(0..50), odd, sets(0..130)].concat();
        assert_eq!(lengths(split(shared, &lines, 2)), [152, -130]);
        let Some(BatchSplit { runs }) = split(shared, &sets(0..400), 2) else { panic!("it is divided") };
        assert!(matches!(&runs[..], [StepRun::Divided { parts, .. }] if parts.len() == 2 * PARTS_EACH));
    }

    /// Each command is run once, with its database and what was said before it, and those of a shard in their order.
    #[test]
    fn every_command_is_run_as_it_would_be_in_order() {
        let (shared, mut rng) = (shared(), Rng::new(9));
        let marks = format!("REPLCONF capa {}x", String::from_utf8_lossy(darter_replica::form::MARKS));
        for round in 0..60 {
            let (mut lines, odd_every) = (Vec::new(), [2, 40, 300, 5000][round % 4]);
            while lines.len() < 1500 {
                let (key, other) = (rng.below(300), rng.below(300));
                let line = match rng.below(12) {
                    0 => format!("SELECT {}", rng.below(3)),
                    1 => format!("HSET h{key} f v"),
                    2 => format!("DEL k{key}"),
                    3 => format!("COPY k{key} k{key}"),
                    4 if rng.below(odd_every) == 0 => format!("MSET k{key} 1 k{other} 2"),
                    5 if rng.below(odd_every) == 0 => "PUBLISH c m".to_owned(),
                    6 => {
                        lines.push(marks.clone());
                        format!("RESTORE k{key} 0 x")
                    }
                    _ => format!("SET k{key} v"),
                };
                lines.push(line);
            }
            let (batch, wanted) = planned(shared, &lines);
            let Some(BatchSplit { runs }) = BatchSplit::of(&batch, (&wanted, &shared.router), DBS, 2) else {
                assert!(odd_every == 2, "there are long runs");
                continue;
            };
            let mut in_order = Seen::default();
            in_order.run((&batch, &shared.router), 0..lines.len(), &mut 0);
            let (mut divided, mut db, mut next) = (Seen::default(), 0, 0);
            for run in &runs {
                match run {
                    StepRun::InOrder(range) => {
                        assert!(range.start >= next && !range.is_empty());
                        next = range.end;
                        divided.run((&batch, &shared.router), range.clone(), &mut db);
                    }
                    StepRun::Divided { parts, db: selected } => {
                        for (at, part) in parts.iter().enumerate() {
                            let end = parts.get(at + 1).map_or(u16::MAX, |part| part.first);
                            let before = divided.commands.len();
                            divided.run(
                                (&batch, &shared.router),
                                part.steps.iter().map(|number| *number as usize),
                                &mut db.clone(),
                            );
                            for (_, shards, ..) in &divided.commands[before..] {
                                assert!(shards.iter().all(|id| (part.first..end).contains(id)));
                            }
                        }
                        db = selected.unwrap_or(db);
                    }
                }
            }
            assert_eq!(db, in_order.db);
            assert_eq!(divided.by_shard(), in_order.by_shard());
            divided.commands.sort();
            assert_eq!(divided.commands, in_order.commands);
        }
    }

    /// The commands that were run: number, shards, database, marks.
    #[derive(Default)]
    struct Seen {
        commands: Vec<(usize, Vec<u16>, usize, bool)>,
        db: usize,
    }

    impl Seen {
        fn run(
            &mut self,
            (batch, router): (&ApplyBatch, &Router),
            numbers: impl IntoIterator<Item = usize>,
            db: &mut usize,
        ) {
            let mut is_marked = false;
            for number in numbers {
                let step = &batch.steps[number];
                let shards = match &step.act {
                    Act::Select => {
                        *db = selected(batch.args(step).at(1), DBS).expect("one that is there");
                        continue;
                    }
                    Act::Marks => {
                        is_marked = true;
                        continue;
                    }
                    Act::Run { entry, .. } => {
                        plan::lock_set(&entry.spec, batch.args(step), router).ids().to_vec()
                    }
                    _ => Vec::new(),
                };
                let marks = matches!(step.act, Act::Run { .. }) && std::mem::take(&mut is_marked);
                self.commands.push((number, shards, *db, marks));
            }
            self.db = *db;
        }

        fn by_shard(&self) -> HashMap<u16, Vec<usize>> {
            let mut all: HashMap<u16, Vec<usize>> = HashMap::new();
            for (number, shards, ..) in &self.commands {
                shards.iter().for_each(|id| all.entry(*id).or_default().push(*number));
            }
            all
        }
    }
}
