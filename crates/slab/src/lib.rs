//! slab

