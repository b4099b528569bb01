//! Many members that one command names, added to a collection in slices: SADD, HSET, ZADD and RPUSH of thousands.
//!
//! What is there is copied into a draft, the members named go behind it, and in the end the draft takes its place
//! ([`super::keeping`]). To a collection much longer than what is named members are added in one go: copying it costs more
//! than it spares. Called by `Gather`, and by the bodies of such commands.

use darter_pack::tree::Direction;
use darter_store::Object;
use darter_store::reads::Stretch;
use darter_wire::Args;

use super::keeping::Form;
use super::{Maker, write_told};
use crate::slices::LEN_MAX;
use crate::{Ctx, Fault};

/// Reads the score of the member whose first word is at this place.
///
/// Errors: the word is no number.
pub type ScoreOf = fn(Args<'_>, usize) -> Result<f64, Fault>;

/// How members stand among a command's words.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Where the first of them begins.
    pub first: usize,
    /// Words of each; the last one is the member.
    pub step: usize,
    /// What reads its score; `None` where it has none.
    pub score_of: Option<ScoreOf>,
}

impl Words {
    /// Every word from `first` on is a member; in a hash each other one is a value.
    pub const fn plain(first: usize) -> Words {
        Words { first, step: 1, score_of: None }
    }
}

/// Words on their way into a collection.
pub struct Filling {
    words: Words,
    at: usize,
    fault: Option<Fault>,
}

impl Filling {
    /// Writes up to `members_max` of the next members behind what is `told`; whether those were the last.
    pub(super) fn store(&mut self, args: Args<'_>, members_max: usize, told: &mut Vec<u8>) -> bool {
        for _ in 0..members_max {
            if self.at >= args.len() {
                break;
            }
            let score = self.words.score_of.map_or(Ok(0.0), |score_of| score_of(args, self.at));
            match score {
                // No minus before zero, as where members are added in one go.
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

    /// What was wrong with a word.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

/// What has become of a command that names many members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// Nothing: it is for one go.
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
    /// Adds the members that `args` name to the collection at `name` in slices, where they are many.
    ///
    /// Errors: no room, or a score is none; nothing has changed.
    #[cold]
    pub fn fill(
        &mut self,
        (name, form): (&[u8], Form),
        args: Args<'_>,
        words: Words,
    ) -> Result<Filled, Fault> {
        let Some((old, stretch)) = self.fillable(name, form) else { return Ok(Filled::AtOnce) };
        if let Some(kept) = self.kept.take() {
            let updated = kept.updated;
            let len = kept.len(self);
            let added = len.saturating_sub(old);
            if added + updated == 0 && matches!(form, Form::Set | Form::Zset) && !kept.has_failed() {
                kept.give_up(self);
            } else {
                kept.put_back(self, name)?;
            }
            return Ok(Filled::Done { len, added, updated });
        }
        let new = (args.len().saturating_sub(words.first) / words.step) as u64;
        if !self.may_slice || new <= LEN_MAX || old > new.saturating_mul(OLD_PER_NEW) {
            return Ok(Filled::AtOnce);
        }
        let maker = Maker::Filling(Filling { words, at: words.first, fault: None });
        let source = [(name, stretch)];
        let sources = if old == 0 { &[][..] } else { &source[..] };
        let is_left = self.gather_for((name, form), &[name], sources, maker);
        Ok(if is_left { Filled::Later } else { Filled::AtOnce })
    }

    /// The length of a collection that may be copied for that, and how it is read; a missing one is empty.
    pub(super) fn fillable(&mut self, name: &[u8], form: Form) -> Option<(u64, Stretch)> {
        let place = self.at(name);
        let ranks = |len, towards| Stretch::Ranks(0, len, towards);
        let (len, stretch, due_ms) = match (form, place.object()) {
            (_, None) if !place.exists() => (0, Stretch::All, None),
            (Form::Set, Some((Object::Set(set), _))) => (set.len(), Stretch::All, set.next_expiry_ms()),
            (Form::Hash, Some((Object::Hash(table), _))) => {
                (table.len() as u64, Stretch::All, table.min_expiry_ms())
            }
            (Form::List, Some((Object::List(list), _))) => {
                (list.len(), ranks(list.len(), Direction::Up), None)
            }
            (Form::Stack, Some((Object::List(list), _))) => {
                (list.len(), ranks(list.len(), Direction::Down), None)
            }
            (Form::Zset, Some((Object::Zset(zset), _))) => {
                (zset.len(), ranks(zset.len(), Direction::Up), zset.next_expiry())
            }
            _ => return None,
        };
        due_ms.is_none().then_some((len, stretch))
    }
}
