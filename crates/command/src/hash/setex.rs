//! HSETEX in two grammars, distinguished by the first word that is not an option. Redis: `key [NX | XX] [FNX | FXX]
//! [EX | PX | EXAT | PXAT time | KEEPTTL] FIELDS numfields field value [field value ...]`, with options also after
//! the fields. Dragonfly: `key [NX | FNX | FXX] [KEEPTTL] seconds field value [field value ...]`.

use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, Table};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::expire::{Clock, FIELDS_TWICE, NO_FIELDS, counted, unknown};
use super::getex::clock;
use super::{Edit, HDEL_EVENT, HEXPIRE_EVENT, HSET_EVENT, at, new_hash};
use crate::reader::{self, is};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HSETEX.
pub const HSETEX: DataCommand = DataCommand {
    spec: Spec::write("hsetex", -5, Keys::ONE)
        .fast()
        .doc(
            Group::Hash,
            "8.0.0",
            "key [NX | XX] [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
            "Sets the values of fields and when they expire.",
        )
        .cost("O(N)"),
    run: hsetex,
};

/// The condition on the fields for any of them to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HsetexFields {
    /// None of them may exist.
    AllNew,
    /// All of them must exist.
    AllThere,
}

/// The condition on the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyIs {
    /// It must not exist. In Dragonfly's grammar: each field that does not exist is written.
    New,
    /// It must exist.
    There,
}

/// The parsed arguments.
struct HsetexOrder<'a> {
    fields: Option<HsetexFields>,
    key: Option<KeyIs>,
    keep_ttl: bool,
    expiry_ms: Option<u64>,
    // one at least, once all is read
    pairs: Args<'a>,
    /// Dragonfly's grammar, whose reply is the number of new fields.
    counts_new: bool,
}

impl<'a> HsetexOrder<'a> {
    fn parse(args: Args<'a>, now_ms: u64) -> Result<HsetexOrder<'a>, Fault> {
        let mut order = HsetexOrder {
            fields: None,
            key: None,
            keep_ttl: false,
            expiry_ms: None,
            pairs: args.tail(args.len()),
            counts_new: false,
        };
        let mut at = 2;
        while let Some(word) = args.get(at) {
            at += 1;
            if is(word, "fields") {
                if !order.pairs.is_empty() {
                    return Err(FIELDS_TWICE);
                }
                if at == args.len() {
                    return Err(arity());
                }
                order.pairs = counted(args, at, 2, "ERR invalid number of fields")?;
                at += 1 + order.pairs.len();
            } else if let Some(clock) = clock(word) {
                order.one_time()?;
                let time = args.get(at).ok_or(Fault::text("ERR missing expire time"))?;
                order.expiry_ms = Some(clock.unix_ms(time, now_ms, "hsetex")?);
                at += 1;
            } else if is(word, "keepttl") {
                order.one_time()?;
                order.keep_ttl = true;
            } else if let Some(fields) = of_fields(word) {
                if order.fields.replace(fields).is_some() {
                    return Err(Fault::text("ERR Only one of FXX or FNX arguments can be specified"));
                }
            } else if let Some(key) = of_key(word) {
                if order.key.replace(key).is_some() {
                    return Err(Fault::text("ERR Only one of XX or NX arguments can be specified"));
                }
            } else if order.pairs.is_empty() && order.expiry_ms.is_none() && reader::int(word).is_ok() {
                order.expiry_ms = Some(Clock::Seconds.unix_ms(word, now_ms, "hsetex")?);
                order.pairs = args.tail(at);
                order.counts_new = true;
                let is_paired = !order.pairs.is_empty() && order.pairs.len().is_multiple_of(2);
                return if is_paired { Ok(order) } else { Err(arity()) };
            } else {
                return Err(unknown(word));
            }
        }
        if order.pairs.is_empty() { Err(NO_FIELDS) } else { Ok(order) }
    }

    /// Fails if a time, or KEEPTTL, is given already.
    fn one_time(&self) -> Result<(), Fault> {
        if self.keep_ttl || self.expiry_ms.is_some() {
            const ONE: &str = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
            return Err(Fault::text(ONE));
        }
        Ok(())
    }
}

fn arity() -> Fault {
    Fault::Arity("hsetex".into())
}

fn of_fields(word: &[u8]) -> Option<HsetexFields> {
    let all_there = is(word, "fxx").then_some(HsetexFields::AllThere);
    all_there.or_else(|| is(word, "fnx").then_some(HsetexFields::AllNew))
}

fn of_key(word: &[u8]) -> Option<KeyIs> {
    let there = is(word, "xx").then_some(KeyIs::There);
    there.or_else(|| is(word, "nx").then_some(KeyIs::New))
}

fn hsetex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let order = HsetexOrder::parse(args, now_ms)?;
    let mut place = at(ctx, args.at(1));
    let exists = place.view::<Table>()?.is_some();
    let must_exist = order.key == Some(KeyIs::There) || order.fields == Some(HsetexFields::AllThere);
    let must_be_new = order.key == Some(KeyIs::New) && !order.counts_new;
    if must_exist && !exists || must_be_new && exists {
        reply.int(0);
        return Ok(());
    }
    let edited = place.edit_or_create(new_hash, |table: &mut Table, arena, hasher| {
        let mut edit = Edit { table, arena, hasher, now_ms };
        if is_met(&edit, &order) { write(&mut edit, &order).map(Some) } else { Ok(None) }
    })?;
    let Some(written) = edited.result? else {
        reply.int(0);
        return Ok(());
    };
    if written.fields > 0 {
        place.changed(HSET_EVENT);
    }
    if written.deleted > 0 {
        place.changed(HDEL_EVENT);
    } else if written.updated > 0 {
        place.changed(HEXPIRE_EVENT);
    }
    if edited.is_gone {
        place.changed(Event::DEL);
    }
    reply.int(if order.counts_new { written.new } else { 1 });
    Ok(())
}

