//! Count-min sketches: counts of items, which are never too low.

mod count;
mod create;
mod merge;
mod merging;
#[cfg(test)]
mod tests;

use crate::spec::{Group, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] =
    &[create::INITBYDIM, create::INITBYPROB, count::INCRBY, count::QUERY, merge::MERGE, count::INFO];

const NO_KEY: Fault = Fault::text("CMS: key does not exist");

const fn doc(spec: Spec, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::CountMin, "2.0.0", syntax, summary)
}
