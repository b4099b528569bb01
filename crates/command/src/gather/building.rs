//! A draft that a command builds out of what is at its key, as only it knows how, in slices.
//!
//! Called by `Gather`, with the key's shard held; the commands that change consumer groups bring their own. The key is not
//! watched: what builds knows which changes make it useless.

use darter_store::{Object, Shard};
use darter_txn::Part;
use darter_wire::Args;

use super::Maker;
use super::keeping::{Form, Keeping};
use super::sifting::Found;
use crate::{Ctx, Fault};

/// Builds a draft.
pub trait Build: Send {
    /// Reads what it needs of the command's words, with no shard held.
    ///
    /// Errors: what is wrong with them.
    fn prepare(&mut self, _args: Args<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Goes on with the draft of this number for some 20 microseconds; whether that was all.
    ///
    /// Errors: no room.
    fn step(&mut self, shard: &mut Shard, draft: u32) -> Result<bool, Fault>;

    /// Whether what it is built of has changed.
    fn is_stale(&self, shard: &mut Shard) -> bool;

    /// Puts together what is answered, when all is built and no shard is held.
    fn finish(&mut self);

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// What else was found, for the body that runs again.
    fn found(&mut self) -> Found;
}

/// A draft on its way.
pub struct Building {
    build: Box<dyn Build>,
    is_ready: bool,
    is_done: bool,
    fault: Option<Fault>,
}

impl Building {
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub(super) fn prepare(&mut self, args: Args<'_>) {
        if !self.is_ready
            && let Err(fault) = self.build.prepare(args)
        {
            (self.is_done, self.fault) = (true, Some(fault));
        }
        self.is_ready = true;
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(super) fn step(&mut self, part: &mut Part, draft: Option<(u16, u32)>) {
        let Some((_, draft)) = draft.filter(|_| !self.is_done) else { return };
        match self.build.step(&mut part.shard, draft) {
            Ok(is_done) => self.is_done = is_done,
            Err(fault) => (self.is_done, self.fault) = (true, Some(fault)),
        }
    }

    pub(super) fn finish(&mut self) {
        self.build.finish();
    }

    pub(super) fn is_stale(&self, shard: &mut Shard) -> bool {
        self.build.is_stale(shard)
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    pub(super) fn bytes(&self) -> usize {
        self.build.bytes()
    }

    pub(super) fn found(&mut self) -> Found {
        self.build.found()
    }
}

impl Ctx<'_> {
    /// Leaves it to slices to build `object`, still empty, out of what is at `name`. The body runs again when that is done,
    /// and finds it as [`Ctx::kept`].
    #[cold]
    pub fn build(&mut self, name: &[u8], object: Object, build: Box<dyn Build>) {
        let keeping = Keeping::new(self, name, Form::List, &[]).with_draft(self, object);
        let building = Building { build, is_ready: false, is_done: false, fault: None };
        self.begin_gather(&[], Maker::Building(building), false, Some(Box::new(keeping)));
    }
}
