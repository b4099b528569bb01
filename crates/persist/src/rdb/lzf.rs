//! Packs texts by LZF, as Redis does when `rdbcompression` is on.
//!
//! Runs of literals and references up to 8,192 bytes back; `store` unpacks them.

/// Shorter texts are not packed.
const TEXT_BYTES_MIN: usize = 21;
/// A packed text that is not shorter by this much is not used.
const GAIN_MIN: usize = 4;
const BACK_MAX: usize = 1 << 13;
const REFERENCE_MAX: usize = 264;
const LITERALS_MAX: usize = 32;
const TABLE_BITS: u32 = 13;

/// Packs one text after another; its memory is 32 KiB.
#[derive(Debug)]
pub struct Packer {
    // The last position of three bytes with some hash, in this text or an earlier one.
    seen: Vec<u32>,
    out: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer { seen: vec![0; 1 << TABLE_BITS], out: Vec::new() }
    }
}

impl Packer {
    /// The packed `text`, if that saves enough.
    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "reads our own text, which is below 4 GiB"
    )]
    pub fn pack(&mut self, text: &[u8]) -> Option<&[u8]> {
        if text.len() < TEXT_BYTES_MIN || u32::try_from(text.len()).is_err() {
            return None;
        }
        let len_max = text.len() - GAIN_MIN;
        self.out.clear();
        let (mut at, mut literals) = (0, 0);
        while let Some(three) = text[at..].first_chunk::<3>() {
            let place = place_of(*three);
            let from = self.seen[place] as usize;
            self.seen[place] = at as u32;
            if from >= at || at - from > BACK_MAX || text[from..from + 3] != *three {
                at += 1;
                continue;
            }
            let len = matching(text, from, at);
            push_literals(&mut self.out, &text[literals..at]);
            push_reference(&mut self.out, at - from, len);
            if self.out.len() >= len_max {
                return None;
            }
            at += len;
            literals = at;
            // notes one more position within the skipped bytes, so that the next repetition is found
            if let Some(three) = text[at - 2..].first_chunk::<3>() {
                self.seen[place_of(*three)] = (at - 2) as u32;
            }
        }
        push_literals(&mut self.out, &text[literals..]);
        (self.out.len() <= len_max).then_some(&self.out[..])
    }
}

#[inline]
fn place_of([a, b, c]: [u8; 3]) -> usize {
    let three = u32::from_le_bytes([a, b, c, 0]);
    (three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize
}

/// Number of equal bytes at `from` and at `at`.
#[expect(clippy::indexing_slicing, reason = "both places lie in the text")]
fn matching(text: &[u8], from: usize, at: usize) -> usize {
    let ends = text.len().min(at + REFERENCE_MAX);
    let (earlier, later) = (&text[from..from + (ends - at)], &text[at..ends]);
    let mut len = 0;
    for (one, other) in earlier.chunks_exact(8).zip(later.chunks_exact(8)) {
        let words = [one, other].map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let differs = words[0] ^ words[1];
        if differs != 0 {
            return len + differs.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + earlier[len..].iter().zip(&later[len..]).take_while(|(one, other)| one == other).count()
}

#[expect(clippy::cast_possible_truncation, reason = "a run has at most 32 bytes")]
fn push_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERALS_MAX) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the format limits both numbers")]
fn push_reference(out: &mut Vec<u8>, back: usize, len: usize) {
    let (back, len) = (back - 1, len - 2);
    let high = (back >> 8) as u8;
    if len < 7 {
        out.push((len as u8) << 5 | high);
    } else {
        out.push(7 << 5 | high);
        out.push((len - 7) as u8);
    }
    out.push(back as u8);
}

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;
    use darter_store::rdb::{RdbSource, write_length};

    use super::*;

    fn unpacked(packed: &[u8], len: usize) -> Vec<u8> {
        let mut written = vec![0xc3];
        write_length(&mut written, packed.len() as u64);
        write_length(&mut written, len as u64);
        written.extend_from_slice(packed);
        RdbSource::new(&written).text().expect("what was packed unpacks").into_owned()
    }

    #[test]
    fn what_is_packed_unpacks_and_is_shorter() {
        let mut packer = Packer::default();
        let mut rng = Rng::new(5);
        let mut packed_count = 0;
        for round in 0..3000 {
            let len = rng.below(if round % 50 == 0 { 60_000 } else { 600 }) as usize;
            let letters = 1 + rng.below(6);
            let text: Vec<u8> = (0..len).map(|_| b'a' + rng.below(letters) as u8).collect();
            if let Some(packed) = packer.pack(&text) {
                packed_count += 1;
                assert!(packed.len() + GAIN_MIN <= text.len());
                assert_eq!(unpacked(packed, text.len()), text);
            }
        }
        assert!(packed_count > 1000);
        assert!(packer.pack(&[b'x'; 20]).is_none());
        assert!(packer.pack(&[b'x'; 21]).is_some());
    }
}
