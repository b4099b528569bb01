//! reactor

