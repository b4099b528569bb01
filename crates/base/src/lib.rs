//! base
#![forbid(unsafe_code)]
