//! darter-compat
#![forbid(unsafe_code)]

fn main() {}
