//! ARRING with another size: the newest texts are laid from place 0 on, in the order in which they came; many in slices.
//!
//! The slices build a draft of the ring, and the array is watched: if it changes, the command starts again. Called by
//! ARRING (to begin) and by `Incremental`. Memory: the texts that stay, a second time.

use darter_store::{Arena, Array, Collection, Shard};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::new_array;
use crate::incremental::building::BuildingPlace;
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};
use crate::slices::LEN_MAX;
use crate::{Ctx, Fault};

/// Texts, blocks and bytes that are moved in one slice: some 20 microseconds.
const TEXTS_PER_SLICE: usize = 512;
const BLOCKS_PER_SLICE: usize = 32;
const BYTES_PER_SLICE: usize = 8 << 10;

/// Places that are laid elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RingPart {
    from: u64,
    to: u64,
    // The new place of the first.
    start: u64,
}

/// A ring of another size.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRing {
    // The places that stay, the oldest texts first.
    parts: [Option<RingPart>; 2],
    /// The place of the newest text.
    pub cursor: u64,
}

impl NewRing {
    /// The ring of `size` places that `array` becomes; `None` if that leaves it as it is.
    pub fn new(array: &Array, arena: &Arena, size: u64) -> Option<NewRing> {
        let len = array.len(arena);
        let is_whole = array.cursor.is_none_or(|cursor| cursor.checked_add(1) == Some(len));
        if len == size || len == 0 || (len < size && is_whole) {
            return None;
        }
        // Free places keep their part of the ring.
        let newest = array.cursor.unwrap_or(u64::MAX).min(len - 1);
        let kept = size.min(len);
        let older = kept.saturating_sub(newest + 1);
        let from = (newest + 1).saturating_sub(kept);
        Some(NewRing {
            parts: [
                (older > 0).then(|| RingPart { from: len - older, to: len - 1, start: 0 }),
                Some(RingPart { from, to: newest, start: older }),
            ],
            cursor: kept - 1,
        })
    }

    /// Lays all of them at once.
    ///
    /// Errors: no room; some texts may be lost.
    pub fn lay(&self, array: &mut Array, arena: &mut Arena) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for RingPart { from, to, start } in self.parts.into_iter().flatten() {
            array.each(arena, from, to, &mut |place, text| {
                kept.push((place - from + start, text.to_vec()));
                true
            });
        }
        array.remove(arena, 0, darter_store::array::PLACE_MAX)?;
        put_all(array, arena, &kept)?;
        array.cursor = Some(self.cursor);
        Ok(())
    }
}

/// Puts texts at ascending places.
fn put_all(array: &mut Array, arena: &mut Arena, texts: &[(u64, Vec<u8>)]) -> Result<(), Fault> {
    for run in texts.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
        if let Some((first, _)) = run.first() {
            array.put(arena, *first, run.iter().map(|(_, text)| &text[..]))?;
        }
    }
    Ok(())
}

/// A ring in the making.
struct Ringing {
    place: BuildingPlace,
    ring: NewRing,
    // The number of the part, and its next place.
    nth: usize,
    next: Option<u64>,
    fault: Option<Fault>,
}

impl Ringing {
    /// The rest of the part that is being laid.
    fn part(&self) -> Option<RingPart> {
        let part = *self.ring.parts.iter().flatten().nth(self.nth)?;
        let from = self.next.unwrap_or(part.from);
        Some(RingPart { from, start: part.start + (from - part.from), ..part })
    }

    fn lay_some(&mut self, shard: &mut Shard, draft: u32) -> Result<(), Fault> {
        let Some(RingPart { from, to, start }) = self.part() else { return Ok(()) };
        let (mut texts, mut blocks, mut bytes, mut last) = (Vec::new(), 0, 0, None);
        let place = self.place.find(shard);
        // If it is another value by now, the ring is useless, as the last step finds.
        if let Ok(Some(view)) = place.view::<Array>() {
            view.root.each(view.arena, from, to, &mut |place, text| {
                blocks += usize::from(last.replace(place >> 6) != Some(place >> 6));
                bytes += text.len();
                texts.push((place - from + start, text.to_vec()));
                texts.len() < TEXTS_PER_SLICE && blocks < BLOCKS_PER_SLICE && bytes < BYTES_PER_SLICE
            });
        }
        let is_full =
            texts.len() >= TEXTS_PER_SLICE || blocks >= BLOCKS_PER_SLICE || bytes >= BYTES_PER_SLICE;
        let last = texts.last().map(|(place, _)| place - start + from).filter(|last| is_full && *last < to);
        self.next = last.map(|last| last + 1);
        self.nth += usize::from(last.is_none());
        let Some(draft) = shard.draft_mut(draft) else { return Ok(()) };
        let Some(array) = Array::of_mut(draft.object) else { return Ok(()) };
        put_all(array, draft.arena, &texts)
    }
}

