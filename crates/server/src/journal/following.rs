//! Records for another node, about large values that have gone there while their slots move (`engine::cluster::outgoing`).
//!
//! Called when a command is noted, with its shards held. What has no record of one key alone is left out: the value is then
//! sent again, since the change has touched it.

use darter_command::spec::{Effect, ReplicaForm};
use darter_persist::journal::part;
use darter_store::change::{JournalNote, Noted, Vocabulary, next_order};
use darter_txn::ShardSet;
use darter_txn::leaving::FollowingRecord;

use super::note::{Ran, write_itself};
use super::plainly;

/// Tells of what a command has done, and of what the server has removed before.
#[cold]
pub fn tell(set: &mut ShardSet<'_>, notes: &[JournalNote], ran: Option<Ran<'_>>, clock_ms: u64) {
    for JournalNote { db, key, what } in notes {
        match what {
            Noted::Said(words, Vocabulary::Old) => {
                let write = |_: &mut ShardSet<'_>, body: &mut Vec<u8>| {
                    part::write_command(body, *db, words.len(), words.iter());
                };
                tell_of(set, (*db, key), clock_ms, write);
            }
            _ => {
                let part = set.part(set.router().key(key));
                part.leaving.iter().for_each(|leaving| leaving.lose(*db, key));
            }
        }
    }
    let told = ran.filter(|ran| {
        let is_itself = ran.entry.effect == Effect::Itself && ran.entry.replica_form != ReplicaForm::Values;
        is_itself && !ran.reply.starts_with(b"-")
    });
    let Some((ran, key)) = told.and_then(|ran| Some((ran, only_key(ran)?))) else { return };
    tell_of(set, (ran.db, key), clock_ms, |set, body| {
        if !plainly::write(body, set, ran, clock_ms) {
            write_itself(body, ran);
        }
    });
}

/// The key of a command that has looked at one alone.
fn only_key<'a>(ran: Ran<'a>) -> Option<&'a [u8]> {
    if let Some(Some(key)) = ran.served {
        return Some(key);
    }
    let (mut only, mut is_alone) = (None, true);
    ran.entry.spec.each_key(ran.args, &mut |at| {
        let key = ran.args.at(at);
        is_alone &= only.is_none_or(|only| only == key);
        only = Some(key);
    });
    only.filter(|_| is_alone)
}

fn tell_of(
    set: &mut ShardSet<'_>,
    (db, name): (usize, &[u8]),
    clock_ms: u64,
    write: impl FnOnce(&mut ShardSet<'_>, &mut Vec<u8>),
) {
    let key = set.router().key(name);
    // One migration at most has the slot.
    let leaving = set.part(key).leaving.iter().find(|leaving| leaving.follows(db, name)).cloned();
    if let Some(leaving) = leaving {
        let mut body = Vec::new();
        write(set, &mut body);
        leaving.tell(db, name, FollowingRecord { clock_ms, body }, next_order());
    }
}
