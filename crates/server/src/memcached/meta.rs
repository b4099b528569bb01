//! `mg`, `ms`, `md` and `ma` on one key whose shard is held.
//!
//! Flags take effect in the order they are sent, as in memcached: `t` before `T` tells the old time to live, after it
//! the new one.

use darter_base::number;
use darter_store::error::ShardFull;
use darter_store::{Expiry, Extras, Key, Keyed, RecordMarks, Shard};
use darter_wire::memcache::{MemcacheError, MetaMode, MetaRequest, MetaVerb, write_key};

use super::count::{self, CountStep, CountedVerb};
use super::life::Life;
use super::read::{self, write_text};
use super::run::ExecutionContext;
use super::store::{self, StoreMode, StoreOutcome, StoreWanted};
use super::{Counter, DB, NO_ROOM, SET_EVENT};

/// Runs a meta command and answers it.
pub(super) fn run(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    meta: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) {
    context.counts.add(Counter::Meta);
    let mark = out.len();
    let done = match meta.verb {
        MetaVerb::Get => get(context, shard, key, meta, out),
        MetaVerb::Set => set(context, shard, key, meta, out),
        MetaVerb::Delete => delete(context, shard, key, meta, out),
        MetaVerb::Count => add(context, shard, key, meta, out),
    };
    match done {
        Ok(MetaAnswer::Nominal) if meta.has(b'q') => out.truncate(mark),
        Ok(_) => {}
        Err(ShardFull) => {
            out.truncate(mark);
            out.extend_from_slice(NO_ROOM);
        }
    }
}

/// What an answer says.
enum MetaAnswer {
    /// What was expected, which `q` keeps silent.
    Nominal,
    /// Anything else.
    Other,
}

