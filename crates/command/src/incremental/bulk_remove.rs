//! Many members named by one command, removed from a collection in slices: SREM, HDEL and ZREM of thousands.
//!
//! The names are added to a table, with no shard held. Then the collection is read, and the members not named are
//! added to a draft, which finally replaces the collection ([`super::staged`]). If the collection is much longer than
//! the names, they are removed at once, because copying the rest would cost more than it saves. Called by
//! `Incremental`, and by the bodies of such commands. Memory: each name once.

use darter_store::Event;
use darter_wire::{Args, Reply};

use super::members::MembersOperation;
use super::operation::{NextSlice, Operation, OperationStage, ResultTo};
use super::staged::StagedForm;
use super::{told_members, write_told};
use crate::slices::{self, LEN_MAX};
use crate::{Ctx, Fault};

/// The members to remove, by name.
pub struct BulkRemove {
    members: MembersOperation,
    // Words before this one are in the table.
    at: usize,
    is_ready: bool,
    // Every second member read is a value.
    in_pairs: bool,
}

/// Words added to the table in some 100 microseconds with no shard held.
const WORDS_AT_ONCE: usize = 1024;
/// The first of the names.
const FIRST: usize = 2;

impl BulkRemove {
    /// Puts the next names into the table, with no shard held.
    fn prepare(&mut self, args: Args<'_>) {
        let until = args.len().min(self.at + WORDS_AT_ONCE);
        for at in self.at..until {
            self.members.find_or_add(args.at(at));
        }
        self.at = until;
        self.is_ready = until == args.len();
    }
}

impl Operation for BulkRemove {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        if self.is_ready { NextSlice::Read } else { NextSlice::Work }
    }

    /// The members of `told` except the named ones.
    fn take(&mut self, _nth: u32, told: &[u8], args: Args<'_>) -> Vec<u8> {
        if !self.is_ready {
            self.prepare(args);
            return Vec::new();
        }
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

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        if self.is_ready { OperationStage::Done } else { OperationStage::Reading }
    }

    fn bytes(&self) -> usize {
        self.members.bytes()
    }
}

impl Ctx<'_> {
    /// Removes the members that `args` name from their third word on, in slices if they are many, and answers their
    /// number. Returns false if the body must do it now.
    ///
    /// Errors: no room; nothing has changed.
    #[cold]
    pub fn remove_many(
        &mut self,
        (name, form): (&[u8], StagedForm),
        args: Args<'_>,
        event: Event,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Fault> {
        let Some((old, stretch)) = self.fillable(name, form) else { return Ok(false) };
        let Some(staged) = self.staged.take() else {
            let named = (args.len() - FIRST) as u64;
            if !self.may_slice || old == 0 || !slices::is_better_rebuilt(old, named, LEN_MAX) {
                return Ok(false);
            }
            let members = MembersOperation::new(named, *self.shards_mut().router().hasher());
            let in_pairs = form == StagedForm::Hash;
            let bulk_remove = BulkRemove { members, at: FIRST, is_ready: false, in_pairs };
            return Ok(self.store_later((name, form), &[name], &[(name, stretch)], Box::new(bulk_remove)));
        };
        if staged.has_failed() {
            // Removing needs less room than building.
            staged.give_up(self);
            return Ok(false);
        }
        let left = staged.len(self);
        let gone = old.saturating_sub(left);
        if gone == 0 {
            staged.give_up(self);
        } else if left > 0 {
            staged.put_back(self, name)?;
            self.changed(name, event);
        } else {
            self.at(name).remove();
            self.changed(name, event);
            let (key, db) = (self.key(name), self.db);
            // The change that removed the last member has been counted.
            self.shards_mut().part_mut(key).shard.changes.push_uncounted(db, name, Event::DEL);
        }
        reply.int(gone as i64);
        Ok(true)
    }
}
