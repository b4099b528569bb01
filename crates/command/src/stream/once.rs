//! IDMP and IDMPAUTO of XADD, XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE count], XIDMPRECORD: entries that are
//! added once, even if sent repeatedly.

use std::borrow::Cow;

use darter_base::sha1::{self, sha1};
use darter_store::change::{Class, JournalWords};
use darter_store::stream_value::producers::Producers;
use darter_store::{Event, StreamValue};
use darter_wire::{Args, Reply};

use super::id;
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Env, Fault};

/// XCFGSET.
pub const XCFGSET: DataCommand = DataCommand {
    spec: Spec::write("xcfgset", -2, Keys::ONE).fast().doc(
        Group::Stream,
        "8.6.0",
        "key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]",
        "Sets how long, and how many of, the names of producers' entries are remembered; another value forgets them.",
    ),
    run: xcfgset,
};

/// XIDMPRECORD.
pub const XIDMPRECORD: DataCommand = DataCommand {
    spec: Spec::write("xidmprecord", 5, Keys::ONE).fast().doc(
        Group::Stream,
        "8.6.2",
        "key producer-id idempotent-id id",
        "Remembers under which name a producer sent an entry. Written by Redis into its append-only files.",
    ),
    run: xidmprecord,
};

/// The producers of a stream before its first one.
pub(super) fn none_yet(env: &Env) -> Producers {
    Producers::new(env.stream_idmp_duration, env.stream_idmp_maxsize)
}

/// A change that Redis publishes without a name.
const CHANGED: Event = Event::new(Class(0), "xcfgset");

/// The sender of an entry, and the identity of the entry when it is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Once<'a> {
    /// The producer's name for itself.
    pub producer: &'a [u8],
    // nothing: its fields and values
    name: Option<&'a [u8]>,
}

impl<'a> Once<'a> {
    /// Reads IDMP or IDMPAUTO with its arguments into `once`, if that comes next; returns whether it did.
    pub fn take(read: &mut ArgReader<'a>, once: &mut Option<Once<'a>>) -> Result<bool, Fault> {
        let next = if read.take_with("idmp", 2) {
            Once { producer: read.bytes()?, name: Some(read.bytes()?) }
        } else if read.take_with("idmpauto", 1) {
            Once { producer: read.bytes()?, name: None }
        } else {
            return Ok(false);
        };
        Err(Fault::text(match (once.replace(next), next.producer, next.name) {
            (Some(_), ..) => "ERR syntax error, IDMP/IDMPAUTO specified multiple times",
            (None, b"", None) => "ERR syntax error, IDMPAUTO requires a non-empty producer ID",
            (None, b"", Some(_)) => "ERR syntax error, IDMP requires a non-empty producer ID",
            (None, _, Some(b"")) => "ERR syntax error, IDMP requires a non-empty idempotent ID",
            _ => return Ok(true),
        }))
    }

    /// Appends the words it was read from.
    pub fn write(&self, words: &mut JournalWords) {
        words.push(if self.name.is_some() { b"IDMP" } else { b"IDMPAUTO" });
        words.push(self.producer);
        self.name.into_iter().for_each(|name| words.push(name));
    }

    /// The entry's name: as given, or a digest of its fields and values, independent of their order.
    pub fn name(&self, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Cow<'a, [u8]> {
        if let Some(name) = self.name {
            return Cow::Borrowed(name);
        }
        let mut digests: Vec<[u8; sha1::LEN]> =
            pairs.map(|(field, value)| sha1(&[&field.len().to_le_bytes(), field, value].concat())).collect();
        digests.sort_unstable();
        Cow::Owned(sha1(&digests.concat()).to_vec())
    }
}

/// The arguments of XCFGSET.
#[derive(Default)]
struct OnceLimits {
    duration_s: Option<u64>,
    names_max: Option<u64>,
}

impl OnceLimits {
    fn parse(args: Args<'_>) -> Result<OnceLimits, Fault> {
        let mut limits = OnceLimits::default();
        let mut read = ArgReader::new(args, 2);
        while !read.is_done() {
            if read.take_with("idmp-duration", 1) {
                if limits.duration_s.is_some() {
                    return Err(Fault::text("ERR IDMP-DURATION specified multiple times"));
                }
                let refused = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
                limits.duration_s = Some(limit(&mut read, Producers::DURATION_S_MAX, refused)?);
            } else if read.take_with("idmp-maxsize", 1) {
                if limits.names_max.is_some() {
                    return Err(Fault::text("ERR IDMP-MAXSIZE specified multiple times"));
                }
                let refused = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
                limits.names_max = Some(limit(&mut read, Producers::NAMES_MAX, refused)?);
            } else {
                return Err(Fault::Syntax);
            }
        }
        if limits.duration_s.is_none() && limits.names_max.is_none() {
            return Err(Fault::text("ERR At least one parameter must be specified"));
        }
        Ok(limits)
    }
}

fn xcfgset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let env = ctx.env;
    let mut place = ctx.at(args.at(1));
    place.view::<StreamValue>()?.ok_or(Fault::NoSuchKey)?;
    let limits = OnceLimits::parse(args)?;
    let edited = place.edit::<StreamValue, _>(|stream, _, _| {
        let producers = stream.producers_mut(|| none_yet(env));
        let before = (producers.duration_s, producers.names_max);
        producers.duration_s = limits.duration_s.unwrap_or(before.0);
        producers.names_max = limits.names_max.unwrap_or(before.1);
        let is_changed = before != (producers.duration_s, producers.names_max);
        if is_changed {
            producers.clear();
        }
        is_changed
    })?;
    if edited.ok_or(Fault::NoSuchKey)?.result {
        place.changed(CHANGED);
    }
    reply.ok();
    Ok(())
}

fn limit(read: &mut ArgReader<'_>, max: u64, refused: &'static str) -> Result<u64, Fault> {
    let value = read.int()?;
    u64::try_from(value).ok().filter(|value| (1..=max).contains(value)).ok_or(Fault::text(refused))
}

fn xidmprecord(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (producer, name) = (args.at(2), args.at(3));
    let id = id::parse(args.at(4), 0)?;
    if producer.is_empty() {
        return Err(Fault::text("ERR producer ID must be non-empty"));
    }
    if name.is_empty() {
        return Err(Fault::text("ERR idempotent ID must be non-empty"));
    }
    let (env, now_ms) = (ctx.env, ctx.now_ms);
    let mut place = ctx.at(args.at(1));
    let edited = place.edit::<StreamValue, _>(|stream, arena, _| {
        if stream.log().get(arena, id).is_none() {
            return Err(Fault::text("ERR No such message in stream"));
        }
        let producers = stream.producers_mut(|| none_yet(env));
        match producers.find(producer, name, now_ms) {
            Some(known) if known == id => Ok(false),
            Some(_) => {
                Err(Fault::text("ERR IID already exists for this producer with a different stream ID"))
            }
            None => {
                producers.add(producer, name, id, now_ms);
                producers.added += 1;
                Ok(true)
            }
        }
    })?;
    if edited.ok_or(Fault::NoSuchKey)?.result? {
        place.changed(CHANGED);
    }
    reply.ok();
    Ok(())
}