/// The written fields.
#[derive(Default)]
struct HsetexWritten {
    fields: usize,
    new: i64,
    updated: usize,
    deleted: usize,
}

fn is_met(edit: &Edit<'_>, order: &HsetexOrder<'_>) -> bool {
    let mut fields = (0..order.pairs.len()).step_by(2).map(|i| order.pairs.at(i));
    match order.fields {
        Some(HsetexFields::AllNew) => !fields.any(|field| edit.get(field).is_some()),
        Some(HsetexFields::AllThere) => fields.all(|field| edit.get(field).is_some()),
        None => true,
    }
}

fn write(edit: &mut Edit<'_>, order: &HsetexOrder<'_>) -> Result<HsetexWritten, Fault> {
    let mut written = HsetexWritten::default();
    let now_ms = edit.now_ms;
    for i in (0..order.pairs.len()).step_by(2) {
        let (field, value) = (order.pairs.at(i), order.pairs.at(i + 1));
        let old_ms = edit.get(field).map(|entry| entry.expiry_ms());
        if order.counts_new && order.key == Some(KeyIs::New) && old_ms.is_some() {
            continue;
        }
        written.fields += 1;
        let expiry = match order.expiry_ms {
            // Dragonfly: the time applies to fields without one
            Some(_) if order.keep_ttl && matches!(old_ms, Some(Some(_))) => FieldExpiry::Keep,
            Some(ms) if ms <= now_ms => {
                edit.take(field);
                written.deleted += 1;
                continue;
            }
            Some(ms) => {
                written.updated += 1;
                FieldExpiry::At(ms)
            }
            None if order.keep_ttl => FieldExpiry::Keep,
            None => FieldExpiry::Clear,
        };
        written.new += i64::from(edit.put(field, Item::Bytes(value), expiry)?);
    }
    Ok(written)
}
