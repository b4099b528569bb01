//! INFO replication, in the fields of Redis.

use std::fmt::Write as _;

use super::{InfoSource, InfoText};
use crate::replication::group;
use crate::replication::replicas::ReplicaStage;
use crate::replication::show;

/// INFO replication.
pub fn replication(source: &InfoSource<'_>, out: &mut InfoText) {
    let (shared, live) = (source.shared, &source.live.replication);
    shared.replication.feed_now(shared);
    let link = show::link(shared);
    out.field("role", if link.is_some() { "slave" } else { "master" });
    if let Some(link) = &link {
        out.field("master_host", &link.host);
        out.field("master_port", link.port);
        out.field("master_link_status", if link.is_up { "up" } else { "down" });
        out.field("master_last_io_seconds_ago", link.heard_s);
        out.field("master_sync_in_progress", u8::from(link.is_syncing));
        let offset = shared.replication.state().offset();
        out.field("slave_read_repl_offset", offset);
        out.field("slave_repl_offset", offset);
        if link.is_syncing {
            let [total, received] = link.sync_bytes;
            out.field("master_sync_total_bytes", total);
            out.field("master_sync_read_bytes", received);
            out.field("master_sync_left_bytes", total.saturating_sub(received));
            let percent = received as f64 * 100.0 / total.max(received).max(1) as f64;
            out.field("master_sync_perc", format!("{percent:.2}"));
            out.field("master_sync_last_io_seconds_ago", link.heard_s.max(0));
        }
        if !link.is_up {
            out.field("master_link_down_since_seconds", link.down_s);
        }
        out.field("slave_priority", live.priority);
        out.field("slave_read_only", u8::from(live.read_only));
        out.field("replica_announced", u8::from(live.is_announced));
    }
    replicas(source, out);
    history(source, out);
}

fn replicas(source: &InfoSource<'_>, out: &mut InfoText) {
    let (shared, live) = (source.shared, &source.live.replication);
    let state = shared.replication.state();
    out.field("connected_slaves", state.replicas.len());
    if live.min_replicas > 0 {
        out.field("min_slaves_good_slaves", shared.replication.good_replicas());
    }
    for (n, replica) in state.replicas.iter().enumerate() {
        let stage = show::word(replica.stage);
        let lag_s = match replica.stage {
            ReplicaStage::Online => source.now_ms.saturating_sub(replica.acked_ms) / 1000,
            _ => 0,
        };
        let mut line = String::new();
        let (ip, port, offset) = (replica.ip(), replica.port, replica.acked_offset());
        let _ = write!(line, "ip={ip},port={port},state={stage},offset={offset},lag={lag_s}");
        if let Some(flows) = &replica.flows {
            line.push_str(if flows.is_from_disk { ",from=disk" } else { ",from=memory" });
        }
        out.field(&format!("slave{n}"), line);
    }
}

fn history(source: &InfoSource<'_>, out: &mut InfoText) {
    let state = source.shared.replication.state();
    let (id, offset) = match state.history.before() {
        Some((id, offset)) => (id.to_string(), offset as i64),
        None => ("0".repeat(40), -1),
    };
    out.field("master_failover_state", source.shared.replication.failover_state());
    out.field("master_replid", state.history.id);
    out.field("master_replid2", id);
    out.field("master_repl_offset", state.offset());
    out.field("second_repl_offset", offset);
    out.field("repl_backlog_active", u8::from(state.has_backlog));
    out.field("repl_backlog_size", source.live.replication.backlog_bytes);
    let (len, first) = state.kept();
    out.field("repl_backlog_first_byte_offset", if state.has_backlog { first + 1 } else { 0 });
    out.field("repl_backlog_histlen", len);
    out.field("repl_disk_first_byte_offset", state.disk.first_noted().map_or(0, |offset| offset + 1));
    if state.knows_sequences {
        out.field("sequence", state.records.next());
    }
    drop(state);
    if let Some(group) = group::show::overview(source.shared) {
        out.field("term", group.term);
        out.field("group_role", group.role);
        out.field("group_leader", group.leader);
        out.field("sync_members", group.sync.len());
        out.field("acks_waiting", group.acks_waiting);
        out.field("replica_ack", group.ack);
    }
}
