//! A server without sockets, for the examples that are counted instruction by instruction.
//!
//! Called by `dispatch` and `sharing`. Keys are hashed alike in each run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_config::{Settings, Startup};
use darter_server::journal::rewrite;
use darter_server::shared::Shared;
use darter_server::start;

/// What all threads share, and the folder of the journal, which is removed with this value.
pub struct InProcess {
    pub shared: &'static Shared,
    dir: PathBuf,
}

impl InProcess {
    /// A server with `threads` threads that the caller runs; `how` is "journal" for one with a journal (`everysec`),
    /// "cluster" for one of a cluster that owns every slot.
    pub fn start(name: &str, threads: usize, how: &str) -> InProcess {
        let dir = std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id()));
        let mut flags = vec![OsString::from(name), format!("--proactor_threads={threads}").into()];
        if how == "journal" {
            std::fs::create_dir_all(&dir).expect("a folder");
            flags.extend(["--appendonly=yes".into(), "--dir".into(), dir.clone().into_os_string()]);
        }
        if how == "cluster" {
            std::fs::create_dir_all(&dir).expect("a folder");
            // Its file would name a map; there is none in this folder.
            flags.extend(["--cluster_mode=yes".into(), "--dir".into(), dir.clone().into_os_string()]);
        }
        let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
            panic!("the settings are valid")
        };
        let live = settings.live();
        let shared = start::build_hashed(Arc::new(*settings), &live, threads, KeyHasher::new(1));
        let shared = shared.expect("address space");
        rewrite::start(shared).expect("a folder to write to");
        if how == "cluster" {
            let (id, slots) = (shared.cluster.id(), r#"[{"start": 0, "end": 16383}]"#);
            let json =
                format!(r#"[{{"slot_ranges": {slots}, "master": {{"id": "{id}", "ip": "h", "port": 1}}}}]"#);
            let config = darter_cluster::parse(json.as_bytes()).expect("a good configuration");
            let map = |revision| darter_cluster::SlotMap::new(config.groups, id, revision);
            shared.cluster.adopt(shared, map, Box::new(|_| {}));
        }
        InProcess { shared, dir }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
