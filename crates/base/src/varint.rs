//! Unsigned LEB128: small numbers in few bytes, for journals, snapshots and packs.

/// Longest encoding of a `u64`, in bytes.
pub const BYTES_MAX: usize = 10;

/// Appends `value` to `out` in 1 to 10 bytes, low 7 bits first.
#[inline]
pub fn write(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number at the start of `bytes`, and its encoded length in bytes.
///
/// Errors: `None` if `bytes` ends early, the number needs more than 64 bits, or its encoding is longer than
/// necessary. Each number therefore has exactly one encoding.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let &first = bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    if let Some(&second) = bytes.get(1)
        && second < 0x80
    {
        return (second != 0).then_some((u64::from(first & 0x7f) | u64::from(second) << 7, 2));
    }
    let mut value = u64::from(first & 0x7f);
    for (at, &byte) in bytes.iter().enumerate().take(BYTES_MAX).skip(1) {
        let part = u64::from(byte & 0x7f);
        let shift = 7 * at as u32;
        if (part << shift) >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return (byte != 0).then_some((value, at + 1));
        }
    }
    None
}

/// Takes a number off the front of `bytes`. Errors: as [`read`]; `bytes` is then unchanged.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (value, len) = read(bytes)?;
    *bytes = bytes.get(len..)?;
    Some(value)
}

/// Length of the encoding of `value`: 1 to 10 bytes.
#[inline]
pub const fn len(value: u64) -> usize {
    // 7 bits a byte; the `| 1` makes zero take one byte.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for bits in 0..=64u32 {
            for value in [(1u128 << bits) - 1, 1u128 << bits.min(63)] {
                let value = value as u64;
                let mut out = Vec::new();
                write(&mut out, value);
                assert_eq!(out.len(), len(value), "{value}");
                out.push(0xaa);
                assert_eq!(read(&out), Some((value, len(value))));
                for cut in 0..len(value) {
                    assert_eq!(read(&out[..cut]), None);
                }
            }
        }
    }

    #[test]
    fn long_and_padded_encodings_are_refused() {
        assert_eq!(read(&[0x80, 0x00]), None);
        assert_eq!(read(&[0xff; 10]), None);
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Some((u64::MAX, 10)));
    }

    #[test]
    fn take_moves_on_only_when_it_can() {
        let mut bytes: &[u8] = &[0x81, 0x01, 0x05, 0x80];
        assert_eq!((take(&mut bytes), take(&mut bytes), take(&mut bytes)), (Some(129), Some(5), None));
        assert_eq!(bytes, [0x80]);
    }
}
