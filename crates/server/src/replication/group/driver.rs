//! The thread of the group: gives the state machine the time, and does what it asks for.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::{MapChange, NodeRole};
use darter_quorum::etcd::Etcd;
use darter_quorum::group::{Founding, GroupAction, GroupConfig, GroupFacts, GroupFollower, GroupMachine};
use darter_quorum::state::{Ack, GroupMember, GroupState};
use darter_quorum::store::{StoreFault, Versioned};
use darter_reactor::process::boot_ms;
use darter_replica::history::ReplId;

use super::beats::Beaters;
use super::closing::{AfterClosing, Closing};
use super::record::GroupRecord;
use super::seat::{self, Seat, Seating};
use super::store::{self, StoreRequest};
use super::{FailoverGroup, GroupEvent, place, roles, store_watch};
use crate::clock::unix_ms;
use crate::pubsub;
use crate::replication::replicas::ReplicaStage;
use crate::shared::{CloseScope, Shared, ThreadMessage};
use crate::sync::lock;
use darter_config::{Fsync, HighAvailability, Live};

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(10);
/// Time between two attempts to have the map of the cluster say that this server leads.
const CLAIM: Duration = Duration::from_millis(500);

/// The thread's own.
struct GroupDriver {
    shared: &'static Shared,
    group: &'static FailoverGroup,
    requests: Sender<StoreRequest>,
    beaters: Beaters,
    closing: Option<Closing>,
    // the history that a reign would begin
    replid: ReplId,
    // who leads, as subscribers know it
    leader: String,
    // the log was told that the leader asks for disks
    lacks_disk: bool,
    // the log was told that the store has an older state
    lost_changes: bool,
    // since when the leader has had no lease, by `boot_ms`
    leaseless_ms: Option<u64>,
    // when clients that come back to who led before are sent away once more, by `boot_ms`
    sends_away_ms: Option<u64>,
    // this server's place in a group, and how many it has had
    seat: Option<Seat>,
    seats: u64,
    // the revision of the map of the cluster that was looked at last
    revision: u64,
    // when the map was asked last to say that this server leads
    claimed: Option<Instant>,
}

/// Joins the group that the settings name, if they name one. To be called once, when it is known what is loaded.
///
/// Errors: the settings contradict each other, or there can be no more threads.
pub fn start(shared: &'static Shared) -> std::io::Result<()> {
    let Some(group) = &shared.group else { return Ok(()) };
    let live = shared.settings.live();
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, why.to_owned());
    if live.replication.master.is_some() {
        return Err(invalid("ha_store: the group says whom this server follows, not replicaof"));
    }
    check_disk_acks(&live).map_err(|why| invalid(&why))?;
    if live.replication.ha.is_on() && live.cluster.mode != darter_config::ClusterMode::Off {
        return Err(invalid("ha_store: a cluster has its groups in cluster_store"));
    }
    let seating = Seating::new(shared, &live).map_err(|why| invalid(&why))?;
    let (tell, hear) = channel();
    let _ = group.events.set(tell);
    let body = move || {
        shared.snapshots.roam();
        run(shared, group, seating, &hear);
    };
    thread::Builder::new().name("darter-group".to_owned()).spawn(body).map(drop)
}

/// Tells why acknowledgements cannot be of disks, if that is what the settings want.
///
/// Errors: the settings have writes answered that are on no disk.
pub fn check_disk_acks(live: &Live) -> Result<(), String> {
    let (ha, own) = (&live.replication.ha, &live.persistence);
    let lacks = match () {
        _ if !live.has_group() || !ha.acks_disk => return Ok(()),
        _ if !own.appendonly => "appendonly yes",
        _ if own.appendfsync != Fsync::Always => "appendfsync always",
        _ if ha.acks == 0 => "min_replicas_to_ack 1 or more",
        _ => return Ok(()),
    };
    Err(format!("replica_ack disk needs {lacks}"))
}

fn run(
    shared: &'static Shared,
    group: &'static FailoverGroup,
    seating: Seating,
    events: &Receiver<GroupEvent>,
) {
    let seat = seating.wait(shared, &shared.settings.live());
    // Whoever follows before is given everything; nobody leads with half of what there is.
    while shared.snapshots.loading.is_on() {
        thread::sleep(TICK);
    }
    let (requests, asked) = channel();
    let spawned =
        thread::Builder::new().name("darter-store".to_owned()).spawn(move || store::run(shared, &asked));
    if let Err(error) = spawned {
        return tracing::error!("the store of the group cannot be asked: {error}");
    }
    let mut driver = GroupDriver {
        shared,
        group,
        requests,
        beaters: Beaters::default(),
        closing: None,
        replid: crate::replication::new_id(),
        leader: String::new(),
        lacks_disk: false,
        lost_changes: false,
        leaseless_ms: None,
        sends_away_ms: None,
        seat: None,
        seats: 0,
        revision: 0,
        claimed: None,
    };
    store_watch::start(shared, group);
    if let Some((seat, etcd)) = seat {
        driver.sit(seat, etcd);
    }
    driver.run(events);
}

