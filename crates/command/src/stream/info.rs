//! XINFO STREAM, GROUPS, CONSUMERS.

use crate::spec::Marks;
use darter_pack::tree::{Direction, StreamId};
use darter_store::StreamValue;
use darter_wire::{Args, Reply};

use super::full::FullInfo;
use super::{reply_entry, reply_id, shown};
use crate::reader::{int, is};
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

/// XINFO, the container.
pub const XINFO: DataCommand = DataCommand {
    spec: Spec::other("xinfo", -2).mark(Marks::NO_GROUP_CATEGORY).doc(
        Group::Stream,
        "5.0.0",
        "",
        "Tells about streams.",
    ),
    run: help,
};

/// XINFO STREAM.
pub const STREAM: DataCommand = DataCommand {
    spec: Spec::read("xinfo|stream", -3, SECOND)
        .doc(
            Group::Stream,
            "5.0.0",
            "key [FULL [COUNT count]]",
            "Tells about a stream; with FULL, about its entries and groups too.",
        )
        .cost("O(1), with FULL O(N) over what is shown"),
    run: stream,
};

/// XINFO GROUPS.
pub const GROUPS: DataCommand = DataCommand {
    spec: Spec::read("xinfo|groups", 3, SECOND)
        .doc(Group::Stream, "5.0.0", "key", "Tells about the consumer groups of a stream.")
        .cost("O(N) over the groups"),
    run: groups,
};

/// XINFO CONSUMERS.
pub const CONSUMERS: DataCommand = DataCommand {
    spec: Spec::read("xinfo|consumers", 4, SECOND)
        .tips(&["nondeterministic_output"])
        .doc(Group::Stream, "5.0.0", "key group", "Tells about the consumers of a group.")
        .cost("O(N) over the consumers"),
    run: consumers,
};

/// XINFO HELP.
pub const HELP: DataCommand = DataCommand {
    spec: Spec::other("xinfo|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
        Group::Stream,
        "5.0.0",
        "",
        "Lists the subcommands of XINFO.",
    ),
    run: help,
};

/// Rows of each list that FULL shows by default.
const FULL_COUNT: usize = 10;

/// Rows of each list that FULL must show; `None` without FULL.
fn full_count(args: Args<'_>) -> Result<Option<usize>, Fault> {
    if args.len() == 3 {
        return Ok(None);
    }
    let is_form = match args.len() {
        4 => is(args.at(3), "full"),
        6 => is(args.at(3), "full") && is(args.at(4), "count"),
        _ => false,
    };
    match (is_form, args.get(5)) {
        (false, _) => Err(Fault::wrong_form(args)),
        (true, None) => Ok(Some(FULL_COUNT)),
        (true, Some(count)) => Ok(Some(match usize::try_from(int(count)?) {
            Err(_) => FULL_COUNT,
            Ok(0) => usize::MAX,
            Ok(count) => count,
        })),
    }
}

fn stream(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.take_answer(reply) {
        return Ok(());
    }
    let (node_entries, now_ms, may_slice) =
        (ctx.env.stream_node_max_entries.max(1), ctx.now_ms, ctx.may_slice);
    let place = ctx.read(args.at(2));
    let stream = place.view::<StreamValue>()?.ok_or(Fault::NoSuchKey)?;
    let full = full_count(args)?;
    let (root, arena) = (stream.root, stream.arena);
    let extent = root.extent(arena);
    let nodes = extent.len.div_ceil(node_entries) as i64;
    let producers = root.producers();
    let mark = reply.len();
    reply.map(if full.is_some() { 9 } else { 10 } + if producers.is_some() { 6 } else { 0 });
    number(reply, "length", extent.len as i64);
    // The numbers of Redis' tree with this many nodes.
    number(reply, "radix-tree-keys", nodes);
    number(reply, "radix-tree-nodes", nodes + 1);
    named_id(reply, "last-generated-id", extent.last_id);
    named_id(reply, "max-deleted-entry-id", extent.max_deleted_id);
    number(reply, "entries-added", extent.added as i64);
    named_id(reply, "recorded-first-entry-id", extent.first_id);
    if let Some(producers) = producers {
        let (tracked, names) = producers.tracked(now_ms);
        number(reply, "idmp-duration", producers.duration_s as i64);
        number(reply, "idmp-maxsize", producers.names_max as i64);
        number(reply, "pids-tracked", tracked as i64);
        number(reply, "iids-tracked", names as i64);
        number(reply, "iids-added", producers.added as i64);
        number(reply, "iids-duplicates", producers.duplicates as i64);
    }
    if let Some(count) = full {
        let full = FullInfo::new(count, extent, reply);
        if !may_slice || !FullInfo::is_long(count, root) {
            full.tell(root, arena, reply);
            return Ok(());
        }
        let begun = reply.since(mark).to_vec();
        reply.truncate_to(mark);
        return full.leave(ctx, args.at(2), (begun, reply.is_resp3()));
    }
    number(reply, "groups", root.groups().len() as i64);
    for (name, rank) in [("first-entry", Some(0)), ("last-entry", extent.len.checked_sub(1))] {
        reply.bulk(name.as_bytes());
        match rank.and_then(|rank| root.log().iter(arena, rank, Direction::Up).next()) {
            Some(entry) => reply_entry(reply, entry),
            None => reply.null(),
        }
    }
    Ok(())
}

pub(super) fn number(reply: &mut Reply<'_>, name: &str, value: i64) {
    reply.bulk(name.as_bytes());
    reply.int(value);
}

pub(super) fn named_id(reply: &mut Reply<'_>, name: &str, value: StreamId) {
    reply.bulk(name.as_bytes());
    reply_id(reply, value);
}

pub(super) fn maybe(reply: &mut Reply<'_>, name: &str, value: Option<i64>) {
    reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

fn groups(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(2));
    let stream = place.view::<StreamValue>()?.ok_or(Fault::NoSuchKey)?;
    let extent = stream.root.extent(stream.arena);
    reply.array(stream.root.groups().len());
    for group in stream.root.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(group.name());
        number(reply, "consumers", group.consumers_len() as i64);
        number(reply, "pending", group.pending().len() as i64);
        named_id(reply, "last-delivered-id", group.last_id);
        maybe(reply, "entries-read", group.entries_read.map(|read| read as i64));
        maybe(reply, "lag", extent.lag(group));
    }
    Ok(())
}

fn consumers(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let (key, name) = (args.at(2), args.at(3));
    let place = ctx.read(key);
    let stream = place.view::<StreamValue>()?.ok_or(Fault::NoSuchKey)?;
    let group = stream.root.group(name).ok_or_else(|| {
        Fault::Text(
            format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(name), shown(key)).into(),
        )
    })?;
    reply.array(group.consumers_len());
    for consumer in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        number(reply, "pending", consumer.pending_len() as i64);
        number(reply, "idle", now_ms.saturating_sub(consumer.seen_ms) as i64);
        let inactive_ms = consumer.active_ms.map(|ms| now_ms.saturating_sub(ms) as i64);
        number(reply, "inactive", inactive_ms.unwrap_or(-1));
    }
    Ok(())
}

fn help(_: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    The consumers of a group.",
        "GROUPS <key>",
        "    The groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]]",
        "    The stream itself; with FULL, its entries and groups too.",
        "HELP",
        "    This text.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.status(line));
    Ok(())
}
