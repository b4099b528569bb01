//! Single steps of a member, in orders that are rare in the simulation: a request to lead, news of a change during a read, a
//! store that has lost its data.

use darter_quorum::beat::{BeatAnswer, Standing};
use darter_quorum::group::{Founding, GroupAction, GroupConfig, GroupFacts, GroupMachine};
use darter_quorum::state::{Ack, GroupMember, GroupState};
use darter_quorum::store::{StoreFault, StoreWritten, Versioned};

fn member(name: &str) -> GroupMember {
    GroupMember { name: name.to_owned(), boot: format!("boot of {name}") }
}

/// A reign of `a` with these members.
fn reign(sync: &[&str]) -> GroupState {
    let sync = sync.iter().map(|name| member(name)).collect();
    GroupState { term: 1, leader: "a".to_owned(), replid: "r".repeat(40), ack: Ack::Memory, sync }
}

fn facts() -> GroupFacts {
    GroupFacts { is_whole: true, is_ready: true, replid: "s".repeat(40), ..GroupFacts::default() }
}

/// Has the machine read `state` when it asks; returns what it does then.
fn read(machine: &mut GroupMachine, now_ms: u64, state: &GroupState) -> Vec<GroupAction> {
    assert_eq!(machine.tick(now_ms, &facts()), [GroupAction::Read]);
    machine.read(now_ms, Ok(Some(Versioned { revision: now_ms, value: state.to_json() })))
}

/// The member `b`, which follows `a` and has read at 1 ms that these are members.
fn follower(sync: &[&str]) -> GroupMachine {
    let config = GroupConfig { lease_ms: 8000, ack_timeout_ms: 5000, acks: 1, ack: Ack::Memory };
    let mut machine = GroupMachine::new(config, member("b"), 1);
    assert_eq!(read(&mut machine, 1, &reign(sync)), [GroupAction::Follow("a".to_owned())]);
    machine
}

fn leads_next(machine: &mut GroupMachine, now_ms: u64) {
    let wish = machine.tick(now_ms, &facts());
    let [GroupAction::Write { expected, state }] = &wish[..] else { panic!("{wish:?}") };
    assert_eq!((*expected, state.term, state.leader.as_str()), (now_ms, 2, "b"));
    assert!(state.has(&member("a")), "the one before has everything, too");
}

#[test]
fn a_member_that_has_not_read_of_its_joining_takes_the_lead_all_the_same() {
    let mut machine = follower(&["a"]);
    assert_eq!(machine.take_over(20, 1), [GroupAction::StopFollowing]);
    assert_eq!(read(&mut machine, 21, &reign(&["a", "b"])), []);
    leads_next(&mut machine, 21);
}

#[test]
fn who_is_no_member_takes_nothing() {
    let mut machine = follower(&["a"]);
    machine.take_over(20, 1);
    assert_eq!(read(&mut machine, 21, &reign(&["a"])), []);
    assert_eq!(machine.tick(22, &facts()), [GroupAction::Read], "it asks again");
}

#[test]
fn an_answer_of_the_leader_from_before_ends_no_campaign_and_a_later_one_does() {
    let mut machine = follower(&["a", "b"]);
    machine.take_over(20, 1);
    let answer = BeatAnswer {
        from: member("a"),
        term: 1,
        clock_ms: 19,
        standing: Standing { is_whole: true, ..Standing::default() },
    };
    assert_eq!(machine.hear_answer(21, &answer), []);
    assert_eq!(read(&mut machine, 22, &reign(&["a", "b"])), []);
    leads_next(&mut machine, 22);

    let mut machine = follower(&["a", "b"]);
    machine.take_over(20, 1);
    assert_eq!(machine.hear_answer(2020, &answer), [GroupAction::Follow("a".to_owned())]);
}

#[test]
fn a_process_that_comes_back_to_its_old_group_begins_another_reign() {
    let config = GroupConfig { lease_ms: 8000, ack_timeout_ms: 5000, acks: 0, ack: Ack::Memory };
    let mut machine = GroupMachine::new(config, member("a"), 1);
    // Nobody has followed it: there is no history that its data could be whole in.
    let facts = GroupFacts { is_whole: false, founding: Founding::Now, ..facts() };
    for (now_ms, outcome) in [(10, Err(StoreFault("away".to_owned()))), (20, Ok(StoreWritten::Done(21)))] {
        assert_eq!(machine.tick(now_ms, &facts), [GroupAction::Read]);
        let found = Versioned { revision: 5, value: reign(&["a"]).to_json() };
        assert_eq!(machine.read(now_ms, Ok(Some(found))), [], "that reign is over");
        let wish = machine.tick(now_ms + 1, &facts);
        let [GroupAction::Write { expected: 5, state }] = &wish[..] else { panic!("{wish:?}") };
        assert_eq!((state.term, &state.replid), (2, &facts.replid));
        let done = machine.written(now_ms + 2, outcome.clone());
        let leads = GroupAction::Lead { term: 2, replid: facts.replid.clone() };
        assert_eq!(done, if outcome.is_ok() { vec![leads] } else { vec![] });
    }
}

#[test]
fn what_is_told_while_a_read_is_on_its_way_is_read_again_at_once() {
    let mut machine = follower(&["a", "b"]);
    let told = GroupFacts { store_tells: true, ..facts() };
    assert_eq!(machine.tick(500, &told), [GroupAction::Read]);
    // The answer had been given before the change that is told of.
    machine.read_soon(510);
    let old = Versioned { revision: 1, value: reign(&["a", "b"]).to_json() };
    assert_eq!(machine.read(520, Ok(Some(old.clone()))), []);
    assert_eq!(machine.tick(521, &told), [GroupAction::Read]);
    machine.read(522, Ok(Some(old)));
    assert_eq!(machine.tick(1000, &told), [], "nothing was told, so there is a pause");
    assert_eq!(machine.tick(1522, &told), [GroupAction::Read]);
}

#[test]
fn nobody_leads_by_a_store_that_has_lost_what_it_had() {
    let config = GroupConfig { lease_ms: 8000, ack_timeout_ms: 5000, acks: 0, ack: Ack::Memory };
    let facts = GroupFacts { founding: Founding::Now, ..facts() };
    for now in [None, Some(Versioned { revision: 2, value: reign(&["z"]).to_json() })] {
        let mut machine = GroupMachine::new(config, member("a"), 1);
        assert_eq!(machine.tick(1, &facts), [GroupAction::Read]);
        machine.read(1, Ok(None));
        assert!(matches!(machine.tick(2, &facts)[..], [GroupAction::Write { expected: 0, .. }]));
        machine.written(3, Ok(StoreWritten::Done(9)));
        assert!(machine.leads());
        assert_eq!(machine.tick(4, &facts), [GroupAction::Read]);
        // Another server may have founded the group anew, and lead.
        assert_eq!(machine.read(5, Ok(now)), [GroupAction::StepDown]);
        assert!(!machine.leads() && machine.window().until_ms == 0);
    }
}
