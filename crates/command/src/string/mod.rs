//! Strings: values of up to `proto-max-bulk-len` bytes.

pub mod get;
pub mod set;

use crate::DataCommand;
use darter_store::Event;
use darter_store::change::Class;

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[get::GET, set::SET];

pub(crate) const SET_EVENT: Event = Event::new(Class::STRING, "set");
