//! The tables agree with the format.

use std::collections::HashSet;

use super::*;

#[test]
fn every_family_is_there_once_and_named_as_the_format_wants() {
    let mut seen = HashSet::new();
    for family in table::DRAGONFLY.iter().chain(own::OWN) {
        assert!(seen.insert(family.name), "{} is there twice", family.name);
        assert!(family.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", family.name);
        assert!(
            family.help.ends_with('.') && !family.help.contains('\n'),
            "{}: {}",
            family.name,
            family.help
        );
        assert!(family.help.len() > 3, "{}", family.name);
    }
}

#[test]
fn what_dragonflys_dashboards_ask_for_is_there() {
    let names: HashSet<&str> = table::DRAGONFLY.iter().map(|family| family.name).collect();
    for wanted in DASHBOARD.split_whitespace() {
        assert!(names.contains(format!("dragonfly_{wanted}").as_str()), "{wanted}");
    }
}

/// The union of the queries of both of Dragonfly's dashboards.
const DASHBOARD: &str = "version uptime_in_seconds connected_clients memory_used_bytes memory_max_bytes \
    used_memory_rss_bytes commands_processed_total net_input_bytes_total net_output_bytes_total db_keys db_keys_expiring \
    expired_keys_total evicted_keys_total pipeline_queue_length pipeline_commands_total \
    pipeline_commands_duration_seconds fiber_switch_total fiber_switch_delay_seconds_total fiber_longrun_total \
    fiber_longrun_seconds replication_full_sync_bytes replication_streaming_bytes commands_total \
    commands_duration_seconds keyspace_hits_total keyspace_misses_total keyspace_mutations_total db_capacity \
    reply_duration_seconds reply_total cmd_squash_hop_total cmd_squash_hop_duration_seconds cmd_squash_commands_total \
    pipeline_queue_wait_duration_seconds pipeline_dispatch_calls_total pipeline_dispatch_commands_total \
    pipeline_dispatch_flush_duration_seconds pipeline_latency_seconds net_read_yields_total tiered_hits \
    tiered_overload tiered_bytes tiered_events";
