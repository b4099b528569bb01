//! Many members named by one command, added to a collection in slices: SADD, HSET, ZADD and RPUSH of thousands.
//!
//! The present members are copied into a draft, the named members are added, and the draft replaces the collection
//! ([`super::staged`]). If the collection is much longer than the named members, they are added at once, because
//! copying would cost more than it saves. Called by `Incremental`, and by the bodies of such commands.

use darter_pack::tree::Direction;
use darter_store::Object;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::operation::{Operation, OperationStage, ResultTo};
use super::staged::StagedForm;
use super::write_told;
use crate::slices::LEN_MAX;
use crate::{Ctx, Fault};

/// Reads the score of the member whose first word is at this place.
///
/// Errors: the word is not a number.
pub type ScoreOf = fn(Args<'_>, usize) -> Result<f64, Fault>;

/// Positions of members among a command's words.
#[derive(Clone, Copy, Debug)]
pub struct BulkWords {
    /// The first of these words.
    pub first: usize,
    /// Words of each; the last one is the member.
    pub step: usize,
    /// The function that reads its score; `None` without scores.
    pub score_of: Option<ScoreOf>,
}

impl BulkWords {
    /// Every word from `first` on is a member; in a hash every second one is a value.
    pub const fn plain(first: usize) -> BulkWords {
        BulkWords { first, step: 1, score_of: None }
    }
}

/// Words that are being added to a collection.
pub struct BulkAdd {
    words: BulkWords,
    at: usize,
    fault: Option<Fault>,
}

impl Operation for BulkAdd {
    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    /// The members that were there before.
    fn is_copy(&self) -> bool {
        true
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        OperationStage::Storing
    }

    fn store(&mut self, args: Args<'_>, members_max: usize, told: &mut Vec<u8>) -> bool {
        for _ in 0..members_max {
            if self.at >= args.len() {
                break;
            }
            let score = self.words.score_of.map_or(Ok(0.0), |score_of| score_of(args, self.at));
            match score {
                // No minus before zero, as if members are added at once.
                Ok(score) => write_told(told, args.at(self.at + self.words.step - 1), score + 0.0),
                Err(fault) => {
                    self.fault = Some(fault);
                    self.at = args.len();
                    told.clear();
                    return true;
                }
            }
            self.at += self.words.step;
        }
        self.at >= args.len()
    }

    /// The fault of a word.
    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The result of a command that names many members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// Nothing is done: it is short enough to be done at once.
    AtOnce,
    /// Nothing yet: the body runs again when they are all in the draft.
    Later,
    /// They are in the collection, which is `len` long now.
    Done {
        /// Its length.
        len: u64,
        /// Members of it that are new.
        added: u64,
        /// Members of it that have another score.
        updated: u64,
    },
}

/// A command of more words than this names many members.
pub const MANY: usize = LEN_MAX as usize;
/// Members of a collection that are copied for each that is added, at most.
const OLD_PER_NEW: u64 = 2;

impl Ctx<'_> {
    /// Adds the members that `args` name to the collection at `name`, in slices if they are many.
    ///
    /// Errors: no room, or an invalid score; nothing has changed.
    #[cold]
    pub fn add_many(
        &mut self,
        (name, form): (&[u8], StagedForm),
        args: Args<'_>,
        words: BulkWords,
    ) -> Result<Filled, Fault> {
        let Some((old, stretch)) = self.fillable(name, form) else { return Ok(Filled::AtOnce) };
        if let Some(staged) = self.staged.take() {
            let updated = staged.updated;
            let len = staged.len(self);
            let added = len.saturating_sub(old);
            if added + updated == 0
                && matches!(form, StagedForm::Set | StagedForm::Zset)
                && !staged.has_failed()
            {
                staged.give_up(self);
            } else {
                staged.put_back(self, name)?;
            }
            return Ok(Filled::Done { len, added, updated });
        }
        let new = (args.len().saturating_sub(words.first) / words.step) as u64;
        if !self.may_slice || new <= LEN_MAX || old > new.saturating_mul(OLD_PER_NEW) {
            return Ok(Filled::AtOnce);
        }
        let bulk_add = BulkAdd { words, at: words.first, fault: None };
        let source = [(name, stretch)];
        let sources = if old == 0 { &[][..] } else { &source[..] };
        let is_left = self.store_later((name, form), &[name], sources, Box::new(bulk_add));
        Ok(if is_left { Filled::Later } else { Filled::AtOnce })
    }

    /// The length of a collection that may be copied for that, and its stretch; a missing one is empty.
    pub(super) fn fillable(&mut self, name: &[u8], form: StagedForm) -> Option<(u64, Stretch)> {
        let place = self.at(name);
        let ranks = |len, towards| Stretch::Ranks(0, len, towards);
        let (len, stretch, due_ms) = match (form, place.object()) {
            (_, None) if !place.exists() => (0, Stretch::All, None),
            (StagedForm::Set, Some((Object::Set(set), _))) => (set.len(), Stretch::All, set.next_expiry_ms()),
            (StagedForm::Hash, Some((Object::Hash(table), _))) => {
                (table.len() as u64, Stretch::All, table.min_expiry_ms())
            }
            (StagedForm::List, Some((Object::List(list), _))) => {
                (list.len(), ranks(list.len(), Direction::Up), None)
            }
            (StagedForm::Stack, Some((Object::List(list), _))) => {
                (list.len(), ranks(list.len(), Direction::Down), None)
            }
            (StagedForm::Zset, Some((Object::Zset(zset), _))) => {
                (zset.len(), ranks(zset.len(), Direction::Up), zset.next_expiry())
            }
            _ => return None,
        };
        due_ms.is_none().then_some((len, stretch))
    }
}
