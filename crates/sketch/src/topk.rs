//! The most frequent items of a stream, by HeavyKeeper: counters that decay when other items hit them.
//!
//! Whether a hit decays a counter is random. The random numbers come from a state that belongs to the value and is
//! saved with it, so the same commands give the same value on a replica and after a replay. In an RDB file that state
//! is in the pointer of the first heap row, which RedisBloom writes and does not read.

use darter_base::fields::{FieldSink, FieldSource};
use darter_slab::Arena;

use crate::blocks::Blocks;
use crate::murmur::murmur2;
use crate::{SketchFull, SketchLoadFault};

/// The version of the RDB form.
pub const VERSION: u16 = 0;
/// In place of a version: without cells.
const ROOT: u16 = u16::MAX;
/// The seed of an item's fingerprint.
const FINGERPRINT_SEED: u32 = 1919;
/// Powers of the decay that are computed ahead.
const POWERS: u32 = 256;
const ROW_BYTES: usize = 24;
const CELL_BYTES: u64 = 8;
/// Items kept, at most: their rows are one piece of memory.
const ITEMS_MAX: u64 = 1 << 24;

/// A row of the heap.
#[derive(Clone, Debug, Default)]
struct TopkRow {
    item: Option<Box<[u8]>>,
    fingerprint: u32,
    count: u32,
}

/// A list of the `k` most frequent items.
#[derive(Debug)]
pub struct TopK {
    width: u32,
    depth: u32,
    decay: f64,
    cells: Blocks,
    // A heap by count, the smallest first; `k` rows.
    heap: Vec<TopkRow>,
    item_bytes: usize,
    random: u64,
}

/// An item of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedItem<'a> {
    /// The item.
    pub item: &'a [u8],
    /// Its estimated count.
    pub count: u32,
}

/// Bytes that a list takes at most when its counters are all used, without items.
pub fn bytes_of(k: u32, width: u32, depth: u32) -> u64 {
    let cells = u64::from(width).saturating_mul(u64::from(depth)).saturating_mul(CELL_BYTES);
    cells.saturating_add(u64::from(k) * size_of::<TopkRow>() as u64)
}

impl TopK {
    /// An empty list; all of `k`, `width`, `depth` are above 0 and `decay` is in (0, 1]. Fails if it fits no arena.
    pub fn new(k: u32, width: u32, depth: u32, decay: f64) -> Result<TopK, SketchFull> {
        let cells = u64::from(width).checked_mul(u64::from(depth)).and_then(|n| n.checked_mul(CELL_BYTES));
        if u64::from(k) > ITEMS_MAX {
            return Err(SketchFull);
        }
        let cells = Blocks::zeroed(cells.ok_or(SketchFull)?)?;
        let mut heap = Vec::new();
        heap.try_reserve_exact(k as usize).map_err(|_| SketchFull)?;
        heap.resize(k as usize, TopkRow::default());
        let random = u64::from(k) << 32 ^ u64::from(width) << 8 ^ u64::from(depth);
        Ok(TopK { width, depth, decay, cells, heap, item_bytes: 0, random })
    }

    /// Items in the list at most.
    pub fn k(&self) -> u32 {
        self.heap.len() as u32
    }

    /// Counters in a row.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows of counters.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The probability with which a counter of one is decayed by another item.
    pub fn decay(&self) -> f64 {
        self.decay
    }

    fn place(&self, item: &[u8], row: u32) -> u64 {
        u64::from(row) * u64::from(self.width) + u64::from(murmur2(item, row) % self.width)
    }

    /// The fingerprint and count of a cell.
    fn cell(&self, arena: &Arena, at: u64) -> (u32, u32) {
        let cell: u64 = u64::from_le_bytes(self.cells.cell(arena, at));
        (cell as u32, (cell >> 32) as u32)
    }

    fn find(&self, item: &[u8], fingerprint: u32) -> Option<usize> {
        let is_item = |row: &TopkRow| row.fingerprint == fingerprint && row.item.as_deref() == Some(item);
        self.heap.iter().rposition(is_item)
    }

