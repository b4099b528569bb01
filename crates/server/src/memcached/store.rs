//! Storing a value under one key whose shard is held: what `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`
//! have in common.

use darter_store::error::ShardFull;
use darter_store::{Event, Expiry, Extras, Key, Keyed, RecordMarks, Shard};

use super::life::Life;
use super::run::ExecutionContext;
use super::{APPEND_EVENT, Counter, DB, NO_ROOM, PREPEND_EVENT, SET_EVENT};

/// Where the value goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoreMode {
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
    /// Over what is there, if it still has the token in `StoreWanted::cas`.
    Cas,
}

/// A value to be stored, and under which conditions.
pub(super) struct StoreWanted<'a> {
    pub way: StoreMode,
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

impl<'a> StoreWanted<'a> {
    /// What a classic command without a token wants.
    #[inline]
    pub fn of(way: StoreMode, value: &'a [u8], flags: u32, life: Life) -> StoreWanted<'a> {
        StoreWanted { way, value, flags, life, cas: 0, new_cas: None, takes_stale: false, vivify: None }
    }
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoreOutcome {
    Stored,
    NotStored,
    /// Another token is there.
    Exists,
    /// Nothing is there that could have the token.
    NotFound,
    NoRoom,
}

impl From<ShardFull> for StoreOutcome {
    fn from(_: ShardFull) -> StoreOutcome {
        StoreOutcome::NoRoom
    }
}

/// `set` and the like, answered with words.
pub(super) fn classic(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    wanted: &StoreWanted<'_>,
    out: &mut Vec<u8>,
) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    out.extend_from_slice(match put(context, &mut place, wanted) {
        StoreOutcome::Stored => b"STORED\r\n",
        StoreOutcome::NotStored => b"NOT_STORED\r\n",
        StoreOutcome::Exists => b"EXISTS\r\n",
        StoreOutcome::NotFound => b"NOT_FOUND\r\n",
        StoreOutcome::NoRoom => NO_ROOM,
    });
}

/// Stores a value if its conditions hold, and counts.
pub(super) fn put(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &StoreWanted<'_>,
) -> StoreOutcome {
    context.counts.add(Counter::Set);
    let outcome = if place.exists() {
        over(context, place, wanted).unwrap_or_else(StoreOutcome::from)
    } else {
        fresh(context, place, wanted).unwrap_or_else(StoreOutcome::from)
    };
    match outcome {
        StoreOutcome::Stored => context.counts.add(Counter::Stored),
        StoreOutcome::NoRoom => context.counts.add(Counter::NoRoom),
        _ => {}
    }
    outcome
}

/// Where nothing is.
fn fresh(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &StoreWanted<'_>,
) -> Result<StoreOutcome, ShardFull> {
    let life = match (wanted.way, wanted.vivify) {
        (StoreMode::Set | StoreMode::Add, _) => wanted.life,
        (StoreMode::Append | StoreMode::Prepend, Some(life)) => life,
        (StoreMode::Cas, _) => {
            context.counts.add(Counter::CasMiss);
            return Ok(StoreOutcome::NotFound);
        }
        _ => return Ok(StoreOutcome::NotStored),
    };
    write(context, place, wanted, life, RecordMarks::default())?;
    Ok(StoreOutcome::Stored)
}

/// Where something is.
fn over(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &StoreWanted<'_>,
) -> Result<StoreOutcome, ShardFull> {
    // No client knows the token of a key that has none, so it is given one only to be compared with.
    let token = if wanted.cas == 0 { None } else { place.cas()? };
    let is_match = token == Some(wanted.cas);
    match wanted.way {
        StoreMode::Add => Ok(StoreOutcome::NotStored),
        StoreMode::Set | StoreMode::Replace => {
            write(context, place, wanted, wanted.life, RecordMarks::default())?;
            Ok(StoreOutcome::Stored)
        }
        StoreMode::Cas if is_match => {
            context.counts.add(Counter::CasHit);
            write(context, place, wanted, wanted.life, RecordMarks::default())?;
            Ok(StoreOutcome::Stored)
        }
        StoreMode::Cas if wanted.takes_stale && token.is_some_and(|token| wanted.cas < token) => {
            context.counts.add(Counter::CasHit);
            let mut marks = RecordMarks::STALE;
            marks.set(
                RecordMarks::WON,
                place.extras().is_some_and(|extras| extras.marks.has(RecordMarks::WON)),
            );
            let life = Life::of_key(place);
            write(context, place, wanted, life, marks)?;
            Ok(StoreOutcome::Stored)
        }
        StoreMode::Cas => {
            context.counts.add(Counter::CasBad);
            Ok(StoreOutcome::Exists)
        }
        StoreMode::Append | StoreMode::Prepend if wanted.cas != 0 && !is_match => Ok(StoreOutcome::Exists),
        StoreMode::Append | StoreMode::Prepend => join(context, place, wanted),
    }
}

/// Writes the value; one whose life is over leaves nothing.
fn write(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &StoreWanted<'_>,
    life: Life,
    marks: RecordMarks,
) -> Result<(), ShardFull> {
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
fn join(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    wanted: &StoreWanted<'_>,
) -> Result<StoreOutcome, ShardFull> {
    let Ok(Some(old_len)) = place.text().map(|text| text.map(|text| text.len())) else {
        return Ok(StoreOutcome::NotStored);
    };
    let more = wanted.value;
    let old = place.extras().unwrap_or_default();
    let len = match old_len.checked_add(more.len()) {
        Some(len) if context.limits.allow(place.name(), old.flags, len) => len,
        _ => return Ok(StoreOutcome::NotStored),
    };
    let value = place.edit_text(len)?;
    if wanted.way == StoreMode::Prepend {
        value.copy_within(..old_len, more.len());
        value[..more.len()].copy_from_slice(more);
    } else {
        value[old_len..].copy_from_slice(more);
    }
    let cas = wanted.new_cas.or_else(|| old.cas.is_some().then(|| place.next_cas()));
    let extras = Extras { flags: old.flags, cas, access_s: Some(context.now_s()), ..Extras::default() };
    place.set_extras(extras)?;
    place.changed(if wanted.way == StoreMode::Prepend { PREPEND_EVENT } else { APPEND_EVENT });
    Ok(StoreOutcome::Stored)
}
