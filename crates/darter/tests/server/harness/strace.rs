//! Strace: makes calls of a server slow, as a slow disk would. Tests that lack it, or may not trace, say so and end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Syncs, and reservations of files.
pub const DISK_CALLS: &str = "fsync,fdatasync,fallocate";
/// Syncs.
pub const SYNC_CALLS: &str = "fsync,fdatasync";

/// Another process that delays what the server asks of the disk; gone with the value.
pub struct Strace(Child);

impl Strace {
    /// Delays these calls of all threads of a process; `None`, and why, if that is not permitted.
    pub fn attach(pid: u32, calls: &str, delay_us: u32) -> Option<Strace> {
        let child = Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:delay_enter={delay_us}")])
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("not tested: there is no strace");
            return None;
        };
        let began = Instant::now();
        while !traces_all(child.id(), pid) {
            if child.try_wait().expect("its state").is_some() || began.elapsed() > super::PATIENCE {
                eprintln!("not tested: strace may not trace another process here (ptrace)");
                let _ = child.kill();
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(Strace(child))
    }
}

/// Returns true if a process traces every thread of another one: it takes them one after the other.
fn traces_all(tracer: u32, pid: u32) -> bool {
    let tracer = format!("TracerPid:\t{tracer}\n");
    let is_traced = |task: std::io::Result<std::fs::DirEntry>| {
        let status = task.and_then(|task| std::fs::read_to_string(task.path().join("status")));
        // One that has ended meanwhile calls nothing.
        status.map_or(true, |text| text.contains(&tracer))
    };
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|mut tasks| tasks.all(is_traced))
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
