//! Pops of many: a long stretch of a list or sorted set goes, and is answered in slices.
//!
//! Where all goes, the key goes, and the collection stays until it is told. Where a part goes, what is left is built aside
//! first; in the end it takes the old collection's place, and that one stays until the part is told. Called by the bodies
//! of LPOP, ZPOPMIN and kin.

use darter_pack::tree::Direction;
use darter_pack::tree::window::Tell;
use darter_store::reads::Stretch;

use crate::gather::{Form, Maker};
use crate::slices::{self, Rest};
use crate::{Ctx, Fault};

/// A stretch at one end of a collection, and of what.
pub struct Taking<'a, 'k> {
    /// The keys that were looked at, the last of them its own.
    pub names: &'a [&'k [u8]],
    /// What the collection is.
    pub form: Form,
    /// Its length.
    pub len: u64,
    /// Members that go, at most all.
    pub count: u64,
    /// They are the first ones that are met this way.
    pub towards: Direction,
    /// When the first member comes to its end.
    pub due_ms: Option<u64>,
}

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Nothing: it is for one go.
    AtOnce,
    /// Nothing yet: the body runs again when what is left is there.
    Later,
    /// The members are gone, and are told after what the body has written.
    Gone,
}

impl Taking<'_, '_> {
    /// Does it where it is long enough, each member that goes through `tell`.
    ///
    /// Errors: no room; nothing was changed.
    pub fn run(&self, ctx: &mut Ctx<'_>, tell: Tell) -> Result<Taken, Fault> {
        let Some(&name) = self.names.last() else { return Ok(Taken::AtOnce) };
        let is_for_slices = ctx.may_slice || ctx.kept.is_some();
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
        let Some(kept) = ctx.kept.take() else {
            // Another key must not be taken for the one whose rest was built, nor a member left that should have gone.
            let may_rebuild = ctx.may_repeat
                && ctx.only_key.is_none()
                && self.due_ms.is_none()
                && slices::is_better_rebuilt(left, self.count, slices::LEN_MAX);
            let stays = Stretch::Ranks(stays, left, Direction::Up);
            let is_left = may_rebuild
                && ctx.gather_for((name, self.form), self.names, &[(name, stays)], Maker::Copying);
            return Ok(if is_left { Taken::Later } else { Taken::AtOnce });
        };
        if !ctx.leave_rest(name, goes, tell) {
            kept.give_up(ctx);
            return Ok(Taken::AtOnce);
        }
        if let Err(fault) = kept.put_back(ctx, name) {
            if let Some(Rest::Read { shard, number }) = ctx.rest.take()
                && let Some(part) = ctx.part(shard)
            {
                part.shard.end_read(number);
            }
            return Err(fault);
        }
        Ok(Taken::Gone)
    }
}
