//! A leaf of fixed rows: `N` columns of numbers, each a base and as many bytes per row as the leaf's spread needs.
//!
//! Called by `RowTree` only. Rows are in order of their first `K` columns.
//!
//! ```text
//! u16 len | u16 cap | u32 widths, four bits a column | N x u64 base | for each column cap x width: number - base
//! ```

use darter_slab::{Arena, Handle};

use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{
    below, get_u16, get_u32, get_u64, get_wide, least_and_most, mask, put_u16, put_u32, put_u64, put_wide,
    width,
};
use crate::tree::{LEAF_BYTES_MAX, TreeFull, leaf_bytes};

/// The offset of a column and the base of its numbers.
#[derive(Clone, Copy, Debug)]
struct Column {
    start: usize,
    width: usize,
    base: u64,
}

/// The head of a leaf, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsLeafHead<const N: usize> {
    // 0 <= len <= cap
    pub(super) len: usize,
    pub(super) cap: usize,
    columns: [Column; N],
}

impl<const N: usize> RowsLeafHead<N> {
    const BYTES: usize = 8 + 8 * N;

    #[inline(always)]
    pub(super) fn of(block: &[u8]) -> Self {
        let (len, cap, mut widths) = (get_u16(block, 0), get_u16(block, 2), get_u32(block, 4));
        let mut start = Self::BYTES;
        let columns = std::array::from_fn(|column| {
            let width = (widths & 15) as usize;
            let this = Column { start, width, base: get_u64(block, 8 + 8 * column) };
            widths >>= 4;
            start += cap * width;
            this
        });
        RowsLeafHead { len, cap, columns }
    }

    fn write(block: &mut [u8], shape: &RowsShape<N>, cap: usize) {
        put_u16(block, 0, 0);
        put_u16(block, 2, cap);
        let mut widths = 0;
        for (column, (width, base)) in shape.columns.into_iter().enumerate() {
            widths |= (width as u32) << (4 * column);
            put_u64(block, 8 + 8 * column, base);
        }
        put_u32(block, 4, widths);
    }

    fn row_bytes(&self) -> usize {
        self.columns.iter().map(|c| c.width).sum()
    }

    /// Bytes in use, without free room.
    pub(super) fn bytes(&self) -> usize {
        Self::BYTES + self.len * self.row_bytes()
    }

    #[inline(always)]
    pub(super) fn get(&self, block: &[u8], column: usize, at: usize) -> u64 {
        let Column { start, width, base } = self.columns[column];
        base.wrapping_add(get_wide(block, start + at * width, width))
    }

    /// Row `at`.
    #[inline]
    pub(super) fn row(&self, block: &[u8], at: usize) -> [u64; N] {
        std::array::from_fn(|column| self.get(block, column, at))
    }

    /// The key of row `at`: its first `K` (1 or 2) columns.
    #[inline(always)]
    pub(super) fn key<const K: usize>(&self, block: &[u8], at: usize) -> u128 {
        match K {
            1 => u128::from(self.get(block, 0, at)),
            _ => u128::from(self.get(block, 0, at)) << 64 | u128::from(self.get(block, 1, at)),
        }
    }

