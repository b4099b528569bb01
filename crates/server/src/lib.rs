//! The server: connections, dispatch, configuration and everything a user sees that is not data.
#![forbid(unsafe_code)]

pub mod config;
pub mod logging;
