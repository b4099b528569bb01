//! Streams: entries under rising ids, read by ranges, by waiting, and by groups of consumers.

pub mod ack;
pub mod add;
pub mod claim;
pub mod delete;
mod delivering;
mod full;
pub mod group;
mod id;
pub mod info;
mod named;
pub mod once;
pub mod pending;
pub mod range;
pub mod read;
mod reading;
mod refs;
mod regrouping;
#[cfg(test)]
mod tests;
pub mod trim;

use darter_pack::tree::StreamId;
use darter_pack::tree::stream::StreamEntry;
use darter_store::Event;
use darter_store::change::Class;
use darter_wire::Reply;

use crate::item::reply_item;
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    add::XADD,
    range::XLEN,
    range::XRANGE,
    range::XREVRANGE,
    read::XREAD,
    read::XREADGROUP,
    delete::XDEL,
    delete::XDELEX,
    delete::XSETID,
    trim::XTRIM,
    once::XCFGSET,
    once::XIDMPRECORD,
    group::XGROUP,
    group::CREATE,
    group::SETID,
    group::DESTROY,
    group::CREATECONSUMER,
    group::DELCONSUMER,
    group::HELP,
    ack::XACK,
    ack::XACKDEL,
    ack::XNACK,
    pending::XPENDING,
    claim::XCLAIM,
    claim::XAUTOCLAIM,
    info::XINFO,
    info::STREAM,
    info::GROUPS,
    info::CONSUMERS,
    info::HELP,
];

const fn event(name: &'static str) -> Event {
    Event::new(Class::STREAM, name)
}

/// Answers an id.
fn reply_id(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(id::print(&mut [0; 41], id));
}

/// Answers an entry: its id, and its names and values alternating.
fn reply_entry(reply: &mut Reply<'_>, entry: StreamEntry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(entry.fields.len() * 2);
    for (name, value) in entry.fields {
        reply_item(reply, name);
        reply_item(reply, value);
    }
}

/// A name or key as Redis prints it into an error line: up to the first zero byte.
fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
}

fn no_group(key: &[u8], group: &[u8]) -> Fault {
    Fault::Text(format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group)).into())
}
