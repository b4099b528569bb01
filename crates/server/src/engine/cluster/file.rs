//! The file of a node of a cluster (`cluster-config-file`): its id and, in a pushed cluster, its map.
//!
//! The map is written before it is taken, and read once at the start. A damaged file stops the start: serving without the
//! map could give the slots of others away. [`MapFile`] is the store of a pushed map, which no other node changes.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use darter_cluster::{MapChange, PushedChange, StoredMap, pushed};
use darter_quorum::store::{GroupStore, StoreFault, StoreWritten, Versioned};
use serde_json::{Value, json};

use super::outgoing::now_s;
use crate::replication::new_id;

/// What the file holds.
pub struct KeptMap {
    /// The id of the node that wrote it.
    pub id: String,
    /// The number of the map.
    pub revision: u64,
    /// The map.
    pub map: StoredMap,
}

/// Bytes beside a configuration.
const HEAD_BYTES_MAX: usize = 16 << 20;

/// Takes the file for this server until the result is dropped, or the process ends. Errors: another server has it, which
/// would have the same id; one line.
pub fn claim(path: &Path) -> Result<File, String> {
    let fault = |why: String| format!("cluster-config-file {}: {why}", path.display());
    let mut name = path.file_name().ok_or_else(|| fault("the path names no file".to_owned()))?.to_owned();
    name.push(".lock");
    // A file of its own: the other is replaced with each change.
    let lock = File::options().create(true).append(true).open(path.with_file_name(name));
    let lock = lock.map_err(|error| fault(error.to_string()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(fault(
            "another server uses it; each needs a dir or a cluster-config-file of its own".to_owned(),
        )),
        Err(TryLockError::Error(error)) => Err(fault(error.to_string())),
    }
}

/// Reads the file; `None` if there is none. Errors: one line.
pub fn read(path: &Path) -> Result<Option<KeptMap>, String> {
    let fault = |why: String| format!("cluster-config-file {}: {why}", path.display());
    let mut text = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error.to_string())),
        Ok(file) => {
            let bytes_max = (pushed::CONFIG_BYTES_MAX + HEAD_BYTES_MAX) as u64;
            file.take(bytes_max).read_to_end(&mut text).map_err(|error| fault(error.to_string()))?;
        }
    }
    parse(&text).map(Some).map_err(fault)
}

fn parse(text: &[u8]) -> Result<KeptMap, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let id = value.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).ok_or("it names no node")?;
    let revision = value.get("revision").and_then(Value::as_u64).ok_or("it has no revision")?;
    let map = match (value.get("map"), value.get("config")) {
        (Some(map), _) => StoredMap::parse(map.to_string().as_bytes())?,
        // An older version has kept the configuration.
        (None, Some(config)) => {
            let config = pushed::parse(config.to_string().as_bytes())?;
            let change = PushedChange::Configure {
                config,
                id: new_id().as_str().to_owned(),
                boot: String::new(),
                now_s: now_s(),
            };
            let mut map = StoredMap::default();
            MapChange::Pushed(change).apply(&mut map, id)?;
            map
        }
        _ => return Err("it has no map".to_owned()),
    };
    Ok(KeptMap { id: id.to_owned(), revision, map })
}

/// Writes the file in one step; `map` is its JSON. Errors: those of the file system; the file is then as before.
pub fn write(path: &Path, id: &str, revision: u64, map: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(map).map_err(|error| error.to_string())?;
    let text = json!({ "id": id, "revision": revision, "map": value }).to_string();
    let mut name = path.file_name().ok_or("the path names no file")?.to_owned();
    name.push(".tmp");
    let new = path.with_file_name(name);
    let written =
        write_new(&new, text.as_bytes()).and_then(|()| std::fs::rename(&new, path)).and_then(|()| {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(dir)?.sync_all()
        });
    written.map_err(|error| error.to_string())
}

fn write_new(new: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(new)?;
    file.write_all(text)?;
    file.sync_all()
}

/// The map of a pushed cluster as a store.
pub struct MapFile {
    path: PathBuf,
    id: String,
    // As in the file; `None`: there is none yet.
    value: Option<Versioned>,
}

impl MapFile {
    /// The store of the node `id`, whose file holds `kept`.
    pub fn new(path: &Path, id: &str, kept: Option<(u64, &StoredMap)>) -> MapFile {
        let value = kept.map(|(revision, map)| Versioned { revision, value: map.to_json() });
        MapFile { path: path.to_owned(), id: id.to_owned(), value }
    }
}

impl GroupStore for MapFile {
    fn read(&mut self) -> Result<Option<Versioned>, StoreFault> {
        Ok(self.value.clone())
    }

    fn read_newer(&mut self, known: u64) -> Result<Option<Versioned>, StoreFault> {
        Ok(self.value.as_ref().filter(|value| value.revision > known).cloned())
    }

    fn compare_and_set(&mut self, expected: u64, value: &[u8]) -> Result<StoreWritten, StoreFault> {
        let present = self.value.as_ref().map_or(0, |value| value.revision);
        if present != expected {
            return Ok(StoreWritten::Conflict);
        }
        let revision = present + 1;
        write(&self.path, &self.id, revision, value).map_err(StoreFault)?;
        self.value = Some(Versioned { revision, value: value.to_vec() });
        Ok(StoreWritten::Done(revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_refused() {
        let old = br#"{"id": "a", "revision": 3, "config": [{"slot_ranges": [], "master": {"id": "a", "ip": "h", "port": 1}}]}"#;
        let empty = StoredMap::default().to_json();
        let new = json!({ "id": "a", "revision": 3, "map": serde_json::from_slice::<Value>(&empty).expect("JSON") });
        let new = new.to_string().into_bytes();
        for (good, groups) in [(&old[..], 1), (&new, 0)] {
            let kept = parse(good).map(|kept| (kept.id, kept.revision, kept.map.joined.len()));
            assert_eq!(kept, Ok(("a".to_owned(), 3, groups)));
            for cut in 0..good.len() {
                assert!(parse(&good[..cut]).is_err(), "{cut}");
            }
        }
        assert_eq!(parse(b"{}").err().as_deref(), Some("it names no node"));
        assert_eq!(parse(br#"{"id": "a", "revision": 1}"#).err().as_deref(), Some("it has no map"));
    }
}
