//! What the settings say about snapshots: where they are, what they are called, how they are written.

use darter_persist::storage::name::{NameFormat, NamePattern};
use darter_persist::storage::{self, StorageDirectory, StorageFacts, StorageFault};

use crate::clock::unix_ms;
use darter_config::Live;

use super::run::{Purpose, SnapshotOrder};

impl SnapshotOrder {
    /// A snapshot as the settings describe it. `None`: `dbfilename` is empty, so none is wanted.
    pub fn of(live: &Live) -> Option<Result<SnapshotOrder, String>> {
        let name = &live.persistence.dbfilename;
        (!name.is_empty()).then(|| SnapshotOrder::named(live, name, None))
    }

    /// The same under another name, which may hold macros, and in another format.
    ///
    /// Errors: the name says another format, or the folder is none.
    pub fn named(live: &Live, name: &str, format: Option<NameFormat>) -> Result<SnapshotOrder, String> {
        let persistence = &live.persistence;
        let pattern = NamePattern::new(name).ok_or("a snapshot must have a name")?;
        let format = match (format, pattern.format()) {
            (Some(asked), Some(said)) if asked != said => {
                return Err(format!("the name '{name}' is not that of a file in this format"));
            }
            (asked, said) => asked.or(said).unwrap_or(default_format(live)),
        };
        let (address, cloud) = (persistence.dir.display().to_string(), persistence.cloud.clone());
        let threads = if live.threads > 0 { live.threads } else { 1 };
        Ok(SnapshotOrder {
            // On the thread that writes: a cloud may take its time to open.
            create: Box::new(move |name| storage::directory(&address, &cloud)?.create(name)),
            name: pattern.file_name(format, unix_ms()),
            format,
            packs: match format {
                NameFormat::Rdb => persistence.rdbcompression,
                NameFormat::Native => persistence.native_compression,
            },
            has_checksum: persistence.rdbchecksum,
            bytes_per_s_max: persistence.egress_bytes_per_s_max.saturating_mul(u64::from(threads)),
            purpose: Purpose::Save,
            at_cut: None,
            then: Vec::new(),
        })
    }
}

fn default_format(live: &Live) -> NameFormat {
    if live.persistence.df_snapshot_format { NameFormat::Native } else { NameFormat::Rdb }
}

/// The folder of snapshots.
///
/// Errors: an address that is not understood.
pub fn directory(live: &Live) -> Result<Box<dyn StorageDirectory>, StorageFault> {
    storage::directory(&live.persistence.dir.display().to_string(), &live.persistence.cloud)
}

/// Whether `file` is the snapshot that the next start would load. An object store is not asked: false.
pub fn is_newest(live: &Live, file: &str) -> bool {
    let is_local = !storage::is_cloud(&live.persistence.dir.display().to_string());
    is_local && newest(live).is_ok_and(|found| found.is_some_and(|(_, facts)| facts.name == file))
}

/// A file to load: its folder and what is known of it.
pub type Source = (Box<dyn StorageDirectory>, StorageFacts);

/// The newest snapshot that the settings name, and the folder it is in; `None` when there is none, or `dbfilename` is
/// empty.
///
/// Errors: the folder cannot be read.
pub fn newest(live: &Live) -> Result<Option<Source>, StorageFault> {
    let Some(pattern) = NamePattern::new(&live.persistence.dbfilename) else { return Ok(None) };
    let dir = directory(live)?;
    let files = dir.list()?;
    let found = pattern.newest(&files).map(|(facts, _)| facts.clone());
    Ok(found.map(|facts| (dir, facts)))
}
