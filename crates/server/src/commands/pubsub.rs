//! SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, SSUBSCRIBE, SUNSUBSCRIBE, PUBLISH, SPUBLISH, PUBSUB

use darter_command::spec::{ChannelArgs, Group, Keys};
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, help, row};
use crate::acl::disconnect;
use crate::dispatch::Caller;
use crate::engine::cluster::courier;
use crate::pubsub::{self, SubscriptionKind};

const LISTEN: Flags = Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
const SPEAK: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::MAY_REPLICATE);
const ASK: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);

/// Of the commands that change subscriptions.
const SUBSCRIPTION: Marks = Marks::ANSWERS_BY_PUSH.with(Marks::ALLOWED_SUBSCRIBED).with(Marks::NOT_OVER_HTTP);

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        spec("subscribe", -2, LISTEN, "2.0.0", "channel [channel ...]", "Subscribes to channels.")
            .channels(ChannelArgs::Names)
            .mark(SUBSCRIPTION)
            .cost(BY_NAMES),
        |caller, args, reply| begin(caller, SubscriptionKind::Channel, args, reply),
    ),
    row(
        spec(
            "unsubscribe",
            -1,
            LISTEN,
            "2.0.0",
            "[channel [channel ...]]",
            "Ends subscriptions to channels.",
        )
        .mark(SUBSCRIPTION)
        .cost(BY_NAMES),
        |caller, args, reply| end(caller, SubscriptionKind::Channel, args, reply),
    ),
    row(
        spec(
            "psubscribe",
            -2,
            LISTEN,
            "2.0.0",
            "pattern [pattern ...]",
            "Subscribes to patterns of channels.",
        )
        .channels(ChannelArgs::Patterns)
        .mark(SUBSCRIPTION)
        .cost(BY_NAMES),
        |caller, args, reply| begin(caller, SubscriptionKind::Pattern, args, reply),
    ),
    row(
        spec(
            "punsubscribe",
            -1,
            LISTEN,
            "2.0.0",
            "[pattern [pattern ...]]",
            "Ends subscriptions to patterns.",
        )
        .mark(SUBSCRIPTION)
        .cost(BY_NAMES),
        |caller, args, reply| end(caller, SubscriptionKind::Pattern, args, reply),
    ),
    row(
        Spec {
            keys: Keys::REST,
            ..spec(
                "ssubscribe",
                -2,
                LISTEN,
                "7.0.0",
                "shardchannel [shardchannel ...]",
                "Subscribes to shard channels.",
            )
            .key_access("not_key")
        }
        .channels(ChannelArgs::Names)
        .mark(SUBSCRIPTION)
        .cost(BY_NAMES),
        |caller, args, reply| {
            if !caller.may_wait {
                return Err(Fault::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
            }
            begin(caller, SubscriptionKind::Shard, args, reply)
        },
    ),
    row(
        Spec {
            keys: Keys::REST,
            ..spec(
                "sunsubscribe",
                -1,
                LISTEN,
                "7.0.0",
                "[shardchannel [shardchannel ...]]",
                "Ends subscriptions to shard channels.",
            )
            .key_access("not_key")
        }
        .mark(SUBSCRIPTION)
        .cost(BY_NAMES),
        |caller, args, reply| end(caller, SubscriptionKind::Shard, args, reply),
    ),
    row(
        spec("publish", 3, SPEAK, "2.0.0", "channel message", "Sends a message to a channel's subscribers.")
            .channels(ChannelArgs::First)
            .mark(Marks::CHEAP)
            .fast()
            .cost("O(N+M) for N subscribers of the channel and M patterns that begin as it does"),
        |caller, args, reply| publish(caller, SubscriptionKind::Channel, args, reply),
    ),
    row(
        Spec {
            keys: Keys::ONE,
            ..spec(
                "spublish",
                3,
                SPEAK,
                "7.0.0",
                "shardchannel message",
                "Sends a message to a shard channel's subscribers.",
            )
            .key_access("not_key")
        }
        .channels(ChannelArgs::First)
        .mark(Marks::CHEAP)
        .fast()
        .cost("O(N) for N subscribers of the channel"),
        |caller, args, reply| publish(caller, SubscriptionKind::Shard, args, reply),
    ),
    row(
        spec("pubsub", -2, Flags::NONE, "2.8.0", "", "Questions about channels and patterns.")
            .cost("Depends on subcommand."),
        help_pubsub,
    ),
    row(
        spec("pubsub|channels", -2, ASK, "2.8.0", "[pattern]", "Lists channels with subscribers.")
            .cost("O(N) for N channels"),
        |caller, args, reply| channels(caller, SubscriptionKind::Channel, args, reply),
    ),
    row(
        spec("pubsub|numsub", -2, ASK, "2.8.0", "[channel [channel ...]]", "Counts subscribers of channels.")
            .cost("O(N) for N channels asked for"),
        |caller, args, reply| numsub(caller, SubscriptionKind::Channel, args, reply),
    ),
    row(spec("pubsub|numpat", 2, ASK, "2.8.0", "", "Counts patterns with subscribers."), numpat),
    row(
        spec("pubsub|shardchannels", -2, ASK, "7.0.0", "[pattern]", "Lists shard channels with subscribers.")
            .cost("O(N) for N channels"),
        |caller, args, reply| channels(caller, SubscriptionKind::Shard, args, reply),
    ),
    row(
        spec(
            "pubsub|shardnumsub",
            -2,
            ASK,
            "7.0.0",
            "[shardchannel [shardchannel ...]]",
            "Counts subscribers of shard channels.",
        )
        .cost("O(N) for N channels asked for"),
        |caller, args, reply| numsub(caller, SubscriptionKind::Shard, args, reply),
    ),
    row(
        spec("pubsub|help", 2, Flags::LOADING.with(Flags::STALE), "6.2.0", "", "Explains the subcommands."),
        help_pubsub,
    ),
];

