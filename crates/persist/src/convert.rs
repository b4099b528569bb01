//! Turns one snapshot file into another: `darter --convert`.

use std::io::Write;

use crate::counted::CountedWriter;
use crate::error::PersistError;
use crate::file::{FileOptions, FileSource, FileWriter};
use crate::item::RdbItem;
use crate::rdb::shown;
use crate::read_at::ReadAt;

/// The result of a conversion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Converted {
    /// Keys.
    pub keys: u64,
    /// Length of the new file in bytes.
    pub bytes: u64,
    /// The parts that the new file does not hold, in words.
    pub skipped: Vec<String>,
}

/// Writes the content of `source` to `out`; returns `out` and a summary.
///
/// Memory: some megabytes, or the longest value. Errors: `source` is damaged, or one of the two failed.
pub fn convert<R: ReadAt, W: Write>(
    source: R,
    out: W,
    options: FileOptions,
) -> Result<(W, Converted), PersistError> {
    let mut reader = FileSource::open(source)?;
    let mut writer = FileWriter::new(out, options)?;
    let (mut converted, mut counted) = (Converted::default(), CountedWriter::default());
    reader.each(|item| {
        match item {
            RdbItem::Aux { name, value } if !is_ours(&name) => writer.aux(&name, &value)?,
            RdbItem::Aux { .. } | RdbItem::End => {}
            RdbItem::Function(code) => writer.function(&code)?,
            RdbItem::Sizes { db, keys, expiring } => writer.sizes(db, keys, expiring)?,
            RdbItem::Skipped { db, key, what } => {
                let whose = key.map(|key| format!(" (key {}, database {db})", shown(&key)));
                converted.skipped.push(format!("{what}{}", whose.unwrap_or_default()));
            }
            RdbItem::Entries(chunk) => {
                let entries = u32::try_from(chunk.entries).unwrap_or(u32::MAX);
                // in order: parts of lists and streams stay behind each other
                if has_parts(&chunk) {
                    let keys = chunk.iter().flatten().map(|entry| counted.add(chunk.db, &entry));
                    converted.keys += keys.sum::<u64>();
                    writer.entries_in_order(chunk.db, 0, entries, &chunk.bytes)?;
                } else {
                    converted.keys += chunk.entries;
                    writer.entries(chunk.db, 0, entries, &chunk.bytes)?;
                }
            }
        }
        Ok(())
    })?;
    let (out, bytes) = writer.finish()?;
    converted.bytes = bytes;
    Ok((out, converted))
}

/// Returns true if every writer writes this fact itself.
fn is_ours(name: &[u8]) -> bool {
    [&b"redis-ver"[..], b"redis-bits", b"ctime", b"darter-ver", b"valkey-ver"].contains(&name)
}

fn has_parts(chunk: &crate::entry::Chunk) -> bool {
    chunk.iter().any(|entry| entry.is_ok_and(|entry| entry.part.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::name::NameFormat;
    use crate::testing::{self, contents};

    #[test]
    fn what_goes_there_and_back_is_the_same() {
        let shard = testing::sample(8, &[1, 7, 300]);
        let mut native = testing::file_of(&shard, NameFormat::Native);
        for format in [NameFormat::Rdb, NameFormat::Native, NameFormat::Rdb, NameFormat::Native] {
            let options = testing::options(format);
            let (bytes, done) = convert(&native[..], Vec::new(), options).expect("a good file");
            assert_eq!((done.keys, done.bytes), (30, bytes.len() as u64));
            native = bytes;
        }
        let mut again = testing::shard();
        let mut reader = FileSource::open(&native[..]).expect("a good file");
        reader
            .each(|item| {
                if let RdbItem::Entries(chunk) = item {
                    testing::load_all(&mut again, chunk.db as usize, &chunk.bytes);
                }
                Ok(())
            })
            .expect("a good file");
        let without_activity = |mut all: testing::Contents| {
            all.retain(|(_, key), _| !key.starts_with(b"key:21"));
            all
        };
        assert_eq!(without_activity(contents(&again)), without_activity(contents(&shard)));
    }

    #[test]
    fn a_damaged_file_is_not_converted() {
        let shard = testing::sample(8, &[7]);
        for format in [NameFormat::Rdb, NameFormat::Native] {
            let mut bytes = testing::file_of(&shard, format);
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            assert!(convert(&bytes[..], Vec::new(), testing::options(NameFormat::Rdb)).is_err());
        }
    }
}
