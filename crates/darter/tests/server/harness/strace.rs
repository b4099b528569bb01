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
        let status = format!("/proc/{}/status", pid);
        let tracer = format!("TracerPid:\t{}", child.id());
        let began = Instant::now();
        while !std::fs::read_to_string(&status).is_ok_and(|text| text.contains(&tracer)) {
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

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
