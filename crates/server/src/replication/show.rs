//! ROLE, what INFO tells of a link, and what the console and `/metrics` show.

use std::sync::atomic::Ordering::Relaxed;

use darter_wire::Reply;
use serde_json::{Value, json};

use super::link::LinkStage;
use super::replicas::{self, SyncProgress};
use crate::clock::unix_ms;
use crate::shared::Shared;

/// State of the link to a master.
pub struct LinkView {
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
    stage: LinkStage,
}

/// Returns the state of the link to the master; `None` on a master.
pub fn link(shared: &Shared) -> Option<LinkView> {
    let info = shared.replication.state().master.clone()?;
    let now_ms = unix_ms();
    let stage = info.stage();
    let since_s = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let is_up = stage == LinkStage::Connected && shared.replication.link_is_up();
    Some(LinkView {
        host: info.host.clone(),
        port: info.port,
        is_up,
        is_syncing: stage == LinkStage::Sync,
        heard_s: if is_up { since_s(info.heard_ms.load(Relaxed)) as i64 } else { -1 },
        down_s: since_s(info.down_since_ms.load(Relaxed)),
        sync_bytes: [info.sync_bytes[0].load(Relaxed), info.sync_bytes[1].load(Relaxed)],
        stage,
    })
}

/// Answers ROLE.
pub fn role(shared: &Shared, reply: &mut Reply<'_>) {
    shared.replication.feed_now(shared);
    let link = link(shared);
    let state = shared.replication.state();
    let offset = i64::try_from(state.offset()).unwrap_or(i64::MAX);
    if let Some(link) = link {
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(link.host.as_bytes());
        reply.int(i64::from(link.port));
        reply.bulk(match link.stage {
            LinkStage::Connect => b"connect",
            LinkStage::Connecting => b"connecting",
            LinkStage::Sync => b"sync",
            LinkStage::Connected => b"connected",
        });
        reply.int(offset);
        return;
    }
    let online: Vec<_> =
        state.replicas.iter().filter(|replica| replica.stage == replicas::ReplicaStage::Online).collect();
    reply.array(3);
    reply.bulk(b"master");
    reply.int(offset);
    reply.array(online.len());
    for replica in online {
        reply.array(3);
        reply.bulk(replica.ip().as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        reply.bulk(replica.acked_offset().to_string().as_bytes());
    }
}

/// Milliseconds between two acknowledgements of a replica that is well, and more.
const ACKS_APART_MS: u64 = 1500;

/// A replica as it is seen here.
pub struct Follower {
    /// Its address.
    pub ip: String,
    /// The port it listens on.
    pub port: u16,
    /// How far it is, in the words of INFO.
    pub state: &'static str,
    /// Bytes that it has applied.
    pub offset: u64,
    /// Bytes that it lacks.
    pub behind_bytes: u64,
    /// Changes that it lacks, if it is one of ours.
    pub behind_records: Option<u64>,
    /// For how long it has lacked something.
    pub lag_ms: u64,
    /// Since it was heard.
    pub heard_ms: u64,
    /// Its snapshot, while it gets one.
    pub progress: Option<SyncProgress>,
}

/// The word for a stage, as Redis has it.
pub fn word(stage: replicas::ReplicaStage) -> &'static str {
    match stage {
        replicas::ReplicaStage::Waits => "wait_bgsave",
        replicas::ReplicaStage::Receives => "send_bulk",
        replicas::ReplicaStage::Online => "online",
    }
}

/// Everybody who follows this server.
pub fn followers(shared: &Shared) -> Vec<Follower> {
    let (state, now_ms) = (shared.replication.state(), unix_ms());
    let each = state.replicas.iter().map(|replica| {
        let is_online = replica.stage == replicas::ReplicaStage::Online;
        Follower {
            ip: replica.ip(),
            port: replica.port,
            state: word(replica.stage),
            offset: replica.acked_offset(),
            behind_bytes: state.offset().saturating_sub(replica.acked_offset()),
            behind_records: replica
                .flows
                .as_ref()
                .map(|flows| state.records.next().saturating_sub(flows.said.applied)),
            lag_ms: match now_ms.saturating_sub(replica.acked_ms) {
                _ if !is_online => 0,
                // Redis says once a second how far it is.
                ..ACKS_APART_MS => replica.lag_ms,
                _ => state.lag_ms(replica.acked_offset(), now_ms),
            },
            heard_ms: now_ms.saturating_sub(replica.acked_ms),
            progress: replica.progress(),
        }
    });
    each.collect()
}

/// Everything about replication that the console shows.
pub fn overview(shared: &Shared) -> Value {
    let progress = |progress: Option<SyncProgress>| {
        progress.map(|one| {
            json!({ "done": one.done, "total": one.total, "bytes_per_s": one.bytes_per_s, "left_s": one.left_s })
        })
    };
    let replicas: Vec<Value> = followers(shared)
        .into_iter()
        .map(|one| {
            json!({
                "ip": one.ip, "port": one.port, "state": one.state, "offset": one.offset,
                "behind_bytes": one.behind_bytes,
                "behind_records": one.behind_records, "lag_ms": one.lag_ms, "heard_ms": one.heard_ms,
                "sync": progress(one.progress),
            })
        })
        .collect();
    let info = shared.replication.state().master.clone();
    let master = info.map(|info| {
        let stage = info.stage();
        let loading = &shared.snapshots.loading;
        let (percent, left_s) = loading.progress(unix_ms());
        json!({
            "host": info.host, "port": info.port, "is_up": shared.replication.link_is_up(),
            "state": match stage {
                LinkStage::Connect => "waiting to connect",
                LinkStage::Connecting => "connecting",
                LinkStage::Sync if loading.is_on() => "loading the snapshot",
                LinkStage::Sync => "receiving a snapshot",
                LinkStage::Connected => "following",
            },
            "heard_ms": unix_ms().saturating_sub(info.heard_ms.load(Relaxed)),
            "received_bytes": info.input_bytes.load(Relaxed),
            "sync": progress(info.progress()),
            "loading": loading.is_on().then(|| json!({ "percent": percent, "left_s": left_s })),
        })
    });
    let (counts, live) = (&shared.replication.counts, shared.settings.live());
    let state = shared.replication.state();
    json!({
        "id": state.history.id.as_str(),
        "offset": state.offset(),
        "failover": shared.replication.failover_state(),
        "backlog": { "bytes": state.backlog.len() + state.records.bytes(), "max": live.replication.backlog_bytes },
        "master": master,
        "replicas": replicas,
        "syncs": {
            "full": counts.full.load(Relaxed), "partial": counts.partial.load(Relaxed),
            "refused": counts.partial_refused.load(Relaxed),
        },
        "dropped": {
            "slow": counts.dropped_slow.load(Relaxed), "silent": counts.dropped_silent.load(Relaxed),
            "lost": counts.lost.load(Relaxed),
        },
    })
}
