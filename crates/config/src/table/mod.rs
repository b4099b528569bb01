//! The settings table: every name the server knows, one file per subject.
//!
//! Built once, at the first use. Names are looked up without regard to case, and dashes, underscores and dots are the
//! same character.

mod cluster;
mod encoding;
mod limits;
mod logging;
mod memory;
mod network;
mod persistence;
mod replication;
mod scripting;
mod search;
mod system;
mod tiering;
mod tls;
mod tuning;

use super::setting::{Setting, SettingGroup};
use super::value::SettingValue;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Every setting, by group in the order of `--help`, then as its file lists it.
pub fn settings() -> impl ExactSizeIterator<Item = &'static Setting> {
    TABLE.rows.iter().copied()
}

/// The setting that `name` or an alias names.
pub fn find(name: &str) -> Option<&'static Setting> {
    find_id(name).map(setting)
}

/// A place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SettingId(usize);

/// Every place, in order.
pub(super) fn ids() -> impl Iterator<Item = SettingId> {
    (0..TABLE.rows.len()).map(SettingId)
}

/// The index of `name`.
pub(super) fn find_id(name: &str) -> Option<SettingId> {
    TABLE.places.get(&plain(name)).copied()
}

/// The setting at `id`.
pub(super) fn setting(id: SettingId) -> &'static Setting {
    TABLE.rows[id.0]
}

/// The default of the setting at `id`.
pub(super) fn default_of(id: SettingId) -> &'static SettingValue {
    &TABLE.defaults[id.0]
}

/// The known name that looks most like `name`, if any is near.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let wanted = plain(name);
    let names = settings().flat_map(|s| std::iter::once(&s.name).chain(s.aliases));
    let near = names.map(|n| (distance(&wanted, &plain(n)), *n)).min_by_key(|(d, _)| *d)?;
    let most = (wanted.len() / 3).clamp(2, 4).min(wanted.len().saturating_sub(1));
    (near.0 <= most).then_some(near.1)
}

/// A value per setting.
#[derive(Debug, Clone)]
pub(super) struct Values {
    all: Vec<SettingValue>,
    given: Vec<bool>,
}

impl Values {
    /// The defaults.
    pub(super) fn defaults() -> Values {
        Values { all: TABLE.defaults.clone(), given: vec![false; TABLE.defaults.len()] }
    }

    /// The value at `id`.
    pub(super) fn get(&self, id: SettingId) -> &SettingValue {
        &self.all[id.0]
    }

    /// Replaces the value at `id`.
    pub(super) fn set(&mut self, id: SettingId, value: SettingValue) {
        self.all[id.0] = value;
        self.given[id.0] = true;
    }

    /// Returns true if the value at `id` was ever set, even to the default.
    pub(super) fn is_given(&self, id: SettingId) -> bool {
        self.given[id.0]
    }

    /// Returns true if the value at `id` is the default.
    pub(super) fn is_default(&self, id: SettingId) -> bool {
        self.get(id) == default_of(id)
    }
}

struct SettingTable {
    rows: Vec<&'static Setting>,
    defaults: Vec<SettingValue>,
    places: HashMap<String, SettingId>,
}

static TABLE: LazyLock<SettingTable> = LazyLock::new(SettingTable::build);

impl SettingTable {
    fn build() -> SettingTable {
        let mut rows: Vec<&'static Setting> = FILES.iter().copied().flatten().collect();
        rows.sort_by_key(|row| SettingGroup::ALL.iter().position(|g| *g == row.group));
        let mut places = HashMap::with_capacity(rows.len() * 2);
        for (place, row) in rows.iter().enumerate() {
            for name in std::iter::once(&row.name).chain(row.aliases) {
                let taken = places.insert(plain(name), SettingId(place));
                assert!(taken.is_none(), "two settings are called {name}");
            }
        }
        let defaults = rows.iter().map(|row| {
            let value = row.parse_text(row.default, None);
            value.unwrap_or_else(|error| panic!("the default of {}: {error}", row.name))
        });
        SettingTable { defaults: defaults.collect(), rows, places }
    }
}

/// `name` as the table files it.
pub(super) fn plain(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '_' | '.' => '-',
            _ => c.to_ascii_lowercase(),
        })
        .collect()
}

/// Edits (insert, delete, replace) that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

const FILES: [&[Setting]; 14] = [
    network::ROWS,
    memory::ROWS,
    persistence::ROWS,
    logging::ROWS,
    limits::ROWS,
    tls::ROWS,
    replication::ROWS,
    cluster::ROWS,
    encoding::ROWS,
    scripting::ROWS,
    system::ROWS,
    tiering::ROWS,
    search::ROWS,
    tuning::ROWS,
];

const PORT_MAX: i64 = 65_535;
const I32_MAX: i64 = i32::MAX as i64;
const U32_MAX: i64 = u32::MAX as i64;
const BYTES_MAX: u64 = i64::MAX as u64;
const LOCAL_ACTIONS: &[&str] = &["no", "yes", "local"];
