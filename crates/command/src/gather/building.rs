//! A draft, or an answer, that a command builds out of what is at its key, as only it knows how, in slices.
//!
//! Called by `Gather`, with the key's shard held; the commands that change or show consumer groups bring their own. Where
//! the key is not watched, what builds knows which changes make it useless.

use darter_store::{Key, Keyed, Object, Shard};
use darter_txn::Part;
use darter_wire::Args;

use super::Maker;
use super::keeping::{Form, Keeping};
use super::sifting::Found;
use crate::{Ctx, Fault};

/// Builds a draft or an answer.
pub trait Build: Send {
    /// Reads what it needs of the command's words, with no shard held.
    ///
    /// Errors: what is wrong with them.
    fn prepare(&mut self, _args: Args<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Goes on for some 20 microseconds, with the draft of this number if there is one; whether that was all.
    ///
    /// Errors: no room.
    fn step(&mut self, shard: &mut Shard, draft: Option<u32>) -> Result<bool, Fault>;

    /// Whether what it is built of has changed.
    fn is_stale(&self, shard: &mut Shard) -> bool;

    /// Goes on with putting together what is answered, when all is built and no shard is held; whether it is complete.
    fn finish(&mut self) -> bool;

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// What else was found, for the body that runs again.
    fn found(&mut self) -> Found;
}

/// The key of what it is built of.
pub struct Place {
    /// Its database.
    pub db: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// The hash of that.
    pub hash: u64,
}

impl Place {
    /// The key `name` of the selected database.
    pub fn new(ctx: &Ctx<'_>, name: &[u8]) -> Place {
        Place { db: ctx.db, key: name.into(), hash: ctx.key(name).hash }
    }

    /// What is there now; nothing comes to its end by being looked at.
    pub fn find<'s>(&'s self, shard: &'s mut Shard) -> Keyed<'s> {
        Keyed::find(shard, self.db, Key { bytes: &self.key, hash: self.hash }, 0)
    }
}

/// A draft or an answer on its way.
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
        if self.is_done {
            return;
        }
        match self.build.step(&mut part.shard, draft.map(|(_, number)| number)) {
            Ok(is_done) => self.is_done = is_done,
            Err(fault) => (self.is_done, self.fault) = (true, Some(fault)),
        }
    }

    pub(super) fn finish(&mut self) -> bool {
        self.build.finish()
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
        self.begin_building(keeping, build);
    }

    /// Leaves it to slices to build an answer of what is at `name`, and to begin anew when one of the keys `watched`
    /// changes. The body runs again when that is done, and finds it by [`Ctx::take_answer`].
    #[cold]
    pub fn build_answer(&mut self, name: &[u8], watched: &[&[u8]], build: Box<dyn Build>) {
        let keeping = Keeping::new(self, name, Form::List, watched);
        self.begin_building(keeping, build);
    }

    fn begin_building(&mut self, keeping: Keeping, build: Box<dyn Build>) {
        let building = Building { build, is_ready: false, is_done: false, fault: None };
        self.begin_gather(&[], Maker::Building(building), false, Some(Box::new(keeping)));
    }
}
