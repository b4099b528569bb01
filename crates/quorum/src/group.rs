//! The state machine of one server of a group: who leads, who is a member, how long the leader may serve.
//!
//! The thread of the group calls it with the time and with what came; it returns what is to be done. It has no clock, no
//! thread and no socket, so the simulator runs it from a seed. Times are milliseconds of the server's own clock: only the
//! rates of two clocks are compared, never what they show.
//!
//! Four rules keep acknowledged writes. The store changes only by compare-and-set. A leader answers when all members have
//! what it tells of. A member is dropped by the store first, and by the leader then. A start of a server that is not in the
//! store's list cannot lead, whatever its name is.

mod candidacy;

use std::collections::BTreeMap;

use crate::beat::{Beat, BeatAnswer, Standing};
use crate::state::{Ack, GroupMember, GroupState};
use crate::store::{StoreFault, StoreWritten, Versioned};

/// The numbers of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// A leader serves for so long after it has sent what a member acknowledged.
    pub lease_ms: u64,
    /// A member that is silent, or does not acknowledge, is dropped after this.
    pub ack_timeout_ms: u64,
    /// Members besides the leader that a write needs.
    pub acks: u32,
    /// What an acknowledgement says.
    pub ack: Ack,
}

impl GroupConfig {
    /// Time between two beats, and between two reads of the store.
    pub fn beat_ms(&self) -> u64 {
        (self.lease_ms / 10).clamp(1, 100)
    }

    /// Between two reads of a store that tells of changes. Without members it is the store that has to be heard within a lease.
    fn rest_ms(&self) -> u64 {
        let rest_ms = if self.acks == 0 { self.lease_ms / 4 } else { READ_MS };
        rest_ms.clamp(self.beat_ms(), READ_MS)
    }

    /// A member does not campaign for so long after its last acknowledgement.
    fn patience_ms(&self) -> u64 {
        self.lease_ms + self.lease_ms / 2
    }
}

/// What the server knows at a tick.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupFacts {
    /// Bytes of the history that its data has.
    pub position: u64,
    /// Its data is a state of a master, not the middle of a full sync.
    pub is_whole: bool,
    /// It has begun with what its journal kept.
    pub recovers: bool,
    /// A full sync has taken what was here, and has not brought a whole state.
    pub is_emptied: bool,
    /// Whether it may be the first leader of a group that the store does not know.
    pub founding: Founding,
    /// It never wants to lead by itself.
    pub is_barred: bool,
    /// What was on disk is loaded.
    pub is_ready: bool,
    /// The history that a new reign would begin, and the present one on a leader.
    pub replid: String,
    /// On a leader: the sequence of the next change.
    pub end: u64,
    /// On a leader: those who follow it.
    pub followers: Vec<GroupFollower>,
    /// The store tells of changes ([`GroupMachine::read_soon`]); it is read now and then all the same.
    pub store_tells: bool,
}

/// Whether a server may be the first leader of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Founding {
    /// Another server does that.
    Never,
    /// After a lease: a server with data goes first.
    #[default]
    Later,
    /// At once.
    Now,
}

/// A replica of the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupFollower {
    /// The start of a server that it is.
    pub member: GroupMember,
    /// It has acknowledged every change below.
    pub acked: u64,
    /// Nothing is answered without its acknowledgement, and it has everything that was.
    pub is_required: bool,
}

/// A step that the server takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupAction {
    /// Read the store, and call [`GroupMachine::read`].
    Read,
    /// Write to the store, and call [`GroupMachine::written`].
    Write {
        /// The revision that the store must have.
        expected: u64,
        /// The new state.
        state: GroupState,
    },
    /// Follow this server.
    Follow(String),
    /// Acknowledge nothing to the leader any more.
    StopFollowing,
    /// Become the master, with a new history.
    Lead {
        /// The term.
        term: u64,
        /// The history's id.
        replid: String,
    },
    /// BeatAnswer nothing any more that was held back, and be a replica.
    StepDown,
}

