//! Little-endian numbers at byte offsets of a block: the one way the tree reads and writes its blocks.

/// Two bytes at `at`.
#[inline(always)]
pub(super) fn get_u16(block: &[u8], at: usize) -> usize {
    u16::from_le_bytes([block[at], block[at + 1]]) as usize
}

/// Writes two bytes at `at`.
#[inline(always)]
pub(super) fn put_u16(block: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= u16::MAX as usize);
    block[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// Four bytes at `at`.
#[inline(always)]
pub(super) fn get_u32(block: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// Writes four bytes at `at`.
#[inline(always)]
pub(super) fn put_u32(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Eight bytes at `at`.
#[inline(always)]
pub(super) fn get_u64(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Writes eight bytes at `at`.
#[inline(always)]
pub(super) fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The `width` (0 to 8) bytes at `at`, zero-extended.
#[inline(always)]
pub(super) fn get_wide(block: &[u8], at: usize, width: usize) -> u64 {
    match block.get(at..at + 8) {
        Some(_) => get_u64(block, at) & mask(width),
        None => get_wide_at_end(block, at, width),
    }
}

/// Writes the low `width` bytes of `value` at `at`; their neighbours keep their values.
#[inline(always)]
pub(super) fn put_wide(block: &mut [u8], at: usize, width: usize, value: u64) {
    if block.len() >= at + 8 {
        let mask = mask(width);
        let old = get_u64(block, at);
        put_u64(block, at, (old & !mask) | (value & mask));
    } else {
        block[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// All the bits that `width` (0 to 8) bytes hold.
#[inline(always)]
pub(super) fn mask(width: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * width as u32).unwrap_or(0)
}

/// How many bytes (0 to 8) `value` needs.
#[inline(always)]
pub(super) fn width(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

/// Only the last seven bytes of the reservation ever come here.
#[cold]
fn get_wide_at_end(block: &[u8], at: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(&block[at..at + width]);
    u64::from_le_bytes(bytes)
}

/// The index of the first four-byte number equal to `sought`.
#[inline]
pub(super) fn find_u32(numbers: &[u8], sought: u32) -> Option<usize> {
    const AT_ONCE: usize = 16;
    let value = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let blocks = numbers.chunks_exact(4 * AT_ONCE);
    let rest = blocks.remainder();
    let mut at = 0;
    for block in blocks {
        // No early exit within a block, so that it compiles to vector compares.
        let mut equal = 0u32;
        for number in block.chunks_exact(4) {
            equal |= u32::from(value(number) == sought);
        }
        if equal != 0 {
            return block.chunks_exact(4).position(|n| value(n) == sought).map(|found| at + found);
        }
        at += AT_ONCE;
    }
    rest.chunks_exact(4).position(|n| value(n) == sought).map(|found| at + found)
}
