//! The comparison: runs the rows of a suite and prints each table as it grows.

use crate::setting::Setting;
use crate::{
    caching, doors, expiry, growth, memory, messages, persist, removal, replication, report, scripts, speed,
};

/// Which rows are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Strings, memory, start, expiry.
    Engine,
    /// Strings of 16 KiB to 1 MB.
    Long,
    /// The collections.
    Types,
    /// The memcached door.
    Memcached,
    /// Collections of 25 and 100 million members, and the end of one of 50 million; gigabytes, and minutes.
    Large,
    /// The journal.
    Persist,
    /// Publish and subscribe, client-side caches, notifications.
    Pubsub,
    /// Commands over several keys, transactions, scripts.
    Scripts,
    /// Cache mode, and the limit.
    Cache,
    /// Users, encryption, connections, metrics.
    Doors,
    /// A master and a replica.
    Replication,
}

/// Runs the rows whose name contains `filter` and prints the tables to stdout, progress to stderr.
pub fn run(suite: Suite, filter: &str, setting: &Setting) {
    println!("{}", report::head(setting));
    let paths =
        [&setting.redis_path, &setting.memcached_path, &setting.darter_path, &setting.echo_floor_path];
    for path in paths.into_iter().filter(|path| !path.exists()) {
        println!("(skipped: {} is absent)\n", path.display());
    }
    let wanted = |name: &str| name.to_lowercase().contains(&filter.to_lowercase());
    let speed_rows = match suite {
        Suite::Engine => speed::engine_rows(),
        Suite::Types => speed::type_rows(),
        Suite::Memcached => speed::memcached_rows(),
        Suite::Long => speed::long_rows(),
        Suite::Large
        | Suite::Pubsub
        | Suite::Persist
        | Suite::Scripts
        | Suite::Cache
        | Suite::Doors
        | Suite::Replication => Vec::new(),
    };
    print_table(report::speed_head(), speed_rows.iter().filter(|row| wanted(row.name)), |row| {
        eprintln!("{} × {} rounds", row.name, setting.rounds);
        report::speed_row(row.name, &speed::run(row, setting))
    });
    let memory_rows = match suite {
        Suite::Engine => memory::engine_rows(),
        Suite::Types => memory::type_rows(),
        Suite::Long
        | Suite::Memcached
        | Suite::Pubsub
        | Suite::Persist
        | Suite::Scripts
        | Suite::Cache
        | Suite::Doors
        | Suite::Replication => Vec::new(),
        Suite::Large => memory::large_rows(),
    };
    print_table(report::memory_head(), memory_rows.iter().filter(|row| wanted(row.name)), |row| {
        eprintln!("{}", row.name);
        report::memory_row(row.name, &memory::run(row, setting))
    });
    let figure_rows = match suite {
        Suite::Pubsub => messages::rows(),
        Suite::Scripts => scripts::rows(),
        Suite::Cache => caching::rows(),
        Suite::Doors => doors::rows(),
        Suite::Engine
        | Suite::Long
        | Suite::Types
        | Suite::Memcached
        | Suite::Large
        | Suite::Persist
        | Suite::Replication => Vec::new(),
    };
    print_table(report::figures_head(), figure_rows.iter().filter(|row| wanted(row.name)), |row| {
        eprintln!("{} × {} rounds", row.name, setting.rounds);
        report::figures_row(row, &messages::run(row, setting))
    });
    if suite == Suite::Replication {
        println!("{}", replication::tables(setting));
    }
    if suite == Suite::Persist {
        println!("{}", persist::table(setting));
    }
    if suite == Suite::Engine && wanted("start") {
        eprintln!("start-up");
        println!("{}", report::start_ups(&memory::start_ups(setting)));
    }
    if suite == Suite::Engine && wanted("expiry") {
        eprintln!("expiry");
        println!("{}", report::storms(&expiry::run(setting)));
    }
    if suite == Suite::Large && wanted("removal") {
        eprintln!("removal");
        println!("{}", report::removals(&removal::run(setting)));
    }
    if suite == Suite::Types && wanted("growth") {
        eprintln!("growth");
        println!("{}", report::growths(&growth::run(setting)));
    }
}

fn print_table<'r, R: 'r>(head: String, rows: impl Iterator<Item = &'r R>, line: impl Fn(&R) -> String) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    print!("{head}");
    rows.for_each(|row| print!("{}", line(row)));
    println!();
}