fn config(group: &FailoverGroup, ha: &HighAvailability) -> GroupConfig {
    GroupConfig { lease_ms: ha.lease_ms, ack_timeout_ms: ha.ack_timeout_ms, acks: ha.acks, ack: group.ack }
}

impl GroupDriver {
    fn run(mut self, events: &Receiver<GroupEvent>) {
        while !self.shared.is_stopping.load(SeqCst) {
            match events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tick();
        }
    }

    fn take(&mut self, event: GroupEvent) {
        let now_ms = boot_ms();
        let actions = match event {
            GroupEvent::Read(seat, answer) if seat == self.seats => {
                self.tell_of_lost_changes(&answer);
                self.group.with_machine(self.shared, |machine| machine.read(now_ms, answer))
            }
            GroupEvent::Written(seat, answer) if seat == self.seats => {
                self.group.with_machine(self.shared, |machine| machine.written(now_ms, answer))
            }
            GroupEvent::Read(..) | GroupEvent::Written(..) => None,
            GroupEvent::Actions(actions) => Some(actions),
        };
        self.act(actions.unwrap_or_default());
    }

    /// Tells the log once that the store has an older state than this server has read, as one restored from a copy has.
    fn tell_of_lost_changes(&mut self, answer: &Result<Option<Versioned>, StoreFault>) {
        let Ok(Some(Versioned { revision, .. })) = answer else { return };
        let is_past =
            self.group.with_machine(self.shared, |machine| machine.is_past(*revision)) == Some(true);
        if is_past && !std::mem::replace(&mut self.lost_changes, is_past) {
            tracing::error!(
                "the store has lost changes of this group, so nobody leads by it: start its servers again"
            );
        }
    }

    /// Takes a place in a group. Whatever this server was in another is over.
    fn sit(&mut self, seat: Seat, etcd: Etcd) {
        self.stand_up();
        let (shared, group) = (self.shared, self.group);
        tracing::info!("this server is {} of the group {}", seat.name, seat.group);
        self.seats += 1;
        let _ = self.requests.send(StoreRequest::Open(self.seats, etcd));
        let own = GroupMember { name: seat.name.clone(), boot: shared.replication.boot.to_string() };
        let config = config(group, &shared.settings.live().replication.ha);
        *lock(&group.machine) = Some(GroupMachine::new(config, own, boot_ms()));
        *lock(&group.record) = GroupRecord::default();
        (self.seat, self.leader) = (Some(seat), String::new());
    }

    /// Leaves the group.
    fn stand_up(&mut self) {
        if self.seat.take().is_none() {
            return;
        }
        let (shared, group) = (self.shared, self.group);
        let left = lock(&group.machine).take();
        self.beaters.settle(shared, &[]);
        group.changes.fetch_add(1, SeqCst);
        roles::stop_following(shared);
        if left.is_some_and(|machine| machine.leads()) {
            roles::leave(shared, group);
            self.closing = Some(Closing::begin(shared, CloseScope::All, AfterClosing::LetGo));
        }
    }

    /// Takes the place that the map of the cluster gives to this node, and follows a leader to another address.
    fn heed_map(&mut self) {
        let shared = self.shared;
        let Some(store) = shared.cluster.shared_store() else { return };
        let revision = shared.cluster.map().revision();
        if std::mem::replace(&mut self.revision, revision) == revision {
            return self.claim();
        }
        let seat = seat::in_map(shared);
        if seat == self.seat {
            if let Some(leader) = self.followed() {
                roles::follow(shared, &leader);
            }
            return self.claim();
        }
        match seat.and_then(|seat| Some((store.of_group(&seat.group)?, seat))) {
            Some((etcd, seat)) => self.sit(seat, etcd),
            None => self.stand_up(),
        }
    }

    /// The leader that the state machine follows.
    fn followed(&self) -> Option<String> {
        let followed = |machine: &mut GroupMachine| machine.followed().map(str::to_owned);
        self.group.with_machine(self.shared, followed).flatten()
    }

