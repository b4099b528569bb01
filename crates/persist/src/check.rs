//! Checks a file for `darter --check`: reads all of it, value by value, and reports its content and its damage.

use std::collections::BTreeMap;
use std::fmt;

use darter_base::hash::KeyHasher;
use darter_store::rdb::{self as values, RdbSource};
use darter_store::{Arena, Object};

use crate::counted::CountedWriter;
use crate::entry::Entries;
use crate::error::PersistError;
use crate::file::FileSource;
use crate::item::RdbItem;
use crate::layout;
use crate::native;
use crate::rdb::shown;
use crate::read_at::ReadAt;

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// The format, in words.
    pub format: String,
    /// Names and texts of facts.
    pub facts: Vec<(String, String)>,
    /// Libraries of functions.
    pub functions: u64,
    /// Keys by database and type.
    pub keys: BTreeMap<(u32, &'static str), u64>,
    /// Keys with a deadline.
    pub expiring: u64,
    /// The parts that a loading server would skip, in words.
    pub skipped: Vec<String>,
    /// Blocks of our own format.
    pub blocks: u64,
    /// True if a checksum covered all of it and was right.
    pub is_checked: bool,
    /// The damage, each with its offset.
    pub damage: Vec<String>,
}

impl CheckReport {
    /// Returns true if the file can be loaded.
    pub fn is_good(&self) -> bool {
        self.damage.is_empty()
    }
}

/// Checks all of `source`.
///
/// After damage, reading of our own format continues with the next block. Reading of an RDB file stops, because the
/// start of the next key is unknown.
pub fn check<R: ReadAt>(source: &R) -> CheckReport {
    check_at(source).0
}

/// The same; also returns the end of an RDB file, behind which commands may follow. 0: not an RDB file, or damaged.
pub fn check_at<R: ReadAt>(source: &R) -> (CheckReport, u64) {
    let mut end = 0;
    let mut checker = Checker {
        report: CheckReport::default(),
        counted: CountedWriter::default(),
        arena: Arena::new().ok(),
    };
    match FileSource::open(source) {
        Ok(FileSource::Native(file)) => checker.blocks(&file),
        Ok(mut reader) => {
            let mut read = |reader: &mut FileSource<&R>| reader.each(|item| checker.item(item));
            let done = read(&mut reader);
            checker.report.damage.extend(done.err().map(|error| error.to_string()));
            if let FileSource::Rdb(reader) = &reader {
                let server = if reader.is_valkey() { "Valkey" } else { "Redis" };
                checker.report.format = format!("RDB, version {} of {server}", reader.version());
                checker.report.is_checked = reader.is_checked();
                end = reader.offset();
            }
        }
        Err(error) => checker.without_index(source, &error),
    }
    (checker.report, end)
}

struct Checker {
    report: CheckReport,
    counted: CountedWriter,
    // for building values, to see whether they are sound
    arena: Option<Arena>,
}

impl Checker {
    fn blocks<R: ReadAt>(&mut self, file: &native::SnapshotFile<R>) {
        self.report.format = format!("Darter snapshot, version {}", native::VERSION);
        self.report.is_checked = true;
        for place in file.places() {
            self.report.blocks += 1;
            let done = file.read(place).and_then(|block| self.block(&block));
            self.report.damage.extend(done.err().map(|error| error.to_string()));
        }
    }

    /// A file whose index cannot be used: block by block from the front, up to the first that is not whole.
    fn without_index<R: ReadAt>(&mut self, source: &R, error: &PersistError) {
        self.report.damage.push(error.to_string());
        let walked = native::walk(source, |block| {
            self.report.format = format!("Darter snapshot, version {}", native::VERSION);
            self.report.blocks += 1;
            self.block(block)
        });
        let more = walked.err().map(|error| error.to_string());
        self.report
            .damage
            .extend(more.filter(|more| self.report.blocks > 0 && !self.report.damage.contains(more)));
    }

    fn block(&mut self, block: &native::SnapshotBlock) -> Result<(), PersistError> {
        block.facts()?.into_iter().try_for_each(|item| self.item(item))?;
        for segment in block.segments()? {
            self.item(RdbItem::Entries(segment.to_chunk(&block.place)))?;
        }
        Ok(())
    }

