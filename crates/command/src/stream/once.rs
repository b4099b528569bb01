//! IDMP and IDMPAUTO of XADD, XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE count], XIDMPRECORD: entries that are
//! added once however often they are sent.

use std::borrow::Cow;

use darter_base::sha1::{self, sha1};
use darter_store::change::Class;
use darter_store::stream_value::producers::Producers;
use darter_store::{Event, Stream};
use darter_wire::{Args, Reply};

use super::id;
use crate::reader::Reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

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

/// A change that Redis publishes under no name.
const CHANGED: Event = Event::new(Class(0), "xcfgset");

/// Who sends an entry, and what makes it the same one when it is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Once<'a> {
    /// The producer's name for itself.
    pub producer: &'a [u8],
    // nothing: its fields and values
    name: Option<&'a [u8]>,
}

impl<'a> Once<'a> {
    /// Reads IDMP or IDMPAUTO with what belongs to it, if that comes next.
    pub fn take(read: &mut Reader<'a>) -> Result<Option<Once<'a>>, Fault> {
        let once = if read.take_with("idmp", 2) {
            Once { producer: read.bytes()?, name: Some(read.bytes()?) }
        } else if read.take_with("idmpauto", 1) {
            Once { producer: read.bytes()?, name: None }
        } else {
            return Ok(None);
        };
        let refusal = match (once.producer, once.name) {
            (b"", None) => "ERR IDMPAUTO requires a non-empty producer ID",
            (b"", Some(_)) => "ERR IDMP requires a non-empty producer ID",
            (_, Some(b"")) => "ERR IDMP requires a non-empty idempotent ID",
            _ => return Ok(Some(once)),
        };
        Err(Fault::text(refusal))
    }

    /// The entry's name: as given, or a digest of its fields and values, in whatever order these are.
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

fn xcfgset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (mut duration_s, mut names_max) = (None, None);
    let mut read = Reader::new(args, 2);
    while !read.is_done() {
        if read.take_with("idmp-duration", 1) {
            let refused = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            duration_s = Some(limit(&mut read, Producers::DURATION_S_MAX, refused)?);
        } else if read.take_with("idmp-maxsize", 1) {
            let refused = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
            names_max = Some(limit(&mut read, Producers::NAMES_MAX, refused)?);
        } else {
            return Err(Fault::Syntax);
        }
    }
    if duration_s.is_none() && names_max.is_none() {
        return Err(Fault::text("ERR At least one parameter must be specified"));
    }
    let mut place = ctx.at(args.at(1));
    let edited = place.edit::<Stream, _>(|stream, _, _| {
        let producers = stream.producers_mut(Producers::default);
        let before = (producers.duration_s, producers.names_max);
        producers.duration_s = duration_s.unwrap_or(before.0);
        producers.names_max = names_max.unwrap_or(before.1);
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

fn limit(read: &mut Reader<'_>, max: u64, refused: &'static str) -> Result<u64, Fault> {
    let value = read.int()?;
    u64::try_from(value).ok().filter(|value| (1..=max).contains(value)).ok_or(Fault::text(refused))
}

fn xidmprecord(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (producer, name) = (args.at(2), args.at(3));
    if producer.is_empty() || name.is_empty() {
        return Err(Fault::text("ERR IDMP requires a non-empty producer ID and idempotent ID"));
    }
    let id = id::parse(args.at(4), 0)?;
    let now_ms = ctx.now_ms;
    let mut place = ctx.at(args.at(1));
    let edited = place.edit::<Stream, _>(|stream, arena, _| {
        if stream.log().get(arena, id).is_none() {
            return Err(Fault::text("ERR no such stream entry"));
        }
        let producers = stream.producers_mut(Producers::default);
        match producers.find(producer, name, now_ms) {
            Some(known) if known == id => Ok(false),
            Some(_) => Err(Fault::text("ERR the idempotent ID belongs to another stream entry")),
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
