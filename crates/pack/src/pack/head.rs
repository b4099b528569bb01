//! The front of a pack's block: its header and the offsets of its parts.

use darter_slab::BLOCK_BYTES_MAX;

/// The first four bytes of a pack, lowest bit first: `used:16 len:8 depth:6 timed:1 spilled:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackHead(u32);

impl PackHead {
    /// The header of an empty pack of `depth` (0..=63).
    pub fn empty(depth: u32, timed: bool) -> PackHead {
        debug_assert!(depth < 64);
        PackHead(depth << 24).with_timed(timed).with_used(PackShape { len: 0, timed }.data_at())
    }

    /// The header of the block that starts with `bytes`.
    #[inline]
    pub fn read(bytes: &[u8]) -> PackHead {
        PackHead(bytes.first_chunk::<HEAD_BYTES>().map_or(0, |head| u32::from_le_bytes(*head)))
    }

    /// Makes this the header of `block`.
    #[inline]
    pub fn write(self, block: &mut [u8]) {
        if let Some(head) = block.first_chunk_mut::<HEAD_BYTES>() {
            *head = self.0.to_le_bytes();
        }
    }

    /// Bytes from the start of the block to the end of the last entry.
    #[inline]
    pub fn used(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    /// Number of entries, 0..=LEN_MAX.
    #[inline]
    pub fn len(self) -> usize {
        (self.0 >> 16 & 0xFF) as usize
    }

    /// Number of leading bits of place all entries share, 0..=63.
    #[inline]
    pub fn depth(self) -> u32 {
        self.0 >> 24 & 63
    }

    /// Returns true if the pack has room for its earliest expiry time, because an entry may have one.
    #[inline]
    pub fn timed(self) -> bool {
        self.0 & TIMED != 0
    }

    /// Returns true if an item may be out of line.
    #[inline]
    pub fn spilled(self) -> bool {
        self.0 & SPILLED != 0
    }

    /// The same with another number of used bytes.
    #[inline]
    pub fn with_used(self, used: usize) -> PackHead {
        debug_assert!(used <= BLOCK_BYTES_MAX);
        PackHead(self.0 & !0xFFFF | used as u32)
    }

    /// The same with another number of entries.
    #[inline]
    pub fn with_len(self, len: usize) -> PackHead {
        debug_assert!(len <= LEN_MAX);
        PackHead(self.0 & !0xFF_0000 | (len as u32) << 16)
    }

    /// The same, timed if `timed` or if it was.
    #[inline]
    pub fn with_timed(self, timed: bool) -> PackHead {
        PackHead(self.0 | if timed { TIMED } else { 0 })
    }

    /// The same, spilled if `spilled` or if it was.
    #[inline]
    pub fn with_spilled(self, spilled: bool) -> PackHead {
        PackHead(self.0 | if spilled { SPILLED } else { 0 })
    }

    /// The layout of a block with this header.
    #[inline]
    pub fn shape(self) -> PackShape {
        PackShape { len: self.len(), timed: self.timed() }
    }
}

/// Offsets of the parts of a block with this many entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackShape {
    /// Number of entries.
    pub len: usize,
    /// True if the earliest expiry time follows the header.
    pub timed: bool,
}

impl PackShape {
    /// Offset of the fingerprints.
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

    /// Offset of the offset of group 1 or later.
    #[inline]
    pub fn offset_at(self, group: usize) -> usize {
        self.fps_at() + self.room() + 2 * (group - 1)
    }

    /// Bytes before the first entry.
    #[inline]
    pub fn data_at(self) -> usize {
        if self.len <= GROUP {
            return self.fps_at() + self.len;
        }
        self.fps_at() + (GROUP + 2) * self.groups() - 2
    }

    /// Moves the parts of a block of `used` bytes to where shape `to` has them.
    #[inline]
    pub fn convert(self, to: PackShape, block: &mut [u8], used: usize) {
        if self.data_at() != to.data_at() {
            self.move_parts(to, block, used);
        }
    }

    #[inline(never)]
    fn move_parts(self, to: PackShape, block: &mut [u8], used: usize) {
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

const TIMED: u32 = 1 << 30;
const SPILLED: u32 = 1 << 31;
/// Most entries a pack can hold, a multiple of `GROUP`; a table splits long before.
pub(crate) const LEN_MAX: usize = 248;
/// Bytes of the header.
pub(crate) const HEAD_BYTES: usize = 4;
/// Bytes of a time.
pub(crate) const MS_BYTES: usize = 6;
/// Entries per offset.
pub(crate) const GROUP: usize = 8;
