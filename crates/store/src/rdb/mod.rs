//! The value format of RDB files, as DUMP and RESTORE carry it: a type byte, the value, a footer.
//!
//! Called by DUMP, RESTORE, COPY and RENAME, and by `persist` for whole files. Input is not trusted: every length is
//! checked against the remaining bytes before anything is allocated.

mod compact;
mod object;
mod packed;
mod stream;
mod stream_pieces;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use darter_base::crc::{Crc64, crc64};

use crate::module::TYPE_ARRAY;
use crate::rdb_primitives::text;
pub use crate::rdb_primitives::{Corrupt, RdbLength, RdbSource, write_length, write_text};

use object::TYPE_SET_WITH_TTL;
pub use object::{
    ObjectPieces, TYPE_HASH, TYPE_HASH_WITH_TTL, TYPE_LIST, TYPE_VALKEY_HASH, TYPE_ZSET_WITH_TTL,
    read_object, type_of, write_member, write_members_head, write_object, write_seen,
};
pub use stream::TYPE_STREAM_5;
pub use stream_pieces::StreamPieces;

/// The type byte of a string.
pub const TYPE_STRING: u8 = 0;

/// The version that DUMP writes: the one that Redis 7.0 reads.
const VERSION_WRITTEN: u16 = 10;
/// The newest version of Redis that is known, in payloads as in files.
pub const VERSION_MAX: u16 = 16;
/// The versions of Valkey alone: before them it had those of Redis.
pub const VALKEY_VERSIONS: RangeInclusive<u16> = 80..=89;
/// The last version in which Redis does not use the type numbers that are ours alone. Our payloads have at most this
/// version.
const VERSION_WITH_OURS_MAX: u16 = 12;
/// Bytes behind the value of a payload: version (2) and CRC64 (8).
pub const FOOTER_LEN: usize = 10;

/// Ends a payload: `out` holds the type byte and the value, and nothing else.
pub fn seal(out: &mut Vec<u8>) {
    let mut crc = Crc64::new();
    crc.update(out);
    out.extend_from_slice(&footer(crc));
}

/// The end of a payload whose type byte and value `crc` has taken in.
pub fn footer(mut crc: Crc64) -> [u8; FOOTER_LEN] {
    let mut footer = [0; FOOTER_LEN];
    let (version, sum) = footer.split_at_mut(2);
    version.copy_from_slice(&VERSION_WRITTEN.to_le_bytes());
    crc.update(version);
    sum.copy_from_slice(&crc.value().to_le_bytes());
    footer
}

/// The versions that are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Versions {
    /// Those that are known.
    Known,
    /// Newer ones too, which may have unknown types.
    Any,
}

/// The version that a payload was written in: the same type bytes mean different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version(u16);

impl Version {
    fn is_valkeys(self) -> bool {
        self.0 >= *VALKEY_VERSIONS.start()
    }

    fn is_known(self) -> bool {
        self.0 <= VERSION_MAX || VALKEY_VERSIONS.contains(&self.0)
    }

    /// The number by which [`read_object`] knows `kind` of this version; `None`: not readable.
    fn kind(self, kind: u8) -> Option<u8> {
        match kind {
            0..=21 => Some(kind),
            22 if self.is_valkeys() => Some(TYPE_VALKEY_HASH),
            22..=27 | TYPE_ARRAY if !self.is_valkeys() => Some(kind),
            TYPE_SET_WITH_TTL | TYPE_ZSET_WITH_TTL if self.0 <= VERSION_WITH_OURS_MAX => Some(kind),
            _ => None,
        }
    }
}

/// The content of a payload whose footer is valid.
pub struct RdbPayload<'a> {
    /// Type bytes, each with its value.
    pub source: RdbSource<'a>,
    version: Version,
}

impl RdbPayload<'_> {
    /// The next type byte, as [`read_object`] knows it. Errors: missing or not readable.
    pub fn kind(&mut self) -> Result<u8, Corrupt> {
        let kind = self.source.byte()?;
        self.version.kind(kind).ok_or(Corrupt)
    }
}

/// Checks the footer of a payload.
///
/// Errors: too short, of a refused version, or with a wrong checksum.
pub fn open(payload: &[u8], versions: Versions) -> Result<RdbPayload<'_>, Corrupt> {
    let body_len = payload.len().checked_sub(FOOTER_LEN).ok_or(Corrupt)?;
    let (body, footer) = payload.split_at(body_len);
    let (version, crc) = footer.split_first_chunk::<2>().ok_or(Corrupt)?;
    let sealed = payload.get(..body_len + version.len()).ok_or(Corrupt)?;
    let version = Version(u16::from_le_bytes(*version));
    if versions == Versions::Known && !version.is_known() {
        return Err(Corrupt);
    }
    // Zeros mean no checksum: the server that wrote it had checksums disabled.
    if *crc != [0; 8] && crc64(sealed).to_le_bytes() != *crc {
        return Err(Corrupt);
    }
    Ok(RdbPayload { source: RdbSource::new(body), version })
}
