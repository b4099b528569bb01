//! XGROUP CREATE, SETID, DESTROY, CREATECONSUMER, DELCONSUMER.

use crate::spec::Marks;
use darter_store::{Event, StreamValue};
use darter_wire::{Args, Reply};

use super::regrouping::{RegroupPlan, Who};
use super::{event, id, shown};
use crate::reader::ArgReader;
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

/// XGROUP, the container.
pub const XGROUP: DataCommand = DataCommand {
    spec: Spec::other("xgroup", -2).mark(Marks::NO_GROUP_CATEGORY).doc(
        Group::Stream,
        "5.0.0",
        "",
        "Manages the consumer groups of a stream.",
    ),
    run: help,
};

/// XGROUP CREATE.
pub const CREATE: DataCommand = DataCommand {
    spec: Spec::write("xgroup|create", -5, SECOND).key_access("RW insert").doc(
        Group::Stream,
        "5.0.0",
        "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
        "Creates a consumer group.",
    ),
    run: create,
};

/// XGROUP SETID.
pub const SETID: DataCommand = DataCommand {
    spec: Spec::shrink("xgroup|setid", -5, SECOND).doc(
        Group::Stream,
        "5.0.0",
        "key group <id | $> [ENTRIESREAD entries-read]",
        "Sets the id up to which a consumer group has read.",
    ),
    run: set_id,
};

/// XGROUP DESTROY.
pub const DESTROY: DataCommand = DataCommand {
    spec: Spec::shrink("xgroup|destroy", 4, SECOND)
        .key_access("RW delete")
        .doc(Group::Stream, "5.0.0", "key group", "Removes a consumer group and its pending entries.")
        .cost("O(N) over the entries pending"),
    run: destroy,
};

/// XGROUP CREATECONSUMER.
pub const CREATECONSUMER: DataCommand = DataCommand {
    spec: Spec::write("xgroup|createconsumer", 5, SECOND).key_access("RW insert").doc(
        Group::Stream,
        "6.2.0",
        "key group consumer",
        "Creates a consumer in a consumer group.",
    ),
    run: create_consumer,
};

/// XGROUP DELCONSUMER.
pub const DELCONSUMER: DataCommand = DataCommand {
    spec: Spec::shrink("xgroup|delconsumer", 5, SECOND)
        .key_access("RW delete")
        .doc(
            Group::Stream,
            "5.0.0",
            "key group consumer",
            "Removes a consumer and its pending entries; returns their number.",
        )
        .cost("O(N log M) over the entries pending with it"),
    run: delete_consumer,
};

/// XGROUP HELP.
pub const HELP: DataCommand = DataCommand {
    spec: Spec::other("xgroup|help", 2).flag(Flags::LOADING.with(Flags::STALE)).doc(
        Group::Stream,
        "5.0.0",
        "",
        "Lists the subcommands of XGROUP.",
    ),
    run: help,
};

const NO_KEY: Fault = Fault::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);

fn no_such_group(key: &[u8], group: &[u8]) -> Fault {
    Fault::Text(
        format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key)).into(),
    )
}

/// Options after the id: whether MKSTREAM is among them, and ENTRIESREAD.
fn options(args: Args<'_>, is_create: bool) -> Result<(bool, Option<u64>), Fault> {
    let (mut makes, mut entries_read) = (false, None);
    let mut read = ArgReader::new(args, 5);
    while !read.is_done() {
        if is_create && read.take("mkstream") {
            makes = true;
        } else if read.take_with("entriesread", 1) {
            let count = read.int()?;
            if count < -1 {
                return Err(Fault::text("ERR value for ENTRIESREAD must be positive or -1"));
            }
            entries_read = u64::try_from(count).ok();
        } else {
            return Err(Fault::wrong_form(args));
        }
    }
    Ok((makes, entries_read))
}