const BY_NAMES: &str = "O(N) for N names given";

const fn spec(
    name: &'static str,
    arity: i16,
    flags: Flags,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::other(name, arity).flag(flags).doc(Group::Pubsub, since, syntax, summary)
}

fn begin(
    caller: &mut Caller<'_>,
    kind: SubscriptionKind,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    for name in args.iter().skip(1) {
        pubsub::subscribe(caller.local, caller.session, caller.info, kind, name);
        tell(caller, ["subscribe", "psubscribe", "ssubscribe"][kind.index()], kind, Some(name), reply);
    }
    disconnect::check_subscribed(caller, kind, args.tail(1));
    Ok(())
}

fn end(
    caller: &mut Caller<'_>,
    kind: SubscriptionKind,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut end_one = |caller: &mut Caller<'_>, name: Option<&[u8]>| {
        if let Some(name) = name {
            pubsub::unsubscribe(caller.local, caller.session, caller.info, kind, name);
        }
        tell(caller, ["unsubscribe", "punsubscribe", "sunsubscribe"][kind.index()], kind, name, reply);
    };
    if args.len() > 1 {
        args.iter().skip(1).for_each(|name| end_one(caller, Some(name)));
        return Ok(());
    }
    let own = caller.session.subscriptions.as_ref();
    let names: Vec<Box<[u8]>> = own.map_or(Vec::new(), |own| own.names(kind));
    if names.is_empty() {
        end_one(caller, None);
    }
    names.iter().for_each(|name| end_one(caller, Some(name)));
    Ok(())
}

/// One answer for each name: the verb, the name, and the number of subscriptions.
fn tell(caller: &Caller<'_>, verb: &str, kind: SubscriptionKind, name: Option<&[u8]>, reply: &mut Reply<'_>) {
    let count = caller.session.subscriptions.as_ref().map_or(0, |own| match kind {
        SubscriptionKind::Shard => own.len(SubscriptionKind::Shard),
        SubscriptionKind::Channel | SubscriptionKind::Pattern => {
            own.len(SubscriptionKind::Channel) + own.len(SubscriptionKind::Pattern)
        }
    });
    reply.push(3);
    reply.bulk(verb.as_bytes());
    reply.bulk_or_null(name);
    reply.int_len(count);
}

fn publish(
    caller: &mut Caller<'_>,
    kind: SubscriptionKind,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let name: &[u8] = if kind == SubscriptionKind::Shard { b"SPUBLISH" } else { b"PUBLISH" };
    if kind == SubscriptionKind::Channel && shared.cluster.is_on() {
        let map = caller.local.cluster.map.clone();
        courier::send(shared, &map, args.at(1), args.at(2));
        if courier::comes_back(&map) {
            reply.int_len(shared.pubsub.subscribers(kind, args.at(1)));
            return Ok(());
        }
    }
    let now_ms = caller.local.now_ms;
    caller.local.journal.append_message(&shared.journal, now_ms, &[name, args.at(1), args.at(2)]);
    reply.int_len(pubsub::publish_from(shared, caller.session, kind, args.at(1), args.at(2)));
    Ok(())
}

fn channels(
    caller: &mut Caller<'_>,
    kind: SubscriptionKind,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::wrong_form(args));
    }
    let found = caller.local.shared.pubsub.channels(kind, args.get(2));
    reply.array(found.len());
    found.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn numsub(
    caller: &mut Caller<'_>,
    kind: SubscriptionKind,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let asked = args.tail(2);
    reply.array(asked.len() * 2);
    for name in asked.iter() {
        reply.bulk(name);
        reply.int_len(caller.local.shared.pubsub.subscribers(kind, name));
    }
    Ok(())
}

fn numpat(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(caller.local.shared.pubsub.patterns_len());
    Ok(())
}

fn help_pubsub(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    help(
        reply,
        "PUBSUB",
        &[
            "CHANNELS [<pattern>]",
            "    List the channels that have subscribers and match <pattern> (all without one).",
            "NUMPAT",
            "    Count the patterns that have subscribers.",
            "NUMSUB [<channel> ...]",
            "    Count the subscribers of each channel, those by pattern apart.",
            "SHARDCHANNELS [<pattern>]",
            "    List the shard channels that have subscribers and match <pattern> (all without one).",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Count the subscribers of each shard channel.",
        ],
    );
    Ok(())
}
