//! ROLE, and what INFO tells of a link.

use std::sync::atomic::Ordering::Relaxed;

use darter_wire::Reply;

use super::link::Stage;
use super::replicas;
use crate::core::unix_ms;
use crate::shared::Shared;

/// What is known of the link to a master.
pub struct Link {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The stream is applied.
    pub is_up: bool,
    /// A snapshot is received or loaded.
    pub is_syncing: bool,
    /// Seconds since it was heard; -1: there is no connection.
    pub heard_s: i64,
    /// Seconds since the link is down.
    pub down_s: u64,
    /// Bytes of the snapshot, 0 = not known, and those received.
    pub sync_bytes: [u64; 2],
    stage: Stage,
}

/// What is known of the link to the master; `None` on a master.
pub fn link(shared: &Shared) -> Option<Link> {
    let card = shared.replication.state().master.clone()?;
    let now_ms = unix_ms();
    let stage = card.stage();
    let since_s = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let is_up = stage == Stage::Connected && shared.replication.link_is_up();
    Some(Link {
        host: card.host.clone(),
        port: card.port,
        is_up,
        is_syncing: stage == Stage::Sync,
        heard_s: if is_up { since_s(card.heard_ms.load(Relaxed)) as i64 } else { -1 },
        down_s: since_s(card.down_since_ms.load(Relaxed)),
        sync_bytes: [card.sync_bytes[0].load(Relaxed), card.sync_bytes[1].load(Relaxed)],
        stage,
    })
}

/// Answers ROLE.
pub fn role(shared: &Shared, reply: &mut Reply<'_>) {
    let link = link(shared);
    let state = shared.replication.state();
    let offset = i64::try_from(state.offset()).unwrap_or(i64::MAX);
    if let Some(link) = link {
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(link.host.as_bytes());
        reply.int(i64::from(link.port));
        reply.bulk(match link.stage {
            Stage::Connect => b"connect",
            Stage::Connecting => b"connecting",
            Stage::Sync => b"sync",
            Stage::Connected => b"connected",
        });
        reply.int(offset);
        return;
    }
    let online: Vec<_> =
        state.replicas.iter().filter(|replica| replica.stage == replicas::Stage::Online).collect();
    reply.array(3);
    reply.bulk(b"master");
    reply.int(offset);
    reply.array(online.len());
    for replica in online {
        reply.array(3);
        reply.bulk(replica.ip().as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        reply.bulk(replica.acked.to_string().as_bytes());
    }
}