impl Operation for Ringing {
    fn next(&self, draft_shard: Option<u16>) -> NextSlice {
        match draft_shard {
            Some(shard) if self.fault.is_none() && self.part().is_some() => NextSlice::Step(shard),
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, draft: Option<u32>) {
        if let Some(draft) = draft
            && let Err(fault) = self.lay_some(&mut part.shard, draft)
        {
            self.fault = Some(fault);
        }
    }

    fn end_reading(&mut self, _target: ResultTo, _reply: &mut Reply<'_>, _max: usize) -> OperationStage {
        OperationStage::Done
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Leaves laying the ring at `name` to slices, if many texts stay; returns whether it did.
pub(super) fn leave(ctx: &mut Ctx<'_>, name: &[u8], size: u64) -> Result<bool, Fault> {
    if !ctx.may_slice {
        return Ok(false);
    }
    let place = ctx.at(name);
    let Some(view) = place.view::<Array>()? else { return Ok(false) };
    let ring = NewRing::new(view.root, view.arena, size);
    let Some(ring) = ring.filter(|ring| view.root.count().min(ring.cursor) > LEN_MAX) else {
        return Ok(false);
    };
    let place = BuildingPlace::new(ctx, name);
    let mut array = new_array();
    array.cursor = Some(ring.cursor);
    let ringing = Ringing { place, ring, nth: 0, next: None, fault: None };
    ctx.fill_later((name, &[name]), array.wrap(), Box::new(ringing));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use darter_base::rng::Rng;

    use super::*;

    /// The ring of another size by its definition: each text has an age in places.
    fn laid(texts: &BTreeMap<u64, Vec<u8>>, cursor: Option<u64>, size: u64) -> BTreeMap<u64, Vec<u8>> {
        let len = texts.last_key_value().map_or(0, |(place, _)| place + 1);
        let newest = cursor.unwrap_or(u64::MAX).min(len - 1);
        let kept = size.min(len);
        let age = |place: u64| if place <= newest { newest - place } else { newest + (len - place) };
        texts
            .iter()
            .filter_map(|(place, text)| Some((kept.checked_sub(age(*place) + 1)?, text.clone())))
            .collect()
    }

    #[test]
    fn a_ring_of_another_size_has_the_newest_texts_in_their_order() {
        let mut arena = Arena::with_reserve(64 << 20).expect("address space");
        let mut rng = Rng::new(5);
        for round in 0..500 {
            let (mut array, mut texts) = (new_array(), BTreeMap::new());
            let far = [40, 300, 20_000, 1 << 40][rng.below(4) as usize];
            for n in 0..=rng.below(200) {
                let place = if rng.below(2) == 0 { rng.below(40) } else { rng.below(far) };
                let text = format!("text {n}").into_bytes();
                array.put(&mut arena, place, std::iter::once(&text[..])).expect("room");
                texts.insert(place, text);
            }
            array.cursor = [None, Some(rng.below(far)), Some(rng.below(100))][rng.below(3) as usize];
            let size = 1 + if rng.below(2) == 0 { rng.below(60) } else { rng.below(2 * far) };
            if let Some(ring) = NewRing::new(&array, &arena, size) {
                let wanted = laid(&texts, array.cursor, size);
                ring.lay(&mut array, &mut arena).expect("room");
                let mut found = BTreeMap::new();
                array.each(&arena, 0, u64::MAX - 1, &mut |place, text| {
                    found.insert(place, text.to_vec()).is_none()
                });
                assert!(found == wanted, "round {round}, size {size}");
                assert_eq!(
                    array.cursor,
                    Some(size.min(texts.last_key_value().map_or(0, |(place, _)| place + 1)) - 1)
                );
            }
            while !array.free_step(&mut arena, 100) {}
        }
    }
}
