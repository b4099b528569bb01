//! A group of servers of which a store with consensus says who leads: failover that keeps what was answered.
//!
//! `driver` is the thread of the group: it runs the state machine of the crate `quorum`, `roles` does what that asks for.
//! `beats` are the threads that speak to other members, `store` the one that asks the store, and `store_watch` the one that listens to it. `commit` says how far output
//! may go, `takeover` gives the lead away, `closing` ends connections that may not be answered any more, `place` finds this server's own
//! name, `seat` in which group it is, `record` keeps what has changed for people. Each group of a cluster whose map is in a store is
//! such a group, too.

pub mod beats;
mod closing;
pub mod commit;
mod driver;
mod place;
pub mod record;
mod roles;
mod seat;
pub mod show;
mod store;
mod store_watch;
pub mod takeover;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, OnceLock};

use darter_quorum::group::{GroupAction, GroupMachine};
use darter_quorum::state::Ack;
use darter_quorum::store::{StoreFault, StoreWritten, Versioned};
use darter_replica::history::ReplId;

pub use driver::{check_disk_acks, start};
pub use place::parse as split_name;

use crate::replication::flows::ReplicaProgress;
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::HighAvailability;

use commit::{CommitRule, WantedMember};
use record::GroupRecord;

/// The group, as all threads share it.
#[derive(Default)]
pub struct FailoverGroup {
    /// How far output may go.
    pub commit: CommitRule,
    /// Replicas that a change needs; the setting.
    pub acks: u32,
    /// What their acknowledgements say; the setting.
    pub ack: Ack,
    // none before this server knows its own name
    machine: Mutex<Option<GroupMachine>>,
    events: OnceLock<Sender<GroupEvent>>,
    // which server a start is of, as far as beats have told
    names: Mutex<HashMap<ReplId, String>>,
    // the term that this server leads or follows
    term: AtomicU64,
    // writes are refused: too few members have to have them
    lacks_acks: AtomicBool,
    // all is refused: this server leads, and its members have not been heard for long
    is_cut_off: AtomicBool,
    // writes are refused: neither the store nor the members are heard, and nobody waits for acknowledgements
    is_severed: AtomicBool,
    // the data may hold changes that a failover takes back: nobody is shown it
    is_in_doubt: AtomicBool,
    // a change of the leader that was asked for is under way
    hands_over: AtomicBool,
    // this server has given the lead away: everything is committed, and writers wait
    has_abdicated: AtomicBool,
    // counts changes of the role, after which members are beaten to at once
    changes: AtomicU64,
    /// A full sync has begun since the start: what was here before it is gone.
    pub is_emptied: AtomicBool,
    /// The data came from a journal at the start.
    pub recovers: AtomicBool,
    store_fault: Mutex<Option<String>>,
    /// The store tells of changes: it need not be asked all the time.
    pub store_tells: AtomicBool,
    // what this server has seen of the group
    record: Mutex<GroupRecord>,
    /// Counts, for metrics.
    pub counts: GroupCounts,
}

/// Changes of the leader that this server has had a part in.
#[derive(Debug, Default)]
pub struct GroupCounts {
    /// It has become the leader.
    pub led: AtomicU64,
    /// A person has made it the leader, whatever was lost.
    pub unclean: AtomicU64,
    /// It was the leader, and is not.
    pub deposed: AtomicU64,
}

/// News for the thread of the group.
enum GroupEvent {
    /// The store has answered a read, asked by the seat of this number.
    Read(u64, Result<Option<Versioned>, StoreFault>),
    /// The store has answered a write of such a seat.
    Written(u64, Result<StoreWritten, StoreFault>),
    /// The state machine asks for this.
    Actions(Vec<GroupAction>),
}

impl FailoverGroup {
    /// A group that nothing is known of.
    pub fn new(ha: &HighAvailability) -> FailoverGroup {
        let ack = if ha.acks_disk { Ack::Disk } else { Ack::Memory };
        FailoverGroup { acks: ha.acks, ack, ..FailoverGroup::default() }
    }

    /// Returns true if acknowledgements say that a disk has the change.
    pub fn acks_disk(&self) -> bool {
        self.ack == Ack::Disk
    }

    /// What a member has, as acknowledgements count it: every record below.
    pub fn acked(&self, said: &ReplicaProgress) -> u64 {
        match self.ack {
            Ack::Memory => said.dense,
            Ack::Disk => said.synced,
        }
    }

    /// Commits what this server's disk has by now. Called often: a sync by a thread without turns is announced to nobody.
    pub fn note_synced(&self, shared: &Shared) {
        if self.acks_disk() && self.commit.note_synced(shared.journal.durable_before()) {
            shared.journal.release(shared);
        }
    }

    /// The term of the reign that this server leads or follows; 0: none.
    pub fn term(&self) -> u64 {
        self.term.load(SeqCst)
    }

    /// Notes the term of the leader that is followed.
    pub fn note_term(&self, term: u64) {
        self.term.store(term, SeqCst);
    }