    /// The next random number in [0, 1].
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The probability with which a hit by another item lowers a counter.
    fn probability(&self, count: u32) -> f64 {
        let power = |n: u32| self.decay.powi(n.cast_signed());
        if count < POWERS {
            power(count)
        } else {
            let last = POWERS - 1;
            power(last).powf(f64::from(count / last)) * power(count % last)
        }
    }

    /// Counts `increment` occurrences of an item; returns the item that left the list for it. Fails if there is no room.
    pub fn add(
        &mut self,
        arena: &mut Arena,
        item: &[u8],
        increment: u32,
    ) -> Result<Option<Box<[u8]>>, SketchFull> {
        let fingerprint = murmur2(item, FINGERPRINT_SEED);
        let mut most = 0;
        for row in 0..self.depth {
            let at = self.place(item, row);
            let (holder, count) = self.cell(arena, at);
            let (holder, count) = if count == 0 {
                (fingerprint, increment)
            } else if holder == fingerprint {
                (holder, count.wrapping_add(increment))
            } else {
                self.contend(holder, count, fingerprint, increment)
            };
            let cell = u64::from(count) << 32 | u64::from(holder);
            self.cells.set_cell(arena, at, cell.to_le_bytes())?;
            if holder == fingerprint {
                most = most.max(count);
            }
        }
        let least = self.heap.first().map_or(0, |row| row.count);
        Ok(if most >= least { self.list(item, fingerprint, most) } else { None })
    }

    /// Hits a counter that belongs to another item; returns its new owner and count.
    fn contend(&mut self, holder: u32, mut count: u32, fingerprint: u32, increment: u32) -> (u32, u32) {
        for left in (1..=increment).rev() {
            if self.chance() < self.probability(count) {
                count -= 1;
                if count == 0 {
                    return (fingerprint, left);
                }
            }
        }
        (holder, count)
    }

    /// Puts an item with its count into the heap; returns the item removed for it.
    fn list(&mut self, item: &[u8], fingerprint: u32, count: u32) -> Option<Box<[u8]>> {
        if let Some(at) = self.find(item, fingerprint) {
            if let Some(row) = self.heap.get_mut(at) {
                row.count = count;
            }
            self.sink(at);
            return None;
        }
        let row = self.heap.first_mut()?;
        let expelled = row.item.replace(item.into());
        row.fingerprint = fingerprint;
        row.count = count;
        self.item_bytes += item.len();
        self.item_bytes -= expelled.as_ref().map_or(0, |item| item.len());
        self.sink(0);
        expelled
    }

