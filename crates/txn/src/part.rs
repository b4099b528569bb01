//! The data under one ownership token: a shard and the clients that watch, await or cache its keys.

use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_store::Shard;

use crate::leaving::LeavingKeys;
use crate::own_deadlines::OwnDeadlines;
use crate::readers::Readers;
use crate::waiters::Waiters;
use crate::watch::Watches;

/// A shard with its watches, waiting clients and caching clients.
///
/// Shape: the shard comes first, so that the fields which every command writes lie in the cache lines of the
/// ownership word.
#[repr(C)]
pub struct ShardPart {
    /// The data.
    pub shard: Shard,
    /// Connections that must learn of a change before their EXEC.
    pub watches: Watches,
    /// Clients that wait for a key to be filled.
    pub waiters: Waiters,
    /// Clients that have read a key and cache its value.
    pub readers: Readers,
    /// The slots that are on their way to another node.
    pub leaving: Vec<Arc<LeavingKeys>>,
    /// Keys that expire here though a master is followed; `None` unless this is a writable replica.
    pub own_deadlines: Option<Box<OwnDeadlines>>,
}

impl ShardPart {
    /// A part around an empty shard, whose keys `hasher` hashes.
    pub fn new(shard: Shard, hasher: KeyHasher) -> ShardPart {
        let readers = Readers::new(hasher);
        ShardPart {
            shard,
            watches: Watches::default(),
            waiters: Waiters::default(),
            readers,
            leaving: Vec::new(),
            own_deadlines: None,
        }
    }
}
