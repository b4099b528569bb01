//! Keys of any type: existence, deadlines, names, and enumeration.

pub mod copy;
#[cfg(test)]
mod damage;
pub mod database;
pub mod dump;
pub mod exists;
pub mod expire;
pub mod members;
pub mod object;
pub mod rename;
pub mod scan;
pub mod slot;
pub mod slot_flush;
mod slot_info;
mod slot_stats;
pub mod sort;
#[cfg(test)]
mod tests;
pub mod ttl;
pub mod walk;

use crate::DataCommand;
use crate::fault::Fault;
use crate::reader;
use darter_store::Event;
use darter_store::change::Class;

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    copy::COPY,
    exists::DEL,
    dump::DUMP,
    exists::EXISTS,
    expire::EXPIRE,
    expire::EXPIREAT,
    ttl::EXPIRETIME,
    scan::KEYS,
    slot::COUNTKEYSINSLOT,
    slot::GETKEYSINSLOT,
    slot_stats::SLOT_STATS,
    copy::MOVE,
    object::OBJECT,
    object::ENCODING,
    object::FREQ,
    object::HELP,
    object::IDLETIME,
    object::REFCOUNT,
    expire::PERSIST,
    expire::PEXPIRE,
    expire::PEXPIREAT,
    ttl::PEXPIRETIME,
    ttl::PTTL,
    scan::RANDOMKEY,
    rename::RENAME,
    rename::RENAMENX,
    dump::RESTORE,
    dump::RESTORE_ASKING,
    scan::SCAN,
    sort::SORT,
    sort::SORT_RO,
    object::STICK,
    exists::TOUCH,
    ttl::TTL,
    exists::TYPE,
    exists::UNLINK,
    database::DBSIZE,
    database::FLUSHALL,
    database::FLUSHDB,
    database::SWAPDB,
    slot_flush::SFLUSH,
    slot_flush::TRIMSLOTS,
    slot_flush::FLUSHSLOTS,
    slot_info::GETSLOTINFO,
];

pub(crate) const fn event(name: &'static str) -> Event {
    Event::new(Class::GENERIC, name)
}

/// The database an argument names.
///
/// Errors: not a 32-bit integer, or not below `dbs_len`.
pub fn database_index(arg: &[u8], dbs_len: usize) -> Result<usize, Fault> {
    let n = i32::try_from(reader::int(arg)?).map_err(|_| {
        Fault::text("ERR value is out of range, value must between -2147483648 and 2147483647")
    })?;
    usize::try_from(n).ok().filter(|&db| db < dbs_len).ok_or(Fault::text("ERR DB index is out of range"))
}
