//! The slot of a key, eight bytes at a time: what every command of a cluster computes before it runs.
//!
//! Called by routing, and by the hash of keys where shards follow slots. [`crate::crc::key_slot`] says what a slot is; a key with a brace is left to it.

use crate::crc::{SLOTS_LEN, key_slot};

/// The slot of `key`: of its hash tag if it has one. Cost: two instructions a byte, and some ten for eight bytes.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    let (head, chunks) = key.as_rchunks::<8>();
    let mut sum =
        head.iter().rev().zip(&TABLES).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)]);
    let mut braces = sum & BRACES;
    for bytes in chunks {
        let before = [(sum >> 8) as u8, sum as u8];
        let [a, b, c, d, e, f, g, h] = bytes.map(usize::from);
        let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
        let own = t7[a] ^ t6[b] ^ t5[c] ^ t4[d] ^ t3[e] ^ t2[f] ^ t1[g] ^ t0[h];
        braces |= own & BRACES;
        sum = own ^ (t7[usize::from(before[0])] & CRC) ^ (t6[usize::from(before[1])] & CRC);
    }
    if braces != 0 {
        return key_slot(key);
    }
    sum as u16 & (SLOTS_LEN - 1)
}

const CRC: u32 = 0xffff;
const BRACES: u32 = !CRC;

/// By the number of bytes that follow: what a byte adds to the CRC16, and above it a bit of its own if it is an opening brace,
/// so that no two braces cancel out.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut after = 0;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            let mut crc = (byte as u32) << 8;
            let mut bit = 0;
            while bit < 8 * (after + 1) {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                crc &= CRC;
                bit += 1;
            }
            tables[after][byte] = crc | if byte == b'{' as usize { 1 << (16 + after) } else { 0 };
            byte += 1;
        }
        after += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_the_known_ones() {
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"bar"), 5061);
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"a long name {foo} of 27 bytes"), 12182);
    }

    proptest! {
        #[test]
        fn any_key_has_the_slot_of_the_plain_way(key in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(slot_of(&key), key_slot(&key));
        }

        #[test]
        fn keys_with_braces_too(key in "[a{}]{0,24}") {
            prop_assert_eq!(slot_of(key.as_bytes()), key_slot(key.as_bytes()));
        }
    }
}
