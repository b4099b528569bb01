//! What of a command is written down: itself, or its effect where it depends on chance or on how values lie in memory.
//!
//! Called by the executor with the shards of the command still held.

use darter_command::spec::Effect;
use darter_persist::entry;
use darter_persist::journal::part;
use darter_store::Shard;
use darter_store::change::{JournalNote, Loss, Noted, Vocabulary};
use darter_txn::ShardSet;

use crate::engine::{commit, plan};
use crate::job::Shards;
use crate::journal::{following, plainly};
use crate::registry::CommandEntry;
use crate::thread_state::ThreadState;

/// A command that has just run.
pub type Ran<'a> = commit::RanCommand<'a, &'static CommandEntry>;

/// Notes a SET without options whose shard is held, if the journal alone is to hear of it; false if not.
#[inline(never)]
pub fn note_set(local: &mut ThreadState, shard: &mut Shard, db: usize, key: &[u8], value: &[u8]) -> bool {
    if !shard.changes.take_plain() {
        return false;
    }
    let (clock_ms, journal) = (local.now_ms, &local.shared.journal);
    local.journal.append_set(journal, clock_ms, db, (key, value));
    true
}

/// Notes what a command over these shards changed, and what expired meanwhile; `None`: nothing but the latter.
#[inline(never)]
pub fn note(local: &mut ThreadState, mut set: ShardSet<'_>, ran: Option<Ran<'_>>) {
    let mut notes: Vec<JournalNote> = Vec::new();
    let (mut is_asked_for, mut is_leaving) = (false, false);
    set.each_mut(|_, part| {
        if part.shard.changes.is_journalled() {
            is_asked_for = true;
            is_leaving |= !part.leaving.is_empty();
            notes.append(&mut part.shard.changes.take_notes());
        }
    });
    // A client that waited is served without that look, with the journal switched off too.
    if !is_asked_for {
        return;
    }
    let is_replaced = notes.iter().any(|note| note.what.replaces_command());
    let ran =
        ran.filter(|ran| !is_replaced && !matches!(ran.entry.effect, Effect::Nothing | Effect::Reported));
    if notes.is_empty() && ran.is_none() {
        return;
    }
    let (clock_ms, journal) = (local.now_ms, &local.shared.journal);
    if is_leaving {
        following::tell(&mut set, &notes, ran, clock_ms);
    }
    let is_fed = journal.intake.is_on();
    local.journal.append(journal, clock_ms, |out| {
        // What was dead was dead before the command began.
        for note in &notes {
            match &note.what {
                // Which members have gone, and what the words mean, a replica cannot know.
                Noted::LostMembers | Noted::Said(_, Vocabulary::New) if is_fed => {
                    write_value(out, &set, note.db, &note.key, clock_ms);
                }
                Noted::LostMembers => part::write_members(out, note.db, &note.key),
                Noted::Lost(loss) => part::write_gone(out, note.db, &note.key, *loss),
                Noted::Removed => part::write_gone(out, note.db, &note.key, Loss::Removed),
                Noted::Said(words, _) => part::write_command(out, note.db, words.len(), words.iter()),
            }
        }
        if let Some(ran) = ran
            && !(is_fed && ran.entry.effect == Effect::Itself && plainly::write(out, &mut set, ran, clock_ms))
        {
            write_effect(out, &set, ran, clock_ms);
        }
    });
}

fn write_effect(out: &mut Vec<u8>, set: &ShardSet<'_>, ran: Ran<'_>, now_ms: u64) {
    let Ran { args, db, .. } = ran;
    match ran.entry.effect {
        Effect::Nothing | Effect::Reported | Effect::ByFlags => {}
        Effect::Itself => write_itself(out, ran),
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
pub(super) fn write_itself(out: &mut Vec<u8>, ran: Ran<'_>) {
    let name = ran.entry.spec.name;
    let name = name.split_once('|').map_or(name, |(container, _)| container);
    let words = std::iter::once(name.as_bytes()).chain(ran.args.iter().skip(1));
    match ran.served {
        Some(Some(only_key)) => part::write_served(out, ran.db, only_key, ran.args.len(), words),
        _ => part::write_command(out, ran.db, ran.args.len(), words),
    }
}

/// Writes what is at a key now.
pub(super) fn write_value(out: &mut Vec<u8>, set: &ShardSet<'_>, db: usize, name: &[u8], now_ms: u64) {
    let key = set.router().key(name);
    let shard = &set.part(key).shard;
    match shard.peek(db, key, now_ms) {
        None => part::write_gone(out, db, name, Loss::Removed),
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
    local: &mut ThreadState,
    grant: &mut Shards,
    db: usize,
    names: impl Iterator<Item = &'k [u8]>,
) {
    if !grant.iter_mut().any(|held| held.shard.changes.is_journalled()) {
        return;
    }
    let mut set = plan::set_of(&local.shared.router, grant);
    set.each_mut(|_, part| drop(part.shard.changes.take_notes()));
    let (clock_ms, journal) = (local.now_ms, &local.shared.journal);
    local.journal.append(journal, clock_ms, |out| {
        names.for_each(|name| write_value(out, &set, db, name, clock_ms));
    });
}

/// Notes a change of the libraries of functions; the caller holds their shard.
pub fn note_functions(local: &mut ThreadState, args: &[&[u8]]) {
    let journal = &local.shared.journal;
    if journal.is_noting() {
        let clock_ms = local.now_ms;
        local.journal.append(journal, clock_ms, |out| {
            part::write_command(out, 0, args.len(), args.iter().copied());
        });
    }
}
