//! The command grammar as data: families of forms with their weights, one file each.
//!
//! Forms are what Debian's Redis 7.0 knows, because that is what answers on the other side. Nothing here blocks without
//! end, stops a server, or makes it allocate much.

mod acl;
mod bitmaps;
mod blocking;
mod connection;
mod fields;
mod geo;
mod hashes;
mod hll;
mod keys;
mod large;
mod lists;
mod multi;
mod protocol;
mod pubsub;
mod scripting;
mod server;
mod sets;
mod sort;
mod streams;
mod strings;
mod zsets;

/// How a family's replies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each command has one reply on its own connection; commands are pipelined now and then.
    Direct,
    /// Replies may come later, on other connections, or not at all.
    Settled,
    /// The forms are byte streams on connections of their own, sent as they are.
    Raw,
}

/// A family of forms.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name on the command line.
    pub name: &'static str,
    /// How its replies are read.
    pub mode: Mode,
    /// Connections that the stream is spread over.
    pub connections: usize,
    /// Of a hundred commands, how many are spoilt: an argument lost, doubled, exchanged, replaced.
    pub spoilt_percent: usize,
    /// Forms of the language in `form.rs` (escaped bytes in a raw family), with weights.
    pub forms: &'static [Weighted],
    /// Whether the forms that make keys of every type are added, so that wrong types are met.
    pub mixed_types: bool,
    /// Whether commands wait for others; a connection that waits is sent nothing more.
    pub waits: bool,
    /// A command that the reference must know, or the family is left out; empty where Debian's Redis 7.0 knows all.
    pub needs: &'static str,
}

/// A form and how often it is drawn.
pub type Weighted = (u32, &'static str);

/// All families.
pub const FAMILIES: &[Family] = &[
    strings::FAMILY,
    keys::FAMILY,
    connection::FAMILY,
    server::FAMILY,
    protocol::FAMILY,
    lists::FAMILY,
    hashes::FAMILY,
    fields::FAMILY,
    sets::FAMILY,
    zsets::FAMILY,
    streams::FAMILY,
    bitmaps::FAMILY,
    hll::FAMILY,
    geo::FAMILY,
    large::FAMILY,
    sort::FAMILY,
    multi::FAMILY,
    scripting::FAMILY,
    pubsub::FAMILY,
    blocking::FAMILY,
    acl::FAMILY,
];

/// Added to every family on data, so that keys come and go.
pub const KEYSPACE: &[Weighted] = &[
    (4, "DEL <key>"),
    (1, "DEL { <key> }"),
    (1, "EXISTS { <key> }"),
    (2, "TYPE <key>"),
    (1, "DBSIZE"),
    (1, "KEYS <pattern>"),
    (1, "EXPIRE <key> <secs>"),
    (1, "TTL <key>"),
    (1, "OBJECT ENCODING <key>"),
];

/// Makes keys of other types, so that wrong types are met.
pub const EVERY_TYPE: &[Weighted] = &[
    (2, "SET <key> <value>"),
    (1, "RPUSH <key> { <elem> }"),
    (1, "SADD <key> { <member> }"),
    (1, "HSET <key> <field> <value>"),
    (1, "ZADD <key> <score> <member>"),
    (1, "XADD <key> <sidadd> <field> <value>"),
];

impl Family {
    /// A family of data commands: one connection, pipelined, spoilt now and then, all types.
    pub const fn data(name: &'static str, forms: &'static [Weighted]) -> Self {
        Self {
            name,
            mode: Mode::Direct,
            connections: 1,
            spoilt_percent: 6,
            forms,
            mixed_types: true,
            waits: false,
            needs: "",
        }
    }

    /// The same of a reference that knows the command `needs`.
    pub const fn needing(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }
}
