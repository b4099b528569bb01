//! The server as a process: one program for all these tests, as each program more would link the server once more.
//!
//! A file is a subject; `cargo test -p darter --test server journal` runs those whose path has the word.

mod groups;
mod harness;
mod listed;
mod nodes;
mod stored;

// The random commands of the comparison with Redis, and how they are sent.
#[path = "../../../../tests/compat/src/connection.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod connection;
#[path = "../../../../tests/compat/src/events.rs"]
mod events;
#[path = "../../../../tests/compat/src/filling.rs"]
mod filling;
#[path = "../../../../tests/compat/src/form.rs"]
mod form;
#[path = "../../../../tests/compat/src/grammar/mod.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod grammar;
#[path = "../../../../tests/compat/src/reply.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod reply;
#[path = "../../../../tests/compat/src/rng.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod rng;
#[path = "../../../../tests/compat/src/stream.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod stream;
#[path = "../../../../tests/compat/src/way.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod way;
#[path = "../../../../tests/compat/src/words.rs"]
mod words;

// The commands that `darter-bench holds` measures.
#[path = "../../../../tools/bench/src/holds/rows.rs"]
mod rows;

mod acl;
mod administration;
mod busy;
mod clients;
mod cluster;
mod cluster_beside_redis;
mod cluster_dead_targets;
mod cluster_failover;
mod cluster_large_values;
mod cluster_migration_kills;
mod cluster_migrations;
mod cluster_moves;
mod cluster_pushed;
mod cluster_pushed_migrations;
mod cluster_stored;
mod cluster_tls;
mod copies;
mod doors;
mod draws;
mod ending;
mod equivalence;
mod failover;
mod failover_disk;
mod failover_history;
mod first_hour;
mod functions;
mod holds;
mod hostile;
mod http;
mod huge;
mod journal;
mod journal_damage;
mod journal_kill;
mod journal_replay;
mod journal_switch;
mod keyspace;
mod labelled;
mod large_requests;
mod listings;
mod long_values;
mod maxmemory;
mod members;
mod memcached;
mod metrics;
mod migrate;
mod modules;
mod output;
mod races;
mod replication;
mod replication_bounds;
mod replication_clients;
mod replication_faults;
mod replication_flows;
mod replication_full_sync;
mod replication_parts;
mod replication_promises;
mod replication_resume;
mod replication_roles;
mod replication_stream;
mod scripts;
mod serial;
mod sizes;
mod slices;
mod slices_answers;
mod slices_modules;
mod slices_stored;
mod snapshots;
mod store_tls;
mod streams;
mod suites;
mod surveys;
mod tls;
mod tracking;
mod union;
mod zsets;
