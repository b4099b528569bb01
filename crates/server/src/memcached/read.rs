//! `get`, `gets`, `gat`, `gats`, `touch`, `delete` and `me` on one key whose shard is held.

use darter_store::{Event, Key, Keyed, Shard, Text};
use darter_wire::memcache::{write_key, write_value_line};

use super::detail::DetailOperation;
use super::life::Life;
use super::run::ExecutionContext;
use super::{Counter, DB, NO_ROOM};

/// Finds a key for a command that reads it, and counts; that is no use of it yet.
pub(super) fn glance<'k>(context: &ExecutionContext, shard: &'k mut Shard, key: Key<'k>) -> Keyed<'k> {
    let expired = shard.counters.expired;
    let place = Keyed::untouched(shard, DB, key, context.now_ms);
    count(context, place, expired)
}

/// Finds a key for a command that uses it, and counts.
fn find<'k>(context: &ExecutionContext, shard: &'k mut Shard, key: Key<'k>) -> Keyed<'k> {
    let expired = shard.counters.expired;
    let place = Keyed::read(shard, DB, key, context.now_ms);
    count(context, place, expired)
}

/// Counts a lookup; `expired` keys of the shard had expired before it.
fn count<'k>(context: &ExecutionContext, place: Keyed<'k>, expired: u64) -> Keyed<'k> {
    context.counts.add(Counter::Get);
    if place.exists() {
        context.counts.add(Counter::GetHit);
    } else {
        context.counts.add(Counter::GetMiss);
        if place.expired_count() != expired {
            context.counts.add(Counter::GetExpired);
        }
    }
    place
}

/// Answers the value of a key, and gives it a new time to live if one comes with the command; a miss is silent.
pub(super) fn get(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    with_cas: bool,
    life: Option<Life>,
    out: &mut Vec<u8>,
) {
    if !with_cas && life.is_none() && get_plain(context, shard, key, out) {
        return context.note(key, DetailOperation::Hit);
    }
    let mut place = find(context, shard, key);
    context.note(key, if place.exists() { DetailOperation::Hit } else { DetailOperation::Miss });
    if life.is_some() {
        context.counts.add(Counter::Touch);
        context.counts.add(if place.exists() { Counter::TouchHit } else { Counter::TouchMiss });
    }
    if !matches!(place.text(), Ok(Some(_))) {
        return;
    }
    let Ok(cas) = (if with_cas { place.cas() } else { Ok(None) }) else {
        return out.extend_from_slice(NO_ROOM);
    };
    if let (Ok(Some(text)), Some(record)) = (place.text(), place.record()) {
        let flags = record.extras().map_or(0, |extras| extras.flags);
        write_value_line(out, key.bytes, flags, cas, text.len());
        write_text(out, text);
    }
    place.note_access(context.now_s());
    if let Some(life) = life {
        // the value is told all the same
        let _ = life.give(&mut place);
    }
}

/// Answers a value that lies in its record as it is sent; returns whether it did. If not, nothing is counted.
#[inline]
fn get_plain(context: &ExecutionContext, shard: &mut Shard, key: Key<'_>, out: &mut Vec<u8>) -> bool {
    let is_done = shard.read_item(DB, key, context.now_ms, |flags, value| {
        write_value_line(out, key.bytes, flags, None, value.len());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    });
    if is_done {
        context.counts.add(Counter::Get);
        context.counts.add(Counter::GetHit);
    }
    is_done
}

/// Appends a value and its line end.
pub(super) fn write_text(out: &mut Vec<u8>, text: Text<'_>) {
    text.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// `touch`.
pub(super) fn touch(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    life: Life,
    out: &mut Vec<u8>,
) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    context.counts.add(Counter::Touch);
    if !place.exists() {
        context.counts.add(Counter::TouchMiss);
        return out.extend_from_slice(b"NOT_FOUND\r\n");
    }
    context.counts.add(Counter::TouchHit);
    place.note_access(context.now_s());
    match life.give(&mut place) {
        Ok(()) => out.extend_from_slice(b"TOUCHED\r\n"),
        Err(_) => out.extend_from_slice(NO_ROOM),
    }
}

/// Deletes a key that is there, and counts; returns whether it was.
pub(super) fn remove(context: &ExecutionContext, place: &mut Keyed<'_>) -> bool {
    let was_there = place.remove();
    if was_there {
        place.changed(Event::DEL);
    }
    context.counts.add(if was_there { Counter::DeleteHit } else { Counter::DeleteMiss });
    was_there
}

/// `delete`.
pub(super) fn delete(context: &ExecutionContext, shard: &mut Shard, key: Key<'_>, out: &mut Vec<u8>) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    let done = remove(context, &mut place);
    out.extend_from_slice(if done { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
}

/// `me`: what is known of a key, as memcached tells it; there is one class of items, number 1.
pub(super) fn debug(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    base64: bool,
    out: &mut Vec<u8>,
) {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    let Ok(cas) = place.cas() else { return out.extend_from_slice(NO_ROOM) };
    let (Some(cas), Some(bytes)) = (cas, place.memory_bytes()) else {
        return out.extend_from_slice(b"EN\r\n");
    };
    let extras = place.extras().unwrap_or_default();
    let since_expiry = match Life::of_key(&place) {
        Life::Endless => -1,
        life => -life.seconds_left(context.now_ms),
    };
    let idle_s = extras.access_s.map_or(0, |at| context.now_s().saturating_sub(at));
    let was_fetched = if extras.marks.has(darter_store::RecordMarks::FETCHED) { "yes" } else { "no" };
    out.extend_from_slice(b"ME ");
    write_key(out, key.bytes, base64);
    let line =
        format!(" exp={since_expiry} la={idle_s} cas={cas} fetch={was_fetched} cls=1 size={bytes}\r\n");
    out.extend_from_slice(line.as_bytes());
}
