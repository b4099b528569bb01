//! Failover without loss: who leads a group of servers, decided by a store that has consensus already.
//!
//! `group` is the state machine of one server: events and times in, actions out, no clock, no thread, no socket. `state` is
//! what the store keeps, `store` what is asked of a store, `etcd` one store with its `watch`, and `fake` another for tests. The server's thread
//! of the group drives them. Nothing here elects by itself: a change counts once the store has taken it.

#![forbid(unsafe_code)]

pub mod beat;
pub mod etcd;
pub mod fake;
pub mod group;
mod http;
#[cfg(test)]
mod simulation;
pub mod state;
pub mod store;
pub mod watch;
