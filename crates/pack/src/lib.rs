//! pack