fn get(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    meta: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<MetaAnswer, ShardFull> {
    // What the flags tell is how it was before this read, and `u` leaves it so.
    let mut place = read::glance(context, shard, key);
    if meta.ttl.is_some() {
        context.counts.add(Counter::Touch);
        context.counts.add(if place.exists() { Counter::TouchHit } else { Counter::TouchMiss });
    }
    let is_made = !place.exists() && meta.vivify.is_some();
    if is_made {
        make(context, &mut place, b"", meta.new_cas)?;
    }
    let Ok(Some(len)) = place.text().map(|text| text.map(|text| text.len())) else {
        out.extend_from_slice(b"EN");
        echo(meta, key, out);
        return Ok(MetaAnswer::Nominal);
    };
    let cas = if meta.has(b'c') || meta.has(b'C') { place.cas()? } else { None };
    let shows_value = meta.has(b'v') && (meta.cas.is_none() || cas != meta.cas);
    if shows_value {
        out.extend_from_slice(b"VA ");
        number::write_u64(out, len as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    let extras = place.extras();
    let before = Life::of_key(&place);
    let mut view = ItemView {
        context,
        key,
        len,
        cas,
        extras: extras.unwrap_or_default(),
        life: before,
        is_made,
        won: false,
    };
    for (letter, token) in meta.flags() {
        view.apply(meta, letter, token, out);
    }
    let (life, won) = (view.life, view.close(out));
    if shows_value && let Ok(Some(text)) = place.text() {
        write_text(out, text);
    }
    if won {
        place.mark(RecordMarks::WON, true)?;
    }
    if !meta.has(b'u') {
        if extras.is_none() && (meta.has(b'h') || meta.has(b'l')) {
            // Set by another protocol: from now on its reads are noted.
            let extras = place.extras().unwrap_or_default();
            place.set_extras(Extras { access_s: Some(context.now_s()), ..extras })?;
        }
        // An item that this very command has made was not there to be looked at.
        if !is_made {
            place.use_glanced();
        }
        place.note_access(context.now_s());
    }
    if life != before {
        life.give(&mut place)?;
    }
    // `q` hides misses only
    Ok(MetaAnswer::Other)
}

/// An item while the flags of `mg` go over it.
struct ItemView<'a> {
    context: &'a ExecutionContext,
    key: Key<'a>,
    len: usize,
    cas: Option<u64>,
    extras: Extras,
    life: Life,
    is_made: bool,
    won: bool,
}

impl ItemView<'_> {
    fn apply(&mut self, meta: &MetaRequest<'_>, letter: u8, token: &[u8], out: &mut Vec<u8>) {
        let now_ms = self.context.now_ms;
        match letter {
            b'T' => self.life = meta.ttl.map_or(self.life, |seconds| Life::of(seconds, now_ms)),
            b'N' if self.is_made => {
                self.life = meta.vivify.map_or(self.life, |seconds| Life::of(seconds, now_ms));
                self.won = true;
            }
            b'R' => self.won |= self.is_due(meta),
            b's' => write_number(out, letter, self.len as u64),
            b't' => {
                out.extend_from_slice(b" t");
                number::write_i64(out, self.life.seconds_left(now_ms));
            }
            b'c' => write_number(out, letter, self.cas.unwrap_or(0)),
            b'f' => write_number(out, letter, u64::from(self.extras.flags)),
            b'l' => {
                let now_s = self.context.now_s();
                let idle_s = now_s.saturating_sub(self.extras.access_s.unwrap_or(now_s));
                write_number(out, letter, u64::from(idle_s));
            }
            b'h' => write_number(out, letter, u64::from(self.extras.marks.has(RecordMarks::FETCHED))),
            _ => echo_one(meta, self.key, letter, token, out),
        }
    }

    /// Whether less time is left than `R` asks for, and nobody else was told to fetch the item anew.
    fn is_due(&self, meta: &MetaRequest<'_>) -> bool {
        let now_ms = self.context.now_ms;
        let wanted = meta.recache.map_or(0, |seconds| Life::of(seconds, now_ms).seconds_left(now_ms));
        let left = self.life.seconds_left(now_ms);
        !self.is_made && !self.extras.marks.has(RecordMarks::WON) && left >= 0 && left < wanted
    }

    /// Ends the line with what clients are told unasked; returns whether this one is to fetch the item anew.
    fn close(&self, out: &mut Vec<u8>) -> bool {
        let is_taken = self.extras.marks.has(RecordMarks::WON);
        let is_stale = self.extras.marks.has(RecordMarks::STALE);
        let won = self.won || is_stale && !is_taken;
        for (letter, is_told) in [(b'Z', is_taken), (b'X', is_stale), (b'W', won)] {
            if is_told {
                out.extend_from_slice(&[b' ', letter]);
            }
        }
        out.extend_from_slice(b"\r\n");
        won
    }
}

/// Puts a value where nothing is, for ever.
fn make(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    value: &[u8],
    cas: Option<u64>,
) -> Result<(), ShardFull> {
    let extras = Extras { cas, access_s: Some(context.now_s()), ..Extras::default() };
    place.put_item(value, Expiry::None, extras)?;
    place.changed(SET_EVENT);
    Ok(())
}

fn set(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    meta: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<MetaAnswer, ShardFull> {
    let way = match meta.mode {
        MetaMode::Add => StoreMode::Add,
        MetaMode::Append => StoreMode::Append,
        MetaMode::Prepend => StoreMode::Prepend,
        _ if meta.cas.is_some() => StoreMode::Cas,
        MetaMode::Replace => StoreMode::Replace,
        _ => StoreMode::Set,
    };
    let life = |seconds: i64| Life::of(seconds, context.now_ms);
    let wanted = StoreWanted {
        way,
        value: meta.value,
        flags: meta.client_flags.unwrap_or(0),
        life: life(meta.ttl.unwrap_or(0)),
        cas: meta.cas.unwrap_or(0),
        new_cas: meta.new_cas,
        takes_stale: meta.has(b'I'),
        vivify: meta.vivify.map(life),
    };
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    let outcome = store::put(context, &mut place, &wanted);
    out.extend_from_slice(match outcome {
        StoreOutcome::Stored => b"HD",
        StoreOutcome::NotStored => b"NS",
        StoreOutcome::Exists => b"EX",
        StoreOutcome::NotFound => b"NF",
        StoreOutcome::NoRoom => return Err(ShardFull),
    });
    let is_stored = outcome == StoreOutcome::Stored;
    for (letter, token) in meta.flags() {
        match letter {
            b'c' => {
                write_number(out, letter, if is_stored { token_of(&mut place, meta)? } else { 0 });
            }
            b's' => {
                let len =
                    place.text().ok().flatten().filter(|_| is_stored).map_or(meta.value.len(), |t| t.len());
                write_number(out, letter, len as u64);
            }
            _ => echo_one(meta, key, letter, token, out),
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(if is_stored { MetaAnswer::Nominal } else { MetaAnswer::Other })
}

/// The token of what was stored; one that had expired when it came had a token too.
fn token_of(place: &mut Keyed<'_>, meta: &MetaRequest<'_>) -> Result<u64, ShardFull> {
    let token = place.cas()?.or(meta.new_cas);
    Ok(token.unwrap_or_else(|| place.next_cas()))
}

fn delete(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    meta: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<MetaAnswer, ShardFull> {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    let (code, answer) = if !place.exists() {
        context.counts.add(Counter::DeleteMiss);
        (b"NF", MetaAnswer::Other)
    } else if meta.cas.is_some() && place.cas()? != meta.cas {
        context.counts.add(Counter::DeleteMiss);
        (b"EX", MetaAnswer::Other)
    } else {
        remove(context, &mut place, meta)?;
        (b"HD", MetaAnswer::Nominal)
    };
    out.extend_from_slice(code);
    echo(meta, key, out);
    Ok(answer)
}

/// Deletes the key that is there, or takes its value only, or marks it as stale.
fn remove(
    context: &ExecutionContext,
    place: &mut Keyed<'_>,
    meta: &MetaRequest<'_>,
) -> Result<(), ShardFull> {
    let life = meta.ttl.map(|seconds| Life::of(seconds, context.now_ms));
    if meta.has(b'x') {
        let cas = meta.new_cas.or(place.extras().and_then(|extras| extras.cas));
        let flags = meta.client_flags.unwrap_or(0);
        let extras = Extras { flags, cas, access_s: Some(context.now_s()), ..Extras::default() };
        place.put_item(b"", Expiry::None, extras)?;
        place.changed(SET_EVENT);
    }
    if meta.has(b'I') {
        let old = place.extras().unwrap_or_default();
        let cas = meta.new_cas.or_else(|| old.cas.map(|_| place.next_cas()));
        let mut marks = old.marks;
        marks.set(RecordMarks::STALE, true);
        marks.set(RecordMarks::WON, false);
        place.set_extras(Extras { cas, marks, ..old })?;
        place.changed(SET_EVENT);
    } else if !meta.has(b'x') {
        read::remove(context, place);
        return Ok(());
    }
    match life {
        Some(life) => life.give(place),
        None => Ok(()),
    }
}

fn add(
    context: &ExecutionContext,
    shard: &mut Shard,
    key: Key<'_>,
    meta: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<MetaAnswer, ShardFull> {
    let mut place = Keyed::find(shard, DB, key, context.now_ms);
    let step = CountStep { delta: meta.delta, decrement: meta.mode == MetaMode::Decrement };
    let (value, is_made) = match count::add(context, &mut place, step, meta.cas.unwrap_or(0), meta.new_cas) {
        CountedVerb::To(value) => (value, false),
        CountedVerb::Missing if meta.vivify.is_some() => {
            make(context, &mut place, meta.initial.to_string().as_bytes(), meta.new_cas)?;
            (meta.initial, true)
        }
        CountedVerb::NonNumeric => {
            context.error(MemcacheError::NonNumeric, out);
            return Ok(MetaAnswer::Other);
        }
        CountedVerb::NoRoom => return Err(ShardFull),
        failed @ (CountedVerb::Missing | CountedVerb::Exists) => {
            out.extend_from_slice(if matches!(failed, CountedVerb::Missing) { b"NF" } else { b"EX" });
            echo(meta, key, out);
            return Ok(MetaAnswer::Other);
        }
    };
    let digits = value.to_string();
    if meta.has(b'v') {
        out.extend_from_slice(b"VA ");
        number::write_u64(out, digits.len() as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    let before = Life::of_key(&place);
    let mut life = before;
    for (letter, token) in meta.flags() {
        match letter {
            b'c' => write_number(out, letter, place.cas()?.unwrap_or(0)),
            b't' => {
                out.extend_from_slice(b" t");
                number::write_i64(out, life.seconds_left(context.now_ms));
            }
            b'T' => life = meta.ttl.map_or(life, |seconds| Life::of(seconds, context.now_ms)),
            b'N' if is_made => life = meta.vivify.map_or(life, |seconds| Life::of(seconds, context.now_ms)),
            _ => echo_one(meta, key, letter, token, out),
        }
    }
    out.extend_from_slice(b"\r\n");
    if meta.has(b'v') {
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if life != before {
        life.give(&mut place)?;
    }
    Ok(MetaAnswer::Nominal)
}

/// Ends a line with the flags that come back as they were sent.
fn echo(meta: &MetaRequest<'_>, key: Key<'_>, out: &mut Vec<u8>) {
    meta.flags().for_each(|(letter, token)| echo_one(meta, key, letter, token, out));
    out.extend_from_slice(b"\r\n");
}

fn echo_one(meta: &MetaRequest<'_>, key: Key<'_>, letter: u8, token: &[u8], out: &mut Vec<u8>) {
    match letter {
        b'O' => {
            out.extend_from_slice(b" O");
            out.extend_from_slice(token);
        }
        b'k' => {
            out.extend_from_slice(b" k");
            write_key(out, key.bytes, meta.has(b'b'));
            if meta.has(b'b') {
                out.extend_from_slice(b" b");
            }
        }
        _ => {}
    }
}

fn write_number(out: &mut Vec<u8>, letter: u8, value: u64) {
    out.extend_from_slice(&[b' ', letter]);
    number::write_u64(out, value);
}
