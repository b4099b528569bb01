//! Cluster without I/O: the map of groups and slots, checks of a pushed configuration, and the answers that clients read
//! from the map.
//!
//! Called by the server, which keeps one map and replaces it as a whole. Nothing here opens a socket, reads a file or
//! asks the time. A map does not care where it came from: a pushed configuration is one source of maps, a store another.
#![forbid(unsafe_code)]

pub mod answers;
pub mod change;
pub mod map;
pub mod migration;
pub mod pushed;
pub mod pushed_map;
pub mod route;
pub mod stored;

pub use change::MapChange;
pub use darter_base::slot::slot_of;
pub use map::{
    Health, LinkKind, MapNode, MoveWay, NodeGroup, NodeRole, SlotHold, SlotMap, SlotMove, SlotRange, WhoWaits,
};
pub use migration::{MigrationChange, MigrationState, SlotMigration};
pub use pushed::{PushedConfig, parse};
pub use pushed_map::PushedChange;
pub use route::{Ask, Routing, RoutingRules};
pub use stored::StoredMap;
