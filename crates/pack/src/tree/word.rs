//! Little-endian numbers at byte offsets of a block: the one way the tree reads and writes its blocks.

/// Two bytes at `at`.
#[inline(always)]
pub(super) fn get_u16(block: &[u8], at: usize) -> usize {
    let mut bytes = [0; 2];
    bytes.copy_from_slice(&block[at..at + 2]);
    usize::from(u16::from_le_bytes(bytes))
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

/// Number of bytes (0 to 8) that `value` needs.
#[inline(always)]
pub(super) fn width(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

/// Reached only for the last seven bytes of the reservation.
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
    let bytes = sought.to_le_bytes();
    let (blocks, rest) = numbers.as_chunks::<4>().0.as_chunks::<AT_ONCE>();
    for (at, block) in blocks.iter().enumerate() {
        let equal = equal_of_16(block, sought);
        if equal != 0 {
            return Some(at * AT_ONCE + equal.trailing_zeros() as usize);
        }
    }
    rest.iter().position(|n| *n == bytes).map(|found| blocks.len() * AT_ONCE + found)
}

/// A bit for each of 16 numbers that equals `sought`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_of_16(numbers: &[[u8; 4]; 16], sought: u32) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of x86-64, and each load takes 16 of the array's 64 bytes, at 0, 16, 32 and 48.
    unsafe {
        let wanted = _mm_set1_epi32(sought as i32);
        let four =
            |at: usize| _mm_cmpeq_epi32(_mm_loadu_si128(numbers.as_ptr().cast::<__m128i>().add(at)), wanted);
        let low = _mm_packs_epi32(four(0), four(1));
        let high = _mm_packs_epi32(four(2), four(3));
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
    }
}

/// A bit for each of 16 numbers that equals `sought`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal_of_16(numbers: &[[u8; 4]; 16], sought: u32) -> u32 {
    let equal = |(at, number): (usize, &[u8; 4])| u32::from(u32::from_le_bytes(*number) == sought) << at;
    numbers.iter().enumerate().map(equal).sum()
}

/// The index of the first number equal to `sought` among packed numbers of `width` (1 to 8) bytes.
#[inline]
pub(super) fn find(numbers: &[u8], width: usize, sought: u64) -> Option<usize> {
    fn at<const W: usize>(numbers: &[u8], sought: u64) -> Option<usize> {
        let mut bytes = [0; W];
        bytes.copy_from_slice(&sought.to_le_bytes()[..W]);
        numbers.as_chunks::<W>().0.iter().position(|n| *n == bytes)
    }
    match width {
        1 => at::<1>(numbers, sought),
        2 => at::<2>(numbers, sought),
        3 => at::<3>(numbers, sought),
        4 => find_u32(numbers, sought as u32),
        5 => at::<5>(numbers, sought),
        6 => at::<6>(numbers, sought),
        7 => at::<7>(numbers, sought),
        _ => at::<8>(numbers, sought),
    }
}

/// Number of the rising packed numbers of `width` (0 to 8) bytes that are below `value`. Width 0 means `len` zeros.
#[inline]
pub(super) fn below(numbers: &[u8], width: usize, len: usize, value: u64) -> usize {
    fn at<const W: usize>(numbers: &[u8], value: u64) -> usize {
        first_not(numbers.as_chunks::<W>().0, |n| number(n) < value)
    }
    match width {
        0 => {
            if value > 0 {
                len
            } else {
                0
            }
        }
        1 => at::<1>(numbers, value),
        2 => at::<2>(numbers, value),
        3 => at::<3>(numbers, value),
        4 => at::<4>(numbers, value),
        5 => at::<5>(numbers, value),
        6 => at::<6>(numbers, value),
        7 => at::<7>(numbers, value),
        _ => at::<8>(numbers, value),
    }
}

/// All differences of packed numbers of `width` (0 to 8) bytes from the first of them, or-ed together.
#[inline]
pub(super) fn differences(numbers: &[u8], width: usize) -> u64 {
    fn at<const W: usize>(numbers: &[u8]) -> u64 {
        let numbers = numbers.as_chunks::<W>().0;
        let Some(first) = numbers.first().map(number) else { return 0 };
        numbers.iter().fold(0, |all, n| all | number(n).wrapping_sub(first))
    }
    match width {
        0 => 0,
        1 => at::<1>(numbers),
        2 => at::<2>(numbers),
        3 => at::<3>(numbers),
        4 => at::<4>(numbers),
        5 => at::<5>(numbers),
        6 => at::<6>(numbers),
        7 => at::<7>(numbers),
        _ => at::<8>(numbers),
    }
}

/// The least and the most of some packed numbers of `width` (1 to 8) bytes.
#[inline]
pub(super) fn least_and_most(numbers: &[u8], width: usize) -> (u64, u64) {
    fn at<const W: usize>(numbers: &[u8]) -> (u64, u64) {
        let numbers = numbers.as_chunks::<W>().0.iter().map(number);
        numbers.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)))
    }
    match width {
        1 => at::<1>(numbers),
        2 => at::<2>(numbers),
        3 => at::<3>(numbers),
        4 => at::<4>(numbers),
        5 => at::<5>(numbers),
        6 => at::<6>(numbers),
        7 => at::<7>(numbers),
        _ => at::<8>(numbers),
    }
}

#[inline(always)]
fn number<const W: usize>(bytes: &[u8; W]) -> u64 {
    let mut wide = [0; 8];
    wide[..W].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// Number of items at the start of `items` for which `before` holds. It must hold for no later item. No branch but
/// the loop's.
#[inline(always)]
pub(super) fn first_not<T>(items: &[T], before: impl Fn(&T) -> bool) -> usize {
    let (mut from, mut left) = (0, items.len());
    while left > 1 {
        let half = left / 2;
        // SAFETY: from + left <= items.len() holds from the start, and 0 < half < left.
        let middle = unsafe { items.get_unchecked(from + half - 1) };
        from = std::hint::select_unpredictable(before(middle), from + half, from);
        left -= half;
    }
    from + usize::from(left == 1 && before(&items[from]))
}
