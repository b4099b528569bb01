//! A snapshot in either format: writing one, and reading one whose first bytes tell the format.

use std::io::Write;

use crate::error::PersistError;
use crate::item::RdbItem;
use crate::native;
use crate::rdb;
use crate::read_at::{Front, ReadAt};
use crate::storage::name::NameFormat;

/// Options for writing a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOptions {
    /// The format.
    pub format: NameFormat,
    /// True if it is compressed.
    pub packs: bool,
    /// True if an RDB file ends with a checksum; our own format always has checksums.
    pub has_checksum: bool,
    /// When it is made, Unix milliseconds.
    pub now_ms: u64,
    /// A random number, which distinguishes its blocks from those of other files.
    pub id: u64,
}

/// Writes a snapshot: facts and functions first, then entries.
#[derive(Debug)]
pub enum FileWriter<W: Write> {
    /// An RDB file.
    Rdb(Box<rdb::RdbWriter<W>>),
    /// In our own format.
    Native(native::SnapshotWriter<W>),
}

impl<W: Write> FileWriter<W> {
    /// Starts a file, with facts about its writer and the time.
    ///
    /// Errors: the disk failed.
    pub fn new(out: W, options: FileOptions) -> Result<FileWriter<W>, PersistError> {
        let mut writer = match options.format {
            NameFormat::Rdb => FileWriter::Rdb(Box::new(rdb::RdbWriter::new(
                out,
                rdb::RdbOptions { packs: options.packs, has_checksum: options.has_checksum },
            ))),
            NameFormat::Native => FileWriter::Native(native::SnapshotWriter::new(
                out,
                options.id,
                options.now_ms,
                options.packs,
            )?),
        };
        let facts: [(&str, String); 4] = [
            ("redis-ver", REDIS_VERSION.to_owned()),
            ("redis-bits", usize::BITS.to_string()),
            ("ctime", (options.now_ms / 1000).to_string()),
            ("darter-ver", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        for (name, value) in facts {
            writer.aux(name.as_bytes(), value.as_bytes())?;
        }
        Ok(writer)
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        match self {
            FileWriter::Rdb(writer) => writer.bytes(),
            FileWriter::Native(writer) => writer.bytes(),
        }
    }

    /// Leaves out, from now on, keys of an RDB file that only servers with modules can read.
    pub fn leave_modules_out(&mut self) {
        if let FileWriter::Rdb(writer) = self {
            writer.leave_modules_out();
        }
    }

    /// Keys that were left out.
    pub fn left_out(&self) -> u64 {
        match self {
            FileWriter::Rdb(writer) => writer.left_out(),
            FileWriter::Native(_) => 0,
        }
    }

    /// Writes a fact about the writer.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<(), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.aux(name, value),
            FileWriter::Native(writer) => writer.aux(name, value),
        }
    }

    /// Writes a library of functions: its code.
    pub fn function(&mut self, code: &[u8]) -> Result<(), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.function(code),
            FileWriter::Native(writer) => writer.function(code),
        }
    }

    /// Announces the number of keys of database `db`; before any entry.
    pub fn sizes(&mut self, db: u32, keys: u64, expiring: u64) -> Result<(), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.sizes(db, keys, expiring),
            FileWriter::Native(writer) => writer.sizes(db, keys, expiring),
        }
    }

    /// Writes the `entries` entries in `bytes`, of database `db` and from shard `shard`. Parts of lists must be
    /// passed to [`FileWriter::entries_in_order`].
    ///
    /// Errors: the disk failed, or the bytes are not entries.
    pub fn entries(&mut self, db: u32, shard: u32, entries: u32, bytes: &[u8]) -> Result<(), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.entries(db, bytes).map(drop),
            FileWriter::Native(writer) => writer.entries(db, shard, entries, bytes),
        }
    }

    /// The same for parts that must be read in the order in which they are written: those of lists.
    pub fn entries_in_order(
        &mut self,
        db: u32,
        shard: u32,
        entries: u32,
        bytes: &[u8],
    ) -> Result<(), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.entries(db, bytes).map(drop),
            FileWriter::Native(writer) => writer.entries_in_order(db, shard, entries, bytes),
        }
    }

    /// Ends the file; returns the underlying writer and the length of the file in bytes.
    ///
    /// Errors: the disk failed, or parts of a value are missing.
    pub fn finish(self) -> Result<(W, u64), PersistError> {
        match self {
            FileWriter::Rdb(writer) => writer.finish(),
            FileWriter::Native(writer) => writer.finish().map(|(out, totals)| (out, totals.bytes)),
        }
    }
}

/// The version of Redis that files claim as their writer: one that every reader accepts.
const REDIS_VERSION: &str = "7.0.15";

/// A snapshot to read.
#[derive(Debug)]
pub enum FileSource<R: ReadAt> {
    /// An RDB file, from front to back.
    Rdb(Box<rdb::RdbReader<Front<R>>>),
    /// Blocks in any order.
    Native(native::SnapshotFile<R>),
}

impl<R: ReadAt> FileSource<R> {
    /// Opens a snapshot.
    ///
    /// Errors: no snapshot, or one that is damaged at its ends.
    pub fn open(source: R) -> Result<FileSource<R>, PersistError> {
        let mut first = [0; native::MAGIC.len()];
        let len = usize::try_from(source.len()?).unwrap_or(usize::MAX).min(first.len());
        source.read_at(0, first.get_mut(..len).unwrap_or_default())?;
        if &first == native::MAGIC {
            return native::SnapshotFile::open(source).map(FileSource::Native);
        }
        let front = Front::new(source)?;
        rdb::RdbReader::new(front).map(|reader| FileSource::Rdb(Box::new(reader)))
    }

    /// Passes all items to `visit`, one after another; entries as chunks.
    ///
    /// Errors: those of the file, and those that `visit` returns.
    pub fn each(
        &mut self,
        mut visit: impl FnMut(RdbItem) -> Result<(), PersistError>,
    ) -> Result<(), PersistError> {
        match self {
            FileSource::Rdb(reader) => loop {
                match reader.next()? {
                    RdbItem::End => return Ok(()),
                    item => visit(item)?,
                }
            },
            FileSource::Native(file) => {
                file.facts()?.into_iter().try_for_each(&mut visit)?;
                for place in file.places() {
                    let block = file.read(place)?;
                    for segment in block.segments()? {
                        visit(RdbItem::Entries(segment.to_chunk(place)))?;
                    }
                }
                Ok(())
            }
        }
    }
}
