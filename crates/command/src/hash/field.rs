//! FIELDEXPIRE key seconds field [field ...] and FIELDTTL key field: Dragonfly's, for hashes and sets.

use darter_pack::entry::Item;
use darter_pack::table::Table;
use darter_store::{Event, SetValue, Type};
use darter_wire::{Args, Reply};

use super::expire::{Clock, NO_FIELD};
use super::{Edit, HEXPIRE_EVENT, at, find, read};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// FIELDEXPIRE.
pub const FIELDEXPIRE: DataCommand = DataCommand {
    spec: Spec::write("fieldexpire", -4, Keys::ONE)
        .fast()
        .doc(
            Group::Hash,
            "dragonfly-1.24",
            "key seconds field [field ...]",
            "Sets how many seconds from now fields of a hash or members of a set expire.",
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
        "Returns the seconds that a field of a hash or a member of a set has left to live.",
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
    let mut place = at(ctx, args.at(1));
    let kind = place.kind();
    reply.array(members.len());
    let mut found = 0;
    let mut show = |is_found: bool| {
        reply.int(if is_found { 1 } else { NO_FIELD });
        found += usize::from(is_found);
    };
    if kind == Some(Type::Set) {
        let edited = place.edit(|set: &mut SetValue, arena, hasher| {
            for member in members.iter() {
                let is_there = set.contains(arena, hasher, Item::of(member), now_ms);
                if is_there {
                    let expiry = darter_pack::table::Expiry::At(when_ms);
                    set.insert(arena, hasher, Item::of(member), expiry)?;
                }
                show(is_there);
            }
            Ok::<(), Fault>(())
        })?;
        edited.map_or(Ok(()), |edited| edited.result)?;
    } else {
        let edited = place.edit(|table: &mut Table, arena, hasher| {
            let mut edit = Edit { table, arena, hasher, now_ms };
            for field in members.iter() {
                let is_there = edit.get(field).is_some();
                if is_there {
                    edit.set_expiry(field, Some(when_ms))?;
                }
                show(is_there);
            }
            Ok::<(), Fault>(())
        })?;
        match edited {
            Some(edited) => edited.result?,
            None => members.iter().for_each(|_| show(false)),
        }
    }
    if found > 0 {
        place.changed(if kind == Some(Type::Set) { SEXPIRE_EVENT } else { HEXPIRE_EVENT });
    }
    Ok(())
}

fn fieldttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = match place.kind() {
        None => {
            reply.int(NO_KEY);
            return Ok(());
        }
        Some(Type::Set) => place.view::<SetValue>()?.and_then(|set| {
            set.root.get(set.arena, set.hasher, Item::of(args.at(2)), now_ms).map(|found| found.expiry_ms)
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

const SEXPIRE_EVENT: Event = Event::new(darter_store::change::Class::SET, "sexpire");
const NO_TIME: i64 = -1;
const NO_KEY: i64 = -2;
const NO_MEMBER: i64 = -3;
