//! latch