    /// Returns true if nobody is to see the data.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(SeqCst) || self.is_cut_off()
    }

    /// The data may hold changes that a failover takes back: nobody is shown it.
    pub fn doubt(&self) {
        self.is_in_doubt.store(true, SeqCst);
    }

    /// The data is what a leader has committed.
    pub fn trust(&self) {
        self.is_in_doubt.store(false, SeqCst);
    }

    fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(SeqCst)
    }

    /// Returns true if writes are refused.
    pub fn lacks_acks(&self) -> bool {
        self.lacks_acks.load(SeqCst) || self.is_cut_off() || self.is_severed.load(SeqCst)
    }

    /// Calls `act` with the state machine, and takes over what it says then; `None`: there is none yet.
    fn with_machine<T>(&self, shared: &Shared, act: impl FnOnce(&mut GroupMachine) -> T) -> Option<T> {
        let mut machine = lock(&self.machine);
        let machine = machine.as_mut()?;
        let done = act(machine);
        self.publish(shared, machine);
        Some(done)
    }

    /// Has threads obey what the state machine says now. The machine is locked.
    fn publish(&self, shared: &Shared, machine: &GroupMachine) {
        let mut wanted = Vec::new();
        let mut members = 0;
        for member in machine.required() {
            let Some(boot) = ReplId::parse(member.boot.as_bytes()) else { continue };
            let is_candidate = machine.is_candidate(&member);
            members += u32::from(!is_candidate);
            wanted.push(match is_candidate {
                true => WantedMember::candidate(boot),
                false => WantedMember::member(boot),
            });
        }
        let lacks = machine.leads() && members < self.acks;
        if lacks && !self.lacks_acks.swap(true, SeqCst) {
            // What waits is answered by nobody: `closing` ends those connections.
            self.commit.freeze();
        }
        let mut is_news = self.commit.set_lease(machine.window());
        is_news |= self.commit.set_wanted(&wanted);
        if !lacks && self.lacks_acks.swap(false, SeqCst) {
            is_news |= self.commit.thaw();
        }
        if is_news {
            shared.journal.release(shared);
        }
    }

    fn tell(&self, event: GroupEvent) {
        if let Some(events) = self.events.get() {
            let _ = events.send(event);
        }
    }

    /// Notes which server a start is of.
    fn note_name(&self, boot: &str, name: &str) {
        if let Some(boot) = ReplId::parse(boot.as_bytes()) {
            lock(&self.names).insert(boot, name.to_owned());
        }
    }

    /// A member has told how far it is.
    pub fn note_acked(&self, shared: &Shared, boot: &ReplId, said: &ReplicaProgress) {
        self.note_synced(shared);
        if self.commit.note_acked(boot, self.acked(said)) {
            shared.journal.release(shared);
        }
    }

    /// Takes the place of the leader of a term, which has asked for it.
    ///
    /// Errors: this server does not know its own name yet.
    pub fn take_over(&self, shared: &Shared, of_term: u64) -> Result<(), &'static str> {
        let now_ms = darter_reactor::process::boot_ms();
        let actions = self.with_machine(shared, |machine| machine.take_over(now_ms, of_term));
        self.tell(GroupEvent::Actions(actions.ok_or(NAMELESS)?));
        Ok(())
    }

    /// Has this member lead without waiting for the leader's silence.
    ///
    /// Errors: this server is no member, or does not know its own name yet.
    pub fn campaign(&self, shared: &Shared) -> Result<(), &'static str> {
        let now_ms = darter_reactor::process::boot_ms();
        let actions = self.with_machine(shared, |machine| machine.campaign(now_ms)).ok_or(NAMELESS)?;
        let actions = actions.ok_or(
            "ERR this replica may lack what was acknowledged, CLUSTER FAILOVER TAKEOVER leads with what it has",
        )?;
        self.tell(GroupEvent::Actions(actions));
        Ok(())
    }

    /// Leads whatever may be lost by it: a person wants it so.
    ///
    /// Errors: this server does not know its own name yet.
    pub fn promote_unclean(&self, shared: &Shared) -> Result<(), &'static str> {
        let now_ms = darter_reactor::process::boot_ms();
        self.with_machine(shared, |machine| machine.promote_unclean(now_ms)).ok_or(NAMELESS)?;
        self.counts.unclean.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// The error of commands while a server has no name.
const NAMELESS: &str = "ERR this server has not reached the store yet";
/// The error of commands that would change the role.
pub const REFUSAL: &str = "ERR the role of this server is decided by its group (ha_store)";

impl Shared {
    /// The term that frames say.
    pub fn term(&self) -> u64 {
        self.group.as_ref().map_or(1, FailoverGroup::term)
    }

    /// The sequence below which all is committed, as frames say it; 0: nobody waits for that.
    pub fn committed_stream(&self) -> u64 {
        match &self.group {
            Some(group) if group.acks > 0 && !self.replication.is_replica() => {
                group.commit.committed_stream()
            }
            _ => 0,
        }
    }
}

impl ThreadState {
    /// Returns true if nobody is to see the data of this member of a group.
    pub fn is_in_doubt(&self) -> bool {
        self.shared.group.as_ref().is_some_and(FailoverGroup::is_in_doubt)
    }
}
