//! Tests of records that a killed process leaves out while some threads have rings and others gather: what found the cure are
//! seeds of the crash simulator. They run the real writer on simulated files, without threads.

use std::path::Path;

use darter_persist::journal::folder;
use darter_persist::journal::part;

use super::crash::files::FOLDER;
use super::crash::machine::Machine;
use super::log::ThreadLog;
use super::scenario::{QuietHost, ScenarioWriting, THREADS, word_of};
use super::*;

fn note(journal: &Journal<Machine>, log: &mut ThreadLog<Machine>, word: &str) {
    log.append(journal, 7, |out| {
        part::write_command(out, 0, 2, [b"set".as_slice(), word.as_bytes()].into_iter());
    });
}

/// Ends a turn; whether its replies wait.
fn waits(journal: &Journal<Machine>, log: &mut ThreadLog<Machine>) -> bool {
    let host = QuietHost { fsync: Fsync::EverySecond, committed: None };
    log.commit(journal, Fsync::EverySecond, &host);
    log.holds && log.durable < log.mark
}

/// The words that a start finds after a kill, and the sequence behind them.
fn found(files: &Machine) -> (Vec<String>, u64) {
    let mut journal = folder::open(files, Path::new(FOLDER)).expect("readable").expect("a journal");
    let mut words = Vec::new();
    while let Some((_, body)) = journal.next_record().expect("readable") {
        words.push(String::from_utf8(word_of(body)).expect("text"));
    }
    (words, journal.sequence())
}

/// Seeds 6158 and 3140: a start named a gap in the manifest, and power was lost while it moved the tails. The next start read less
/// and took the sequence of that gap again. The gap still explained the hole when the record with this sequence was lost.
#[test]
fn a_gap_that_is_behind_the_end_of_the_row_is_forgotten() {
    let files = Machine::new(1);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, vec![(2, 1), (7, 1)]);
    note(&journal, &mut logs[0], "first");
    let mut gathering = ThreadLog::new(THREADS);
    note(&journal, &mut gathering, "lost");
    note(&journal, &mut logs[1], "later");
    assert_eq!(found(&files), (vec!["first".to_owned()], 2));
}

/// Seed 7596: the segment of a thread could not be made at once, so its record waited in memory, and nobody knew.
#[test]
fn a_reply_waits_for_a_record_whose_segment_cannot_be_made_yet() {
    let files = Machine::new(1);
    files.state().keeps_blocks = false;
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    note(&journal, &mut logs[0], "first");
    assert!(!waits(&journal, &mut logs[0]), "no other thread has noted anything");
    files.state().failing_syncs = 1;
    let mut foreign = ThreadLog::new(THREADS);
    foreign.die_in_append(&journal);
    assert_eq!(files.state().failing_syncs, 0, "the segment was tried");
    note(&journal, &mut logs[0], "second");
    assert!(waits(&journal, &mut logs[0]));
    assert_eq!(found(&files), (vec!["first".to_owned()], 2), "a kill loses what was not answered");
}

/// A ring thread was amid a turn, another thread's gathered record was lost with the process, and the word of the
/// first explained the hole: what came later was kept without what came before.
#[test]
fn a_gathered_record_that_is_lost_ends_the_row_though_a_ring_thread_is_amid_a_turn() {
    let files = Machine::new(2);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    note(&journal, &mut logs[0], "amid a turn");
    // A thread that has not ended a turn gathers, as with `always`.
    let mut gathering = ThreadLog::new(THREADS);
    note(&journal, &mut gathering, "lost");
    note(&journal, &mut logs[1], "later");
    assert!(waits(&journal, &mut logs[1]));
    assert_eq!(found(&files), (vec!["amid a turn".to_owned()], 2));
}

/// The other side of it: since a hole may be the gathering thread's, replies wait for ring threads, too.
#[test]
fn a_reply_waits_for_a_ring_thread_amid_a_record_while_another_gathers() {
    let files = Machine::new(3);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    let mut gathering = ThreadLog::new(THREADS);
    note(&journal, &mut gathering, "gathered");
    gathering.end_turn(&journal);
    journal.sync_all();
    logs[0].die_in_append(&journal);
    note(&journal, &mut logs[1], "later");
    assert!(waits(&journal, &mut logs[1]));
    assert_eq!(found(&files), (vec!["gathered".to_owned()], 2));
}

/// What was answered before a thread began to gather stays: the hole before it is explained as ever.
#[test]
fn a_hole_from_before_a_thread_gathers_loses_nothing_that_was_answered() {
    let files = Machine::new(4);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    logs[0].die_in_append(&journal);
    note(&journal, &mut logs[1], "answered");
    assert!(!waits(&journal, &mut logs[1]));
    let mut gathering = ThreadLog::new(THREADS);
    note(&journal, &mut gathering, "lost");
    note(&journal, &mut logs[1], "later");
    assert!(waits(&journal, &mut logs[1]));
    assert_eq!(found(&files), (vec!["answered".to_owned()], 3));
}

/// A thread that gathers no more says so in the segment it leaves: replies need not wait, and nothing is lost.
#[test]
fn a_thread_that_has_a_ring_again_is_waited_for_no_more() {
    let files = Machine::new(5);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    logs.push(ThreadLog::new(THREADS));
    note(&journal, &mut logs[3], "gathered");
    assert!(!waits(&journal, &mut logs[3]), "the change of the setting wrote it");
    let mut writing = ScenarioWriting { journal, logs, words: Vec::new() };
    writing.begin(9);
    let ScenarioWriting { journal, mut logs, .. } = writing;
    note(&journal, &mut logs[3], "in a ring");
    assert!(!waits(&journal, &mut logs[3]));
    logs[0].die_in_append(&journal);
    note(&journal, &mut logs[1], "later");
    assert!(!waits(&journal, &mut logs[1]));
    let words = ["gathered", "in a ring", "later"].map(str::to_owned);
    assert_eq!(found(&files), (words.to_vec(), 5));
}

/// Seeds 23262, 24508 and 37841: a base was complete while a thread was amid a turn, and the file in which the thread had
/// announced its next record went with it. The kill came before the thread had said so in its new segment.
#[test]
fn a_thread_amid_a_turn_announces_its_record_in_the_generation_that_has_begun() {
    let files = Machine::new(7);
    let mut writing = ScenarioWriting::fresh(&files, Vec::new());
    note(&writing.journal, &mut writing.logs[0], "in the base");
    writing.begin(9);
    let ScenarioWriting { journal, mut logs, .. } = writing;
    let dir = Path::new(FOLDER);
    let manifest = Manifest::load(&files, dir).expect("readable").expect("a manifest").expect("sound");
    Manifest { generation: 9, sequence: 2, ..manifest }.store(&files, dir).expect("room");
    logs[0].die_in_append(&journal);
    note(&journal, &mut logs[1], "answered");
    assert!(!waits(&journal, &mut logs[1]));
    assert_eq!(found(&files), (vec!["answered".to_owned()], 4));
}

/// A record that fits neither the ring nor the file is in memory alone though its command has ended.
#[test]
fn a_record_that_found_no_room_ends_the_row() {
    let files = Machine::new(6);
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    note(&journal, &mut logs[0], "amid a turn");
    note(&journal, &mut logs[2], "there");
    files.state().disk.room = 0;
    let long = "x".repeat(100_000);
    note(&journal, &mut logs[2], &long);
    assert!(journal.is_failing());
    note(&journal, &mut logs[1], "later");
    assert_eq!(found(&files), (vec!["amid a turn".to_owned(), "there".to_owned()], 3));
}
