//! Storing a value under one key whose shard is held: what `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`
//! have in common.

use darter_store::shard::Full;
use darter_store::{Event, Expiry, Extras, Key, Keyed, Marks, Shard};

use super::life::Life;
use super::run::ExecutionContext;
use super::{APPEND_EVENT, Counter, DB, NO_ROOM, PREPEND_EVENT, SET_EVENT};

/// Where the value goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Over whatever is there.
    Set,
    /// Where nothing is.
    Add,
    /// Over what is there.
    Replace,
    /// Behind what is there.
    Append,
    /// In front of what is there.
    Prepend,
    /// Over what is there, if it still has the token in `Wanted::cas`.
    Cas,
}

/// A value to be stored, and under which conditions.
pub(super) struct Wanted<'a> {
    pub way: Way,
    pub value: &'a [u8],
    pub flags: u32,
    pub life: Life,
    /// The token that what is there must have; 0 is none.
    pub cas: u64,
    /// The token that the value gets.
    pub new_cas: Option<u64>,
    /// With an older token the value is stored all the same, marked as stale.
    pub takes_stale: bool,
    /// Appending and prepending store where nothing is, with this time to live.
    pub vivify: Option<Life>,
}

impl<'a> Wanted<'a> {
    /// What a classic command without a token wants.
    #[inline]
    pub fn of(way: Way, value: &'a [u8], flags: u32, life: Life) -> Wanted<'a> {
        Wanted { way, value, flags, life, cas: 0, new_cas: None, takes_stale: false, vivify: None }
    }
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Stored,
    NotStored,
    /// Another token is there.
    Exists,
    /// Nothing is there that could have the token.
    NotFound,
    NoRoom,
}

impl From<Full> for Outcome {
    fn from(_: Full) -> Outcome {
        Outcome::NoRoom
    }
}

/// `set` and the like, answered with words.
pub(super) fn classic(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    wanted: &Wanted<'_>,
    out: &mut Vec<u8>,
) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    out.extend_from_slice(match put(context, &mut place, wanted) {
        Outcome::Stored => b"STORED\r\n",
        Outcome::NotStored => b"NOT_STORED\r\n",
        Outcome::Exists => b"EXISTS\r\n",
        Outcome::NotFound => b"NOT_FOUND\r\n",
        Outcome::NoRoom => NO_ROOM,
    });
}

/// Stores a value if its conditions hold, and counts.
pub(super) fn put(context: &ExecutionContext, place: &mut Keyed<'_>, wanted: &Wanted<'_>) -> Outcome {
    context.counts.add(Counter::Set);
    let outcome = if place.exists() {
        over(context, place, wanted).unwrap_or_else(Outcome::from)
    } else {
        fresh(context, place, wanted).unwrap_or_else(Outcome::from)
    };
    match outcome {
        Outcome::Stored => context.counts.add(Counter::Stored),
        Outcome::NoRoom => context.counts.add(Counter::NoRoom),
        _ => {}
    }
    outcome
}

/// Where nothing is.
fn fresh(context: &ExecutionContext, place: &mut Keyed<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Full> {
    let life = match (wanted.way, wanted.vivify) {
        (Way::Set | Way::Add, _) => wanted.life,
        (Way::Append | Way::Prepend, Some(life)) => life,
        (Way::Cas, _) => {
            context.counts.add(Counter::CasMiss);
            return Ok(Outcome::NotFound);
        }
        _ => return Ok(Outcome::NotStored),
    };
    write(context, place, wanted, life, Marks::default())?;
    Ok(Outcome::Stored)
}

/// Where something is.
fn over(context: &ExecutionContext, place: &mut Keyed<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Full> {
    // No client knows the token of a key that has none, so it is given one only to be compared with.
    let token = if wanted.cas == 0 { None } else { place.cas()? };
    let is_match = token == Some(wanted.cas);
    match wanted.way {
        Way::Add => Ok(Outcome::NotStored),
        Way::Set | Way::Replace => {
            write(context, place, wanted, wanted.life, Marks::default())?;
            Ok(Outcome::Stored)
        }
        Way::Cas if is_match => {
            context.counts.add(Counter::CasHit);
            write(context, place, wanted, wanted.life, Marks::default())?;
            Ok(Outcome::Stored)
        }
        Way::Cas if wanted.takes_stale && token.is_some_and(|token| wanted.cas < token) => {
            context.counts.add(Counter::CasHit);
            let mut marks = Marks::STALE;
            marks.set(Marks::WON, place.extras().is_some_and(|extras| extras.marks.has(Marks::WON)));
            let life = Life::of_key(place);
            write(context, place, wanted, life, marks)?;
            Ok(Outcome::Stored)
        }
        Way::Cas => {
            context.counts.add(Counter::CasBad);
            Ok(Outcome::Exists)
        }
        Way::Append | Way::Prepend if wanted.cas != 0 && !is_match => Ok(Outcome::Exists),
        Way::Append | Way::Prepend => join(context, place, wanted),
    }
}

/// Writes the value; one whose life is over leaves nothing.
fn write(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &Wanted<'_>,
    life: Life,
    marks: Marks,
) -> Result<(), Full> {
    let Some(expiry) = life.expiry() else {
        if place.remove() {
            place.changed(Event::DEL);
        }
        return Ok(());
    };
    // A key whose token is asked for is likely to be asked again: its record keeps the room.
    let keeps_cas = place.record().is_some_and(|record| record.extras().is_some_and(|old| old.cas.is_some()));
    let cas = wanted.new_cas.or_else(|| keeps_cas.then(|| place.next_cas()));
    let extras = Extras { flags: wanted.flags, cas, access_s: Some(context.now_s()), marks, frequency: None };
    place.put_item(wanted.value, expiry, extras)?;
    place.changed(SET_EVENT);
    if matches!(expiry, Expiry::At(_)) {
        place.changed(super::EXPIRE_EVENT);
    }
    Ok(())
}

/// Adds to the string that is there; its flags and its time to live stay.
fn join(context: &ExecutionContext, place: &mut Keyed<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Full> {
    let Ok(Some(old_len)) = place.text().map(|text| text.map(|text| text.len())) else {
        return Ok(Outcome::NotStored);
    };
    let more = wanted.value;
    let old = place.extras().unwrap_or_default();
    let len = match old_len.checked_add(more.len()) {
        Some(len) if context.limits.allow(place.name(), old.flags, len) => len,
        _ => return Ok(Outcome::NotStored),
    };
    let value = place.edit_text(len)?;
    if wanted.way == Way::Prepend {
        value.copy_within(..old_len, more.len());
        value[..more.len()].copy_from_slice(more);
    } else {
        value[old_len..].copy_from_slice(more);
    }
    let cas = wanted.new_cas.or_else(|| old.cas.is_some().then(|| place.next_cas()));
    let extras = Extras { flags: old.flags, cas, access_s: Some(context.now_s()), ..Extras::default() };
    place.set_extras(extras)?;
    place.changed(if wanted.way == Way::Prepend { PREPEND_EVENT } else { APPEND_EVENT });
    Ok(Outcome::Stored)
}