    /// Number of rows with a key below `key`.
    #[inline]
    pub(super) fn below<const K: usize>(&self, block: &[u8], key: u128) -> usize {
        let first = if K == 1 { key as u64 } else { (key >> 64) as u64 };
        let at = self.column_below(block, 0, 0, self.len, first);
        if K == 1 || at == self.len || self.get(block, 0, at) > first {
            return at;
        }
        let end = match first.checked_add(1) {
            Some(after) => self.column_below(block, 0, at, self.len, after),
            None => self.len,
        };
        // The second column rises only among rows that are equal in the first.
        let (mut low, mut high) = (at, end);
        while low < high {
            let middle = (low + high) / 2;
            if self.get(block, 1, middle) < key as u64 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first row of `from..to`, rising in this column, that is not below `value`.
    #[inline(always)]
    fn column_below(&self, block: &[u8], column: usize, from: usize, to: usize, value: u64) -> usize {
        let Column { start, width, base } = self.columns[column];
        let Some(offset) = value.checked_sub(base) else { return from };
        from + below(&block[start + from * width..start + to * width], width, to - from, offset)
    }

    /// Returns true if every column is wide enough for the row.
    #[inline]
    pub(super) fn holds(&self, row: &[u64; N]) -> bool {
        row.iter()
            .zip(&self.columns)
            .all(|(&value, column)| value.wrapping_sub(column.base) <= mask(column.width))
    }

    /// Writes row `at`, which the columns must be wide enough for.
    #[inline(always)]
    pub(super) fn put(&self, block: &mut [u8], at: usize, row: &[u64; N]) {
        debug_assert!(self.holds(row));
        for (&value, column) in row.iter().zip(&self.columns) {
            put_wide(block, column.start + at * column.width, column.width, value.wrapping_sub(column.base));
        }
    }
}

/// Adds a row at `at` if the leaf can take it in its present shape.
#[inline]
pub(super) fn insert<const N: usize>(block: &mut [u8], at: usize, row: &[u64; N]) -> bool {
    let head = RowsLeafHead::<N>::of(block);
    if head.len == head.cap || !head.holds(row) {
        return false;
    }
    for Column { start, width, .. } in head.columns {
        block.copy_within(start + at * width..start + head.len * width, start + (at + 1) * width);
    }
    head.put(block, at, row);
    put_u16(block, 0, head.len + 1);
    true
}

/// Takes rows `from..to` out.
pub(super) fn remove<const N: usize>(block: &mut [u8], from: usize, to: usize) {
    let head = RowsLeafHead::<N>::of(block);
    for Column { start, width, .. } in head.columns {
        block.copy_within(start + to * width..start + head.len * width, start + from * width);
    }
    put_u16(block, 0, head.len - (to - from));
}

/// Number of rows of a leaf.
#[inline]
pub(super) fn len(arena: &Arena, leaf: Handle) -> usize {
    get_u16(bytes_of(arena, leaf), 0)
}

/// A part of a new leaf.
#[derive(Clone, Copy)]
pub(super) enum RowsPart<const N: usize> {
    /// Rows `.1..(.2)` of a leaf.
    Run(Handle, usize, usize),
    /// A row.
    One([u64; N]),
}

impl<const N: usize> RowsPart<N> {
    pub(super) fn len(&self) -> usize {
        match *self {
            RowsPart::Run(_, from, to) => to - from,
            RowsPart::One(_) => 1,
        }
    }
}

/// The first `keep` rows of `parts` and the others.
pub(super) fn cut<const N: usize>(parts: &[RowsPart<N>; 3], keep: usize) -> [[RowsPart<N>; 3]; 2] {
    let none = RowsPart::Run(Handle::NONE, 0, 0);
    let mut keep = keep;
    let mut halves = [[none; 3]; 2];
    for (at, part) in parts.iter().enumerate() {
        let taken = keep.min(part.len());
        keep -= taken;
        let pair = match *part {
            RowsPart::Run(leaf, from, to) => {
                [RowsPart::Run(leaf, from, from + taken), RowsPart::Run(leaf, from + taken, to)]
            }
            one if taken == 1 => [one, none],
            one => [none, one],
        };
        (halves[0][at], halves[1][at]) = (pair[0], pair[1]);
    }
    halves
}

/// The shape a leaf of some parts would have.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsShape<const N: usize> {
    pub(super) len: usize,
    // Width and base.
    columns: [(usize, u64); N],
}

impl<const N: usize> RowsShape<N> {
    /// The smallest shape that holds all parts; their first columns rise.
    pub(super) fn of(arena: &Arena, parts: &[RowsPart<N>]) -> Self {
        let (mut low, mut high, mut len) = ([u64::MAX; N], [0; N], 0);
        let mut before = None;
        for part in parts {
            match *part {
                RowsPart::One(row) => note(&mut low, &mut high, &row),
                RowsPart::Run(leaf, from, to) if from < to => {
                    let block = bytes_of(arena, leaf);
                    let head = RowsLeafHead::<N>::of(block);
                    before.get_or_insert(head.columns);
                    // The first column is sorted, so its ends tell all.
                    note(&mut low, &mut high, &head.row(block, from));
                    note(&mut low, &mut high, &head.row(block, to - 1));
                    for (column, &Column { start, width, base }) in head.columns.iter().enumerate().skip(1) {
                        if width > 0 {
                            let ends =
                                least_and_most(&block[start + from * width..start + to * width], width);
                            low[column] = low[column].min(base.wrapping_add(ends.0));
                            high[column] = high[column].max(base.wrapping_add(ends.1));
                        }
                    }
                }
                RowsPart::Run(..) => {}
            }
            len += part.len();
        }
        let columns = std::array::from_fn(|column| {
            let span = high[column].saturating_sub(low[column]);
            let width = width(span);
            if width == 8 {
                return (8, 0);
            }
            // Reuse the base if possible: copying then only moves bytes.
            if let Some(columns) = before {
                let old: Column = columns[column];
                if old.width == width && old.base <= low[column] && high[column] - old.base <= mask(width) {
                    return (width, old.base);
                }
            }
            // Half of the spare range lies below the lowest number, so that later rows fit on either side.
            (width, low[column].saturating_sub((mask(width) - span) / 2))
        });
        RowsShape { len, columns }
    }

