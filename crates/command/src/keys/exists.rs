//! DEL, UNLINK, EXISTS, TOUCH, TYPE: existence and removal of keys.

use darter_store::Event;
use darter_wire::{Args, Reply};

use crate::ctx::AHEAD;
use crate::hash::PACKS_AT_ONCE;
use crate::incremental::survey::SurveySubject;
use crate::spec::{Group, Keys, Marks, Spec};
use crate::{Ctx, DataCommand, Fault};

const PER_KEY: &str = "O(N) over the number of keys";

/// DEL.
pub const DEL: DataCommand = DataCommand {
    spec: Spec::shrink("del", -2, Keys::REST)
        .key_access("RM delete")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .mark(Marks::CHEAP)
        .mark(Marks::COUNTS_DEAD)
        .doc(Group::Generic, "1.0.0", "key [key ...]", "Deletes keys; large values are freed piece by piece.")
        .cost(PER_KEY),
    run: del,
};

/// UNLINK.
pub const UNLINK: DataCommand = DataCommand {
    spec: Spec::shrink("unlink", -2, Keys::REST)
        .key_access("RM delete")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .mark(Marks::COUNTS_DEAD)
        .fast()
        .doc(Group::Generic, "4.0.0", "key [key ...]", "Deletes keys, as DEL does.")
        .cost(PER_KEY),
    run: del,
};

/// EXISTS.
pub const EXISTS: DataCommand = DataCommand {
    spec: Spec::read("exists", -2, Keys::REST)
        .key_access("RO")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .fast()
        .doc(Group::Generic, "1.0.0", "key [key ...]", "Counts those of the given keys that exist.")
        .cost(PER_KEY),
    run: exists,
};

/// TOUCH.
pub const TOUCH: DataCommand = DataCommand {
    spec: Spec::read("touch", -2, Keys::REST)
        .key_access("RO")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .mark(Marks::COUNTS_USE)
        .fast()
        .doc(Group::Generic, "3.2.1", "key [key ...]", "Counts existing keys and marks them as used.")
        .cost(PER_KEY),
    run: touch,
};

/// TYPE.
pub const TYPE: DataCommand = DataCommand {
    spec: Spec::read("type", 2, Keys::ONE).key_access("RO").fast().doc(
        Group::Generic,
        "1.0.0",
        "key",
        "Returns the type of a key's value.",
    ),
    run: type_of,
};

fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (names, mut count) = (args.tail(1), 0);
    for first in (0..names.len()).step_by(AHEAD) {
        let names = names.tail(first).head(AHEAD.min(names.len() - first));
        if names.len() == AHEAD {
            ctx.look_ahead(names);
        }
        for name in names.iter() {
            let mut place = ctx.at(name);
            place.expire_members(PACKS_AT_ONCE);
            if place.remove() {
                place.changed(Event::DEL);
                count += 1;
            }
        }
    }
    reply.int(count);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.survey_many(SurveySubject::Presence, args, reply) {
        return Ok(());
    }
    let count = args.tail(1).iter().filter(|name| ctx.untouched(name).exists()).count();
    reply.int_len(count);
    Ok(())
}

fn touch(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if ctx.survey_many(SurveySubject::Uses, args, reply) {
        return Ok(());
    }
    let count = args.tail(1).iter().filter(|name| ctx.read(name).exists()).count();
    reply.int_len(count);
    Ok(())
}

fn type_of(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.status(ctx.untouched(args.at(1)).kind().map_or("none", |kind| kind.name()));
    Ok(())
}
