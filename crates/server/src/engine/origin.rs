//! The origin of a command: where its answer is sent, and the state of its connection when the command arrived.
//!
//! Made from a session when a command is leased; jobs and the tickets of waiting clients carry it to other threads. It
//! never changes on the way, and touches nothing.

use crate::engine::cluster::links::{self, Routed};
use darter_cluster::LinkKind;
use darter_command::Marks;
pub use darter_engine::commit::ChangedBy;
use darter_reactor::Token;
use darter_txn::Reader;

use crate::registry::CommandEntry;
use crate::session::{Gate, Session};
use crate::thread_state::ThreadState;
use crate::tracking;

/// Where a command comes from.
#[derive(Clone, Copy)]
pub struct Origin {
    /// Thread of the connection.
    pub home: u16,
    /// The connection there.
    pub token: Token,
    /// The client's id; 0 is the server itself.
    pub client: u64,
    /// Selected database.
    pub db: usize,
    /// How it is connected.
    pub link: LinkKind,
    /// Whether to answer in RESP3.
    pub resp3: bool,
    /// Whether the keys are remembered for the client's cache.
    pub tracks: Option<Reader>,
    /// Whether its reads do not count as uses.
    pub no_touch: bool,
    /// Whether dead keys are there for it (CLIENT IMPORT-SOURCE).
    pub imports: bool,
    /// The version of the users under which the command was admitted.
    pub acl_version: u64,
    /// Whether a long answer may be left to slices.
    pub may_slice: bool,
}

impl Origin {
    /// The origin of a call of `entry` by a connection of this thread; `None` is work that runs at home with its session.
    pub fn of(local: &ThreadState, session: &Session, token: Token, entry: Option<&CommandEntry>) -> Origin {
        Origin {
            home: local.thread,
            token,
            client: session.id,
            db: session.db,
            link: links::of_client(local, session),
            resp3: session.resp3,
            tracks: entry.and_then(|entry| tracking::reader_of(session, entry)),
            no_touch: session.no_touch && entry.is_some_and(|entry| !entry.spec.has(Marks::COUNTS_USE)),
            imports: session.gate.has(Gate::IMPORTS),
            acl_version: session.acl_version,
            may_slice: session.may_slice(),
        }
    }

    /// The server's own, for work of the thread `home` that answers nobody.
    pub fn nobody(home: u16) -> Origin {
        Origin {
            home,
            token: Token::NOBODY,
            client: 0,
            db: 0,
            link: LinkKind::Plain,
            resp3: false,
            tracks: None,
            no_touch: false,
            imports: false,
            acl_version: 0,
            may_slice: false,
        }
    }

    /// The client as one that may be sent to another node.
    pub fn routed(&self) -> Routed {
        Routed { db: self.db, link: self.link }
    }

    /// The client as the maker of changes.
    pub fn changed_by(&self) -> ChangedBy {
        ChangedBy(self.client)
    }
}
