//! A random part of a set that is removed: the members are walked in slices. Those that stay are added to a new set,
//! the others to the reply.
//!
//! Called by `Incremental`, for SPOP of many members. Memory: the removed members, once.

use darter_base::rng::Rng;
use darter_wire::value::{self, DecodeLimits, Value};
use darter_wire::{Args, Reply};

use super::operation::{FoundValue, Operation, OperationStage, ResultTo};
use super::{told_members, write_told};

/// The members chosen so far.
pub struct Partition {
    wanted: u64,
    left: u64,
    rng: Rng,
    reply: Vec<u8>,
    resp3: bool,
}

impl Partition {
    /// Takes `wanted` of the `len` members there are, each as likely as any other.
    pub fn new((wanted, len): (u64, u64), rng: Rng, resp3: bool) -> Partition {
        let mut reply = Vec::new();
        Reply::new(&mut reply, resp3).set(usize::try_from(wanted).unwrap_or(usize::MAX));
        Partition { wanted, left: len, rng, reply, resp3 }
    }
}

impl Operation for Partition {
    /// Takes the chosen members out, and returns the others.
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
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

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        OperationStage::Done
    }

    /// The whole reply.
    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.reply), ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        self.reply.capacity()
    }
}

/// The members in the whole reply of a parting.
pub fn members_of(reply: &[u8]) -> Vec<Vec<u8>> {
    let limits = DecodeLimits { bulk_bytes_max: u64::MAX, ..DecodeLimits::default() };
    match value::decode(reply, &limits) {
        Ok(Some((Value::Array(members) | Value::Set(members), _))) => {
            members.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec).collect()
        }
        _ => Vec::new(),
    }
}
