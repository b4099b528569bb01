use super::*;
use std::collections::HashMap;

/// Random numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// An arena beside the bytes that each of its blocks must have.
struct Checked {
    arena: Arena,
    blocks: HashMap<u32, Vec<u8>>,
    handles: Vec<Handle>,
}

impl Checked {
    fn new(reserve_bytes: usize) -> Checked {
        Checked {
            arena: Arena::with_reserve(reserve_bytes).unwrap(),
            blocks: HashMap::new(),
            handles: Vec::new(),
        }
    }

    fn alloc(&mut self, bytes: usize, rng: &mut Rng) -> bool {
        let Some(h) = self.arena.alloc(bytes) else { return false };
        assert!(!h.is_none());
        assert_eq!(self.arena.size(h), Arena::fits(bytes));
        assert!(self.arena.size(h) >= bytes);
        let block = self.arena.block_mut(h);
        let seed = rng.next();
        for (i, byte) in block.iter_mut().enumerate() {
            *byte = (seed >> (i % 8 * 8)) as u8 ^ i as u8;
        }
        assert!(self.blocks.insert(h.raw(), block.to_vec()).is_none(), "handed out twice");
        self.handles.push(h);
        true
    }

    fn free(&mut self, rng: &mut Rng) {
        let at = rng.below(self.handles.len());
        let h = self.handles.swap_remove(at);
        let bytes = self.blocks.remove(&h.raw()).unwrap();
        assert_eq!(self.arena.block(h), bytes);
        self.arena.free(h);
    }

    /// Checks that all blocks have their bytes, and that every counter agrees with a walk over the pages.
    fn check(&mut self) {
        for (&raw, bytes) in &self.blocks {
            let h = Handle::from_raw(raw);
            assert_eq!(self.arena.block(h), bytes);
            assert_eq!(&self.arena.tail(h)[..bytes.len()], bytes);
        }
        assert_eq!(self.arena.used_bytes(), self.blocks.values().map(Vec::len).sum::<usize>());
        self.arena.release_empty(0);
        self.arena.check_pages(self.blocks.len());
    }
}

#[test]
fn blocks_keep_their_bytes_and_counters_are_exact() {
    for seed in 0..6 {
        let mut rng = Rng(seed);
        let mut checked = Checked::new(64 << 20);
        let bytes_max = [64, 300, 2000, BLOCK_BYTES_MAX][seed as usize % 4];
        let mut grow_percent = 80;
        for step in 0..20_000 {
            if step % 1024 == 0 {
                grow_percent = [5, 30, 50, 70, 95][rng.below(5)];
                checked.check();
            }
            if checked.handles.is_empty() || (rng.below(100) < grow_percent && checked.handles.len() < 3000) {
                let bytes = 1 + rng.below(bytes_max);
                assert!(checked.alloc(bytes, &mut rng));
            } else {
                checked.free(&mut rng);
            }
            if rng.below(300) == 0 {
                let pages_max = rng.below(40);
                let empty = checked.arena.empty_bytes();
                let released = checked.arena.release_empty(pages_max);
                assert!(released <= pages_max * 4096);
                assert!(released >= empty.min(pages_max * 4096));
            }
        }
        while !checked.handles.is_empty() {
            checked.free(&mut rng);
        }
        checked.check();
        assert_eq!((checked.arena.used_bytes(), checked.arena.committed_bytes()), (0, 0));
        checked.arena.release_empty(usize::MAX);
        assert_eq!(checked.arena.empty_bytes(), 0);
        assert_eq!(checked.arena.top(), 1, "an empty arena joins its runs back into one");
    }
}

#[test]
fn large_blocks_live_among_small_ones() {
    for seed in 10..14 {
        let mut rng = Rng(seed);
        let mut checked = Checked::new(256 << 20);
        for step in 0..1500 {
            if step % 128 == 0 {
                checked.check();
            }
            if checked.handles.is_empty() || (rng.below(100) < 55 && checked.handles.len() < 60) {
                let bytes_max = [300, 40 << 10, 400 << 10, 3 << 20][rng.below(4)];
                let bytes = 1 + rng.below(bytes_max);
                assert!(checked.alloc(bytes, &mut rng));
            } else {
                checked.free(&mut rng);
            }
            if rng.below(40) == 0 {
                checked.arena.release_empty(rng.below(400));
            }
        }
        while !checked.handles.is_empty() {
            checked.free(&mut rng);
        }
        checked.check();
        checked.arena.release_empty(usize::MAX);
        assert_eq!((checked.arena.committed_bytes(), checked.arena.top()), (0, 1));
    }
}