/// The time in which a leader may serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeWindow {
    /// From this time on,
    pub from_ms: u64,
    /// and before this one.
    pub until_ms: u64,
}

impl ServeWindow {
    /// Returns true if `now_ms` is in it.
    pub fn has(&self, now_ms: u64) -> bool {
        self.from_ms <= now_ms && now_ms < self.until_ms
    }

    const NEVER: ServeWindow = ServeWindow { from_ms: u64::MAX, until_ms: 0 };
}

/// The part of this server.
#[derive(Clone, PartialEq, Eq, Debug)]
enum GroupRole {
    /// It follows nobody.
    Waits,
    Follows {
        leader: String,
        term: u64,
        since_ms: u64,
    },
    /// It has stopped to acknowledge, and wants to lead.
    Campaigns {
        leader: String,
        term: u64,
        since_ms: u64,
    },
    Leads {
        term: u64,
        from_ms: u64,
    },
}

/// What was heard of another server.
#[derive(Clone, Debug, Default)]
struct PeerCard {
    boot: String,
    heard_ms: u64,
    // when it was last heard as a leader of the term that is known
    led_ms: u64,
    // the largest clock of ours that it has acknowledged
    echoed_ms: u64,
    standing: Standing,
}

/// How long a member has lacked something.
#[derive(Clone, Copy, Debug)]
struct AckGoal {
    sequence: u64,
    since_ms: u64,
}

/// What the store is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Flight {
    Idle,
    Reads { since_ms: u64 },
    Writes { state: GroupState },
}

/// The group as the store was last known to have it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KnownState {
    revision: u64,
    state: GroupState,
}

/// See above.
pub struct GroupMachine {
    config: GroupConfig,
    own: GroupMember,
    began_ms: u64,
    role: GroupRole,
    known: Option<KnownState>,
    // a read has shown that there is no state
    is_absent: bool,
    // the store may have another state than the one that is known: it is read before it is written
    reads_first: bool,
    flight: Flight,
    next_read_ms: u64,
    // the store tells of changes
    store_tells: bool,
    // when the last read that was answered began
    fresh_ms: Option<u64>,
    peers: BTreeMap<String, PeerCard>,
    // the leader's clock that was not acknowledged yet
    clock_ms: u64,
    // when this server has last acknowledged one
    gave_ms: u64,
    goals: BTreeMap<GroupMember, AckGoal>,
    joining: Vec<GroupMember>,
    // members that a write would add whose outcome is not known
    maybe: Vec<GroupMember>,
    standing: Standing,
    // since when a person wants this server to lead
    forced_ms: Option<u64>,
    // the reign that was asked for counts on the data being whole
    needs_whole: bool,
    // the leader has asked this server to take its place, and serves no more
    is_invited: bool,
    // a person has asked it to campaign, whatever the leader says
    insists: bool,
    // the term of the last reign that it has asked the store for
    own_term: u64,
    // this server has given the lead away, and does not take it back before
    rests_until_ms: u64,
}

/// A store that tells of changes is read so often at least.
const READ_MS: u64 = 1000;
/// A candidate listens to others for so long.
const ASK_MS: u64 = 100;
/// A leader that has given the lead away waits so long for another to take it.
const REST_MS: u64 = 2000;
/// One that knows of a better candidate lets it go first for so long.
const YIELD_MS: u64 = 400;

impl GroupMachine {
    /// A server that has just begun.
    pub fn new(config: GroupConfig, own: GroupMember, now_ms: u64) -> GroupMachine {
        GroupMachine {
            config,
            own,
            began_ms: now_ms,
            role: GroupRole::Waits,
            known: None,
            is_absent: false,
            reads_first: false,
            flight: Flight::Idle,
            next_read_ms: now_ms,
            store_tells: false,
            fresh_ms: None,
            peers: BTreeMap::new(),
            clock_ms: 0,
            gave_ms: now_ms,
            goals: BTreeMap::new(),
            joining: Vec::new(),
            maybe: Vec::new(),
            standing: Standing::default(),
            forced_ms: None,
            needs_whole: false,
            is_invited: false,
            insists: false,
            own_term: 0,
            rests_until_ms: 0,
        }
    }

