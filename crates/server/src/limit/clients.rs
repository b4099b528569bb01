//! `maxmemory-clients`: the fattest clients go when all together take too much.
//!
//! Called once a turn by every thread; unless there is too much that is a comparison of two numbers.

use std::sync::atomic::Ordering::Relaxed;

use super::client_bytes;
use crate::clients::ClientInfo;
use crate::conn::Conn;
use crate::shared::ThreadMessage;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Share;

/// Bytes a client takes beside its buffers: its state, its info, its place in the tables.
pub const CLIENT_BYTES: usize = size_of::<Conn>() + size_of::<ClientInfo>() + 256;

impl ClientInfo {
    /// Bytes it takes in all.
    pub fn total_bytes(&self) -> usize {
        let parts = [&self.buffer_bytes, &self.multi_bytes, &self.held_bytes];
        CLIENT_BYTES + parts.iter().map(|bytes| bytes.load(Relaxed)).sum::<usize>()
    }
}

/// The most that all clients may take together; 0 is no limit.
pub fn max_bytes(local: &ThreadState) -> u64 {
    match local.live.maxmemory_clients {
        Share::Bytes(bytes) => bytes,
        Share::Percent(percent) => local.shared.limit.max_bytes(&local.live) / 100 * u64::from(percent),
    }
}

/// Closes clients, the fattest first, until the others may stay. Those that CLIENT NO-EVICT protects do stay, and so
/// do those that are being closed already.
#[cold]
pub fn evict(local: &ThreadState) {
    let max = max_bytes(local);
    let mut fat: Vec<(usize, u64)> = Vec::new();
    let clients = lock(&local.shared.clients);
    let mut all = 0;
    for info in clients.values() {
        let bytes = info.memory_bytes.load(Relaxed);
        if info.is_closing.load(Relaxed) {
            continue;
        }
        all += bytes as u64;
        if !info.no_evict.load(Relaxed) {
            fat.push((bytes, info.id));
        }
    }
    fat.sort_unstable();
    while all > max
        && let Some((bytes, id)) = fat.pop()
    {
        let Some(info) = clients.get(&id) else { continue };
        all -= bytes as u64;
        if !info.is_closing.swap(true, Relaxed) {
            local.stats().clients_evicted.add(1);
            tracing::info!("evicting client {id}: it takes {bytes} bytes, and all clients together too much");
            local.shared.handle(info.thread).send(ThreadMessage::Kill { token: info.token, client: id });
        }
    }
}

/// Whether clients take more than they may.
#[inline]
pub fn is_over(local: &ThreadState) -> bool {
    local.client_bytes_max > 0 && client_bytes(local.shared) > local.client_bytes_max
}
