//! HyperLogLog: counting distinct elements in 12 KiB or less, in Redis' own two byte formats.

pub mod commands;
pub mod estimate;
pub mod format;

use crate::DataCommand;

/// The family's commands.
pub const FAMILY: &[DataCommand] =
    &[commands::PFADD, commands::PFCOUNT, commands::PFMERGE, commands::PFDEBUG, commands::PFSELFTEST];