    /// Moves a row down to the place of its count.
    fn sink(&mut self, mut at: usize) {
        let count = |heap: &[TopkRow], at: usize| heap.get(at).map(|row| row.count);
        let own = count(&self.heap, at).unwrap_or(0);
        let start = at;
        while let Some(left) = count(&self.heap, 2 * at + 1) {
            let right = count(&self.heap, 2 * at + 2).unwrap_or(u32::MAX);
            let (child, of_child) = if left > right { (2 * at + 2, right) } else { (2 * at + 1, left) };
            // The first step passes equal counts, later ones do not. This is RedisBloom's order, which decides the
            // next item to leave.
            if of_child > own || (of_child == own && at != start) {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Returns true if an item is in the list.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.find(item, murmur2(item, FINGERPRINT_SEED)).is_some()
    }

    /// An item's estimated count, which may be too low.
    pub fn count(&self, arena: &Arena, item: &[u8]) -> u32 {
        let fingerprint = murmur2(item, FINGERPRINT_SEED);
        let least = self.heap.first().map_or(0, |row| row.count);
        let is_listed = self.find(item, fingerprint).is_some();
        let counts = (0..self.depth).map(|row| self.cell(arena, self.place(item, row)));
        let own = counts.filter(|&(holder, count)| holder == fingerprint && (!is_listed || count >= least));
        own.map(|(_, count)| count).max().unwrap_or(0)
    }

    /// The items with their counts, the most frequent first.
    pub fn listed(&self) -> Vec<ListedItem<'_>> {
        let rows = self.heap.iter().filter(|row| row.count > 0);
        let mut all: Vec<ListedItem<'_>> = rows
            .map(|row| ListedItem { item: row.item.as_deref().unwrap_or_default(), count: row.count })
            .collect();
        all.sort_by_key(|listed| std::cmp::Reverse(listed.count));
        all
    }

    /// Writes the fields of an RDB file.
    pub fn save(&self, arena: &Arena, out: &mut dyn FieldSink) {
        self.save_with(&self.cells.all(arena), out);
    }

    /// Writes everything except the cells.
    pub fn save_root(&self, out: &mut dyn FieldSink) {
        self.save_with(&[], out);
    }

    fn save_with(&self, cells: &[&[u8]], out: &mut dyn FieldSink) {
        out.unsigned(self.heap.len() as u64);
        out.unsigned(u64::from(self.width));
        out.unsigned(u64::from(self.depth));
        out.double(self.decay);
        out.string(cells);
        let mut rows = Vec::with_capacity(self.heap.len() * ROW_BYTES);
        for (n, row) in self.heap.iter().enumerate() {
            let item_bytes = row.item.as_ref().map_or(0, |item| item.len()) as u32;
            rows.extend(row.fingerprint.to_le_bytes());
            rows.extend(item_bytes.to_le_bytes());
            rows.extend(if n == 0 { self.random } else { 0 }.to_le_bytes());
            rows.extend(row.count.to_le_bytes());
            rows.extend([0; 4]);
        }
        out.string(&[&rows]);
        for row in &self.heap {
            out.string(&[row.item.as_deref().unwrap_or_default(), &[0]]);
        }
    }

    /// Reads the output of [`TopK::save_root`]; cells are zero. Fails if these are not the fields of a list.
    pub fn load_root(source: &mut dyn FieldSource, arena: &mut Arena) -> Result<TopK, SketchLoadFault> {
        TopK::load(source, ROOT, arena)
    }

    /// Reads the fields of an RDB file. Fails if they are not those of a list.
    pub fn load(
        source: &mut dyn FieldSource,
        version: u16,
        arena: &mut Arena,
    ) -> Result<TopK, SketchLoadFault> {
        let mut number = || u32::try_from(source.unsigned()?).map_err(|_| SketchLoadFault::Corrupt);
        let (k, width, depth) = (number()?, number()?, number()?);
        let decay = source.double()?;
        let is_valid = k > 0 && width > 0 && depth > 0 && decay > 0.0 && decay <= 1.0;
        let cells = source.string()?;
        let cells_len = u64::from(width) * u64::from(depth);
        let bytes = cells_len.checked_mul(CELL_BYTES).ok_or(SketchLoadFault::Corrupt)?;
        let is_whole = cells.len() as u64 == if version == ROOT { 0 } else { bytes };
        if (version > VERSION && version != ROOT) || !is_valid || !is_whole {
            return Err(SketchLoadFault::Corrupt);
        }
        let mut blocks = Blocks::zeroed(bytes)?;
        let written = blocks.write(arena, 0, &cells);
        drop(cells);
        let loaded = written.map_err(SketchLoadFault::from).and_then(|()| load_heap(source, k));
        match loaded {
            Ok((heap, random)) => {
                let item_bytes = heap.iter().filter_map(|row| row.item.as_ref()).map(|item| item.len()).sum();
                Ok(TopK { width, depth, decay, cells: blocks, heap, item_bytes, random })
            }
            Err(fault) => {
                blocks.free_step(arena, usize::MAX);
                Err(fault)
            }
        }
    }

    /// A value without content, until its root is read.
    pub fn empty() -> TopK {
        TopK {
            width: 1,
            depth: 0,
            decay: 1.0,
            cells: Blocks::default(),
            heap: Vec::new(),
            item_bytes: 0,
            random: 0,
        }
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes() + self.heap.capacity() * size_of::<TopkRow>() + self.item_bytes
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> TopK {
        TopK { cells: self.cells.frozen(), heap: self.heap.clone(), ..*self }
    }

    /// Bytes of the cells.
    pub fn bytes(&self) -> u64 {
        self.cells.bytes()
    }

    /// Cells from byte `from` on, `len` bytes of them as far as they exist.
    pub fn read(&self, arena: &Arena, from: u64, len: u64) -> Vec<u8> {
        self.cells.parts(arena, from, len).concat()
    }

    /// Writes the output of [`TopK::read`]. Fails if it is too long or there is no room.
    pub fn write(&mut self, arena: &mut Arena, from: u64, bytes: &[u8]) -> Result<(), SketchFull> {
        self.cells.write(arena, from, bytes)
    }

    /// Frees up to `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        self.cells.free_step(arena, blocks_max)
    }
}

/// The rows and items of a file, and the random state.
fn load_heap(source: &mut dyn FieldSource, k: u32) -> Result<(Vec<TopkRow>, u64), SketchLoadFault> {
    let rows = source.string()?.into_owned();
    let (rows, rest) = rows.as_chunks::<ROW_BYTES>();
    if rows.len() != k as usize || !rest.is_empty() {
        return Err(SketchLoadFault::Corrupt);
    }
    let mut heap = Vec::with_capacity(rows.len());
    let mut random = 0;
    for (n, row) in rows.iter().enumerate() {
        let [f0, f1, f2, f3, _, _, _, _, rest @ ..] = row;
        let [p0, p1, p2, p3, p4, p5, p6, p7, c0, c1, c2, c3, ..] = rest;
        if n == 0 {
            random = u64::from_le_bytes([*p0, *p1, *p2, *p3, *p4, *p5, *p6, *p7]);
        }
        let item = source.string()?;
        let Some((0, item)) = item.split_last() else { return Err(SketchLoadFault::Corrupt) };
        let count = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
        let fingerprint = u32::from_le_bytes([*f0, *f1, *f2, *f3]);
        let is_used = count > 0 || !item.is_empty();
        heap.push(TopkRow { item: is_used.then(|| item.into()), fingerprint, count });
    }
    Ok((heap, random))
}

#[cfg(test)]
mod tests {
    use darter_base::fields::Field;
    use darter_base::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    fn arena() -> Arena {
        Arena::with_reserve(16 << 20).expect("address space")
    }

