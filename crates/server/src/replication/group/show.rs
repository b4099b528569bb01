//! The group as people see it: DARTER GROUP and INFO.

use std::sync::atomic::Ordering::SeqCst;

use darter_reactor::process::boot_ms;
use darter_wire::Reply;
use serde_json::{Value, json};

use super::{FailoverGroup, place};
use crate::replication::show::followers;
use crate::shared::Shared;
use crate::sync::lock;

/// The group as this server knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupOverview {
    /// This server's name.
    pub name: String,
    /// Its part: waiting, following, campaigning or leading.
    pub role: &'static str,
    /// The term of the store.
    pub term: u64,
    /// The leader's name.
    pub leader: String,
    /// Members that have every change which was answered.
    pub sync: Vec<String>,
    /// Milliseconds since each other member was heard.
    pub silences: Vec<(String, u64)>,
    /// Why the store cannot be asked.
    pub store_fault: Option<String>,
    /// What an acknowledgement of a member says, by this server's settings.
    pub ack: &'static str,
    /// Changes that are not committed.
    pub acks_waiting: u64,
}

/// Looks at the group; `None`: there is none.
pub fn overview(shared: &Shared) -> Option<GroupOverview> {
    let group = shared.group.as_ref()?;
    let store_fault = lock(&group.store_fault).clone();
    let machine = lock(&group.machine);
    let Some(machine) = machine.as_ref() else {
        let ack = group.ack.name();
        return Some(GroupOverview { role: "waiting", store_fault, ack, ..GroupOverview::default() });
    };
    let (now_ms, state) = (boot_ms(), machine.state().map(|(_, state)| state));
    let peers = machine.peers();
    let silences = peers.into_iter().filter_map(|name| {
        let silence = machine.silence_ms(now_ms, &name)?;
        Some((name, silence))
    });
    Some(GroupOverview {
        name: machine.own().name.clone(),
        role: machine.role(),
        term: state.map_or(0, |state| state.term),
        leader: state.map(|state| state.leader.clone()).unwrap_or_default(),
        sync: state.iter().flat_map(|state| &state.sync).map(ToString::to_string).collect(),
        silences: silences.collect(),
        store_fault,
        ack: group.ack.name(),
        acks_waiting: if machine.leads() { group.commit.waiting() } else { 0 },
    })
}

/// Everything about the group that the console shows; null: there is none.
pub fn console(shared: &Shared) -> Value {
    let (Some(group), Some(seen)) = (&shared.group, overview(shared)) else { return Value::Null };
    let leads = seen.role == "leading";
    // What the others lack is known to the leader alone.
    let followers = if leads { followers(shared) } else { Vec::new() };
    let sync: Vec<&str> = seen.sync.iter().filter_map(|member| member.split('#').next()).collect();
    let mut names = sync.clone();
    let known = [&sync[..], &[seen.name.as_str(), seen.leader.as_str()]].concat();
    let others = followers.iter().map(|one| {
        let is_it = |name: &&&str| place::find(shared, name) == Some((one.ip.clone(), one.port));
        known.iter().find(is_it).map_or_else(|| format!("{}:{}", one.ip, one.port), |name| (*name).to_owned())
    });
    let others: Vec<String> = others.collect();
    names.extend(others.iter().map(String::as_str).chain([seen.name.as_str(), seen.leader.as_str()]));
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    let members = names.iter().map(|name| {
        let follower = others.iter().position(|other| other == name).and_then(|at| followers.get(at));
        let silence = seen.silences.iter().find(|(other, _)| other == name).map(|(_, silence_ms)| silence_ms);
        json!({
            "name": name, "is_own": *name == seen.name, "leads": *name == seen.leader,
            "is_in_sync": sync.contains(name), "heard_ms": silence,
            "behind_bytes": follower.map(|one| one.behind_bytes),
        })
    });
    let members: Vec<Value> = members.collect();
    let record = lock(&group.record);
    let changes = record.last_first().map(
        |one| json!({ "at_ms": one.at_ms, "term": one.term, "kind": one.kind.word(), "member": one.member }),
    );
    json!({
        "name": seen.name, "role": seen.role, "term": seen.term, "leader": seen.leader,
        "store_fault": seen.store_fault, "acks": group.acks, "ack": seen.ack, "acks_waiting": seen.acks_waiting,
        "lacks_acks": leads && group.lacks_acks(), "is_in_doubt": group.is_in_doubt(),
        "lease_ms": if leads { group.commit.lease_left_ms() } else { None },
        "led": group.counts.led.load(SeqCst), "deposed": group.counts.deposed.load(SeqCst),
        "members": members, "changes": changes.collect::<Vec<Value>>(),
    })
}

/// Answers DARTER GROUP; false: there is no group.
pub fn answer(shared: &Shared, reply: &mut Reply<'_>) -> bool {
    let Some(seen) = overview(shared) else { return false };
    let group = shared.group.as_ref();
    let texts = [
        ("name", seen.name),
        ("role", seen.role.to_owned()),
        ("replica-ack", seen.ack.to_owned()),
        ("leader", seen.leader),
        ("store", seen.store_fault.unwrap_or_else(|| "ok".to_owned())),
    ];
    reply.map(texts.len() + 6);
    for (name, value) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let lease = group.map_or(Some(0), |group| group.commit.lease_left_ms());
    let numbers = [
        ("term", int(seen.term)),
        ("acks", group.map_or(0, |group| i64::from(group.acks))),
        ("acks-waiting", int(seen.acks_waiting)),
        ("lease-ms", lease.map_or(-1, int)),
    ];
    for (name, value) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(value);
    }
    reply.bulk(b"members");
    reply.array(seen.sync.len());
    seen.sync.iter().for_each(|member| reply.bulk(member.as_bytes()));
    reply.bulk(b"silence-ms");
    reply.array(seen.silences.len() * 2);
    for (name, silence_ms) in seen.silences {
        reply.bulk(name.as_bytes());
        reply.int(int(silence_ms));
    }
    true
}

impl FailoverGroup {
    /// Returns true if this server answers as the leader.
    pub fn serves(&self, shared: &Shared) -> bool {
        !shared.replication.is_replica() && !self.is_cut_off() && (self.acks == 0 || self.commit.has_lease())
    }
}
