//! Many members that one command names, taken out of a collection in slices: SREM, HDEL and ZREM of thousands.
//!
//! The names go into a table, with no shard held; then what is there is read, and what was not named goes into a draft that
//! takes the collection's place in the end ([`super::keeping`]). Out of a collection much longer than what is named members
//! are taken in one go: copying the rest costs more than it spares. Called by `Gather`, and by the bodies of such commands.
//! Memory: each name once.

use darter_store::Event;
use darter_wire::{Args, Reply};

use super::keeping::Form;
use super::members::Members;
use super::{Maker, told_members, write_told};
use crate::slices::{self, LEN_MAX};
use crate::{Ctx, Fault};

/// What is to go, by name.
pub struct Weeding {
    members: Members,
    // Words up to here are in the table.
    at: usize,
    is_ready: bool,
    // Each other member told is a value.
    in_pairs: bool,
}

/// Words that go into the table in some 100 microseconds with no shard held.
const WORDS_AT_ONCE: usize = 1024;
/// The first of them is this word.
const FIRST: usize = 2;

impl Weeding {
    /// Whether all names are in the table.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Goes on with the table, with no shard held.
    pub(super) fn prepare(&mut self, args: Args<'_>) {
        let until = args.len().min(self.at + WORDS_AT_ONCE);
        for at in self.at..until {
            self.members.find_or_add(args.at(at));
        }
        self.at = until;
        self.is_ready = until == args.len();
    }

    /// What was told, but for what is named.
    pub(super) fn take(&mut self, told: &[u8]) -> Vec<u8> {
        let mut stays = Vec::with_capacity(told.len());
        let mut members = told_members(told);
        while let Some(member) = members.next() {
            let value = if self.in_pairs { members.next() } else { None };
            if self.members.find(member.text).is_none() {
                for part in [Some(member), value].into_iter().flatten() {
                    write_told(&mut stays, part.text, part.score);
                }
            }
        }
        stays
    }

    pub(super) fn bytes(&self) -> usize {
        self.members.bytes()
    }
}

impl Ctx<'_> {
    /// Takes the members out that `args` name from their third word on, in slices where they are many, and tells how many
    /// that were; false when the body must do it now.
    ///
    /// Errors: no room; nothing has changed.
    #[cold]
    pub fn weed(
        &mut self,
        (name, form): (&[u8], Form),
        args: Args<'_>,
        event: Event,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Fault> {
        let Some((old, stretch)) = self.fillable(name, form) else { return Ok(false) };
        let Some(kept) = self.kept.take() else {
            let named = (args.len() - FIRST) as u64;
            if !self.may_slice || old == 0 || !slices::is_better_rebuilt(old, named, LEN_MAX) {
                return Ok(false);
            }
            let members = Members::new(named, *self.shards_mut().router().hasher());
            let in_pairs = form == Form::Hash;
            let weeding = Weeding { members, at: FIRST, is_ready: false, in_pairs };
            let maker = Maker::Weeding(Box::new(weeding));
            return Ok(self.gather_for((name, form), &[name], &[(name, stretch)], maker));
        };
        if kept.has_failed() {
            // To take out needs less room than to build.
            kept.give_up(self);
            return Ok(false);
        }
        let left = kept.len(self);
        let gone = old.saturating_sub(left);
        if gone == 0 {
            kept.give_up(self);
        } else if left > 0 {
            kept.put_back(self, name)?;
            self.changed(name, event);
        } else {
            self.at(name).remove();
            self.changed(name, event);
            let (key, db) = (self.key(name), self.db);
            // The change that took the last member has been counted.
            self.shards_mut().part_mut(key).shard.changes.push_uncounted(db, name, Event::DEL);
        }
        reply.int(gone as i64);
        Ok(true)
    }
}
