//! Our own families: distributions, threads, errors, and what Prometheus expects of any process.

use darter_cluster::MoveWay;
use std::sync::atomic::Ordering::Relaxed;

use super::text::seconds;
use super::{Family, MetricKind, Samples, Scrape, counter, gauge, many, most_called};
use crate::pubsub;
use crate::replication::group;
use crate::replication::show::Follower;
use crate::stats::histogram::Sum;
use darter_config::Measure;

/// Every family.
pub(super) const OWN: &[Family] = &[
    many(
        "darter_command_duration_seconds",
        MetricKind::Histogram,
        "Time in a command, of the commands called most. One call in 127 is timed if calls are cheap.",
        |s, out| {
            for timed in most_called(s.shared) {
                out.histogram(&[("cmd", timed.name)], &timed.times, timed.nanos);
            }
        },
    ),
    counter("darter_http_requests_total", "Requests of HTTP answered.", |s| {
        s.shared.stats.iter().map(|stats| stats.http_requests.get()).sum::<u64>() as f64
    }),
    many(
        "darter_turn_duration_seconds",
        MetricKind::Histogram,
        "From the first bytes of a turn to its last reply, all threads.",
        |s, out| out.histogram(&[], &s.turns, s.report.totals.busy_us * 1000),
    ),
    many(
        "darter_thread_busy_seconds_total",
        MetricKind::Counter,
        "Seconds a thread was not asleep.",
        |s, out| {
            each_thread(s, |thread, at| {
                out.with("thread", thread, seconds(s.shared.stats[at].busy_nanos.get()))
            })
        },
    ),
    many("darter_thread_connections", MetricKind::Gauge, "Connections by thread.", |s, out| {
        each_thread(s, |thread, at| {
            out.with("thread", thread, s.shared.handles[at].connections.load(Relaxed));
        })
    }),
    many("darter_thread_commands_total", MetricKind::Counter, "Commands by thread.", |s, out| {
        each_thread(s, |thread, at| out.with("thread", thread, s.shared.stats[at].commands_run()))
    }),
    counter("darter_contended_commands_total", "Commands that found their shard busy and waited.", |s| {
        s.report.totals.contended as f64
    }),
    many(
        "darter_commands_rejected_total",
        MetricKind::Counter,
        "Calls refused before they ran.",
        |s, out| {
            let refused = s.commands.iter().filter(|(_, totals)| totals.rejected > 0);
            refused.for_each(|(name, totals)| out.with("cmd", name, totals.rejected))
        },
    ),
    many("darter_commands_failed_total", MetricKind::Counter, "Calls that ended in an error.", |s, out| {
        let failed = s.commands.iter().filter(|(_, totals)| totals.failed > 0);
        failed.for_each(|(name, totals)| out.with("cmd", name, totals.failed))
    }),
    many(
        "darter_error_replies_total",
        MetricKind::Counter,
        "Error replies by their first word.",
        |s, out| s.errors.iter().for_each(|(word, count)| out.with("error", word, count)),
    ),
    counter("darter_expired_members_total", "Fields and members removed at their deadline.", |s| {
        s.report.shards.counters.expired_members as f64
    }),
    gauge("darter_shards", "Parts the data is split into.", |s| s.shared.cells.len() as f64),
    gauge("darter_subscribed_clients", "Clients with a subscription.", |s| {
        s.report.clients.subscribed as f64
    }),
    gauge("darter_tracking_clients", "Clients that cache keys.", |s| s.shared.tracking.clients_len() as f64),
    gauge("darter_pubsub_channels", "Channels with a subscriber.", |s| {
        s.shared.pubsub.channels_len(pubsub::SubscriptionKind::Channel) as f64
    }),
    gauge("darter_pubsub_patterns", "Patterns with a subscriber.", |s| s.shared.pubsub.patterns_len() as f64),
    gauge("darter_slowlog_entries", "Commands in the slow log.", |s| {
        s.shared.command_logs.of(Measure::Time).len() as f64
    }),
    counter("darter_output_limit_disconnections_total", "Clients closed because they did not read.", |s| {
        s.report.totals.output_limit_closed as f64
    }),
    gauge("darter_changes_since_save", "Changes that no snapshot holds yet.", |s| {
        s.number("rdb_changes_since_last_save")
    }),
    gauge("darter_last_save_unix_seconds", "When the last snapshot was finished.", |s| {
        s.number("rdb_last_save_time")
    }),
    gauge("darter_last_save_failed", "1 if the last snapshot could not be written.", |s| {
        f64::from(s.info.get("rdb_last_bgsave_status").is_some_and(|status| status != "ok"))
    }),
    gauge("darter_loading", "1 while a snapshot is loaded.", |s| s.number("loading")),
    many("darter_term", MetricKind::Gauge, "Term of the group that this server belongs to.", |s, out| {
        if let Some(group) = group::show::overview(s.shared) {
            out.one(group.term as f64);
        }
    }),
    many(
        "darter_sync_members",
        MetricKind::Gauge,
        "Members that have every change which was answered.",
        |s, out| {
            if let Some(group) = group::show::overview(s.shared) {
                out.one(group.sync.len() as f64);
            }
        },
    ),
    many(
        "darter_acks_waiting",
        MetricKind::Gauge,
        "Changes that members have not acknowledged yet.",
        |s, out| {
            if let Some(group) = group::show::overview(s.shared) {
                out.one(group.acks_waiting as f64);
            }
        },
    ),
    many(
        "darter_ack_wait_seconds",
        MetricKind::Histogram,
        "From a change in the stream to the last acknowledgement it needs; one change at a time is measured.",
        |s, out| {
            if let Some(group) = &s.shared.group {
                let mut waits = Sum::default();
                waits.add(&group.commit.waits);
                out.histogram(&[], &waits, group.commit.waits_nanos.load(Relaxed));
            }
        },
    ),
    many(
        "darter_store_unreached",
        MetricKind::Gauge,
        "1 while the store of the group cannot be asked.",
        |s, out| {
            if let Some(group) = group::show::overview(s.shared) {
                out.one(f64::from(group.store_fault.is_some()));
            }
        },
    ),
    many("darter_group_leader", MetricKind::Gauge, "1 on the server that leads its group.", |s, out| {
        if let Some(group) = &s.shared.group {
            out.one(f64::from(group.serves(s.shared)));
        }
    }),
    many(
        "darter_failovers_total",
        MetricKind::Counter,
        "Changes of the master that this server had a part in.",
        |s, out| {
            out.with("kind", "planned", s.shared.replication.counts.failovers.load(Relaxed));
            if let Some(group) = &s.shared.group {
                let counts = &group.counts;
                for (kind, count) in
                    [("led", &counts.led), ("deposed", &counts.deposed), ("unclean", &counts.unclean)]
                {
                    out.with("kind", kind, count.load(Relaxed));
                }
            }
        },
    ),
    many(
        "darter_replica_lag_seconds",
        MetricKind::Gauge,
        "For how long a replica has lacked something.",
        |s, out| each_follower(s, out, |one| one.lag_ms as f64 / 1000.0),
    ),
    many(
        "dragonfly_connected_replica_lag_records",
        MetricKind::Gauge,
        "Changes that a replica of the same kind has not applied.",
        |s, out| each_follower(s, out, |one| one.behind_records.unwrap_or(0) as f64),
    ),
    many(
        "darter_replica_behind_bytes",
        MetricKind::Gauge,
        "Bytes of the stream that a replica lacks.",
        |s, out| each_follower(s, out, |one| one.behind_bytes as f64),
    ),
    many(
        "darter_replica_dropped_total",
        MetricKind::Counter,
        "Replicas whose connection was closed.",
        |s, out| {
            let counts = &s.shared.replication.counts;
            out.with("why", "slow", counts.dropped_slow.load(Relaxed));
            out.with("why", "silent", counts.dropped_silent.load(Relaxed));
            out.with("why", "lost", counts.lost.load(Relaxed));
        },
    ),
    many(
        "darter_replica_parts_total",
        MetricKind::Counter,
        "Parts of a master's changes that were run.",
        |s, out| {
            let [own, others] = &s.shared.replication.counts.parts;
            out.with("by", "applier", own.load(Relaxed));
            out.with("by", "other", others.load(Relaxed));
        },
    ),
    many("darter_sync_total", MetricKind::Counter, "Replicas that were brought up to date.", |s, out| {
        let counts = &s.shared.replication.counts;
        out.with("kind", "full", counts.full.load(Relaxed));
        out.with("kind", "partial", counts.partial.load(Relaxed));
        out.with("kind", "refused", counts.partial_refused.load(Relaxed));
    }),
    many("darter_backlog_bytes", MetricKind::Gauge, "Bytes kept for replicas.", |s, out| {
        let state = s.shared.replication.state();
        out.with("where", "memory", state.backlog.len() + state.records.bytes());
        drop(state);
        out.with("where", "queue", s.shared.journal.intake.bytes());
    }),
    many(
        "darter_cluster_slots",
        MetricKind::Gauge,
        "Slots of the cluster by what this node knows of them.",
        |s, out| {
            let map = s.shared.cluster.map();
            let own = map.own_group().map_or(0, |group| group.slots_len());
            out.with("state", "own", own);
            out.with("state", "other", map.bound_len() - own);
            out.with("state", "unbound", map.owners().len() - map.bound_len());
            let moves = |way: MoveWay| map.moves().iter().filter(|one| one.way == way).count();
            out.with("state", "migrating", moves(MoveWay::Migrating));
            out.with("state", "importing", moves(MoveWay::Importing));
        },
    ),
    many(
        "darter_cluster_redirects_total",
        MetricKind::Counter,
        "Commands refused for their slots.",
        |s, out| {
            let redirects = &s.shared.cluster.redirects;
            out.with("kind", "moved", redirects.moved.load(Relaxed));
            out.with("kind", "ask", redirects.ask.load(Relaxed));
            out.with("kind", "tryagain", redirects.try_again.load(Relaxed));
            out.with("kind", "crossslot", redirects.cross.load(Relaxed));
            out.with("kind", "down", redirects.down.load(Relaxed));
        },
    ),
    gauge(
        "darter_cluster_migrations_active",
        "Moves of slots as a whole that the map has and that go on.",
        |s| s.shared.cluster.map().migrations().iter().filter(|one| one.is_active()).count() as f64,
    ),
    many(
        "darter_cluster_migrations_total",
        MetricKind::Counter,
        "Moves of slots away from this node that have ended.",
        |s, out| {
            out.with("outcome", "success", s.shared.cluster.outgoing.done.load(Relaxed));
            out.with("outcome", "failed", s.shared.cluster.outgoing.failed.load(Relaxed));
        },
    ),
    counter("darter_cluster_migrated_keys_total", "Keys that were sent by such moves.", |s| {
        s.shared.cluster.outgoing.sent_keys.load(Relaxed) as f64
    }),
    many(
        "darter_cluster_migration_bytes_total",
        MetricKind::Counter,
        "Bytes of slots that move as a whole.",
        |s, out| {
            out.with("dir", "out", s.shared.cluster.outgoing.sent_bytes.load(Relaxed));
        },
    ),
    counter(
        "darter_cluster_migration_pause_seconds_total",
        "Time for which writers of such slots waited.",
        |s| s.shared.cluster.outgoing.pause_ms.load(Relaxed) as f64 / 1000.0,
    ),
    counter("darter_cluster_store_errors_total", "Questions that the cluster's store did not answer.", |s| {
        s.shared.cluster.store.as_ref().map_or(0, |store| store.errors.load(Relaxed)) as f64
    }),
    gauge(
        "darter_cluster_map_age_seconds",
        "Time since the store last confirmed the map of the cluster.",
        |s| {
            let seen_ms = s.shared.cluster.shared_store().map_or(0, |store| store.seen_ms.load(Relaxed));
            let age_ms = crate::clock::unix_ms().saturating_sub(seen_ms);
            if seen_ms == 0 { 0.0 } else { age_ms as f64 / 1000.0 }
        },
    ),
    many("darter_cpu_seconds_total", MetricKind::Counter, "Processor time by mode.", |s, out| {
        out.with("mode", "user", s.cpu.user.as_secs_f64());
        out.with("mode", "system", s.cpu.system.as_secs_f64());
    }),
    counter("process_cpu_seconds_total", "Processor time.", |s| (s.cpu.user + s.cpu.system).as_secs_f64()),
    gauge("process_resident_memory_bytes", "Resident bytes.", |s| s.report.memory.rss as f64),
    gauge("process_start_time_seconds", "When the process started, Unix time.", |s| {
        s.shared.started_unix_s as f64
    }),
];

fn each_follower(s: &Scrape<'_>, out: &mut Samples<'_>, value: fn(&Follower) -> f64) {
    for one in &s.followers {
        let port = one.port.to_string();
        let labels = [("replica_ip", one.ip.as_str()), ("replica_port", &port), ("replica_state", one.state)];
        out.with_all(&labels, value(one));
    }
}

fn each_thread(s: &Scrape<'_>, mut write: impl FnMut(&str, usize)) {
    (0..s.shared.handles.len()).for_each(|at| write(&at.to_string(), at));
}