fn create(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (makes, entries_read) = options(args, true)?;
    let (key, name, id) = (args.at(2), args.at(3), args.at(4));
    let mut place = ctx.at(key);
    let last_id = place.view::<StreamValue>()?.map(|stream| stream.root.last_id());
    if last_id.is_none() && !makes {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(Fault::wrong_form(args));
    }
    let id = match id {
        b"$" => last_id.unwrap_or_default(),
        _ => id::parse(id, 0)?,
    };
    let made =
        place.edit_or_create(StreamValue::new, |stream, _, _| stream.create_group(name, id, entries_read))?;
    if !made.result {
        return Err(Fault::text("BUSYGROUP Consumer Group name already exists"));
    }
    place.changed(event("xgroup-create"));
    reply.ok();
    Ok(())
}

fn set_id(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (_, entries_read) = options(args, false)?;
    in_group(ctx, args, |stream, name| {
        if args.len() > 7 {
            return Err(Fault::wrong_form(args));
        }
        let id = match args.at(4) {
            b"$" => stream.last_id(),
            arg => id::parse_loose(arg)?,
        };
        if let Some((group, _)) = stream.group_mut(name) {
            (group.last_id, group.entries_read) = (id, entries_read);
        }
        Ok(())
    })?;
    ctx.at(args.at(2)).changed(event("xgroup-setid"));
    reply.ok();
    Ok(())
}

/// Runs `change` on a stream that has the group, or fails with the missing part.
fn in_group<R>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    change: impl FnOnce(&mut StreamValue, &[u8]) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let (key, name) = (args.at(2), args.at(3));
    let edited = ctx.at(key).edit::<StreamValue, _>(|stream, _, _| match stream.group(name) {
        None => Err(no_such_group(key, name)),
        Some(_) => change(stream, name),
    })?;
    edited.ok_or(NO_KEY)?.result
}

fn destroy(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(2));
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| stream.destroy_group(arena, args.at(3)))?;
    let is_gone = edited.ok_or(NO_KEY)?.result;
    if is_gone {
        place.changed(event("xgroup-destroy"));
    }
    reply.int(i64::from(is_gone));
    Ok(())
}

fn create_consumer(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let is_new = in_group(ctx, args, |stream, name| {
        Ok(stream.group_mut(name).is_some_and(|(group, _)| group.find_or_create(args.at(4), now_ms).1))
    })?;
    if is_new {
        ctx.at(args.at(2)).changed(event("xgroup-createconsumer"));
    }
    reply.int(i64::from(is_new));
    Ok(())
}

const DELCONSUMER_EVENT: Event = event("xgroup-delconsumer");

fn delete_consumer(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (key, name, consumer) = (args.at(2), args.at(3), args.at(4));
    let who = Who { key, group: name, consumer: Some(consumer) };
    if let Some(staged) = ctx.staged.take() {
        // The removed consumer must not be created again.
        if let Some((found, _)) = (Who { consumer: None, ..who }).put(ctx, staged)? {
            ctx.changed(key, DELCONSUMER_EVENT);
            reply.int(found.numbers.first().map_or(0, |&pending| pending as i64));
            return Ok(());
        }
    } else if ctx.may_slice && who.leave(ctx, RegroupPlan::Forget, reply.is_resp3())? {
        return Ok(());
    }
    let mut place = ctx.at(key);
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        let (group, _) = stream.group_mut(name).ok_or_else(|| no_such_group(key, name))?;
        Ok::<_, Fault>(group.remove_consumer(arena, consumer))
    })?;
    let pending = edited.ok_or(NO_KEY)?.result?;
    if pending.is_some() {
        place.changed(DELCONSUMER_EVENT);
    }
    reply.int(pending.unwrap_or(0) as i64);
    Ok(())
}

fn help(_: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
        "    Create a consumer group, and with MKSTREAM its stream.",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a consumer in a group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove a consumer from a group.",
        "DESTROY <key> <groupname>",
        "    Remove a group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD <count>]",
        "    Set the id up to which a group has read.",
        "HELP",
        "    This text.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.status(line));
    Ok(())
}
