//! FIELDEXPIRE key seconds field [field ...] and FIELDTTL key field: Dragonfly's, for hashes, sets and sorted sets.

use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, Table};
use darter_pack::tree::Zset;
use darter_store::change::Class;
use darter_store::{Edited, Event, SetValue, Type};
use darter_wire::{Args, Reply};

use super::expire::{Clock, NO_FIELD};
use super::{Edit, HEXPIRE_EVENT, find};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault, zset};

/// FIELDEXPIRE.
pub const FIELDEXPIRE: DataCommand = DataCommand {
    spec: Spec::write("fieldexpire", -4, Keys::ONE)
        .fast()
        .doc(
            Group::Hash,
            "dragonfly-1.24",
            "key seconds field [field ...]",
            "Sets how many seconds from now fields of a hash or members of a set or sorted set expire.",
        )
        .cost("O(N)"),
    run: fieldexpire,
};
/// FIELDTTL.
pub const FIELDTTL: DataCommand = DataCommand {
    spec: Spec::read("fieldttl", 3, Keys::ONE).fast().doc(
        Group::Hash,
        "dragonfly-1.24",
        "key field",
        "Returns the seconds that a field of a hash or a member of a set or sorted set has left to live.",
    ),
    run: fieldttl,
};

fn fieldexpire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    if reader::int(args.at(2))? < 1 {
        return Err(Fault::NotInteger);
    }
    let when_ms = Clock::Seconds.unix_ms(args.at(2), now_ms, "fieldexpire")?;
    let members = args.tail(3);
    let mut place = zset::at(ctx, args.at(1));
    let kind = place.kind();
    reply.array(members.len());
    let mut found = 0;
    let mut show = |is_found: bool| {
        reply.int(if is_found { 1 } else { NO_FIELD });
        found += usize::from(is_found);
    };
    let done: Option<Edited<Result<(), Fault>>> = match kind {
        None => {
            members.iter().for_each(|_| show(false));
            None
        }
        Some(Type::Set) => place.edit(|set: &mut SetValue, arena, hasher| {
            members.iter().try_for_each(|member| {
                let member = Item::of(member);
                let is_there = set.contains(arena, hasher, member, now_ms);
                if is_there {
                    set.insert(arena, hasher, member, FieldExpiry::At(when_ms))?;
                }
                show(is_there);
                Ok(())
            })
        })?,
        Some(Type::Zset) => place.edit(|zset: &mut Zset, arena, hasher| {
            for member in members.iter() {
                show(zset.set_expiry(arena, &hasher, Item::of(member), Some(when_ms)));
            }
            Ok(())
        })?,
        Some(_) => place.edit(|table: &mut Table, arena, hasher| {
            let mut edit = Edit { table, arena, hasher, now_ms };
            members.iter().try_for_each(|field| {
                let is_there = edit.get(field).is_some();
                if is_there {
                    edit.set_expiry(field, Some(when_ms))?;
                }
                show(is_there);
                Ok(())
            })
        })?,
    };
    done.map_or(Ok(()), |edited| edited.result)?;
    if found > 0 {
        place.changed(match kind {
            Some(Type::Set) => SEXPIRE_EVENT,
            Some(Type::Zset) => ZEXPIRE_EVENT,
            _ => HEXPIRE_EVENT,
        });
    }
    Ok(())
}

fn fieldttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = zset::read(ctx, args.at(1));
    let member = Item::of(args.at(2));
    let found = match place.kind() {
        None => {
            reply.int(NO_KEY);
            return Ok(());
        }
        Some(Type::Set) => place
            .view::<SetValue>()?
            .and_then(|set| set.root.get(set.arena, set.hasher, member, now_ms).map(|found| found.expiry_ms)),
        Some(Type::Zset) => place.view::<Zset>()?.and_then(|zset| {
            zset.root.score(zset.arena, &zset.hasher, member).map(|_| zset.root.expiry(member))
        }),
        Some(_) => place
            .view::<Table>()?
            .and_then(|hash| find(hash, args.at(2), now_ms).map(|entry| entry.expiry_ms())),
    };
    reply.int(match found {
        None => NO_MEMBER,
        Some(None) => NO_TIME,
        Some(Some(ms)) => ms.saturating_sub(now_ms).div_ceil(1000) as i64,
    });
    Ok(())
}

const SEXPIRE_EVENT: Event = Event::new(Class::SET, "sexpire");
const ZEXPIRE_EVENT: Event = zset::event("zexpire");
const NO_TIME: i64 = -1;
const NO_KEY: i64 = -2;
const NO_MEMBER: i64 = -3;
