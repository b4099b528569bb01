//! Candidates of a group: a member whose leader is silent, the first server of a group, and one that comes back when no member has stayed.
//!
//! Called by the state machine at each tick of a server that does not lead, and by commands. The store decides between two who
//! want it.

use super::{ASK_MS, Founding, GroupAction, GroupFacts, GroupMachine, GroupRole, YIELD_MS};
use crate::state::{Ack, GroupMember, GroupState};

impl GroupMachine {
    /// Has a member lead without waiting for its leader's silence; `None`: it is no member, or has no whole state. It serves when the
    /// leader's lease is over.
    pub fn campaign(&mut self, now_ms: u64) -> Option<Vec<GroupAction>> {
        let is_member = self.known.as_ref().is_some_and(|known| known.state.has(&self.own));
        if !is_member || !self.standing.is_whole || self.leads() {
            return None;
        }
        let mut actions = Vec::new();
        self.begin_campaign(now_ms, self.term(), &mut actions);
        self.insists = matches!(self.role, GroupRole::Campaigns { .. });
        Some(actions)
    }

    /// On any other: the state that it leads in, if it may.
    pub(super) fn candidacy(
        &mut self,
        now_ms: u64,
        facts: &GroupFacts,
        actions: &mut Vec<GroupAction>,
    ) -> Option<GroupState> {
        if !facts.is_ready {
            return None;
        }
        let Some(known) = &self.known else {
            let may_begin = match facts.founding {
                Founding::Never => false,
                Founding::Later => now_ms >= self.began_ms + self.config.lease_ms,
                Founding::Now => true,
            };
            return (self.is_absent && may_begin).then(|| self.reign(0, facts));
        };
        let (term, state) = (known.state.term, &known.state);
        if let Some(forced_ms) = self.forced_ms {
            let is_fresh = self.fresh_ms.is_some_and(|at| at >= forced_ms);
            return is_fresh.then(|| self.reign(term, facts));
        }
        if self.comes_back() {
            return (facts.founding == Founding::Now).then(|| self.reign(term, facts));
        }
        if !state.has(&self.own) {
            return self.may_recover(now_ms, facts, state).then(|| self.reign(term, facts));
        }
        if !facts.is_whole {
            return None;
        }
        match &self.role {
            GroupRole::Follows { since_ms, .. } => {
                let given_ms = self.gave_ms.max(*since_ms);
                if now_ms > given_ms + self.config.patience_ms() && !facts.is_barred {
                    self.begin_campaign(now_ms, term, actions);
                }
                None
            }
            GroupRole::Campaigns { since_ms, .. } => {
                let is_fresh = self.fresh_ms.is_some_and(|at| at >= *since_ms);
                let is_asked = self.is_invited || now_ms >= since_ms + ASK_MS;
                let has_time = !self.is_invited && now_ms < since_ms + ASK_MS + YIELD_MS;
                let yields = has_time && self.knows_better(*since_ms, state);
                // Whoever is invited knows that the other members have everything, too.
                let sync = if self.is_invited { state.sync.clone() } else { vec![self.own.clone()] };
                let reign = || GroupState { sync, ..self.reign(term, facts) };
                (is_fresh && is_asked && !yields).then(reign)
            }
            GroupRole::Waits | GroupRole::Leads { .. } => None,
        }
    }

    fn begin_campaign(&mut self, now_ms: u64, term: u64, actions: &mut Vec<GroupAction>) {
        let GroupRole::Follows { leader, .. } = &self.role else { return };
        self.role = GroupRole::Campaigns { leader: leader.clone(), term, since_ms: now_ms };
        (self.clock_ms, self.next_read_ms) = (0, now_ms);
        actions.push(GroupAction::StopFollowing);
    }

    /// Returns true if this process led the group before it sat in another: its data has another history now.
    pub(super) fn comes_back(&self) -> bool {
        let is_older = |state: &GroupState| state.is_led_by(&self.own) && state.term != self.own_term;
        self.known.as_ref().is_some_and(|known| is_older(&known.state))
    }

    /// Whether another member has more.
    fn knows_better(&self, since_ms: u64, state: &GroupState) -> bool {
        state.sync.iter().filter(|member| **member != self.own).filter_map(|member| self.peer(member)).any(
            |peer| {
                let standing = peer.standing;
                peer.heard_ms >= since_ms && standing.is_whole && standing.position > self.standing.position
            },
        )
    }

    /// Whether this start of a server may go on for an earlier one, because no member has stayed.
    fn may_recover(&self, now_ms: u64, facts: &GroupFacts, state: &GroupState) -> bool {
        if facts.is_emptied || !state.sync.iter().any(|member| member.name == self.own.name) {
            return false;
        }
        let others = || state.sync.iter().filter(|member| member.name != self.own.name);
        // Nobody else can lead a group whose only member this server was.
        let patience_ms = if others().next().is_some() { 2 * self.config.lease_ms } else { 0 };
        let led_ms = self.peers.get(&state.leader).map_or(0, |peer| peer.led_ms);
        if now_ms < led_ms.max(self.began_ms) + patience_ms {
            return false;
        }
        let heard = |member: &GroupMember| {
            self.peers.get(&member.name).filter(|peer| peer.heard_ms + self.config.lease_ms > now_ms)
        };
        if self.config.acks == 0 {
            return !others().any(|member| heard(member).is_some_and(|peer| peer.boot == member.boot));
        }
        if !facts.recovers {
            return false;
        }
        if state.ack == Ack::Disk {
            return true;
        }
        // The leader has all that was acknowledged; it has lost its place in the history if it was killed.
        let rank = |name: &str, position: u64| {
            let position = if name == state.leader { u64::MAX } else { position };
            (position, name.to_owned())
        };
        let own = rank(&self.own.name, self.standing.position);
        others().all(|member| {
            heard(member).is_some_and(|peer| {
                let is_back = peer.boot != member.boot && peer.standing.recovers;
                is_back && rank(&member.name, peer.standing.position) < own
            })
        })
    }

    /// The state in which this server leads alone.
    fn reign(&self, term: u64, facts: &GroupFacts) -> GroupState {
        GroupState {
            term: term + 1,
            leader: self.own.name.clone(),
            replid: facts.replid.clone(),
            ack: self.config.ack,
            sync: vec![self.own.clone()],
        }
    }
}
