//! index

