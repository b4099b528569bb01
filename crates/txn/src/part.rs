//! What one ownership token guards: a shard and the clients that care about its keys.

use darter_store::Shard;

use crate::waiters::Waiters;
use crate::watch::Watches;

/// A shard with its watches and waiting clients.
pub struct Part {
    /// The data.
    pub shard: Shard,
    /// Connections that asked to know of a change before their EXEC.
    pub watches: Watches,
    /// Clients that wait for a key to be filled.
    pub waiters: Waiters,
}

impl Part {
    /// A part around an empty shard.
    pub fn new(shard: Shard) -> Part {
        Part { shard, watches: Watches::default(), waiters: Waiters::default() }
    }
}
