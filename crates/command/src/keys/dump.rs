//! DUMP and RESTORE: a value as bytes, in the format of RDB files.

use crate::category::Categories;
use std::collections::VecDeque;
use std::sync::Arc;

use darter_base::crc::Crc64;
use darter_pack::tree::window::Tell;
use darter_store::rdb;
use darter_store::{Event, Expiry, Extras, Keyed};
use darter_wire::{Args, Reply};

use super::event;
use super::object::FREQ_NEW;
use crate::incremental::{Operation, TOLD_BYTES};
use crate::reader::{self, ArgReader};
use crate::slices::LEN_MAX;
use crate::spec::{Flags, Group, Keys, Marks, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault, slices};

/// DUMP.
pub const DUMP: DataCommand = DataCommand {
    spec: Spec::read("dump", 2, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(Group::Generic, "2.6.0", "key", "Returns the value of a key in the format of RDB files.")
        .cost("O(N) over the size of the value"),
    run: dump,
};

/// RESTORE.
pub const RESTORE: DataCommand = DataCommand {
    spec: Spec::write("restore", -4, Keys::ONE)
        .replica_form(ReplicaForm::Values)
        .key_access("OW update")
        .category(Categories::DANGEROUS)
        .doc(
            Group::Generic,
            "2.6.0",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency] [STICK] [MARKS bytes] [LINKS]",
            "Makes a key from the value that DUMP returned.",
        )
        .cost("O(N) over the size of the value"),
    run: restore,
};

/// RESTORE-ASKING: RESTORE as sent by a cluster node that hands over a slot.
pub const RESTORE_ASKING: DataCommand = DataCommand {
    spec: Spec::write("restore-asking", -4, Keys::ONE)
        .flag(Flags::ASKING)
        .mark(Marks::MOVES_KEYS)
        .replica_form(ReplicaForm::Values)
        .key_access("OW update")
        .category(Categories::DANGEROUS)
        .category(Categories::KEYSPACE)
        .flag(Flags::ASKING)
        .doc(
            Group::Server,
            "3.0.0",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
            "An internal command for migrating keys in a cluster.",
        )
        .cost("O(N) over the size of the value"),
    run: restore,
};

fn dump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    ctx.remove_lazily(args.at(1));
    if ctx.may_slice && leave(ctx, args.at(1), reply.is_resp3()) {
        return Ok(());
    }
    match payload(&ctx.read(args.at(1))) {
        Some(bytes) => reply.bulk(&bytes),
        None => reply.null(),
    }
    Ok(())
}

/// Leaves encoding a long collection to slices; false if it must be done now.
fn leave(ctx: &mut Ctx<'_>, name: &[u8], resp3: bool) -> bool {
    let place = ctx.at(name);
    let Some((object, _)) = place.object() else { return false };
    let Some(whole) = slices::whole_of(object) else { return false };
    if whole.len <= LEN_MAX || whole.due_ms.is_some() {
        return false;
    }
    let (kind, mut head) = (rdb::type_of(object), Vec::new());
    head.push(kind);
    rdb::write_members_head(kind, None, whole.len, &mut head);
    let operation = Box::new(Dumping::new(head));
    let is_left = ctx.answer_later(&[(name, whole.stretch)], operation, resp3);
    if is_left {
        // A hit, and a use.
        ctx.read(name);
    }
    is_left
}

/// A payload on its way.
struct Dumping {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    crc: Crc64,
    is_begun: bool,
}

impl Dumping {
    fn new(head: Vec<u8>) -> Dumping {
        let mut dumping = Dumping { pieces: VecDeque::new(), bytes: 0, crc: Crc64::new(), is_begun: false };
        dumping.add(head);
        dumping
    }

    fn add(&mut self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        self.crc.update(&piece);
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }
}

impl Operation for Dumping {
    fn tell(&self) -> Tell {
        Arc::new(|seen, out| rdb::write_seen(&seen, out))
    }

    /// Members are shorter here than in a reply.
    fn told_max(&self) -> usize {
        TOLD_BYTES / 2
    }

    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        self.add(told.to_vec());
        Vec::new()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if !self.is_begun {
            self.is_begun = true;
            let footer = rdb::footer(self.crc.clone());
            self.pieces.push_back(footer.to_vec());
            self.bytes += footer.len();
            reply.bulk_header(self.bytes);
        }
        while reply.len() < bytes_max {
            let Some(piece) = self.pieces.pop_front() else {
                reply.bulk_end();
                return true;
            };
            self.bytes -= piece.len();
            reply.raw(&piece);
        }
        false
    }
}

/// The payload that DUMP returns for a key; `None` if the key is missing. Cost: O(value).
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

/// Words of RESTORE for what a payload has no place for: the mark of STICK, and what memcached's clients have stored.
pub fn marks(place: &Keyed<'_>) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    if place.record().is_some_and(|record| record.is_sticky()) {
        words.push(b"STICK".to_vec());
    }
    if let Some(extras) = place.extras() {
        words.extend([b"MARKS".to_vec(), extras.to_bytes()]);
    }
    words
}

#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    sticks: bool,
    // A series keeps its rules and its source: the others come, too.
    keeps_links: bool,
    // What memcached's clients have stored with the value.
    marks: Option<Extras>,
    // The value for OBJECT FREQ.
    frequency: Option<u8>,
    // The value for OBJECT IDLETIME.
    idle_s: Option<u64>,
}

impl RestoreOptions {
    fn parse(args: Args<'_>) -> Result<RestoreOptions, Fault> {
        let (mut idle, mut freq) = (false, false);
        let mut options = RestoreOptions::default();
        let mut reader = ArgReader::new(args, 4);
        while !reader.is_done() {
            if reader.take("REPLACE") {
                options.replaces = true;
            } else if reader.take("ABSTTL") {
                options.is_absolute = true;
            } else if reader.take("LINKS") {
                options.keeps_links = true;
            } else if reader.take("STICK") {
                options.sticks = true;
            } else if reader.take_with("MARKS", 1) {
                let marks = Extras::parse(reader.bytes()?);
                options.marks = Some(marks.ok_or(Fault::text("ERR Invalid MARKS value"))?);
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
    let options = RestoreOptions::parse(args)?;
    let (now_ms, versions, keeps_dead) = (ctx.now_ms, ctx.env.restored_versions, ctx.env.import_mode);
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
        // The largest time that Redis can note is that of a signed number.
        after => match now_ms.checked_add(after).filter(|&at| i64::try_from(at).is_ok()) {
            Some(at) => Some(at),
            None => return Err(Fault::text("ERR Invalid TTL value, must be >= 0")),
        },
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
        if !options.keeps_links {
            place.forget_links();
        }
    }
    if deadline_ms.is_some_and(|ms| ms <= now_ms) && !keeps_dead {
        // expired on arrival: a former value is removed all the same
        place.remove();
        if was_there {
            place.changed(Event::DEL);
        }
    } else {
        place.set_sticky(options.sticks);
        if let Some(marks) = options.marks {
            place.set_extras(marks)?;
        }
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