    fn item(&mut self, item: RdbItem) -> Result<(), PersistError> {
        match item {
            RdbItem::Aux { name, value } => {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                self.report.facts.push((text(&name), text(&value)));
            }
            RdbItem::Function(_) => self.report.functions += 1,
            RdbItem::Skipped { db, key, what } => {
                let whose = key.map(|key| format!(" (key {}, database {db})", shown(&key)));
                self.report.skipped.push(format!("{what}{}", whose.unwrap_or_default()));
            }
            RdbItem::Sizes { .. } | RdbItem::End => {}
            RdbItem::Entries(chunk) => {
                for entry in Entries::new(&chunk.bytes) {
                    let entry = entry.map_err(|fault| PersistError::of_fault(chunk.offset, fault))?;
                    let name = layout::of(entry.kind).map_or("unknown", |layout| layout.name);
                    let keys = self.counted.add(chunk.db, &entry);
                    *self.report.keys.entry((chunk.db, name)).or_default() += keys;
                    self.report.expiring += keys * u64::from(entry.deadline_ms.is_some());
                    if !self.is_sound(entry.kind, entry.value) && entry.elements() != Some(0) {
                        let whose = format!("key {}, database {}", shown(&entry.key), chunk.db);
                        self.report
                            .damage
                            .push(format!("near byte {}: the value of {whose} is damaged", chunk.offset));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if a value can be built.
    fn is_sound(&mut self, kind: u8, value: &[u8]) -> bool {
        let mut source = RdbSource::new(value);
        if kind == values::TYPE_STRING {
            return source.text().is_ok();
        }
        let Some(arena) = &mut self.arena else { return true };
        let built = values::read_object(kind, &mut source, arena, KeyHasher::new(0));
        built.map(|mut object: Object| object.clear(arena)).is_ok()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.format.is_empty() {
            writeln!(out, "format     {}", self.format)?;
        }
        for (name, value) in &self.facts {
            writeln!(out, "fact       {name} = {value}")?;
        }
        if self.blocks > 0 {
            writeln!(out, "blocks     {}", self.blocks)?;
        }
        if self.functions > 0 {
            writeln!(out, "libraries  {}", self.functions)?;
        }
        for ((db, name), count) in &self.keys {
            writeln!(out, "database {db} {name} {count}")?;
        }
        let keys: u64 = self.keys.values().sum();
        writeln!(out, "keys       {keys}, {} with a deadline", self.expiring)?;
        for skipped in &self.skipped {
            writeln!(out, "passed over {skipped}")?;
        }
        for damage in &self.damage {
            writeln!(out, "DAMAGE     {damage}")?;
        }
        let sum = if self.is_checked { "its checksums are right" } else { "it has no checksum" };
        if self.is_good() { writeln!(out, "good       {sum}") } else { writeln!(out, "not good") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::name::NameFormat;
    use crate::testing;

    #[test]
    fn counts_are_those_of_the_keys() {
        let shard = testing::sample(3, &[1, 5, 50]);
        for format in [NameFormat::Rdb, NameFormat::Native] {
            let report = check(&&testing::file_of(&shard, format)[..]);
            assert!(report.is_good() && report.is_checked, "{report}");
            assert_eq!(report.keys.values().sum::<u64>(), 30);
            assert_eq!(report.keys.get(&(0, "hash")), Some(&2));
            assert_eq!(report.facts.len(), 4);
        }
    }

    #[test]
    fn damage_is_named_and_counted_around() {
        let shard = testing::sample(3, &[1, 5, 2000]);
        let good = testing::file_of(&shard, NameFormat::Native);
        let places = native::SnapshotFile::open(&good[..]).expect("a good file").places().to_vec();
        let mut changed = good.clone();
        changed[places[1].offset as usize + 100] ^= 1;
        let report = check(&&changed[..]);
        assert_eq!(report.damage.len(), 1, "{report}");
        assert!(report.damage[0].contains("block 1"), "{report}");
        assert!((1..27).contains(&report.keys.values().sum::<u64>()), "{report}");
        let cut = check(&&good[..good.len() - 30]);
        assert!(!cut.is_good() && cut.blocks == places.len() as u64, "{cut}");
        let rdb = testing::file_of(&shard, NameFormat::Rdb);
        let cut = check(&&rdb[..rdb.len() - 30]);
        assert!(cut.damage[0].contains("cut off after"), "{cut}");
        assert!(!check(&&b"no such file"[..]).is_good());
        assert!(!check(&&b""[..]).is_good());
    }
}