    /// This server.
    pub fn own(&self) -> &GroupMember {
        &self.own
    }

    /// The numbers of the group.
    pub fn config(&self) -> GroupConfig {
        self.config
    }

    /// Takes other numbers.
    pub fn set_config(&mut self, config: GroupConfig) {
        self.config = config;
    }

    /// The state, as far as it is known, and its revision.
    pub fn state(&self) -> Option<(u64, &GroupState)> {
        self.known.as_ref().map(|known| (known.revision, &known.state))
    }

    /// Its part in a word.
    pub fn role(&self) -> &'static str {
        match self.role {
            GroupRole::Waits => "waiting",
            GroupRole::Follows { .. } => "following",
            GroupRole::Campaigns { .. } => "campaigning",
            GroupRole::Leads { .. } => "leading",
        }
    }

    /// Returns true if this server leads.
    pub fn leads(&self) -> bool {
        matches!(self.role, GroupRole::Leads { .. })
    }

    /// Has the store read as soon as possible: another server may lead by now.
    pub fn read_soon(&mut self, now_ms: u64) {
        self.next_read_ms = self.next_read_ms.min(now_ms);
    }

    /// Returns true if the leader has asked this server to take its place.
    pub fn is_invited(&self) -> bool {
        self.is_invited
    }

    /// Leads whatever may be lost by it: a person wants it so.
    pub fn promote_unclean(&mut self, now_ms: u64) {
        self.forced_ms = Some(now_ms).filter(|_| !self.leads());
        self.next_read_ms = now_ms;
    }

    /// The leader that this server follows.
    pub fn followed(&self) -> Option<&str> {
        match &self.role {
            GroupRole::Follows { leader, .. } => Some(leader),
            _ => None,
        }
    }

    /// On a leader: serves no more from now on, so that another member may take its place. All members have everything.
    pub fn abdicate(&mut self, now_ms: u64) -> Vec<GroupAction> {
        let mut actions = Vec::new();
        if self.leads() {
            self.rests_until_ms = now_ms + REST_MS;
            self.step_down(&mut actions);
        }
        actions
    }

    /// Takes the place of the leader of a term, which serves no more and has said that all members have everything. Whether
    /// this server is a member the next reading tells: it may have joined since the last.
    pub fn take_over(&mut self, now_ms: u64, of_term: u64) -> Vec<GroupAction> {
        match &self.role {
            GroupRole::Follows { leader, term, .. } if *term == of_term => {
                let leader = leader.clone();
                self.role = GroupRole::Campaigns { leader, term: of_term, since_ms: now_ms };
                (self.clock_ms, self.is_invited) = (0, true);
                (self.next_read_ms, self.rests_until_ms) = (now_ms, 0);
                vec![GroupAction::StopFollowing]
            }
            _ => Vec::new(),
        }
    }

    /// The others without whose acknowledgement nothing may be answered; none unless this server leads.
    pub fn required(&self) -> Vec<GroupMember> {
        if !self.leads() {
            return Vec::new();
        }
        let sync = self.known.iter().flat_map(|known| &known.state.sync);
        let mut required: Vec<GroupMember> = Vec::new();
        for member in sync.chain(&self.maybe).chain(&self.joining) {
            if *member != self.own && !required.contains(member) {
                required.push(member.clone());
            }
        }
        required
    }

    /// When this server may answer as the leader.
    pub fn window(&self) -> ServeWindow {
        let GroupRole::Leads { from_ms, .. } = self.role else { return ServeWindow::NEVER };
        let lease = |member: &GroupMember| match self.peer(member) {
            Some(peer) if peer.echoed_ms > 0 => peer.echoed_ms + self.config.lease_ms,
            _ => 0,
        };
        let members = self.required();
        // One that is about to join holds no lease until the store may have it.
        let bound = members.iter().filter(|member| !self.is_only_joining(member));
        ServeWindow { from_ms, until_ms: bound.map(lease).min().unwrap_or(u64::MAX) }
    }

    /// Those who are beaten to.
    pub fn peers(&self) -> Vec<String> {
        let Some(known) = &self.known else { return Vec::new() };
        let names = known.state.sync.iter().map(|member| &member.name);
        let mut names: Vec<String> = names.chain(std::iter::once(&known.state.leader)).cloned().collect();
        names.sort();
        names.dedup();
        names.retain(|name| *name != self.own.name);
        names
    }

    /// Milliseconds since another server was heard.
    pub fn silence_ms(&self, now_ms: u64, name: &str) -> Option<u64> {
        self.peers.get(name).map(|peer| now_ms.saturating_sub(peer.heard_ms))
    }

    /// Milliseconds since a read began that the store has answered.
    pub fn store_silence_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.fresh_ms.unwrap_or(0))
    }

    /// Whether a required member is one that the store cannot have yet: it counts once it has all that was answered.
    pub fn is_candidate(&self, member: &GroupMember) -> bool {
        self.is_only_joining(member)
    }

    fn is_only_joining(&self, member: &GroupMember) -> bool {
        let is_kept = self.known.as_ref().is_some_and(|known| known.state.has(member));
        let is_written = matches!(&self.flight, Flight::Writes { state } if state.has(member));
        !is_kept && !is_written && !self.maybe.contains(member)
    }

    fn peer(&self, member: &GroupMember) -> Option<&PeerCard> {
        self.peers.get(&member.name).filter(|peer| peer.boot == member.boot)
    }

    fn term(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.state.term)
    }
}

