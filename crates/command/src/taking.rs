//! Pops of many members: a long stretch of a list or sorted set is removed, and answered in slices.
//!
//! If all members are popped, the key is removed, and the collection stays until it is answered. If a part is popped,
//! the remaining members are first built into a draft, which finally replaces the old collection. The old one stays
//! until the popped part is answered. Called by the bodies of LPOP, ZPOPMIN and similar commands.

use darter_pack::tree::Direction;
use darter_pack::tree::window::Tell;
use darter_store::reads::Stretch;

use crate::incremental::{Copying, StagedForm};
use crate::slices::{self, SlicesRest};
use crate::{Ctx, Fault};

/// A stretch at one end of a collection, and the collection.
pub struct Taking<'a, 'k> {
    /// The examined keys; the last one is that of the collection.
    pub names: &'a [&'k [u8]],
    /// The form of the collection.
    pub form: StagedForm,
    /// Its length.
    pub len: u64,
    /// Members that go, at most all.
    pub count: u64,
    /// The stretch comes first in this direction.
    pub towards: Direction,
    /// Expiry of the first member.
    pub due_ms: Option<u64>,
}

/// The result of a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Nothing is done: it is short enough to be done at once.
    AtOnce,
    /// Nothing is done yet: the body runs again when the remaining members are built.
    Later,
    /// The members are removed, and are answered after the body's output.
    Gone,
}

impl Taking<'_, '_> {
    /// Pops the stretch if it is long enough. `tell` encodes each member.
    ///
    /// Errors: no room; nothing was changed.
    pub fn run(&self, ctx: &mut Ctx<'_>, tell: Tell) -> Result<Taken, Fault> {
        let Some(&name) = self.names.last() else { return Ok(Taken::AtOnce) };
        let is_for_slices = ctx.may_slice || ctx.staged.is_some();
        if !is_for_slices || !slices::is_long(self.count, self.due_ms, ctx.now_ms) {
            return Ok(Taken::AtOnce);
        }
        let left = self.len - self.count;
        let (goes, stays) = match self.towards {
            Direction::Up => (0, self.count),
            Direction::Down => (left, 0),
        };
        let goes = Stretch::Ranks(goes, self.count, self.towards);
        if left == 0 {
            if !ctx.leave_rest(name, goes, tell) {
                return Ok(Taken::AtOnce);
            }
            ctx.at(name).remove();
            return Ok(Taken::Gone);
        }
        let Some(staged) = ctx.staged.take() else {
            // The draft must belong to this key, and must not keep an expired member.
            let may_rebuild = ctx.may_repeat
                && ctx.only_key.is_none()
                && self.due_ms.is_none()
                && slices::is_better_rebuilt(left, self.count, slices::LEN_MAX);
            let stays = Stretch::Ranks(stays, left, Direction::Up);
            let is_left = may_rebuild
                && ctx.store_later((name, self.form), self.names, &[(name, stays)], Box::new(Copying));
            return Ok(if is_left { Taken::Later } else { Taken::AtOnce });
        };
        if !ctx.leave_rest(name, goes, tell) {
            staged.give_up(ctx);
            return Ok(Taken::AtOnce);
        }
        if let Err(fault) = staged.put_back(ctx, name) {
            if let Some(SlicesRest::Read { shard, number }) = ctx.rest.take()
                && let Some(part) = ctx.part(shard)
            {
                part.shard.end_read(number);
            }
            return Err(fault);
        }
        Ok(Taken::Gone)
    }
}
