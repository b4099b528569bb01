//! What holds for a whole comparison: binaries, rounds, cores, limits.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::cores;
use crate::load::Shape;
use crate::replies::Protocol;
use crate::server::Program;

/// The setting of a comparison.
#[derive(Clone, Debug)]
pub struct Setting {
    /// redis-server.
    pub redis_path: PathBuf,
    /// memcached.
    pub memcached_path: PathBuf,
    /// Darter's release binary.
    pub darter_path: PathBuf,
    /// Further flags for Darter.
    pub darter_flags: Vec<String>,
    /// The echo floor's binary; it is skipped when this file does not exist.
    pub echo_floor_path: PathBuf,
    /// The echo floor's I/O driver.
    pub echo_floor_driver: String,
    /// Rounds of each speed row.
    pub rounds: usize,
    /// When clients of the speed rows send again.
    pub shape: Shape,
    /// Operations are multiplied by this.
    pub scale: f64,
    /// The longest a measured part may take.
    pub wall: Duration,
    /// Where one-threaded servers run.
    pub server_cores: Vec<usize>,
    /// Where the client runs beside them.
    pub client_cores: Vec<usize>,
    /// Where both run when they share.
    pub all_cores: Vec<usize>,
}

impl Setting {
    /// Gives the server the first usable core and the client the second; on one core they share it.
    pub fn place(&mut self) -> io::Result<()> {
        let usable = cores::usable()?;
        let first = usable.first().copied().unwrap_or(0);
        let second = usable.get(1).copied().unwrap_or(first);
        self.server_cores = vec![first];
        self.client_cores = vec![second];
        self.all_cores = if first == second { vec![first] } else { vec![first, second] };
        Ok(())
    }

    /// Redis, one thread.
    pub fn redis(&self) -> Program {
        Program::Redis { path: self.redis_path.clone(), flags: Vec::new() }
    }

    /// memcached.
    pub fn memcached(&self, threads: usize) -> Program {
        Program::Memcached { path: self.memcached_path.clone(), threads }
    }

    /// Darter.
    pub fn darter(&self, threads: usize) -> Program {
        self.darter_by(Protocol::Resp, threads)
    }

    /// Darter, spoken to in `protocol`.
    pub fn darter_by(&self, protocol: Protocol, threads: usize) -> Program {
        let (path, flags) = (self.darter_path.clone(), self.darter_flags.clone());
        Program::Darter { path, threads, flags, protocol }
    }

    /// The echo floor for these sizes; `None` when there is no binary.
    pub fn echo_floor(&self, request_bytes: usize, reply_bytes: usize) -> Option<Program> {
        let path = self.echo_floor_path.clone();
        let driver = self.echo_floor_driver.clone();
        path.exists().then_some(Program::EchoFloor { path, request_bytes, reply_bytes, driver })
    }

    /// `ops` at this scale, at least a thousand.
    pub fn scaled(&self, ops: u64) -> u64 {
        ((ops as f64 * self.scale) as u64).max(1000)
    }
}
