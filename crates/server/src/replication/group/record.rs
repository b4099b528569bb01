//! Changes of the group that this server has seen, for people: who came to lead, who joined, who left.
//!
//! The thread of the group notes them, and the console shows them. They are in memory, and end with the process.

use std::collections::VecDeque;

use darter_quorum::state::GroupState;

/// See above.
#[derive(Debug, Default)]
pub struct GroupRecord {
    known: Option<GroupState>,
    changes: VecDeque<GroupChange>,
}

/// A change of the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupChange {
    /// When this server saw it, Unix ms.
    pub at_ms: u64,
    /// The term from then on.
    pub term: u64,
    /// What has become of the member.
    pub kind: GroupChangeKind,
    /// Its name.
    pub member: String,
}

/// What becomes of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupChangeKind {
    /// It leads.
    Leads,
    /// Its acknowledgements are required.
    Joins,
    /// They are not any more.
    Leaves,
}

impl GroupChangeKind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            GroupChangeKind::Leads => "leads",
            GroupChangeKind::Joins => "joins",
            GroupChangeKind::Leaves => "leaves",
        }
    }
}

/// Changes that are kept.
const KEPT: usize = 64;

impl GroupRecord {
    /// Notes the state of the store as it is known at `now_ms`.
    pub fn note(&mut self, now_ms: u64, state: &GroupState) {
        if self.known.as_ref() == Some(state) {
            return;
        }
        let old = self.known.replace(state.clone());
        let mut found = Vec::new();
        if old.as_ref().is_none_or(|old| (old.term, &old.leader) != (state.term, &state.leader)) {
            found.push((GroupChangeKind::Leads, &state.leader));
        }
        if let Some(old) = &old {
            let left = old.sync.iter().filter(|member| !state.has(member));
            found.extend(left.map(|member| (GroupChangeKind::Leaves, &member.name)));
            let joined = state.sync.iter().filter(|member| !old.has(member));
            found.extend(joined.map(|member| (GroupChangeKind::Joins, &member.name)));
        }
        for (kind, member) in found {
            if self.changes.len() == KEPT {
                self.changes.pop_front();
            }
            self.changes.push_back(GroupChange {
                at_ms: now_ms,
                term: state.term,
                kind,
                member: member.clone(),
            });
        }
    }

    /// The changes, the last one first.
    pub fn last_first(&self) -> impl Iterator<Item = &GroupChange> {
        self.changes.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_quorum::state::{Ack, GroupMember};

    fn state(term: u64, leader: &str, sync: &[&str]) -> GroupState {
        let member = |text: &&str| GroupMember::parse(text).expect("a member");
        GroupState {
            term,
            leader: leader.to_owned(),
            replid: "r".to_owned(),
            ack: Ack::Memory,
            sync: sync.iter().map(member).collect(),
        }
    }

    #[test]
    fn each_change_is_told_once_and_the_last_first() {
        let mut record = GroupRecord::default();
        record.note(1, &state(1, "a:1", &["a:1#x"]));
        record.note(2, &state(1, "a:1", &["a:1#x", "b:1#y"]));
        record.note(3, &state(1, "a:1", &["a:1#x", "b:1#y"]));
        record.note(4, &state(2, "b:1", &["b:1#y"]));
        // Another start of a server is another member.
        record.note(5, &state(2, "b:1", &["b:1#y", "a:1#z"]));
        let told: Vec<(u64, u64, &str, &str)> = record
            .last_first()
            .map(|one| (one.at_ms, one.term, one.kind.word(), one.member.as_str()))
            .collect();
        let wanted = [
            (5, 2, "joins", "a:1"),
            (4, 2, "leaves", "a:1"),
            (4, 2, "leads", "b:1"),
            (2, 1, "joins", "b:1"),
            (1, 1, "leads", "a:1"),
        ];
        assert_eq!(told, wanted);
        (0..200).for_each(|n| record.note(n, &state(n, "a:1", &["a:1#x"])));
        assert_eq!(record.last_first().count(), KEPT);
    }
}