    #[test]
    fn frequent_items_are_listed_and_counts_are_about_right() {
        let mut arena = arena();
        let mut list = TopK::new(10, 50, 5, 0.9).expect("small");
        let mut rng = Rng::new(7);
        for _ in 0..20_000 {
            // Item n comes about twice as often as item n + 1.
            let item = rng.next_u64().trailing_zeros();
            list.add(&mut arena, format!("item {item}").as_bytes(), 1).expect("room");
        }
        let listed = list.listed();
        assert_eq!(listed[0].item, b"item 0");
        assert_eq!(listed[1].item, b"item 1");
        assert!((9_000..=10_500).contains(&listed[0].count), "{listed:?}");
        assert!(list.contains(b"item 2") && !list.contains(b"item 60"));
        assert_eq!(list.count(&arena, b"item 0"), listed[0].count);
    }

    #[test]
    fn an_item_that_leaves_the_list_is_returned() {
        let mut arena = arena();
        let mut list = TopK::new(1, 100, 4, 0.9).expect("small");
        assert_eq!(list.add(&mut arena, b"a", 5), Ok(None));
        assert_eq!(list.add(&mut arena, b"b", 3), Ok(None));
        assert_eq!(list.add(&mut arena, b"b", 10), Ok(Some(b"a".as_slice().into())));
        assert_eq!(list.listed(), [ListedItem { item: b"b", count: 13 }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_list_of_a_file_continues_the_same_way(
            adds in prop::collection::vec((0..60_u8, 0..20_u32), 0..300),
            k in 1..20_u32,
            width in 1..20_u32,
        ) {
            let mut arena = arena();
            let mut list = TopK::new(k, width, 3, 0.9).expect("small");
            let (first, second) = adds.split_at(adds.len() / 2);
            for (item, increment) in first {
                list.add(&mut arena, &[*item], *increment).expect("room");
            }
            let mut fields: Vec<Field> = Vec::new();
            list.save(&arena, &mut fields);
            let mut loaded = TopK::load(&mut fields.iter(), 0, &mut arena).expect("its own fields");
            for (item, increment) in second {
                let one = list.add(&mut arena, &[*item], *increment).expect("room");
                let other = loaded.add(&mut arena, &[*item], *increment).expect("room");
                prop_assert_eq!(one, other);
            }
            prop_assert_eq!(list.listed(), loaded.listed());
            let bytes: usize = list.listed().iter().map(|listed| listed.item.len()).sum();
            prop_assert!(list.item_bytes >= bytes);
        }
    }
}
