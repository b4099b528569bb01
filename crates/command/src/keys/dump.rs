//! DUMP and RESTORE: a value as bytes, in the format of RDB files.

use darter_store::rdb;
use darter_store::{Event, Expiry, Keyed};
use darter_wire::{Args, Reply};

use super::event;
use super::object::FREQ_NEW;
use crate::reader::{self, Reader};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// DUMP.
pub const DUMP: DataCommand = DataCommand {
    spec: Spec::read("dump", 2, Keys::ONE)
        .doc(Group::Generic, "2.6.0", "key", "Returns the value of a key in the format of RDB files.")
        .cost("O(N) over the size of the value"),
    run: dump,
};

/// RESTORE.
pub const RESTORE: DataCommand = DataCommand {
    spec: Spec::write("restore", -4, Keys::ONE)
        .doc(
            Group::Generic,
            "2.6.0",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency] [STICK]",
            "Makes a key from the value that DUMP returned.",
        )
        .cost("O(N) over the size of the value"),
    run: restore,
};

fn dump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    ctx.bury(args.at(1));
    match payload(&ctx.read(args.at(1))) {
        Some(bytes) => reply.bulk(&bytes),
        None => reply.null(),
    }
    Ok(())
}

/// What DUMP returns of a key; `None` when it is not there.  Cost: O(value).
pub fn payload(place: &Keyed<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if let Some((object, arena)) = place.object() {
        out.push(rdb::type_of(object));
        rdb::write_object(object, arena, &mut out);
    } else {
        let text = place.text().ok().flatten()?;
        out.push(rdb::TYPE_STRING);
        rdb::write_text(&mut out, &text.bytes());
    }
    rdb::seal(&mut out);
    Some(out)
}

#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    sticks: bool,
    // What OBJECT FREQ is to answer.
    frequency: Option<u8>,
    // What OBJECT IDLETIME is to answer.
    idle_s: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Fault> {
        let (mut idle, mut freq) = (false, false);
        let mut options = Options::default();
        let mut reader = Reader::new(args, 4);
        while !reader.is_done() {
            if reader.take("REPLACE") {
                options.replaces = true;
            } else if reader.take("ABSTTL") {
                options.is_absolute = true;
            } else if reader.take("STICK") {
                options.sticks = true;
            } else if !freq && reader.take_with("IDLETIME", 1) {
                idle = true;
                let idle_s = u64::try_from(reader.int()?);
                options.idle_s =
                    Some(idle_s.map_err(|_| Fault::text("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if !idle && reader.take_with("FREQ", 1) {
                freq = true;
                let frequency = u8::try_from(reader.int()?);
                options.frequency = Some(
                    frequency.map_err(|_| Fault::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?,
                );
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }
}

const BAD_FORMAT: Fault = Fault::text("ERR Bad data format");

fn restore(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = Options::parse(args)?;
    let (now_ms, versions) = (ctx.now_ms, ctx.env.restored_versions);
    let mut place = ctx.at(args.at(1));
    let was_there = place.exists();
    if was_there && !options.replaces {
        return Err(Fault::text("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(reader::int(args.at(2))?)
        .map_err(|_| Fault::text("ERR Invalid TTL value, must be >= 0"))?;
    let mut payload = rdb::open(args.at(3), versions)
        .map_err(|_| Fault::text("ERR DUMP payload version or checksum are wrong"))?;
    let deadline_ms = match ttl {
        0 => None,
        at if options.is_absolute => Some(at),
        after => Some(now_ms.saturating_add(after)),
    };
    let kind = payload.kind().map_err(|_| BAD_FORMAT)?;
    let mut source = payload.source;
    let expiry = deadline_ms.map_or(Expiry::None, Expiry::At);
    if kind == rdb::TYPE_STRING {
        let text = source.text().map_err(|_| BAD_FORMAT)?;
        place.put_text(&text, expiry)?;
    } else {
        let hasher = place.hasher();
        let object =
            rdb::read_object(kind, &mut source, place.arena_mut(), hasher).map_err(|_| BAD_FORMAT)?;
        place.put_object(object, expiry)?;
    }
    if deadline_ms.is_some_and(|ms| ms <= now_ms) {
        // dead on arrival: what was there is gone all the same
        place.remove();
        if was_there {
            place.changed(Event::DEL);
        }
    } else {
        place.set_sticky(options.sticks);
        if let Some(frequency) = options.frequency {
            place.set_standing(frequency.saturating_sub(FREQ_NEW as u8).min(7));
            place.say_frequency(frequency);
        }
        if let Some(idle_s) = options.idle_s {
            place.set_idle_seconds(idle_s);
        }
        place.changed(event("restore"));
    }
    reply.ok();
    Ok(())
}
