//! The many entries that XCLAIM or XACK names, in the order of their ids.
//!
//! Called by `regrouping`, which visits the pending entries in that order too.

use std::ops::Range;

use darter_pack::tree::{Pending, StreamId};
use darter_wire::{Args, Reply};

use super::claim::ClaimOptions;
use super::delete::ids;
use crate::Fault;

/// Named entries, and the options of XCLAIM.
#[derive(Default)]
pub(super) struct Named {
    // By id, each with its place among the command's words.
    ids: Vec<(StreamId, u32)>,
    // Number of entries visited.
    met: usize,
    claim: Option<ClaimOptions>,
    // The answer about each entry, by position of its word.
    spans: Vec<(u32, Range<usize>)>,
}

/// The result for an entry that XCLAIM names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NamedVerdict {
    /// Nothing.
    Leave,
    /// It is no longer pending, because the stream has lost it.
    Drop,
    /// It is pending with these values.
    Give(Pending),
}

impl Named {
    /// The entries that XACK names.
    ///
    /// Errors: an invalid id.
    pub fn acknowledged(args: Args<'_>) -> Result<Named, Fault> {
        Ok(Named::of(&ids(args, 3)?, None))
    }

    /// The entries that XCLAIM names.
    ///
    /// Errors: invalid options.
    pub fn claimed(args: Args<'_>, now_ms: u64) -> Result<Named, Fault> {
        let mut claim = ClaimOptions::parse(args, now_ms)?;
        let ids = std::mem::take(&mut claim.ids);
        // Room is reserved before the first slice: a growing vector would copy its content.
        Ok(Named { spans: Vec::with_capacity(ids.len()), ..Named::of(&ids, Some(claim)) })
    }

    fn of(ids: &[StreamId], claim: Option<ClaimOptions>) -> Named {
        let mut ids: Vec<(StreamId, u32)> = ids.iter().copied().zip(0..).collect();
        ids.sort_unstable();
        Named { ids, met: 0, claim, spans: Vec::new() }
    }

    /// The positions of this entry among the named ones, for [`Named::told`]; it must come after those visited
    /// before.
    pub fn meet(&mut self, id: StreamId) -> Range<usize> {
        let left = self.ids.get(self.met..).unwrap_or_default();
        let first = self.met + left.partition_point(|&(named, _)| named < id);
        let more = self.ids.get(first..).unwrap_or_default().iter().take_while(|&&(named, _)| named == id);
        self.met = first + more.count();
        first..self.met
    }

    /// Returns true if it is named.
    pub fn has(&mut self, id: StreamId) -> bool {
        !self.meet(id).is_empty()
    }

    /// The verdict for a claimed entry, pending or not, still in the stream or not.
    pub fn verdict(&self, before: Option<Pending>, is_there: bool, who: (u32, u64)) -> NamedVerdict {
        self.claim.as_ref().map_or(NamedVerdict::Leave, |claim| claim.verdict(before, is_there, who))
    }

    /// Returns true if only ids are answered.
    pub fn are_just_ids(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.just_ids)
    }

    /// The least id that the group has read.
    pub fn last_id(&self) -> StreamId {
        self.claim.as_ref().map_or(StreamId::MIN, |claim| claim.last_id)
    }

    /// Notes the position of the answer about a visited entry.
    pub fn told(&mut self, met: usize, at: Range<usize>) {
        if let Some(&(_, nth)) = self.ids.get(met) {
            self.spans.push((nth, at));
        }
    }

    /// Writes the answers, in the order of the words.
    pub fn answer(&mut self, told: &[u8], reply: &mut Reply<'_>) {
        self.spans.sort_unstable_by_key(|&(nth, _)| nth);
        reply.array(self.spans.len());
        for (_, at) in &self.spans {
            reply.raw(told.get(at.clone()).unwrap_or_default());
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.ids.capacity() * size_of::<(StreamId, u32)>()
            + self.spans.capacity() * size_of::<(u32, Range<usize>)>()
    }
}
