//! Beats: the words by which members of a group say that they live, and how far they are.
//!
//! `group` makes and reads them, the server's threads carry them.

use crate::state::GroupMember;

/// The words of a server to another, about ten times within a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The sender.
    pub from: GroupMember,
    /// The term it knows.
    pub term: u64,
    /// The leader's clock, as its last answer showed it; 0: nothing is acknowledged.
    pub echo_ms: u64,
    /// How far the sender is.
    pub standing: Standing,
}

/// The answer to a [`Beat`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeatAnswer {
    /// The sender.
    pub from: GroupMember,
    /// The term it knows.
    pub term: u64,
    /// The clock of the sender if it leads; else 0.
    pub clock_ms: u64,
    /// How far the sender is.
    pub standing: Standing,
}

/// How far a server is, for a choice among several that may lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Bytes of the history that it has.
    pub position: u64,
    /// Its data is whole.
    pub is_whole: bool,
    /// It has begun with what its journal kept.
    pub recovers: bool,
}