#[test]
fn a_large_block_is_at_most_an_eighth_too_long() {
    for bytes in [BLOCK_BYTES_MAX + 1, 100_000, 1 << 20, (1 << 20) + 1, 512 << 20] {
        let size = Arena::fits(bytes);
        assert!(size >= bytes && size - bytes <= bytes / 8 + 4096, "{bytes} in {size}");
    }
    // From a mebibyte on it is no page longer than it must be.
    for bytes in [1 << 20, (1 << 20) + 1, (512 << 20) + 20] {
        assert!(Arena::fits(bytes) - bytes < 4096);
    }
}

#[test]
fn a_block_that_is_read_stays_until_its_last_reader_is_done() {
    let mut arena = Arena::with_reserve(64 << 20).unwrap();
    let (small, h) = (arena.alloc(100).unwrap(), arena.alloc(5 << 20).unwrap());
    assert!(!arena.pin(small) && !arena.pin(Handle::NONE), "only large blocks are pinned");
    arena.block_mut(h).fill(7);
    let used = arena.used_bytes();
    assert!(arena.pin(h) && arena.pin(h) && arena.is_pinned(h));
    assert_eq!(arena.left_behind_bytes(h), 0, "it is still in use");
    arena.free(h);
    // The block is no longer counted, but its pages are not reused.
    assert_eq!((arena.used_bytes(), arena.empty_bytes()), (used - (5 << 20), 0));
    assert_eq!(arena.left_behind_bytes(h), 5 << 19, "each reader has a half of it");
    let other = arena.alloc(5 << 20).unwrap();
    arena.block_mut(other).fill(8);
    assert!(other != h && arena.block(h).iter().all(|&byte| byte == 7));
    arena.unpin(h);
    assert_eq!((arena.left_behind_bytes(h), arena.empty_bytes()), (5 << 20, 0));
    arena.unpin(h);
    arena.unpin(h);
    assert_eq!((arena.empty_bytes(), arena.is_pinned(h)), (5 << 20, false));
    // A block that was not freed is unchanged.
    assert!(arena.pin(other));
    arena.unpin(other);
    assert!(arena.block(other).iter().all(|&byte| byte == 8));
    arena.free(other);
    arena.free(small);
    arena.release_empty(usize::MAX);
    arena.check_pages(0);
}

#[test]
fn what_is_on_its_way_to_the_kernel_does_not_count() {
    let mut arena = Arena::with_reserve(64 << 20).unwrap();
    let h = arena.alloc(40 << 20).unwrap();
    let before = arena.occupied_bytes();
    arena.free(h);
    assert!(arena.empty_bytes() >= 40 << 20, "nothing is given back yet");
    assert!(before >= 40 << 20 && arena.occupied_bytes() <= 1 << 20, "{}", arena.occupied_bytes());
}

#[test]
fn a_reservation_can_be_filled_emptied_and_filled_with_another_size() {
    let mut rng = Rng(7);
    let mut checked = Checked::new(8 << 20);
    for bytes in [24, 32 << 10, 200, 5000, 24] {
        let mut blocks = 0;
        while checked.alloc(bytes, &mut rng) {
            blocks += 1;
        }
        assert!(blocks * Arena::fits(bytes) > (8 << 20) * 95 / 100, "{blocks} blocks of {bytes}");
        checked.check();
        while !checked.handles.is_empty() {
            checked.free(&mut rng);
        }
        checked.check();
        if bytes != 200 {
            checked.arena.release_empty(usize::MAX);
        }
    }
}

#[test]
fn a_few_blocks_commit_little() {
    let mut arena = Arena::new().unwrap();
    assert_eq!(arena.committed_bytes(), 0);
    let h = arena.alloc(40).unwrap();
    assert_eq!((arena.used_bytes(), arena.committed_bytes()), (40, 4096));
    for _ in 1..102 {
        arena.alloc(40).unwrap();
    }
    assert_eq!((arena.used_bytes(), arena.committed_bytes()), (102 * 40, 4096));
    arena.alloc(40).unwrap();
    assert_eq!(arena.committed_bytes(), 3 * 4096);
    arena.free(h);
    assert_eq!(arena.used_bytes(), 102 * 40);
}

