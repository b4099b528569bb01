//! Answers made of some members of a long collection, one by one: which they are is the command's business.
//!
//! Called by `Gather`; the commands that look through collections (LPOS, LREM, GEOSEARCH) bring their own.

use darter_pack::tree::window::Tell;
use darter_wire::Reply;

/// Looks at members as they are read.
pub trait Sifting: Send {
    /// Writes down of a member what this needs to know; called with the shard held.
    fn tell(&self) -> Tell;

    /// Bytes told of members that are looked at in some 20 microseconds.
    fn told_max(&self) -> usize;

    /// Takes in what was told of members of collection `nth`, with no shard held.
    fn take(&mut self, nth: u32, told: &[u8]);

    /// Whether the rest need not be read.
    fn is_enough(&self) -> bool;

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// Goes on with the answer when all is read, until `reply` has `bytes_max` or a few more; whether that was all.
    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool;

    /// Gives up to `members_max` of the members that are to be stored, with their scores, when all is read; whether that
    /// was all of them. Most have none.
    fn store(&mut self, _members_max: usize, _give: &mut dyn FnMut(&[u8], f64)) -> bool {
        true
    }

    /// What was found, for a body that runs again.
    fn found(&mut self) -> Found;
}

/// What a body that left a search to slices finds in its context.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Ranks, places or sums, as the command knows.
    pub numbers: Vec<u64>,
    /// A string.
    pub bytes: Vec<u8>,
}
