//! A random part of a set that is taken out: the members are gone through in slices, those that stay go into a set of
//! their own, and the others into the reply.
//!
//! Called by `Gather`; SPOP of many brings it. Memory: the members that go, once.

use darter_base::rng::Rng;
use darter_wire::Reply;

use super::{Found, told_members, write_told};

/// What is chosen so far.
pub struct Parting {
    wanted: u64,
    left: u64,
    rng: Rng,
    reply: Vec<u8>,
    resp3: bool,
}

impl Parting {
    /// Takes `wanted` of the `len` members there are, each as likely as any other.
    pub fn new((wanted, len): (u64, u64), rng: Rng, resp3: bool) -> Parting {
        let mut reply = Vec::new();
        Reply::new(&mut reply, resp3).set(usize::try_from(wanted).unwrap_or(usize::MAX));
        Parting { wanted, left: len, rng, reply, resp3 }
    }

    /// Takes what goes out of what was told, and returns the rest.
    pub(super) fn take(&mut self, told: &[u8]) -> Vec<u8> {
        let mut stays = Vec::with_capacity(told.len());
        let mut reply = Reply::new(&mut self.reply, self.resp3);
        for member in told_members(told) {
            let goes = self.left > 0 && self.rng.below(self.left) < self.wanted;
            self.left = self.left.saturating_sub(1);
            if goes {
                self.wanted -= 1;
                reply.bulk(member.text);
            } else {
                write_told(&mut stays, member.text, member.score);
            }
        }
        stays
    }

    pub(super) fn bytes(&self) -> usize {
        self.reply.capacity()
    }

    /// The whole reply.
    pub(super) fn found(&mut self) -> Found {
        Found { bytes: std::mem::take(&mut self.reply), ..Found::default() }
    }
}
