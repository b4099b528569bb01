//! The file of a pushed configuration (`cluster-config-file`): the id of this node and the configuration as it came.
//!
//! Written before a configuration is taken, read once at the start. A damaged file stops the start: serving without the
//! map could give the slots of others away.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use darter_cluster::{NodeGroup, pushed};
use serde_json::{Value, json};

/// What the file holds.
pub struct KeptConfig {
    /// The id of the node that wrote it.
    pub id: String,
    /// The number of the map that it made.
    pub revision: u64,
    /// The groups of the configuration.
    pub groups: Vec<NodeGroup>,
}

/// Bytes beside the configuration.
const HEAD_BYTES_MAX: usize = 4096;

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
pub fn read(path: &Path) -> Result<Option<KeptConfig>, String> {
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

fn parse(text: &[u8]) -> Result<KeptConfig, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let id = value.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).ok_or("it names no node")?;
    let revision = value.get("revision").and_then(Value::as_u64).ok_or("it has no revision")?;
    let config = value.get("config").ok_or("it has no configuration")?;
    Ok(KeptConfig { id: id.to_owned(), revision, groups: pushed::parse(config.to_string().as_bytes())? })
}

/// Writes the file in one step; `config` is JSON that was checked. Errors: those of the file system; the file is then as
/// before.
pub fn write(path: &Path, id: &str, revision: u64, config: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(config).map_err(|error| error.to_string())?;
    let text = json!({ "id": id, "revision": revision, "config": value }).to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_refused() {
        let good = br#"{"id": "a", "revision": 3, "config": [{"slot_ranges": [], "master": {"id": "a", "ip": "h", "port": 1}}]}"#;
        assert_eq!(parse(good).map(|kept| (kept.id, kept.groups.len())), Ok(("a".to_owned(), 1)));
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "{cut}");
        }
        assert_eq!(parse(b"{}").err().as_deref(), Some("it names no node"));
        assert_eq!(parse(br#"{"id": "a", "revision": 1}"#).err().as_deref(), Some("it has no configuration"));
    }
}