/// Beats.
impl GroupMachine {
    /// Returns the beat for another server. Whoever calls this sends it: the acknowledgement in it counts from here.
    pub fn beat_for(&mut self, now_ms: u64, name: &str) -> Beat {
        let is_leader = matches!(&self.role, GroupRole::Follows { leader, .. } if leader == name);
        let echo_ms = if is_leader { std::mem::take(&mut self.clock_ms) } else { 0 };
        if echo_ms > 0 {
            self.gave_ms = now_ms;
        }
        Beat { from: self.own.clone(), term: self.term(), echo_ms, standing: self.standing }
    }

    /// Returns true if a leader is waited for that has no acknowledgement of this server in its term yet: until it has one it
    /// answers nothing, so it is beaten to at once.
    pub fn owes_first_echo(&self, name: &str) -> bool {
        matches!(&self.role, GroupRole::Follows { leader, since_ms, .. } if leader == name && self.gave_ms <= *since_ms)
    }

    /// Takes what another server says, and answers.
    pub fn hear_beat(&mut self, now_ms: u64, beat: &Beat) -> BeatAnswer {
        let leads = matches!(self.role, GroupRole::Leads { term, .. } if term == beat.term);
        if beat.term > self.term() {
            self.read_soon(now_ms);
        }
        let peer = self.note_peer(now_ms, &beat.from, beat.standing);
        if leads && beat.echo_ms <= now_ms {
            peer.echoed_ms = peer.echoed_ms.max(beat.echo_ms);
        }
        BeatAnswer {
            from: self.own.clone(),
            term: self.term(),
            clock_ms: if self.leads() { now_ms.max(1) } else { 0 },
            standing: self.standing,
        }
    }

