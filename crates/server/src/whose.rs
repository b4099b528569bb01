//! Whose a command is: where its answer goes, and what held for its connection when the command came.
//!
//! Made from a session by the executor; jobs and the tickets of waiting clients carry it to other threads. It never
//! changes on the way, and touches nothing.

use darter_reactor::Token;
use darter_txn::Reader;

use crate::core::Core;
use crate::registry::Entry;
use crate::session::Session;
use crate::tracking;

/// Whose a command is.
#[derive(Clone, Copy)]
pub struct Whose {
    /// Thread of the connection.
    pub home: u16,
    /// The connection there.
    pub token: Token,
    /// The client's id; 0 is the server itself.
    pub client: u64,
    /// Selected database.
    pub db: usize,
    /// Whether to answer in RESP3.
    pub resp3: bool,
    /// Whether the keys are remembered for the client's cache.
    pub tracks: Option<Reader>,
    /// Whether its reads do not count as uses.
    pub no_touch: bool,
    /// The version of the users that it was let through by.
    pub acl_version: u64,
    /// Whether a long answer may be left to slices.
    pub may_slice: bool,
}

impl Whose {
    /// Of a connection of this thread, which calls `entry`; none is what runs on its own thread with its session.
    pub fn of(core: &Core, session: &Session, token: Token, entry: Option<&Entry>) -> Whose {
        Whose {
            home: core.thread,
            token,
            client: session.id,
            db: session.db,
            resp3: session.resp3,
            tracks: entry.and_then(|entry| tracking::reader_of(session, entry)),
            // TOUCH itself counts as a use.
            no_touch: session.no_touch && entry.is_some_and(|entry| entry.spec.name != "touch"),
            acl_version: session.acl_version,
            may_slice: session.may_slice(),
        }
    }

    /// The server's own, for work of the thread `home` that answers nobody.
    pub fn nobody(home: u16) -> Whose {
        Whose {
            home,
            token: Token::NOBODY,
            client: 0,
            db: 0,
            resp3: false,
            tracks: None,
            no_touch: false,
            acl_version: 0,
            may_slice: false,
        }
    }
}
