//! Checksums: Redis' CRC64 (RDB, DUMP), CRC32C (our own blocks), CRC16 and the cluster slot of a key.

use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, CrcParams, Digest};

/// Number of cluster slots.
pub const SLOTS_LEN: u16 = 16384;

/// The CRC64 of Redis ("Jones" polynomial, reflected, start 0) of `data`.
pub fn crc64(data: &[u8]) -> u64 {
    crc_fast::checksum_with_params(*JONES, data)
}

/// A CRC64 of Redis over bytes that come in parts.
#[derive(Clone, Debug)]
pub struct Crc64(Digest);

impl Crc64 {
    /// The checksum of nothing yet.
    pub fn new() -> Self {
        Self(Digest::new_with_params(*JONES))
    }

    /// Takes `data` in. Cost: about 20 GB/s on long data.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The checksum of all data so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Crc64 {
    fn default() -> Self {
        Self::new()
    }
}

/// The CRC32C (Castagnoli) of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// A CRC32C over bytes that come in parts.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of nothing yet.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes `data` in.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The checksum of all data so far.
    pub fn value(&self) -> u32 {
        // The upper half of a 32-bit CRC's state is always zero.
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// The CRC16 (XMODEM) of `data`, as Redis Cluster uses it.
#[inline]
pub fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, &byte| (crc << 8) ^ CRC16_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The cluster slot of `key`, 0..16384: of its hash tag when it has a non-empty `{tag}`, else of all of it.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) & (SLOTS_LEN - 1)
}

/// The part of `key` that decides its slot: between the first `{` and the next `}`, unless that is empty.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

static JONES: LazyLock<CrcParams> = LazyLock::new(|| {
    CrcParams::new("CRC-64/REDIS", 64, 0xad93_d235_94c9_35a9, 0, true, 0, 0xe9c6_d914_c4b8_d9ca)
});

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_the_published_ones() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc64(b""), 0);
    }

    #[test]
    fn parts_give_the_checksum_of_the_whole() {
        let data: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
        for cut in [0, 1, 15, 16, 17, 255, 1024, 4999, 5000] {
            let (mut a, mut b) = (Crc64::new(), Crc32c::new());
            for part in [&data[..cut], &data[cut..]] {
                a.update(part);
                b.update(part);
            }
            assert_eq!((a.value(), b.value()), (crc64(&data), crc32c(&data)), "cut at {cut}");
        }
    }

    #[test]
    fn slots_follow_the_hash_tag() {
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"{foo}.bar"), 12182);
        assert_eq!(hash_tag(b"a{}{foo}"), b"a{}{foo}");
        assert_eq!(hash_tag(b"a{{foo}}"), b"{foo");
        assert_eq!(hash_tag(b"a{foo"), b"a{foo");
        assert_eq!(hash_tag(b"{foo}{bar}"), b"foo");
        assert_eq!(key_slot(b""), 0);
    }
}