    /// Takes an answer.
    pub fn hear_answer(&mut self, now_ms: u64, answer: &BeatAnswer) -> Vec<GroupAction> {
        let is_of_leader = match &self.role {
            GroupRole::Follows { leader, term, since_ms }
            | GroupRole::Campaigns { leader, term, since_ms } => {
                // It was on its way when the leader gave its place away, or it is not asked.
                let is_vain = (self.is_invited || self.insists) && now_ms < since_ms + REST_MS;
                *leader == answer.from.name && *term == answer.term && answer.clock_ms > 0 && !is_vain
            }
            GroupRole::Waits | GroupRole::Leads { .. } => false,
        };
        let is_member = self.known.as_ref().is_some_and(|known| known.state.is_led_by(&answer.from));
        if answer.term > self.term() {
            self.read_soon(now_ms);
        }
        let peer = self.note_peer(now_ms, &answer.from, answer.standing);
        if !is_of_leader || !is_member {
            return Vec::new();
        }
        peer.led_ms = now_ms;
        self.clock_ms = self.clock_ms.max(answer.clock_ms);
        // The leader is there after all.
        match &self.role {
            GroupRole::Campaigns { leader, term, .. } if self.forced_ms.is_none() => {
                let leader = leader.clone();
                self.role = GroupRole::Follows { leader: leader.clone(), term: *term, since_ms: now_ms };
                (self.is_invited, self.insists) = (false, false);
                vec![GroupAction::Follow(leader)]
            }
            _ => Vec::new(),
        }
    }

    fn note_peer(&mut self, now_ms: u64, from: &GroupMember, standing: Standing) -> &mut PeerCard {
        let peer = self.peers.entry(from.name.clone()).or_default();
        if peer.boot != from.boot {
            *peer = PeerCard { boot: from.boot.clone(), ..PeerCard::default() };
        }
        (peer.heard_ms, peer.standing) = (now_ms, standing);
        peer
    }
}

/// The store.
impl GroupMachine {
    /// Takes the answer to [`GroupAction::Read`].
    pub fn read(&mut self, now_ms: u64, answer: Result<Option<Versioned>, StoreFault>) -> Vec<GroupAction> {
        let Flight::Reads { since_ms } = self.flight else { return Vec::new() };
        self.flight = Flight::Idle;
        let pause_ms = match () {
            // The answer may be older than the invitation.
            _ if self.is_invited => 0,
            _ if answer.is_ok() => self.read_pause_ms(),
            _ => self.config.beat_ms(),
        };
        // What was told of meanwhile may be newer than the answer.
        self.read_soon(now_ms + pause_ms);
        self.reads_first &= answer.is_err();
        let mut actions = Vec::new();
        match answer {
            Err(_) => {}
            Ok(None) => {
                self.fresh_ms = Some(since_ms);
                self.is_absent = self.known.is_none();
                if self.known.is_some() && self.leads() {
                    // Whoever has removed it may make another one.
                    self.step_down(&mut actions);
                }
            }
            Ok(Some(Versioned { revision, .. })) if self.is_past(revision) => {
                if self.leads() {
                    // Others may lead by what it has now.
                    self.step_down(&mut actions);
                }
            }
            Ok(Some(Versioned { revision, value })) => {
                let Some(state) = GroupState::parse(&value) else { return actions };
                self.fresh_ms = Some(since_ms);
                self.learn(now_ms, KnownState { revision, state }, &mut actions);
            }
        }
        actions
    }

    /// Returns true if a store that shows this revision has lost changes that it had answered.
    pub fn is_past(&self, revision: u64) -> bool {
        self.known.as_ref().is_some_and(|known| revision < known.revision)
    }

    /// Time from an answer to the next read. Whoever neither leads nor follows does not rely on what it is told.
    fn read_pause_ms(&self) -> u64 {
        let is_settled = matches!(self.role, GroupRole::Leads { .. } | GroupRole::Follows { .. });
        if self.store_tells && is_settled { self.config.rest_ms() } else { self.config.beat_ms() }
    }

