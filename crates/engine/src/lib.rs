//! The stages of a command that need no socket, no file and no reactor: admit, plan, lease, commit.
//!
//! Called by `server`, whose thread implements the traits: [`admit::AdmitFacts`] is what a check asks, [`lease::Thread`] is who
//! takes shards, [`commit::Sinks`] is who hears of changes, [`blocking::Blocking`]
//! is who runs and answers a client that has waited. Everything is generic over them, so that each call is compiled
//! into its caller. Running a body and slices are still the server's.
#![forbid(unsafe_code)]

pub mod admit;
pub mod blocking;
pub mod commit;
pub mod lease;
pub mod plan;
#[cfg(test)]
mod testing;