    /// Has the map say that this server is the master of its group, once it leads.
    fn claim(&mut self) {
        let shared = self.shared;
        let Some(store) = shared.cluster.shared_store() else { return };
        let is_replica = matches!(shared.cluster.map().place(), NodeRole::Replica(_));
        let leads = || self.group.with_machine(shared, |machine| machine.leads()) == Some(true);
        let was_now = self.claimed.is_some_and(|at| at.elapsed() < CLAIM);
        if !is_replica || was_now || shared.replication.is_replica() || !leads() {
            return;
        }
        self.claimed = Some(Instant::now());
        let change = MapChange::Lead(unix_ms() / 1000);
        store.change(
            vec![change],
            Box::new(|_, outcome| {
                if let Err(why) = outcome {
                    tracing::warn!("this node leads its group, but the map does not say so: {why}");
                }
            }),
        );
    }

    fn tick(&mut self) {
        self.heed_map();
        let facts = self.facts();
        let done = self.group.with_machine(self.shared, |machine| {
            let actions = machine.tick(boot_ms(), &facts);
            (actions, machine.peers(), machine.leads(), machine.store_silence_ms(boot_ms()))
        });
        let Some((actions, peers, leads, silence_ms)) = done else { return };
        self.act(actions);
        self.group.note_synced(self.shared);
        self.beaters.settle(self.shared, &peers);
        self.note_changes();
        let lease_ms = self.shared.settings.live().replication.ha.lease_ms;
        self.tell_of_leader(lease_ms);
        self.look_at_lease();
        let is_severed =
            leads && self.group.acks == 0 && !self.group.commit.has_lease() && silence_ms >= lease_ms;
        self.group.is_severed.store(is_severed, SeqCst);
        if let Some(closing) = &mut self.closing
            && closing.go_on(self.shared, self.group)
        {
            self.closing = None;
        }
    }

    fn act(&mut self, actions: Vec<GroupAction>) {
        let (shared, group) = (self.shared, self.group);
        for action in actions {
            match action {
                GroupAction::Read => drop(self.requests.send(StoreRequest::Read)),
                GroupAction::Write { expected, state } => {
                    drop(self.requests.send(StoreRequest::Write(expected, state)));
                }
                // What the thread of a beat has asked for may be over by now.
                GroupAction::Follow(leader) if self.followed().as_deref() != Some(&*leader) => {}
                GroupAction::StopFollowing if self.followed().is_some() => {}
                GroupAction::Follow(leader) => {
                    roles::follow(shared, &leader);
                    group.changes.fetch_add(1, SeqCst);
                }
                GroupAction::StopFollowing => {
                    match group.with_machine(shared, |machine| machine.is_invited()) {
                        Some(true) => tracing::info!("the leader gives its place to this server"),
                        _ => tracing::warn!("the leader of the group is silent"),
                    }
                    roles::stop_following(shared);
                }
                GroupAction::Lead { term, replid } => {
                    self.closing = None;
                    if !roles::lead(shared, group, term, &replid) {
                        continue;
                    }
                    self.replid = crate::replication::new_id();
                    self.leaseless_ms = None;
                    group.changes.fetch_add(1, SeqCst);
                }
                GroupAction::StepDown if group.has_abdicated.load(SeqCst) => roles::step_down(shared, group),
                GroupAction::StepDown => {
                    roles::step_down(shared, group);
                    self.closing = Some(Closing::begin(shared, CloseScope::All, AfterClosing::LetGo));
                }
            }
        }
    }

    /// Tells the log once where the leader asks for disks, and this server does not say what its disk has.
    fn tell_of_other_acks(&mut self, state: &GroupState) {
        let lacks_disk = state.ack == Ack::Disk && !self.group.acks_disk();
        if lacks_disk && !std::mem::replace(&mut self.lacks_disk, lacks_disk) {
            tracing::error!(
                "the group acknowledges what is on disk, and this server what is in memory: it is no member (replica_ack)"
            );
        }
    }

    /// Keeps what has changed for people.
    fn note_changes(&mut self) {
        let mut record = lock(&self.group.record);
        self.group.with_machine(self.shared, |machine| {
            if let Some((_, state)) = machine.state() {
                record.note(unix_ms(), state);
                self.tell_of_other_acks(state);
            }
        });
    }