    /// Takes the answer to [`GroupAction::Write`].
    pub fn written(&mut self, now_ms: u64, answer: Result<StoreWritten, StoreFault>) -> Vec<GroupAction> {
        let Flight::Writes { state } = std::mem::replace(&mut self.flight, Flight::Idle) else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        self.reads_first = !matches!(answer, Ok(StoreWritten::Done(_)));
        match answer {
            Ok(StoreWritten::Done(revision)) => {
                self.learn(now_ms, KnownState { revision, state }, &mut actions)
            }
            Ok(StoreWritten::Conflict) => {}
            Err(_) => {
                // It may come about at any time while the revision is the same.
                let kept = self.known.as_ref().map_or(&[][..], |known| &known.state.sync);
                let added = state.sync.iter().filter(|member| !kept.contains(member));
                self.maybe.extend(added.cloned());
            }
        }
        self.next_read_ms = now_ms;
        actions
    }

    fn learn(&mut self, now_ms: u64, news: KnownState, actions: &mut Vec<GroupAction>) {
        if self.is_past(news.revision) {
            return;
        }
        if self.known.as_ref().is_none_or(|known| known.revision < news.revision) {
            self.maybe.clear();
            let state = &news.state;
            self.joining.retain(|member| !state.has(member));
        }
        let KnownState { state, .. } = self.known.insert(news);
        self.is_absent = false;
        let (term, leader) = (state.term, state.leader.clone());
        let is_mine = state.is_led_by(&self.own);
        match &self.role {
            GroupRole::Leads { term: own, .. } if is_mine && *own == term => return,
            GroupRole::Leads { .. } => self.step_down(actions),
            GroupRole::Follows { leader: old, term: own, .. }
            | GroupRole::Campaigns { leader: old, term: own, .. }
                if !is_mine && *own == term && *old == leader =>
            {
                return;
            }
            _ => {}
        }
        if is_mine && (now_ms < self.rests_until_ms || term != self.own_term) {
            self.role = GroupRole::Waits;
            return;
        }
        if is_mine {
            return self.lead(now_ms, actions);
        }
        (self.clock_ms, self.is_invited, self.insists, self.rests_until_ms) = (0, false, false, 0);
        if leader == self.own.name {
            // That was an earlier start of this server.
            self.role = GroupRole::Waits;
            return;
        }
        actions.push(GroupAction::Follow(leader.clone()));
        self.role = GroupRole::Follows { leader, term, since_ms: now_ms };
    }

    fn lead(&mut self, now_ms: u64, actions: &mut Vec<GroupAction>) {
        let Some(KnownState { state, .. }) = &self.known else { return };
        if self.needs_whole && !self.standing.is_whole {
            // A write that came about late: since then this server has begun a full sync, and has nothing to lead with.
            self.role = GroupRole::Waits;
            return;
        }
        // The one before may serve until then; before the first term there was none.
        let is_free = state.term == 1 || std::mem::take(&mut self.is_invited);
        let first_ms = if is_free { now_ms } else { self.gave_ms + self.config.patience_ms() };
        let from_ms = now_ms.max(first_ms);
        actions.push(GroupAction::Lead { term: state.term, replid: state.replid.clone() });
        self.role = GroupRole::Leads { term: state.term, from_ms };
        (self.forced_ms, self.insists) = (None, false);
        self.goals.clear();
        self.joining.clear();
        for peer in self.peers.values_mut() {
            peer.echoed_ms = 0;
        }
    }

    fn step_down(&mut self, actions: &mut Vec<GroupAction>) {
        self.role = GroupRole::Waits;
        self.joining.clear();
        actions.push(GroupAction::StepDown);
    }
}

