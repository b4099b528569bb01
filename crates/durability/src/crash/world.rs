//! What was written, what was answered, and what a start has to find of it.
//!
//! Changes of a key happen one after the other, so what is found of them has to be a prefix. What was answered has a promise:
//! that a kill does not lose it, or that a loss of power does not either (docs/journal.md).

use std::collections::BTreeMap;

/// A record, or a change that no file was to have because the journal was off.
#[derive(Clone, Debug, Default)]
pub struct WrittenChange {
    pub keys: Vec<usize>,
    pub sequence: Option<u64>,
    /// The command has ended.
    pub is_done: bool,
    /// It was refused or never happened.
    pub is_void: bool,
    pub is_answered: bool,
    pub survives_kill: bool,
    pub survives_power: bool,
    /// No start has left it out.
    pub is_alive: bool,
    /// Its time between two switches of the journal.
    pub epoch: u64,
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// It is killed, and the machine stays up.
    Kill,
    /// The machine loses its power.
    Power,
}

/// Everything that happened.
#[derive(Default)]
pub struct World {
    pub changes: Vec<WrittenChange>,
    /// Counts starts and switches.
    pub epoch: u64,
    /// In this epoch the files say all: it has a base, or began with what was read.
    pub is_whole: bool,
    /// Records of this epoch before this sequence survive a loss of power.
    pub safe_before: u64,
    /// A kill may lose records of this epoch from here on: the disk was full.
    pub stuck_from: u64,
    /// All records of this life were in rings, and nothing went wrong with the disk.
    pub is_ringed: bool,
    /// What the start before this has read, if it may not have changed since.
    pub pinned: Option<Vec<usize>>,
    /// Crashes since the process last served: one was a loss of power.
    pub lost_power: bool,
    /// The files are exactly what is durable, but for what a start has done since.
    pub is_all_durable: bool,
    pub starts: u64,
    pub answered: u64,
    pub records: u64,
}

/// What a start has read.
#[derive(Debug, Default)]
pub struct FoundAtStart {
    /// Changes in the base.
    pub base: Vec<usize>,
    /// Changes in records, with their sequences.
    pub records: Vec<(u64, usize)>,
    /// The first sequence behind the base, and the next one.
    pub first: u64,
    pub next: u64,
    pub is_sound: bool,
    /// Damage, as it is named.
    pub named: String,
}

impl World {
    pub fn begin(&mut self, keys: Vec<usize>) -> usize {
        self.changes.push(WrittenChange {
            keys,
            is_alive: true,
            epoch: self.epoch,
            ..WrittenChange::default()
        });
        self.changes.len() - 1
    }

    /// The journal is switched off, or on without a base.
    pub fn switch(&mut self) {
        self.epoch += 1;
        (self.is_whole, self.safe_before) = (false, 0);
    }

    /// A base has all changes in `ids`, and is the one that counts.
    pub fn adopt(&mut self, ids: &[usize]) {
        for id in ids {
            let change = &mut self.changes[*id];
            (change.survives_kill, change.survives_power) = (true, true);
        }
    }

    /// Checks what a start has found.
    pub fn check(&self, found: &FoundAtStart) -> Result<(), String> {
        let read: Vec<usize> =
            found.base.iter().copied().chain(found.records.iter().map(|(_, id)| *id)).collect();
        let mut is_read = vec![false; self.changes.len()];
        for id in &read {
            let change = self.changes.get(*id).ok_or(format!("change {id} never happened"))?;
            if std::mem::replace(&mut is_read[*id], true) {
                return Err(format!("change {id} is there twice"));
            }
            if !change.is_alive || change.is_void {
                return Err(format!("change {id} is back: {change:?}"));
            }
        }
        for (id, change) in self.changes.iter().enumerate().filter(|(id, _)| !is_read[*id]) {
            let is_promised = change.survives_power
                || change.survives_kill && !self.lost_power && !self.is_stuck(change)
                || self.is_safe(change);
            if change.is_alive && is_promised {
                return Err(format!("change {id} is lost: {change:?}; named: {}", found.named));
            }
            if change.is_alive
                && change.is_done
                && self.is_ringed
                && self.is_whole
                && !self.lost_power
                && change.epoch == self.epoch
                && change.sequence.is_some()
            {
                return Err(format!("change {id} was in a ring and is lost by a kill: {change:?}"));
            }
            if let Some(sequence) = change.sequence
                && change.is_alive
                && change.is_done
                && change.epoch == self.epoch
                && self.is_whole
                && (found.first..found.next).contains(&sequence)
            {
                return Err(format!(
                    "change {id} is missing in the middle: {change:?}, next is {}",
                    found.next
                ));
            }
        }
        self.check_keys(&is_read)?;
        if self.is_ringed && !self.lost_power && !found.is_sound {
            return Err(format!("a kill is no damage, but: {}", found.named));
        }
        // They were on disk before they were used.
        let never = ["the tail is cut off", "this is no tail", "the head of the tail"];
        if let Some(what) = never.iter().find(|what| found.named.contains(*what)) {
            return Err(format!("a crash makes no such damage: {what}: {}", found.named));
        }
        if let Some(pinned) = &self.pinned
            && *pinned != read
        {
            let (before, now) = (pinned.len(), read.len());
            return Err(format!("a start read {before} changes, was ended, and the next reads {now}"));
        }
        Ok(())
    }

    fn is_stuck(&self, change: &WrittenChange) -> bool {
        change.epoch == self.epoch && change.sequence.is_some_and(|at| at >= self.stuck_from)
    }

    fn is_safe(&self, change: &WrittenChange) -> bool {
        change.epoch == self.epoch && self.is_whole && change.sequence.is_some_and(|at| at < self.safe_before)
    }

    /// For each key what was read is a prefix of what happened.
    fn check_keys(&self, is_read: &[bool]) -> Result<(), String> {
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        let happened = |change: &WrittenChange| change.is_alive && !change.is_void;
        for (id, change) in self.changes.iter().enumerate().filter(|(_, change)| happened(change)) {
            for key in &change.keys {
                match is_read[id] {
                    false => drop(missing.entry(*key).or_insert(id)),
                    true => {
                        if let Some(before) = missing.get(key) {
                            return Err(format!(
                                "change {id} of key {key} is there, and {before} before it is not"
                            ));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A server goes on from what was found: it is all there is, and all of it is durable.
    pub fn go_on(&mut self, found: &FoundAtStart) {
        self.switch();
        self.is_whole = true;
        self.stuck_from = u64::MAX;
        let mut is_read = vec![false; self.changes.len()];
        found.base.iter().chain(found.records.iter().map(|(_, id)| id)).for_each(|id| is_read[*id] = true);
        for (change, is_read) in self.changes.iter_mut().zip(is_read) {
            change.is_alive &= is_read;
            (change.survives_kill, change.survives_power) = (is_read, is_read);
            // Its sequence is before all that come.
            (change.epoch, change.is_done) = (self.epoch, true);
            change.sequence = change.sequence.filter(|_| is_read);
        }
        (self.pinned, self.lost_power, self.is_all_durable, self.is_ringed) = (None, false, false, true);
        self.starts += 1;
    }

    /// The process or the machine has failed.
    pub fn crash(&mut self, crash: Crash) {
        if crash == Crash::Power {
            self.lost_power = true;
            if !self.is_all_durable {
                self.pinned = None;
            }
            self.is_all_durable = true;
        }
    }
}