    /// Publishes that another server leads, in the words of Sentinel, and sends the clients of who led before to it.
    fn tell_of_leader(&mut self, lease_ms: u64) {
        if self.sends_away_ms.is_some_and(|at_ms| boot_ms() >= at_ms) {
            self.sends_away_ms = None;
            self.send_clients_away();
        }
        let known = self.group.with_machine(self.shared, |machine| {
            let leader = machine.state().map(|(_, state)| state.leader.clone()).unwrap_or_default();
            (leader, self.leader == machine.own().name)
        });
        let Some((leader, led)) = known.filter(|(leader, _)| *leader != self.leader) else { return };
        if self.shared.cluster.shared_store().is_some() {
            // Clients of a cluster are sent on by its map.
            self.leader = leader;
            return;
        }
        let old = std::mem::replace(&mut self.leader, leader);
        let (Some(old), Some(new)) = (place::parse(&old), place::parse(&self.leader)) else { return };
        let group = &self.shared.settings.live().replication.ha.group;
        let line = format!("{group} {} {} {} {}", old.0, old.1, new.0, new.1);
        pubsub::publish(self.shared, b"+switch-master", line.as_bytes());
        self.sends_away_ms = led.then(|| boot_ms() + lease_ms);
        if led {
            self.send_clients_away();
        }
    }

    /// Closes clients that take this server for the leader, as Sentinel does: some ask who leads only when they connect.
    /// One lease later those follow that asked a member which had not heard of the change.
    fn send_clients_away(&self) {
        self.shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Close(CloseScope::Astray)));
    }

    /// Collects the facts of this moment.
    fn facts(&self) -> GroupFacts {
        let shared = self.shared;
        let leads = !shared.replication.is_replica();
        let is_loading = shared.snapshots.loading.is_on();
        let names = lock(&self.group.names).clone();
        let keys = || shared.shard_stats.iter().any(|stats| lock(stats).keys.iter().any(|keys| *keys > 0));
        let has_keys = keys();
        let state = shared.replication.state();
        let is_mapped = shared.cluster.shared_store().is_some();
        let founding = match shared.cluster.map().place() {
            // The map names the first leader of each group.
            NodeRole::Master(_) if is_mapped => Founding::Now,
            _ if is_mapped => Founding::Never,
            _ if state.is_continuous || has_keys => Founding::Now,
            _ => Founding::Later,
        };
        let followers = state.replicas.iter().filter(|replica| replica.stage == ReplicaStage::Online);
        let followers = followers.filter_map(|replica| {
            let boot = replica.boot?;
            Some(GroupFollower {
                member: GroupMember { name: names.get(&boot)?.clone(), boot: boot.to_string() },
                acked: self.group.acked(&replica.flows.as_ref()?.said),
                is_required: self.group.commit.is_required(&boot),
            })
        });
        GroupFacts {
            position: state.offset(),
            is_whole: state.is_continuous && !is_loading,
            recovers: self.group.recovers.load(SeqCst),
            is_emptied: self.group.is_emptied.load(SeqCst) && !state.is_continuous,
            founding,
            is_barred: is_mapped && !shared.settings.live().cluster.takes_over,
            is_ready: !is_loading,
            replid: if leads { state.history.id } else { self.replid }.to_string(),
            end: state.records.next(),
            followers: followers.collect(),
            store_tells: self.group.store_tells.load(SeqCst),
        }
    }

    /// On a leader that may not answer: refuses everything after a while, so that nobody waits for ever.
    fn look_at_lease(&mut self) {
        let (shared, group) = (self.shared, self.group);
        let leads = !shared.replication.is_replica();
        if !leads || group.acks == 0 {
            self.leaseless_ms = None;
            return;
        }
        if group.lacks_acks.load(SeqCst) && self.closing.is_none() && group.commit.is_frozen() {
            self.closing = Some(Closing::begin(shared, CloseScope::Held, AfterClosing::Thaw));
        }
        if group.commit.has_lease() {
            self.leaseless_ms = None;
            if group.is_cut_off() {
                group.commit.wait_for(group.acks);
                self.closing = None;
                group.is_cut_off.store(false, SeqCst);
                tracing::info!("the members of the group are heard again");
            }
            return;
        }
        let now_ms = boot_ms();
        let since_ms = *self.leaseless_ms.get_or_insert(now_ms);
        let patience_ms = shared.settings.live().replication.ha.lease_ms;
        if !group.is_cut_off() && now_ms >= since_ms + patience_ms {
            group.is_cut_off.store(true, SeqCst);
            self.closing = Some(Closing::begin(shared, CloseScope::Held, AfterClosing::LetGo));
            tracing::warn!("the members of the group are not heard: nothing is answered until they are");
        }
    }
}