/// Steps that time asks for.
impl GroupMachine {
    /// Does what the time asks for. To be called every few milliseconds.
    pub fn tick(&mut self, now_ms: u64, facts: &GroupFacts) -> Vec<GroupAction> {
        self.standing =
            Standing { position: facts.position, is_whole: facts.is_whole, recovers: facts.recovers };
        if std::mem::replace(&mut self.store_tells, facts.store_tells) && !facts.store_tells {
            self.read_soon(now_ms);
        }
        let mut actions = Vec::new();
        let wish = match &self.role {
            GroupRole::Leads { .. } => self.change_of_members(now_ms, facts),
            _ => self.candidacy(now_ms, facts, &mut actions),
        };
        if self.flight != Flight::Idle {
            return actions;
        }
        if let Some(state) = wish.filter(|_| !self.reads_first) {
            self.needs_whole = self.known.as_ref().is_some_and(|known| known.state.has(&self.own))
                && self.forced_ms.is_none()
                && !self.comes_back();
            let expected = self.known.as_ref().map_or(0, |known| known.revision);
            if state.leader == self.own.name {
                self.own_term = state.term;
            }
            self.flight = Flight::Writes { state: state.clone() };
            actions.push(GroupAction::Write { expected, state });
        } else if now_ms >= self.next_read_ms {
            self.flight = Flight::Reads { since_ms: now_ms };
            self.next_read_ms = u64::MAX;
            actions.push(GroupAction::Read);
        }
        actions
    }

    /// On a leader: the state with other members, if some leave or join.
    fn change_of_members(&mut self, now_ms: u64, facts: &GroupFacts) -> Option<GroupState> {
        self.note_goals(now_ms, facts);
        let state = self.known.as_ref()?.state.clone();
        let late: Vec<GroupMember> =
            self.required().into_iter().filter(|member| self.is_late(now_ms, member)).collect();
        let mut sync = state.sync.clone();
        sync.retain(|member| !late.contains(member));
        // What is on its way to the store may join all the same; the rest need not be waited for.
        let only: Vec<GroupMember> =
            self.joining.iter().filter(|member| self.is_only_joining(member)).cloned().collect();
        self.joining.retain(|member| !(only.contains(member) && late.contains(member)));
        for follower in &facts.followers {
            let member = &follower.member;
            let is_fresh = self
                .peer(member)
                .is_some_and(|peer| peer.echoed_ms + self.config.lease_ms / 2 > now_ms && peer.echoed_ms > 0);
            if state.has(member) || late.contains(member) || !is_fresh || *member == self.own {
                continue;
            }
            if !self.joining.contains(member) {
                self.joining.push(member.clone());
            } else if follower.is_required {
                sync.push(member.clone());
            }
        }
        // Those who have gone before they joined.
        let followers = &facts.followers;
        let stays = |member: &GroupMember| followers.iter().any(|follower| follower.member == *member);
        let gone: Vec<GroupMember> = self
            .joining
            .iter()
            .filter(|member| !stays(member) && self.is_only_joining(member))
            .cloned()
            .collect();
        self.joining.retain(|member| !gone.contains(member));
        let wish = GroupState { sync, ack: self.config.ack, replid: facts.replid.clone(), ..state.clone() };
        // A write whose outcome is not known can come about until the revision is another.
        (wish != state || !self.maybe.is_empty()).then_some(wish)
    }

    fn note_goals(&mut self, now_ms: u64, facts: &GroupFacts) {
        let required = self.required();
        self.goals.retain(|member, _| required.contains(member));
        for member in required {
            let follower = facts.followers.iter().find(|follower| follower.member == member);
            let acked = follower.map_or(0, |follower| follower.acked);
            let goal = self.goals.entry(member).or_insert(AckGoal { sequence: facts.end, since_ms: now_ms });
            if follower.is_some() && acked >= goal.sequence {
                *goal = AckGoal { sequence: facts.end, since_ms: now_ms };
            }
        }
    }

    /// Whether a member is silent, has not acknowledged for too long, or has gone.
    fn is_late(&self, now_ms: u64, member: &GroupMember) -> bool {
        let timeout_ms = self.config.ack_timeout_ms;
        let GroupRole::Leads { from_ms, .. } = self.role else { return false };
        let other_boot =
            self.peers.get(&member.name).is_some_and(|peer| peer.boot != member.boot && peer.heard_ms > 0);
        let heard_ms = self.peer(member).map_or(0, |peer| peer.heard_ms).max(from_ms);
        let is_behind = self.goals.get(member).is_some_and(|goal| now_ms > goal.since_ms + timeout_ms);
        other_boot || now_ms > heard_ms + timeout_ms || is_behind
    }
}
