//! What of a command is written down: itself, or its effect where it depends on chance or on how values lie in memory.
//!
//! Called by the executor with the shards of the command still held.

use darter_command::spec::Effect;
use darter_persist::entry;
use darter_persist::journal::part;
use darter_store::Shard;
use darter_store::change::Loss;
use darter_store::stream_value::Stream;
use darter_txn::ShardSet;
use darter_wire::value::{self, DecodeLimits, Value};
use darter_wire::{Args, OwnedArgs};

use crate::core::Core;
use crate::exec;
use crate::job::Shards;
use crate::journal::plainly;
use crate::registry::Entry;
use crate::shared::Shared;
use crate::worker::lock;

/// A command that has just run.
#[derive(Clone, Copy)]
pub struct Ran<'a> {
    /// Which.
    pub entry: &'static Entry,
    /// With which arguments.
    pub args: Args<'a>,
    /// In which database.
    pub db: usize,
    /// A waiting client's command that looked at this key only, or at all of its keys.
    pub served: Option<Option<&'a [u8]>>,
    /// Its reply.
    pub reply: &'a [u8],
}

/// Notes what a command over granted shards changed, and what expired meanwhile; `None`: nothing but the latter.
pub fn note_grant(core: &mut Core, grant: &mut Shards, ran: Option<Ran<'_>>) {
    if grant.iter_mut().any(|held| held.shard.changes.is_journalled()) {
        note(core, exec::set_of(&core.shared.router, grant), ran);
    }
}

/// Notes a SET without options whose shard is held, if the journal alone is to hear of it; false if not.
#[inline(never)]
pub fn note_set(core: &mut Core, shard: &mut Shard, db: usize, key: &[u8], value: &[u8]) -> bool {
    if !shard.changes.take_plain() {
        return false;
    }
    let (clock_ms, journal) = (core.now_ms, &core.shared.journal);
    core.journal.append(journal, clock_ms, |out| part::write_set(out, db, key, value));
    true
}

/// As [`note_grant`], over a set of shards some of which have changed.
#[inline(never)]
pub fn note(core: &mut Core, mut set: ShardSet<'_>, ran: Option<Ran<'_>>) {
    let mut losses: Vec<Loss> = Vec::new();
    let mut is_asked_for = false;
    set.each_mut(|_, part| {
        if part.shard.changes.is_journalled() {
            is_asked_for = true;
            losses.append(&mut part.shard.changes.take_losses());
        }
    });
    // A client that waited is served without that look, with the journal switched off too.
    if !is_asked_for {
        return;
    }
    let ran = ran.filter(|ran| ran.entry.effect != Effect::Nothing);
    if losses.is_empty() && ran.is_none() {
        return;
    }
    let (clock_ms, journal) = (core.now_ms, &core.shared.journal);
    let is_fed = journal.intake.is_on();
    core.journal.append(journal, clock_ms, |out| {
        // What was dead was dead before the command began.
        for loss in &losses {
            if loss.is_members && is_fed {
                // Which members have gone, a replica cannot know.
                write_value(out, &set, loss.db, &loss.key, clock_ms);
            } else if loss.is_members {
                part::write_members(out, loss.db, &loss.key);
            } else {
                part::write_gone(out, loss.db, &loss.key);
            }
        }
        if let Some(ran) = ran
            && !(is_fed
                && matches!(ran.entry.effect, Effect::Itself | Effect::Trim)
                && plainly::write(out, &mut set, ran, clock_ms))
        {
            write_effect(out, &mut set, ran, clock_ms);
        }
    });
}

fn write_effect(out: &mut Vec<u8>, set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) {
    let Ran { args, db, .. } = ran;
    match ran.entry.effect {
        Effect::Nothing | Effect::ByFlags => {}
        Effect::Itself => write_itself(out, ran),
        // All members of a large set are answered later, bit by bit.
        Effect::Removal if is_gone(set, db, args.at(1), now_ms) => part::write_gone(out, db, args.at(1)),
        Effect::Removal => match popped(ran.reply) {
            Some(members) if !members.is_empty() => {
                let words = [b"srem".as_slice(), args.at(1)].into_iter();
                let members = members.iter().filter_map(Value::as_bytes);
                part::write_command(out, db, 2 + members.clone().count(), words.chain(members));
            }
            _ => {}
        },
        Effect::Trim => match exact_trim(set, ran, now_ms) {
            Some(owned) => part::write_command(out, db, owned.args().len(), owned.args().iter()),
            None => write_itself(out, ran),
        },
        Effect::FirstValue | Effect::LastValue => {
            let mut dest = None;
            ran.entry.spec.each_key(args, &mut |at| {
                if dest.is_none() || ran.entry.effect == Effect::LastValue {
                    dest = Some(at);
                }
            });
            write_value(out, set, db, args.at(dest.unwrap_or(1)), now_ms);
        }
    }
}

/// Writes a command under the name of its row, so that `rename-command` does not matter when it is read.
fn write_itself(out: &mut Vec<u8>, ran: Ran<'_>) {
    let name = ran.entry.spec.name;
    let name = name.split_once('|').map_or(name, |(container, _)| container);
    let words = std::iter::once(name.as_bytes()).chain(ran.args.iter().skip(1));
    match ran.served {
        Some(Some(only_key)) => part::write_served(out, ran.db, only_key, ran.args.len(), words),
        _ => part::write_command(out, ran.db, ran.args.len(), words),
    }
}

