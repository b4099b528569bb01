//! SINTERSTORE destination key [key ...], SUNIONSTORE, SDIFFSTORE

use crate::keyspec;
use darter_pack::entry::Item;
use darter_pack::table::FieldExpiry as MemberExpiry;
use darter_store::reads::Stretch;
use darter_store::{Collection, Event, Expiry, SetValue};
use darter_wire::{Args, Reply};

use super::algebra::Sources;
use super::event;
use crate::incremental::{SetOperation, StagedForm};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::write(name, -3, Keys::REST).doc(Group::Set, "1.0.0", "destination key [key ...]", summary)
}

/// SINTERSTORE.
pub const SINTERSTORE: DataCommand = DataCommand {
    spec: spec("sinterstore", "Stores the intersect of multiple sets in a key.")
        .key_groups(&[keyspec::one(1, "RW update"), keyspec::rest(2, keyspec::READ)])
        .cost("O(N*M)"),
    run: |ctx, args, reply| store(ctx, args, reply, SetOperation::Intersect, event("sinterstore")),
};
/// SUNIONSTORE.
pub const SUNIONSTORE: DataCommand = DataCommand {
    spec: spec("sunionstore", "Stores the union of multiple sets in a key.")
        .key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::rest(2, keyspec::READ)])
        .cost("O(N)"),
    run: |ctx, args, reply| store(ctx, args, reply, SetOperation::Unite, event("sunionstore")),
};
/// SDIFFSTORE.
pub const SDIFFSTORE: DataCommand = DataCommand {
    spec: spec("sdiffstore", "Stores the difference of multiple sets in a key.")
        .key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::rest(2, keyspec::READ)])
        .cost("O(N)"),
    run: |ctx, args, reply| store(ctx, args, reply, SetOperation::Subtract, event("sdiffstore")),
};

/// Members copied out of their sets, which may be in other shards than the destination.
#[derive(Default)]
struct Gathered {
    ints: Vec<i64>,
    bytes: Vec<u8>,
    // The end of each text in `bytes`.
    ends: Vec<usize>,
}

impl Gathered {
    fn push(&mut self, member: Item<'_>) {
        match member {
            Item::Int(value) => self.ints.push(value),
            Item::Bytes(text) => {
                self.bytes.extend_from_slice(text);
                self.ends.push(self.bytes.len());
            }
        }
    }

    fn len(&self) -> usize {
        self.ints.len() + self.ends.len()
    }

    fn each(&self) -> impl Iterator<Item = Item<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let texts = starts
            .zip(&self.ends)
            .map(|(start, &end)| Item::Bytes(self.bytes.get(start..end).unwrap_or_default()));
        self.ints.iter().map(|&value| Item::Int(value)).chain(texts)
    }
}

fn store(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    operation: SetOperation,
    stored: Event,
) -> Result<(), Fault> {
    if let Some(staged) = ctx.staged.take() {
        reply.int(staged.put(ctx, args.at(1), stored)? as i64);
        return Ok(());
    }
    let (keys, may_slice) = (args.tail(2), ctx.may_slice);
    let mut sources = Sources::find(ctx, keys)?;
    if may_slice && let Some((order, operation)) = sources.for_keeping(operation) {
        let read: Vec<_> = order.iter().map(|at| (keys.at(*at), Stretch::All)).collect();
        let names: Vec<_> = keys.iter().collect();
        if ctx.store_later((args.at(1), StagedForm::Set), &names, &read, operation) {
            return Ok(());
        }
        sources = Sources::look(ctx, keys)?;
    }
    let mut gathered = Gathered::default();
    sources.each(operation, |member| {
        gathered.push(member);
        true
    });
    let mut place = ctx.at(args.at(1));
    reply.int_len(gathered.len());
    if gathered.len() == 0 {
        if place.remove() {
            place.changed(Event::DEL);
        }
        return Ok(());
    }
    let hasher = place.hasher();
    let mut set = SetValue::new();
    let filled = gathered
        .each()
        .try_for_each(|member| set.insert(place.arena_mut(), hasher, member, MemberExpiry::Keep).map(|_| ()));
    if let Err(full) = filled {
        set.wrap().clear(place.arena_mut());
        return Err(full.into());
    }
    place.put_object(set.wrap(), Expiry::None)?;
    place.changed(stored);
    Ok(())
}
