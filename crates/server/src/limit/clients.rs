//! `maxmemory-clients`: the fattest clients go when all together take too much.
//!
//! Called once a turn by every thread; unless there is too much that is a comparison of two numbers.

use std::sync::atomic::Ordering::Relaxed;

use super::client_bytes;
use crate::clients::ClientCard;
use crate::config::Share;
use crate::conn::Conn;
use crate::core::Core;
use crate::shared::Mail;
use crate::worker::lock;

/// Bytes a client takes beside its buffers: its state, its card, its place in the tables.
pub const CLIENT_BYTES: usize = size_of::<Conn>() + size_of::<ClientCard>() + 256;

/// The most that all clients may take together; 0 is no limit.
pub fn max_bytes(core: &Core) -> u64 {
    match core.live.maxmemory_clients {
        Share::Bytes(bytes) => bytes,
        Share::Percent(percent) => core.shared.limit.max_bytes(&core.live) / 100 * u64::from(percent),
    }
}

/// Closes clients, the fattest first, until the others may stay. Those that CLIENT NO-EVICT protects do stay, and so
/// do those that are being closed already.
#[cold]
pub fn evict(core: &Core) {
    let max = max_bytes(core);
    let mut fat: Vec<(usize, u64)> = Vec::new();
    let clients = lock(&core.shared.clients);
    let mut all = 0;
    for card in clients.values() {
        let bytes = card.memory_bytes.load(Relaxed);
        if card.is_closing.load(Relaxed) {
            continue;
        }
        all += bytes as u64;
        if !card.no_evict.load(Relaxed) {
            fat.push((bytes, card.id));
        }
    }
    fat.sort_unstable();
    while all > max
        && let Some((bytes, id)) = fat.pop()
    {
        let Some(card) = clients.get(&id) else { continue };
        all -= bytes as u64;
        if !card.is_closing.swap(true, Relaxed) {
            core.stats().clients_evicted.add(1);
            tracing::info!("evicting client {id}: it takes {bytes} bytes, and all clients together too much");
            core.shared.door(card.thread).send(Mail::Kill { token: card.token, client: id });
        }
    }
}

/// Whether clients take more than they may.
#[inline]
pub fn is_over(core: &Core) -> bool {
    core.client_bytes_max > 0 && client_bytes(core.shared) > core.client_bytes_max
}
