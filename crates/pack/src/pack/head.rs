//! The front of a pack's block: what its header says and where its parts lie.

use darter_slab::BLOCK_BYTES_MAX;

/// The first four bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes from the start of the block to the end of the last entry.
    pub used: usize,
    /// Number of entries, 0..=LEN_MAX.
    pub len: usize,
    /// Number of leading bits of place all entries share, 0..=63.
    pub depth: u32,
    /// Whether the pack has room for its earliest expiry time, because an entry may have one.
    pub timed: bool,
    /// Whether an item may be out of line.
    pub spilled: bool,
}

impl Head {
    /// The header of `block`.
    #[inline]
    pub fn read(block: &[u8]) -> Head {
        let word = block.first_chunk::<HEAD_BYTES>().map_or(0, |head| u32::from_le_bytes(*head));
        Head {
            used: (word & 0xFFFF) as usize,
            len: (word >> 16 & 0xFF) as usize,
            depth: word >> 24 & 63,
            timed: word & 1 << 30 != 0,
            spilled: word & 1 << 31 != 0,
        }
    }

    /// Makes this the header of `block`.
    #[inline]
    pub fn write(self, block: &mut [u8]) {
        debug_assert!(self.used <= BLOCK_BYTES_MAX && self.len <= LEN_MAX && self.depth < 64);
        let word = self.used as u32
            | (self.len as u32) << 16
            | self.depth << 24
            | u32::from(self.timed) << 30
            | u32::from(self.spilled) << 31;
        if let Some(head) = block.first_chunk_mut::<HEAD_BYTES>() {
            *head = word.to_le_bytes();
        }
    }

    /// The layout of a block with this header.
    #[inline]
    pub fn shape(self) -> Shape {
        Shape { len: self.len, timed: self.timed }
    }
}

/// Where the parts of a block with so many entries lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of entries.
    pub len: usize,
    /// Whether the earliest expiry time stands behind the header.
    pub timed: bool,
}

impl Shape {
    /// Where the fingerprints are.
    #[inline]
    pub fn fps_at(self) -> usize {
        HEAD_BYTES + if self.timed { MS_BYTES } else { 0 }
    }

    /// Groups of up to eight entries.
    #[inline]
    pub fn groups(self) -> usize {
        self.len.div_ceil(GROUP)
    }

    /// Bytes kept for fingerprints.
    #[inline]
    fn room(self) -> usize {
        if self.len <= GROUP { self.len } else { self.groups() * GROUP }
    }

    /// Where the offset of group 1.. lies.
    #[inline]
    pub fn offset_at(self, group: usize) -> usize {
        self.fps_at() + self.room() + 2 * (group - 1)
    }

    /// Bytes before the first entry.
    #[inline]
    pub fn data_at(self) -> usize {
        self.fps_at() + self.room() + 2 * self.groups().saturating_sub(1)
    }

    /// Moves the parts of a block of `used` bytes to where shape `to` has them.
    #[inline]
    pub fn convert(self, to: Shape, block: &mut [u8], used: usize) {
        if self.data_at() != to.data_at() {
            self.move_parts(to, block, used);
        }
    }

    #[inline(never)]
    fn move_parts(self, to: Shape, block: &mut [u8], used: usize) {
        let offsets = 2 * self.groups().min(to.groups()).saturating_sub(1);
        let fps = self.len.min(to.len);
        let (from_offsets, to_offsets) = (self.fps_at() + self.room(), to.fps_at() + to.room());
        if self.data_at() < to.data_at() {
            block.copy_within(self.data_at()..used, to.data_at());
            block.copy_within(from_offsets..from_offsets + offsets, to_offsets);
        }
        if self.timed != to.timed {
            block.copy_within(self.fps_at()..self.fps_at() + fps, to.fps_at());
        }
        if self.data_at() > to.data_at() {
            block.copy_within(from_offsets..from_offsets + offsets, to_offsets);
            block.copy_within(self.data_at()..used, to.data_at());
        }
    }
}

/// Most entries a pack can hold, a multiple of `GROUP`; a table splits long before.
pub(crate) const LEN_MAX: usize = 248;
/// Bytes of the header.
pub(crate) const HEAD_BYTES: usize = 4;
/// Bytes of a time.
pub(crate) const MS_BYTES: usize = 6;
/// Entries per offset.
pub(crate) const GROUP: usize = 8;
