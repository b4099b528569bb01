//! Values compared before a change: SET's conditions, DELEX, DELIFEQ, and DIGEST to compare by.

use darter_store::{Event, Keyed, Text};
use darter_wire::{Args, Reply};
use xxhash_rust::xxh3::xxh3_64;

use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// DELEX.
pub const DELEX: DataCommand = DataCommand {
    spec: Spec::shrink("delex", -2, Keys::ONE)
        .key_access("RM delete")
        .access_by(access)
        .fast()
        .doc(
            Group::String,
            "8.4.0",
            "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
            "Deletes a key if its string value, or the digest of it, is the one given.",
        )
        .cost("O(1), with digests O(N) over the length of the value"),
    run: delex,
};

fn access(call: Args<'_>) -> &'static str {
    if compares(call.tail(2)) { "RW delete" } else { "RM delete" }
}

/// Returns true if the effect of a SET or DELEX with these options depends on the present value.
pub(super) fn compares(options: Args<'_>) -> bool {
    let words: [&[u8]; 4] = [b"ifeq", b"ifne", b"ifdeq", b"ifdne"];
    options.iter().any(|arg| words.iter().any(|word| arg.eq_ignore_ascii_case(word)))
}

/// DELIFEQ, as Valkey 9 has it.
pub const DELIFEQ: DataCommand = DataCommand {
    spec: Spec::shrink("delifeq", 3, Keys::ONE).key_access("RW delete").fast().doc(
        Group::String,
        "9.0.0",
        "key value",
        "Deletes a key if its string value is the one given.",
    ),
    run: delifeq,
};

/// DIGEST.
pub const DIGEST: DataCommand = DataCommand {
    spec: Spec::read("digest", 2, Keys::ONE)
        .fast()
        .doc(Group::String, "8.4.0", "key", "Returns the XXH3 digest of a string value, in hexadecimal.")
        .cost("O(N) over the length of the value"),
    run: digest,
};

/// The condition on a key for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueCondition<'a> {
    /// The key is missing (`NX`).
    Absent,
    /// The key is there (`XX`).
    Present,
    /// The key is there with this value (`IFEQ`).
    Is(&'a [u8]),
    /// The key is missing or has another value (`IFNE`).
    IsNot(&'a [u8]),
    /// The key is there and its value has this digest, in hexadecimal (`IFDEQ`).
    HasDigest(&'a [u8]),
    /// The key is missing or its value has another digest (`IFDNE`).
    HasNotDigest(&'a [u8]),
}

impl<'a> ValueCondition<'a> {
    /// Reads a condition, if one comes next; `NX` and `XX` only `with_presence`.
    ///
    /// Errors: no argument after its name.
    pub fn take(
        reader: &mut ArgReader<'a>,
        with_presence: bool,
    ) -> Result<Option<ValueCondition<'a>>, Fault> {
        Ok(Some(if with_presence && reader.take("NX") {
            ValueCondition::Absent
        } else if with_presence && reader.take("XX") {
            ValueCondition::Present
        } else if reader.take_with("IFEQ", 1) {
            ValueCondition::Is(reader.bytes()?)
        } else if reader.take_with("IFNE", 1) {
            ValueCondition::IsNot(reader.bytes()?)
        } else if reader.take_with("IFDEQ", 1) {
            ValueCondition::HasDigest(reader.bytes()?)
        } else if reader.take_with("IFDNE", 1) {
            ValueCondition::HasNotDigest(reader.bytes()?)
        } else {
            return Ok(None);
        }))
    }

    /// Returns true if only the key's presence matters.
    pub fn is_about_presence(self) -> bool {
        matches!(self, ValueCondition::Absent | ValueCondition::Present)
    }

    /// Returns true if it holds at `place`.
    ///
    /// Errors: the value matters and is not a string, or exists and the given digest is invalid.
    pub fn holds(self, place: &Keyed<'_>) -> Result<bool, Fault> {
        match self {
            ValueCondition::Absent => return Ok(!place.exists()),
            ValueCondition::Present => return Ok(place.exists()),
            _ => {}
        }
        let Some(text) = place.text()? else {
            return Ok(matches!(self, ValueCondition::IsNot(_) | ValueCondition::HasNotDigest(_)));
        };
        Ok(match self {
            ValueCondition::Is(value) => text.equals(value),
            ValueCondition::IsNot(value) => !text.equals(value),
            ValueCondition::HasDigest(digest) => digest_of(text) == parse_digest(digest)?,
            ValueCondition::HasNotDigest(digest) => digest_of(text) != parse_digest(digest)?,
            ValueCondition::Absent | ValueCondition::Present => false,
        })
    }
}

const DIGEST_LEN: usize = 16;

fn digest_of(text: Text<'_>) -> u64 {
    xxh3_64(&text.bytes())
}

fn parse_digest(arg: &[u8]) -> Result<u64, Fault> {
    let refused = Fault::text("ERR must be exactly 16 hexadecimal characters");
    if arg.len() != DIGEST_LEN {
        return Err(refused);
    }
    arg.iter().try_fold(0, |sum, &byte| {
        let digit = char::from(byte).to_digit(16).ok_or_else(|| refused.clone())?;
        Ok(sum << 4 | u64::from(digit))
    })
}

fn delex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !matches!(args.len(), 2 | 4) {
        return Err(Fault::Arity("delex".into()));
    }
    let mut place = ctx.at(args.at(1));
    let mut holds = place.exists();
    if holds && args.len() == 4 {
        const NO_STRING: Fault = Fault::text("ERR Key should be of string type if conditions are specified");
        const UNKNOWN: Fault = Fault::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
        place.text().map_err(|_| NO_STRING)?;
        let condition = ValueCondition::take(&mut ArgReader::new(args, 2), false)?.ok_or(UNKNOWN)?;
        holds = condition.holds(&place)?;
    }
    delete_if(&mut place, holds, reply);
    Ok(())
}

fn delifeq(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    let holds = ValueCondition::Is(args.at(2)).holds(&place)?;
    delete_if(&mut place, holds, reply);
    Ok(())
}

fn delete_if(place: &mut Keyed<'_>, holds: bool, reply: &mut Reply<'_>) {
    if holds {
        place.remove();
        place.changed(Event::DEL);
    }
    reply.int(i64::from(holds));
}

fn digest(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match ctx.read(args.at(1)).text()? {
        Some(text) => reply.bulk(format!("{:016x}", digest_of(text)).as_bytes()),
        None => reply.null(),
    }
    Ok(())
}
