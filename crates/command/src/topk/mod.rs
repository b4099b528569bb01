//! The most frequent items of a stream.

mod add;
mod ask;
mod reserve;
#[cfg(test)]
mod tests;

use crate::spec::{Group, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] =
    &[reserve::RESERVE, add::ADD, add::INCRBY, ask::QUERY, ask::COUNT, ask::LIST, ask::INFO];

const NO_KEY: Fault = Fault::text("TopK: key does not exist");

const fn doc(spec: Spec, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::TopK, "2.0.0", syntax, summary)
}