#[test]
fn released_pages_leave_memory_and_read_as_zeros() {
    let mut arena = Arena::with_reserve(64 << 20).unwrap();
    let handles: Vec<Handle> = (0..1000).map(|_| arena.alloc(16 << 10).unwrap()).collect();
    handles.iter().for_each(|&h| arena.block_mut(h).fill(0xaa));
    let before = arena.resident_bytes();
    handles.iter().for_each(|&h| arena.free(h));
    let empty = arena.empty_bytes();
    assert_eq!(arena.release_empty(100), 100 * 4096);
    assert!(arena.release_empty(usize::MAX) >= empty - 100 * 4096);
    assert_eq!((arena.committed_bytes(), arena.empty_bytes()), (0, 0));
    assert!(before - arena.resident_bytes() > 15 << 20);
    let h = arena.alloc(16 << 10).unwrap();
    assert!(arena.block(h).iter().all(|&b| b == 0));
}

#[test]
fn clear_forgets_everything_and_gives_memory_back() {
    let mut rng = Rng(3);
    let mut checked = Checked::new(64 << 20);
    for round in 0..3 {
        for _ in 0..2000 {
            assert!(checked.alloc(1 + rng.below(4000), &mut rng));
        }
        checked.check();
        if round == 1 {
            (0..1000).for_each(|_| checked.free(&mut rng));
        }
        checked.arena.clear();
        checked.blocks.clear();
        checked.handles.clear();
        checked.check();
        // Megabytes are given back in steps, in pieces as large as asked for.
        let empty = checked.arena.empty_bytes();
        assert!(checked.arena.committed_bytes() == 0 && empty > 2 << 20);
        assert_eq!(checked.arena.release_empty(10), 10 * 4096);
        checked.check();
        assert!(checked.alloc(3000, &mut rng));
        checked.check();
        checked.free(&mut rng);
        checked.arena.release_empty(usize::MAX);
        assert_eq!((checked.arena.committed_bytes(), checked.arena.empty_bytes()), (0, 0));
        assert!(checked.arena.resident_bytes() < 1 << 20);
    }
    let mut small = Arena::new().unwrap();
    small.alloc(100_000).unwrap();
    small.clear();
    assert_eq!((small.committed_bytes(), small.empty_bytes()), (0, 0));
}

#[test]
fn any_handle_is_harmless() {
    let mut arena = Arena::with_reserve(4 << 20).unwrap();
    let live = arena.alloc(100).unwrap();
    assert_eq!((arena.size(Handle::NONE), arena.block(Handle::NONE)), (0, &[][..]));
    for raw in (0..(4 << 20) / 8).step_by(37) {
        let h = Handle::from_raw(raw);
        assert!(arena.block(h).len() <= BLOCK_BYTES_MAX);
        arena.block_mut(h).iter_mut().for_each(|b| *b = b.wrapping_add(1));
        assert_eq!(arena.tail(h).len(), (4 << 20) - raw as usize * 8);
        arena.prefetch(h);
    }
    arena.prefetch(Handle::from_raw(u32::MAX));
    // The free lists were overwritten. Handles from them are wrong now, but inside the arena.
    for n in 1..200 {
        let h = arena.alloc(n).unwrap();
        arena.block_mut(h).fill(0xff);
        if h != live && n % 3 == 0 {
            arena.free(h);
        }
    }
    assert!(arena.alloc(0).is_none() && arena.alloc(crate::LARGE_BYTES_MAX + 1).is_none());
}

#[test]
fn a_broken_free_list_stays_inside_the_mapping() {
    let mut arena = Arena::with_reserve(1 << 20).unwrap();
    let handles: Vec<Handle> = std::iter::from_fn(|| arena.alloc(8)).collect();
    let last = *handles.last().unwrap();
    // More than each class keeps, so that links are written, and then overwritten.
    for &h in &handles[handles.len() - 40..] {
        arena.free(h);
    }
    arena.tail_mut(handles[handles.len() - 40]).fill(0x7f);
    assert!(arena.tail(last).iter().all(|&b| b == 0x7f));
    for _ in 0..60 {
        let Some(h) = arena.alloc(8) else { break };
        assert!(h.raw() < last.raw() + (1 << 17));
    }
}

#[test]
fn two_blocks_at_once() {
    let mut arena = Arena::with_reserve(4 << 20).unwrap();
    let (a, b) = (arena.alloc(10).unwrap(), arena.alloc(16).unwrap());
    for (a, b) in [(a, b), (b, a)] {
        let (x, y) = arena.two_mut(a, b);
        assert_eq!((x.len(), y.len()), (16, 16));
        x.fill(1);
        y.copy_from_slice(x);
    }
    assert_eq!(arena.block(a), arena.block(b));
}

