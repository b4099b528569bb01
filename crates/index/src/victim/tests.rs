use super::*;
use std::collections::HashSet;

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn spread(h: Handle) -> u64 {
    mix(u64::from(h.raw()))
}

/// Few homes and one segment: stashes and spills.
fn crowded(h: Handle) -> u64 {
    let z = spread(h);
    z & 0x00ff_ffff_0000_00ff | (z >> 40 & 3) << 24
}

fn key(n: usize) -> Handle {
    Handle::from_raw(n as u32 + 1)
}

fn find(index: &Index, hash_of: fn(Handle) -> u64, h: Handle) -> Option<IndexSlot> {
    index.find(hash_of(h), |other| other == h)
}

/// Chooses once for each segment and removes the chosen entries; returns them.
fn round(index: &mut Index, hash_of: fn(Handle) -> u64, may_go: impl Fn(Handle) -> bool) -> Vec<Handle> {
    let (mut gone, mut at) = (Vec::new(), ScanPosition::START);
    loop {
        let mut chosen = Vec::new();
        at = index.choose(at, &may_go, &mut chosen);
        for (i, &slot) in chosen.iter().enumerate() {
            assert!(!chosen[..i].contains(&slot), "chosen twice");
            let h = index.handle(slot);
            assert!(may_go(h), "{h:?} was to stay");
            index.note_eviction(slot, hash_of(h));
            assert_eq!(index.remove(slot, hash_of(h)), h);
            gone.push(h);
        }
        if at == ScanPosition::START {
            return gone;
        }
    }
}

/// The queues that are kept of each segment are as long as its entries say.
fn check_queues(index: &mut Index) {
    let mut place = 0;
    loop {
        let (segment, past) = index.segment_and_past(place).expect("a segment");
        let now = Queues::of(segment);
        if let Some(kept) = past.and_then(|past| past.queues(segment)).filter(|kept| kept.is_known()) {
            assert_eq!((kept.young.len, kept.main.len), (now.young.len, now.main.len));
        }
        let Ok(next) = u32::try_from(span_of(segment, place).1) else { break };
        place = next;
    }
}

#[test]
fn random_use_growth_and_eviction_lose_nothing_but_what_was_chosen() {
    for (hash_of, keys, remembers) in
        [(spread as fn(Handle) -> u64, 9000, true), (spread, 9000, false), (crowded, 2000, true)]
    {
        let mut index = Index::new();
        index.remember(remembers);
        let mut oracle: HashSet<Handle> = HashSet::new();
        let mut random = 7u64;
        for step in 0..150_000 {
            random = mix(random.wrapping_add(step));
            let h = key((random >> 8) as usize % keys);
            match find(&index, hash_of, h) {
                Some(slot) => index.touch(slot),
                None => {
                    index.insert(hash_of(h), h, hash_of);
                    oracle.insert(h);
                }
            }
            if step % 1000 == 999 {
                let stays = |h: Handle| !h.raw().is_multiple_of(7);
                for h in round(&mut index, hash_of, stays) {
                    assert!(oracle.remove(&h), "{h:?} was not there");
                }
            }
            if step % 30_000 == 29_999 {
                index.check_lines(hash_of);
                if index.spill.is_empty() {
                    check_queues(&mut index);
                }
                // Nearly all are removed one by one, so that segments merge, and some come back to fingerprints that
                // were copied.
                for h in oracle.iter().copied().filter(|h| h.raw() % 10 != 0).collect::<Vec<_>>() {
                    let slot = find(&index, hash_of, h).expect("present");
                    index.remove(slot, hash_of(h));
                    oracle.remove(&h);
                }
                while index.merge_step(hash_of) {}
                index.check_lines(hash_of);
            }
        }
        assert_eq!(index.len(), oracle.len());
        assert!(oracle.iter().all(|&h| find(&index, hash_of, h).is_some()));
        index.remember(false);
        index.check_lines(hash_of);
    }
}

#[test]
fn what_was_hit_stays_and_what_comes_back_stays_longer() {
    let mut index = Index::new();
    index.remember(true);
    for n in 0..2000 {
        index.insert(spread(key(n)), key(n), spread);
    }
    for n in (0..2000).step_by(2) {
        let slot = find(&index, spread, key(n)).expect("present");
        (0..2).for_each(|_| index.touch(slot));
    }
    let mut gone = HashSet::new();
    while gone.len() < 900 {
        gone.extend(round(&mut index, spread, |_| true));
    }
    let hit = gone.iter().filter(|h: &&Handle| h.raw() % 2 == 1).count();
    assert!(hit < 20, "{hit} that were hit went");
    // Those that went last are remembered and come into the main part; new ones come on probation.
    let is_main = |index: &Index, h: Handle| {
        let slot = find(index, spread, h).expect("present");
        let segment = index.segment(slot.place).expect("a segment");
        segment.lines[line_of(slot)].flags(slot_of(slot)) & MAIN != 0
    };
    let back = round(&mut index, spread, |_| true);
    for h in back.iter().copied().chain((5000..5100).map(key)) {
        index.insert(spread(h), h, spread);
    }
    let known = back.iter().filter(|&&h| is_main(&index, h)).count();
    assert!(known * 2 >= back.len(), "{known} of {} are known", back.len());
    assert!(!(5000..5100).any(|n| is_main(&index, key(n))));
}

#[test]
fn fingerprints_take_at_most_a_byte_and_a_half_an_entry() {
    let mut index = Index::new();
    for n in 0..200_000 {
        index.insert(spread(key(n)), key(n), spread);
    }
    let before = index.bytes();
    index.remember(true);
    assert_eq!(index.bytes(), before);
    for _ in 0..3 {
        for h in round(&mut index, spread, |_| true) {
            index.insert(spread(h), h, spread);
        }
    }
    let more = index.bytes() - before;
    assert!(more as f64 / 200_000.0 <= 1.5, "{more} bytes for 200,000 entries");
}
