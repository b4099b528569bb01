//! Tests of what a thread holds back: output that waits for the disk alone, and output that waits for other servers as well.

use std::cell::Cell;

use darter_persist::journal::part;

use super::crash::machine::Machine;
use super::log::{HeldFor, HeldLog};
use super::scenario::{QuietHost, ScenarioWriting};
use super::*;

#[test]
fn members_are_sent_what_is_on_disk_before_it_is_committed() {
    let files = Machine::new(1);
    let leader = QuietHost { fsync: Fsync::Always, committed: Some(Cell::new(1)) };
    let ScenarioWriting { journal, mut logs, .. } = ScenarioWriting::fresh(&files, Vec::new());
    let (mut member, mut client) = (HeldLog::default(), HeldLog::default());
    let set = |out: &mut Vec<u8>| part::write_command(out, 0, 2, [b"set".as_slice(), b"word"].into_iter());
    logs[0].append(&journal, 7, set);
    // The other thread has a byte about that record for each of two connections, and the disk has not got the record.
    logs[1].commit(&journal, Fsync::Always, &leader);
    assert_eq!(logs[1].may_send(&mut member, 1, false, HeldFor::Own), 0);
    assert_eq!(logs[1].may_send(&mut client, 1, false, HeldFor::All), 0);

    logs[0].commit(&journal, Fsync::Always, &leader);
    logs[1].frees = false;
    logs[1].commit(&journal, Fsync::Always, &leader);
    assert!(logs[1].frees, "connections are looked at again");
    assert_eq!(logs[1].may_send(&mut member, 1, false, HeldFor::Own), 1);
    assert_eq!(logs[1].may_send(&mut client, 1, false, HeldFor::All), 0, "members have not got it");

    leader.committed.as_ref().expect("a group").set(journal.end());
    logs[1].frees = false;
    logs[1].commit(&journal, Fsync::Always, &leader);
    assert!(logs[1].frees);
    assert_eq!(logs[1].may_send(&mut client, 1, false, HeldFor::All), 1);
}
