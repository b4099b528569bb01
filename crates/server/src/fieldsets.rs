//! Names of fields that a connection has told once, for the hashes it is about to send (HIMPORT).
//!
//! Part of a session, and gone with it. HIMPORT SET is completed by [`expand`] before it takes a shard, because the body
//! may run on another thread, which knows nothing of the connection.

use std::collections::{BTreeMap, BTreeSet};

use darter_command::Fault;
use darter_wire::{Args, OwnedArgs};

/// Names of fields, in the order of the values to come.
type Fields = Box<[Box<[u8]>]>;

/// A connection's fieldsets by name.
#[derive(Debug, Default)]
pub struct Fieldsets {
    of: BTreeMap<Box<[u8]>, Fields>,
    // of all texts
    bytes: usize,
}

/// Bytes of names that one connection may have told, and what one costs beside its text.
const BYTES_MAX: usize = 16 << 20;
const NAME_BYTES: usize = 32;

fn bytes_of(name: &[u8], fields: &[Box<[u8]>]) -> usize {
    NAME_BYTES + name.len() + fields.iter().map(|field| NAME_BYTES + field.len()).sum::<usize>()
}

impl Fieldsets {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps `fields` under `name`, in the place of what was kept under it.
    ///
    /// Errors: a field is named twice; more than 16 MiB in all. Nothing is changed then.
    pub fn prepare(&mut self, name: &[u8], fields: Args<'_>) -> Result<(), Fault> {
        if fields.iter().collect::<BTreeSet<_>>().len() < fields.len() {
            return Err(Fault::text("ERR duplicate field name"));
        }
        let fields: Fields = fields.iter().map(Box::from).collect();
        let before = self.of.get(name).map_or(0, |fields| bytes_of(name, fields));
        let bytes = self.bytes - before + bytes_of(name, &fields);
        if bytes > BYTES_MAX {
            return Err(Fault::text("ERR too many fieldsets are prepared on this connection"));
        }
        self.bytes = bytes;
        self.of.insert(name.into(), fields);
        Ok(())
    }

    /// Forgets one; returns whether it was there.
    pub fn discard(&mut self, name: &[u8]) -> bool {
        let Some(fields) = self.of.remove(name) else { return false };
        self.bytes -= bytes_of(name, &fields);
        true
    }

    /// Number of fieldsets.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// HIMPORT SET with the name of each field in front of its value.
///
/// Errors: the connection has no such fieldset, or it has another number of fields.
pub fn expand(fieldsets: Option<&Fieldsets>, args: Args<'_>) -> Result<OwnedArgs, Fault> {
    let fields = fieldsets.and_then(|fieldsets| fieldsets.of.get(args.at(3)));
    let fields = fields.ok_or(Fault::text("ERR no such fieldset"))?;
    let values = args.tail(4);
    if fields.len() != values.len() {
        return Err(Fault::text("ERR value count does not match the fields of the fieldset"));
    }
    let names_bytes: usize = fields.iter().map(|field| field.len()).sum();
    let mut owned = OwnedArgs::with_capacity(4 + 2 * fields.len(), args.bytes_len() + names_bytes);
    args.head(4).iter().for_each(|arg| owned.push(arg));
    for (field, value) in fields.iter().zip(values.iter()) {
        owned.push(field);
        owned.push(value);
    }
    Ok(owned)
}
