//! What the store keeps of a group: its term, its leader and the members whose acknowledgements count.
//!
//! Read and written as JSON by the thread of the group, and shown by commands. A reader of a damaged text gets `None`.

use std::fmt;

use serde_json::{Value, json};

/// One start of a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupMember {
    /// The server, as others reach it: `host:port`.
    pub name: String,
    /// Names this start of it. What was in memory ends with it.
    pub boot: String,
}

impl GroupMember {
    /// Reads `name#boot`.
    pub fn parse(text: &str) -> Option<GroupMember> {
        let (name, boot) = text.split_once('#')?;
        (!name.is_empty() && !boot.is_empty())
            .then(|| GroupMember { name: name.to_owned(), boot: boot.to_owned() })
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.boot)
    }
}

/// What an acknowledgement of a member says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ack {
    /// The change is in its memory.
    #[default]
    Memory,
    /// The change is on its disk.
    Disk,
}

impl Ack {
    /// Its name in the store and in settings.
    pub fn name(self) -> &'static str {
        match self {
            Ack::Memory => "memory",
            Ack::Disk => "disk",
        }
    }
}

/// The state of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// Number of the leader's reign; a new leader has a larger one.
    pub term: u64,
    /// Name of the leader.
    pub leader: String,
    /// The history of changes that the leader began.
    pub replid: String,
    /// What an acknowledgement says.
    pub ack: Ack,
    /// Members without whose acknowledgement nothing is answered, the leader among them.
    pub sync: Vec<GroupMember>,
}

impl GroupState {
    /// Returns true if this start of a server is among the members.
    pub fn has(&self, member: &GroupMember) -> bool {
        self.sync.contains(member)
    }

    /// Returns true if this start of a server is the leader.
    pub fn is_led_by(&self, member: &GroupMember) -> bool {
        self.leader == member.name && self.has(member)
    }

    /// As the store keeps it.
    pub fn to_json(&self) -> Vec<u8> {
        let sync: Vec<String> = self.sync.iter().map(GroupMember::to_string).collect();
        let value = json!({
            "term": self.term, "leader": self.leader, "replid": self.replid, "ack": self.ack.name(), "sync": sync,
        });
        value.to_string().into_bytes()
    }

    /// Reads what [`GroupState::to_json`] has written.
    pub fn parse(bytes: &[u8]) -> Option<GroupState> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let ack = match value.get("ack")?.as_str()? {
            "memory" => Ack::Memory,
            "disk" => Ack::Disk,
            _ => return None,
        };
        let sync = value.get("sync")?.as_array()?;
        let sync: Option<Vec<GroupMember>> =
            sync.iter().map(|one| GroupMember::parse(one.as_str()?)).collect();
        Some(GroupState {
            term: value.get("term")?.as_u64()?,
            leader: text("leader")?,
            replid: text("replid")?,
            ack,
            sync: sync?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_damage_does_not() {
        let member = |text: &str| GroupMember::parse(text).expect("a member");
        let state = GroupState {
            term: 7,
            leader: "10.0.0.1:6379".to_owned(),
            replid: "a".repeat(40),
            ack: Ack::Disk,
            sync: vec![member("10.0.0.1:6379#b1"), member("[::1]:6380#b2")],
        };
        let bytes = state.to_json();
        assert_eq!(GroupState::parse(&bytes), Some(state.clone()));
        assert!(
            state.is_led_by(&member("10.0.0.1:6379#b1")) && !state.is_led_by(&member("10.0.0.1:6379#b3"))
        );
        for end in 0..bytes.len() {
            assert_eq!(GroupState::parse(&bytes[..end]), None);
        }
        for text in ["a", "#b", "a#"] {
            assert_eq!(GroupMember::parse(text), None);
        }
    }
}
