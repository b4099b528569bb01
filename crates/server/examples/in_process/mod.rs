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
    /// A server with `threads` threads that the caller runs; `how` is "journal" for one with a journal (`everysec`).
    pub fn start(name: &str, threads: usize, how: &str) -> InProcess {
        let dir = std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id()));
        let mut flags = vec![OsString::from(name), format!("--proactor_threads={threads}").into()];
        if how == "journal" {
            std::fs::create_dir_all(&dir).expect("a folder");
            flags.extend(["--appendonly=yes".into(), "--dir".into(), dir.clone().into_os_string()]);
        }
        let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
            panic!("the settings are valid")
        };
        let live = settings.live();
        let shared = start::build_hashed(Arc::new(*settings), &live, threads, KeyHasher::new(1));
        let shared = shared.expect("address space");
        rewrite::start(shared).expect("a folder to write to");
        InProcess { shared, dir }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
