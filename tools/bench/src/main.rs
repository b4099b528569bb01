//! darter-bench
#![forbid(unsafe_code)]

fn main() {}
