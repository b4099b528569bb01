//! Numbers of a few bits each, packed from the lowest bit of each byte on.

/// Gathers numbers.
#[derive(Default)]
pub(crate) struct BitWriter {
    out: Vec<u8>,
    held: u128,
    held_len: u32,
}

impl BitWriter {
    /// Appends the low `width` bits of `value`; `width` is at most 64.
    #[inline]
    pub fn write(&mut self, value: u64, width: u32) {
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        self.held |= u128::from(value & mask) << self.held_len;
        self.held_len += width;
        while self.held_len >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.held_len -= 8;
        }
    }

    /// Bits written.
    pub fn len(&self) -> u64 {
        self.out.len() as u64 * 8 + u64::from(self.held_len)
    }

    /// The bytes, the last filled up with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        if self.held_len > 0 {
            self.out.push(self.held as u8);
        }
        self.out
    }
}

/// Reads numbers back.
#[derive(Clone, Copy)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// The next `width` bits, at most 64; zeros past the end.
    #[inline]
    pub fn read(&mut self, width: u32) -> u64 {
        let byte = (self.at >> 3) as usize;
        let shift = (self.at & 7) as u32;
        self.at += u64::from(width);
        let rest = self.bytes.get(byte..).unwrap_or_default();
        let word = match rest.first_chunk::<16>() {
            Some(chunk) => u128::from_le_bytes(*chunk),
            None => {
                let mut padded = [0; 16];
                for (to, from) in padded.iter_mut().zip(rest) {
                    *to = *from;
                }
                u128::from_le_bytes(padded)
            }
        };
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        (word >> shift) as u64 & mask
    }

    /// Returns true if more bits were read than there are.
    pub fn is_past_end(&self) -> bool {
        self.at > self.bytes.len() as u64 * 8
    }
}

/// Bits that `value` needs.
pub(crate) fn width_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// A signed number as an unsigned one that is small when its distance from 0 is.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0..=64_u32), 0..100), signed: i64) {
            let mut writer = BitWriter::default();
            numbers.iter().for_each(|&(value, width)| writer.write(value, width));
            let bits = writer.len();
            let bytes = writer.finish();
            prop_assert_eq!(bytes.len() as u64, bits.div_ceil(8));
            let mut reader = BitReader::new(&bytes);
            for (value, width) in numbers {
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                prop_assert_eq!(reader.read(width), value & mask);
            }
            prop_assert!(!reader.is_past_end());
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }
}