    fn row_bytes(&self) -> usize {
        self.columns.iter().map(|c| c.0).sum::<usize>().max(1)
    }

    /// Bytes of a leaf of this shape without free room.
    pub(super) fn bytes(&self) -> usize {
        RowsLeafHead::<N>::BYTES + self.len * self.row_bytes()
    }

    /// Returns true if a leaf of this shape is small enough.
    pub(super) fn fits(&self) -> bool {
        self.bytes() <= LEAF_BYTES_MAX
    }

    /// A new leaf of the parts, with room for at least `spare` more rows. Errors: nothing is kept.
    pub(super) fn build(
        &self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        parts: &[RowsPart<N>],
        spare: usize,
    ) -> Result<Handle, TreeFull> {
        let wanted = RowsLeafHead::<N>::BYTES + (self.len + spare) * self.row_bytes();
        let leaf = owned.alloc(arena, leaf_bytes(wanted).min(LEAF_BYTES_MAX).max(self.bytes()))?;
        let cap = (arena.size(leaf) - RowsLeafHead::<N>::BYTES) / self.row_bytes();
        RowsLeafHead::write(bytes_of_mut(arena, leaf), self, cap);
        let mut end = 0;
        for part in parts {
            match *part {
                RowsPart::One(row) => {
                    let block = bytes_of_mut(arena, leaf);
                    RowsLeafHead::of(block).put(block, end, &row);
                }
                RowsPart::Run(source, from, to) if from < to => {
                    let (old, fresh) = two_of_mut(arena, source, leaf);
                    copy::<N>(old, from, to, fresh, end);
                }
                RowsPart::Run(..) => {}
            }
            end += part.len();
        }
        put_u16(bytes_of_mut(arena, leaf), 0, end);
        Ok(leaf)
    }
}

fn note<const N: usize>(low: &mut [u64; N], high: &mut [u64; N], row: &[u64; N]) {
    for column in 0..N {
        low[column] = low[column].min(row[column]);
        high[column] = high[column].max(row[column]);
    }
}

/// Writes rows `from..to` of one leaf into another from row `end` on.
fn copy<const N: usize>(old: &[u8], from: usize, to: usize, fresh: &mut [u8], end: usize) {
    let (source, target) = (RowsLeafHead::<N>::of(old), RowsLeafHead::<N>::of(fresh));
    for (a, b) in source.columns.into_iter().zip(target.columns) {
        let rows = to - from;
        if a.width == b.width && a.base == b.base {
            let (start, bytes) = (a.start + from * a.width, rows * a.width);
            let end = b.start + end * b.width;
            fresh[end..end + bytes].copy_from_slice(&old[start..start + bytes]);
            continue;
        }
        let shift = a.base.wrapping_sub(b.base);
        for row in 0..rows {
            let value = get_wide(old, a.start + (from + row) * a.width, a.width).wrapping_add(shift);
            put_wide(fresh, b.start + (end + row) * b.width, b.width, value);
        }
    }
}
