//! A search over many members, in slices: each member is examined after its shard was released.
//!
//! Called by the search commands, and by `Incremental` with the members read.

use darter_pack::entry::Item;
use darter_pack::tree::zset::Edge;
use darter_pack::tree::{Direction, Zset};
use darter_store::reads::Stretch;
use darter_store::{Collection, KeyView};
use darter_wire::{Args, Reply};

use super::cell::CellPlace;
use super::query::{DistanceOrder, GeoExtras, GeoQuery};
use super::search::{Hit, reply_hit, sort};
use super::shape::GeoShape;
use crate::incremental::Operation;
use crate::incremental::{told_members, write_told};
use crate::slices;

/// The members found so far, and the query.
pub(super) struct Around {
    center: CellPlace,
    shape: GeoShape,
    order: DistanceOrder,
    count_max: usize,
    // With ANY, this number suffices.
    enough: usize,
    extras: GeoExtras,
    // Meters per unit of a score, if distances are stored.
    unit: Option<f64>,
    hits: Vec<Near>,
    texts: Vec<u8>,
    // The number of hits to answer; `None` before the answer has begun.
    told: Option<usize>,
}

/// A member found.
#[derive(Clone, Copy)]
struct Near {
    distance: f64,
    score: f64,
    // The start of its name among the texts.
    start: usize,
    len: usize,
}

impl Around {
    /// A search that is long enough for slices, and the stretches to read for it.
    pub fn of(zset: KeyView<'_, Zset>, query: &GeoQuery<'_>, now_ms: u64) -> Option<(Around, Vec<Stretch>)> {
        let (center, shape) = (query.center?, query.shape.clone()?);
        let count_max = query.count.unwrap_or(usize::MAX);
        let mut stretches = Vec::new();
        let mut sum = 0;
        for cell in shape.cells(center) {
            let (from, to) = cell.scores();
            let first = zset.root.rank_of_score(zset.arena, from, Edge::Before);
            let len = zset.root.rank_of_score(zset.arena, to, Edge::Before).saturating_sub(first);
            if len > 0 {
                stretches.push(Stretch::Ranks(first, len, Direction::Up));
            }
            sum += len;
        }
        let looks = if query.is_any { sum.min(count_max as u64) } else { sum };
        if !slices::is_long(looks, zset.root.next_expiry_ms(), now_ms) {
            return None;
        }
        let enough = if query.is_any { count_max } else { usize::MAX };
        let (order, extras) = (query.order, query.extras());
        let unit = query.destination.filter(|to| to.by_distance).map(|_| query.unit);
        let (hits, texts) = (Vec::new(), Vec::new());
        let around =
            Around { center, shape, order, count_max, enough, extras, unit, hits, texts, told: None };
        Some((around, stretches))
    }
}

impl Around {
    /// Sorts the members found, once; returns the number to answer.
    fn begin(&mut self) -> usize {
        if self.told.is_none() {
            sort(&mut self.hits, self.order, |hit| hit.distance);
            self.hits.truncate(self.count_max);
        }
        *self.told.get_or_insert(0)
    }

    fn text(&self, near: &Near) -> &[u8] {
        self.texts.get(near.start..near.start + near.len).unwrap_or_default()
    }
}

impl Operation for Around {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        for member in told_members(told) {
            let place = CellPlace::of_score(member.score);
            if self.is_decided() {
                return Vec::new();
            }
            if let Some(distance) = self.shape.distance_within(self.center, place) {
                let (start, len) = (self.texts.len(), member.text.len());
                self.texts.extend_from_slice(member.text);
                self.hits.push(Near { distance, score: member.score, start, len });
            }
        }
        Vec::new()
    }

    fn is_decided(&self) -> bool {
        self.hits.len() >= self.enough
    }

    fn bytes(&self) -> usize {
        self.texts.capacity() + self.hits.capacity() * size_of::<Near>()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        let is_first = self.told.is_none();
        let mut told = self.begin();
        if is_first {
            reply.array(self.hits.len());
        }
        while reply.len() < bytes_max
            && let Some(near) = self.hits.get(told)
        {
            let text = self.text(near);
            let (score, distance, place) = (near.score, near.distance, CellPlace::of_score(near.score));
            reply_hit(reply, self.extras, &Hit { member: Item::Bytes(text), score, place, distance });
            told += 1;
        }
        self.told = Some(told);
        told >= self.hits.len()
    }

    fn store(&mut self, _args: Args<'_>, members_max: usize, out: &mut Vec<u8>) -> bool {
        let first = self.begin();
        let hits = self.hits.get(first..).unwrap_or_default();
        for near in hits.iter().take(members_max) {
            let score = self.unit.map_or(near.score, |unit| near.distance / unit);
            write_told(out, self.text(near), score);
        }
        let told = first + hits.len().min(members_max);
        self.told = Some(told);
        told == self.hits.len()
    }
}
