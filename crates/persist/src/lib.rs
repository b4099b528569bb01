//! What outlives the process: snapshot files, RDB files, the journal, and the directories they live in.
//!
//! `server` writes and loads through this crate, `darter --check` reads through it. It knows bytes and values,
//! never sockets, threads or clients, and trusts nothing that it reads.

#![forbid(unsafe_code)]
