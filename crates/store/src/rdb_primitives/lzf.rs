//! LZF, the compression of RDB strings: literal runs and references to earlier output.

use super::Corrupt;

/// Bytes that one byte of packed data can produce at most: a reference of three bytes gives 264.
const GAIN_MAX: usize = 88;

/// Unpacks `packed` into `len` bytes.
///
/// Errors: `packed` is damaged or does not give exactly `len` bytes. Allocates at most 88 times `packed`.
pub fn unpack(packed: &[u8], len: usize) -> Result<Vec<u8>, Corrupt> {
    if len > packed.len().saturating_mul(GAIN_MAX) {
        return Err(Corrupt);
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = packed.iter();
    while let Some(&control) = rest.next() {
        if control < 0x20 {
            let run = usize::from(control) + 1;
            let literal = rest.as_slice().get(..run).ok_or(Corrupt)?;
            check_room(&out, run, len)?;
            out.extend_from_slice(literal);
            rest = rest.as_slice()[run..].iter();
        } else {
            let mut run = usize::from(control >> 5);
            if run == 7 {
                run += usize::from(*rest.next().ok_or(Corrupt)?);
            }
            let low = usize::from(*rest.next().ok_or(Corrupt)?);
            let back = (usize::from(control & 0x1f) << 8 | low) + 1;
            let from = out.len().checked_sub(back).ok_or(Corrupt)?;
            check_room(&out, run + 2, len)?;
            // The reference may overlap its own output, which then repeats, so that twice as much can be copied next.
            let mut left = run + 2;
            while left > 0 {
                let there = left.min(out.len() - from);
                out.extend_from_within(from..from + there);
                left -= there;
            }
        }
    }
    if out.len() == len { Ok(out) } else { Err(Corrupt) }
}

fn check_room(out: &[u8], more: usize, len: usize) -> Result<(), Corrupt> {
    if out.len() + more > len { Err(Corrupt) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lzf_unpacks_literals_and_references() {
        // "abc" then 9 bytes from 3 back: "abcabcabcabc"
        assert_eq!(unpack(&[2, b'a', b'b', b'c', 7 << 5, 0, 2], 12), Ok(b"abcabcabcabc".to_vec()));
        assert_eq!(unpack(&[0, b'x', 7 << 5, 253, 0], 263), Ok(vec![b'x'; 263]));
        assert_eq!(unpack(&[2, b'a', b'b'], 3), Err(Corrupt), "a literal past the end");
        assert_eq!(unpack(&[0, b'a', 1 << 5, 1], 4), Err(Corrupt), "a reference before the start");
        assert_eq!(unpack(&[0, b'a', 1 << 5, 0], 3), Err(Corrupt), "more than promised");
        assert_eq!(unpack(&[0, b'a'], 2), Err(Corrupt), "less than promised");
        assert_eq!(unpack(&[0, b'a', 7 << 5], 9), Err(Corrupt), "an end within a reference");
    }
}