#[test]
#[should_panic(expected = "overlap")]
fn one_block_is_not_two() {
    let mut arena = Arena::with_reserve(4 << 20).unwrap();
    let a = arena.alloc(16).unwrap();
    arena.two_mut(a, a);
}

#[test]
#[should_panic(expected = "beyond")]
fn a_handle_beyond_the_reservation_is_refused() {
    let arena = Arena::with_reserve(1 << 20).unwrap();
    arena.tail(Handle::from_raw(1 << 20));
}

#[test]
fn the_general_allocator_keeps_alignment_and_bytes() {
    use std::alloc::{GlobalAlloc, Layout};
    let allocator = global::Allocator;
    for bytes in [1, 8, 15, 16, 24, 100, 4096, 100_000] {
        for align in [1, 8, 16, 64, 4096] {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: the layout is not empty; the block is used within it and freed with the layout it has then.
            unsafe {
                let block = allocator.alloc_zeroed(layout);
                assert!(block.addr().is_multiple_of(align) && *block == 0 && *block.add(bytes - 1) == 0);
                *block.add(bytes - 1) = 7;
                let block = allocator.realloc(block, layout, bytes * 3);
                assert!(block.addr().is_multiple_of(align) && *block.add(bytes - 1) == 7);
                allocator.dealloc(block, Layout::from_size_align(bytes * 3, align).unwrap());
                let block = allocator.alloc(layout);
                assert!(block.addr().is_multiple_of(align));
                allocator.dealloc(block, layout);
            }
        }
    }
}

/// Half of the blocks are freed at random. A pass reduces memory to the stored bytes, and damages nothing.
#[test]
fn compaction_brings_memory_back_after_deletes() {
    for seed in 0..4 {
        let mut rng = Rng(seed);
        let mut checked = Checked::new(256 << 20);
        for _ in 0..60_000 {
            assert!(checked.alloc(30 + rng.below(60), &mut rng));
        }
        for _ in 0..30_000 {
            checked.free(&mut rng);
        }
        let (used, before) = (checked.arena.used_bytes(), checked.arena.committed_bytes());
        assert!(before > used * 19 / 10);
        let expected = checked.arena.start_compaction();
        assert!(expected * 100 > before * 45);
        let mut moved = 0;
        for at in (0..30_000).chain(0..30_000) {
            // Writers continue during the first half. Blocks that they move behind `at` are seen in the second half.
            let is_busy = seed % 2 == 1 && moved < 12_000;
            if is_busy && rng.below(10) == 0 {
                assert!(checked.alloc(30 + rng.below(60), &mut rng));
            }
            if is_busy && rng.below(10) == 0 {
                checked.free(&mut rng);
            }
            let Some(&h) = checked.handles.get(at) else { continue };
            if let Some(to) = checked.arena.compact(h) {
                let bytes = checked.blocks.remove(&h.raw()).unwrap();
                assert!(checked.blocks.insert(to.raw(), bytes).is_none());
                checked.handles[at] = to;
                moved += 1;
            }
        }
        assert!(moved > 10_000, "{moved}");
        checked.arena.end_compaction();
        checked.check();
        let (used, after) = (checked.arena.used_bytes(), checked.arena.committed_bytes());
        let percent = if seed % 2 == 1 { 125 } else { 105 };
        assert!(after * 100 < used * percent, "seed {seed}: {after} for {used}, {before} before");
        while !checked.handles.is_empty() {
            checked.free(&mut rng);
        }
        checked.check();
        assert_eq!(checked.arena.committed_bytes(), 0);
    }
}

#[test]
fn a_compaction_that_is_left_alone_changes_nothing() {
    let mut rng = Rng(5);
    let mut checked = Checked::new(64 << 20);
    assert_eq!(checked.arena.start_compaction(), 0);
    (0..5000).for_each(|_| assert!(checked.alloc(48, &mut rng)));
    assert_eq!(checked.arena.start_compaction(), 0, "full runs are left alone");
    (0..3000).for_each(|_| checked.free(&mut rng));
    for _ in 0..2 {
        assert!(checked.arena.start_compaction() > 0);
        // Runs that empty by themselves meanwhile, and are used again.
        (0..900).for_each(|_| checked.free(&mut rng));
        (0..900).for_each(|_| assert!(checked.alloc(1000, &mut rng)));
        (0..900).for_each(|_| checked.free(&mut rng));
    }
    checked.arena.end_compaction();
    checked.check();
    checked.arena.start_compaction();
    checked.arena.clear();
    assert!(checked.arena.compact(Handle::from_raw(600)).is_none());
}
