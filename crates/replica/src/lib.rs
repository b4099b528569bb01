//! Replication without sockets: ids and offsets, the backlog, the RESP form of journal records, and both handshakes.
//!
//! `server` brings connections, threads and shards. Everything here is data in, data out, and trusts nothing that a
//! partner has sent.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod backlog;
pub mod form;
pub mod frame;
pub mod handshake;
pub mod history;
pub mod merge;
pub mod records;
pub mod rewording;
pub mod shared_bytes;
pub mod stream;
pub mod transfer;
