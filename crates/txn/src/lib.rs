//! txn
#![forbid(unsafe_code)]