/// Whether there is nothing at a key whose shard is held.
fn is_gone(set: &mut ShardSet<'_>, db: usize, name: &[u8], now_ms: u64) -> bool {
    let key = set.router().key(name);
    set.part(key).shard.peek(db, key, now_ms).is_none()
}

/// The members in a reply of SPOP.
fn popped(reply: &[u8]) -> Option<Vec<Value>> {
    match decoded(reply)? {
        Value::Array(members) | Value::Set(members) => Some(members),
        member => Some(vec![member]),
    }
}

/// A reply, if all of it is there.
pub(super) fn decoded(reply: &[u8]) -> Option<Value> {
    let limits = DecodeLimits { bulk_bytes_max: u64::MAX, ..DecodeLimits::default() };
    Some(value::decode(reply, &limits).ok().flatten()?.0)
}

/// Whether an XTRIM has words that came after Redis 7.0.
pub(super) fn trim_is_new(args: Args<'_>) -> bool {
    let new = ["keepref", "delref", "acked"];
    args.iter().skip(2).any(|word| new.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
}

/// The arguments with `MAXLEN = n` in place of an approximate limit, `n` being what was left.
pub(super) fn exact_trim(set: &mut ShardSet<'_>, ran: Ran<'_>, now_ms: u64) -> Option<OwnedArgs> {
    let args = ran.args;
    let at = approximate_at(args)?;
    let key = set.router().key(args.at(1));
    let left = {
        let shard = &set.part(key).shard;
        shard
            .peek(ran.db, key, now_ms)
            .and_then(|record| shard.view_of::<Stream>(record).ok().map(|stream| stream.root.len()))
    };
    let mut exact = OwnedArgs::with_capacity(args.len(), args.bytes_len() + 20);
    let has_limit = args.at(at + 2).eq_ignore_ascii_case(b"limit");
    for (index, arg) in args.iter().enumerate() {
        match index {
            _ if index == at - 1 => exact.push(b"maxlen"),
            _ if index == at => exact.push(b"="),
            _ if index == at + 1 => exact.push(left.unwrap_or(0).to_string().as_bytes()),
            _ if has_limit && (index == at + 2 || index == at + 3) => {}
            _ => exact.push(arg),
        }
    }
    Some(exact)
}

/// Where the `~` of an approximate limit stands.
fn approximate_at(args: Args<'_>) -> Option<usize> {
    let is = |at: usize, words: &[&str]| {
        words.iter().any(|word| args.at(at).eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut at = 2;
    // These stand before the limit in XADD; in XTRIM they follow it.
    while is(at, &["nomkstream", "keepref", "delref", "acked"]) {
        at += 1;
    }
    (is(at, &["maxlen", "minid"]) && args.at(at + 1) == b"~").then_some(at + 1)
}

/// Writes what is at a key now.
pub(super) fn write_value(out: &mut Vec<u8>, set: &ShardSet<'_>, db: usize, name: &[u8], now_ms: u64) {
    let key = set.router().key(name);
    let shard = &set.part(key).shard;
    match shard.peek(db, key, now_ms) {
        None => part::write_gone(out, db, name),
        Some(record) => {
            let mut value = Vec::new();
            entry::write(shard, record, &mut value);
            part::write_value(out, db, &value);
        }
    }
}

/// Notes the keys of `names` that changed as what they are now: for protocols whose commands are none of ours. Their
/// shards are held.
pub fn note_values<'k>(
    core: &mut Core,
    grant: &mut Shards,
    db: usize,
    names: impl Iterator<Item = &'k [u8]>,
) {
    if !grant.iter_mut().any(|held| held.shard.changes.is_journalled()) {
        return;
    }
    let mut set = exec::set_of(&core.shared.router, grant);
    set.each_mut(|_, part| drop(part.shard.changes.take_losses()));
    let (clock_ms, journal) = (core.now_ms, &core.shared.journal);
    core.journal.append(journal, clock_ms, |out| {
        names.for_each(|name| write_value(out, &set, db, name, clock_ms));
    });
}

/// Notes what is at a key now, for work on a thread that serves nobody; the key's shard is held.
pub fn note_foreign(shared: &Shared, mut set: ShardSet<'_>, db: usize, name: &[u8]) {
    let now_ms = crate::core::unix_ms();
    set.each_mut(|_, part| drop(part.shard.changes.take_losses()));
    let when = (now_ms, shared.settings.live().persistence.appendfsync);
    lock(&shared.journal.foreign)
        .append_now(&shared.journal, when, |out| write_value(out, &set, db, name, now_ms));
}

/// Notes a change of the libraries of functions; the caller holds their shard.
pub fn note_functions(core: &mut Core, args: &[&[u8]]) {
    let journal = &core.shared.journal;
    if journal.is_noting() {
        let clock_ms = core.now_ms;
        core.journal.append(journal, clock_ms, |out| {
            part::write_command(out, 0, args.len(), args.iter().copied());
        });
    }
}
