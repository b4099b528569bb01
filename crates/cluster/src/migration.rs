//! Slots that move as a whole: what the map says of each move, and the changes that take it from its plan to its end.
//!
//! The source copies the keys, then one change of the map gives the slots away: [`MigrationChange::Commit`] is refused unless
//! all is as planned. Until then nothing but the entry has changed, and any node may end it by [`MigrationChange::Fail`]. What
//! is left behind, at the target after a failure and at the source after success, is hidden until its owner has removed it.
//! Until then that group cannot get the slots; all others can, so a node that is dead holds nobody up.
//!
//! No interleaving commits what the target does not have. The process that has the keys makes the commit, and it names its
//! boot: if it is dead, no new commit is made. A restarted process serves nothing before [`MapChange::Register`] has put its
//! boot in the map, and the same change ends its migrations. So a commit that was on its way when its process died is either
//! before that, as if the process had died a moment later, or it is refused. The same holds for a source that comes back and
//! takes writes again, and for one that was replaced ([`MapChange::Lead`]). A source that does not learn the outcome puts
//! Fail before or after the commit, and only what comes first counts. A late commit of an earlier attempt has another number.
//!
//! [`MapChange::Register`]: crate::MapChange::Register
//! [`MapChange::Lead`]: crate::MapChange::Lead

use serde_json::{Value, json};

use crate::change::{has, led_group, seen, without};
use crate::map::{LinkKind, NodeGroup, SlotMap, SlotRange, join_ranges};
use crate::stored::{StoredMap, list, range_of, text};

/// How far a migration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationState {
    /// It is planned or under way; the source owns the slots.
    Active,
    /// It has failed for a passing reason, and begins again when the target has removed what it has got.
    Retrying,
    /// The target owns the slots.
    Done,
    /// It was given up; the source owns the slots.
    Failed,
    /// The same, because somebody wished it.
    Cancelled,
}

impl MigrationState {
    /// Its name in the store, and in Valkey's answers once it has ended.
    pub fn name(self) -> &'static str {
        match self {
            MigrationState::Active => "active",
            MigrationState::Retrying => "retrying",
            MigrationState::Done => "success",
            MigrationState::Failed => "failed",
            MigrationState::Cancelled => "cancelled",
        }
    }

    fn named(name: &str) -> Option<MigrationState> {
        use MigrationState::{Active, Cancelled, Done, Failed, Retrying};
        [Active, Retrying, Done, Failed, Cancelled].into_iter().find(|state| state.name() == name)
    }
}

/// A move of slots from one group to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotMigration {
    /// Its name, 40 hex digits.
    pub id: String,
    /// The slots, joined and in ascending order.
    pub slots: Vec<SlotRange>,
    /// The id of the group that gives them.
    pub from: String,
    /// The id of the group that gets them.
    pub to: String,
    /// The id of the master of `from` at the time of the plan.
    pub source: String,
    /// The id of the master of `to` at that time.
    pub target: String,
    /// How far it is.
    pub state: MigrationState,
    /// Why it failed; empty if it did not.
    pub why: String,
    /// The boot of the source that runs it; empty before it has begun.
    pub runner: String,
    /// How often it has begun.
    pub attempt: u64,
    /// How often it may still begin again after a failure.
    pub retries: u64,
    /// When it was planned, Unix seconds.
    pub planned_s: u64,
    /// When it began, and when it ended, Unix seconds; 0 before.
    pub begun_s: u64,
    /// See above.
    pub ended_s: u64,
    /// Milliseconds for which writes waited.
    pub pause_ms: u64,
    /// Nothing hidden is left of it.
    pub is_swept: bool,
    /// The source has asked the target to take the slots, and does not know yet what has become of that: they wait. In a
    /// pushed map alone; with a store, the store knows.
    pub is_offered: bool,
    /// The address of the target for the source; empty: that of the map.
    pub ip: String,
    /// See above.
    pub port: u16,
    /// Keys of the slots when they changed hands.
    pub keys: u64,
}

impl SlotMigration {
    /// One that has not begun: slots leave a group and the node that leads it for another group and its leader.
    pub(crate) fn planned(
        id: String,
        slots: Vec<SlotRange>,
        [from, source]: [&str; 2],
        [to, target]: [&str; 2],
        now_s: u64,
    ) -> SlotMigration {
        SlotMigration {
            id,
            slots,
            from: from.to_owned(),
            to: to.to_owned(),
            source: source.to_owned(),
            target: target.to_owned(),
            state: MigrationState::Active,
            why: String::new(),
            runner: String::new(),
            attempt: 0,
            retries: 0,
            planned_s: now_s,
            begun_s: 0,
            ended_s: 0,
            pause_ms: 0,
            is_swept: false,
            is_offered: false,
            ip: String::new(),
            port: 0,
            keys: 0,
        }
    }

    /// Returns true if it has `slot`.
    pub fn has(&self, slot: u16) -> bool {
        has(&self.slots, slot)
    }

    /// The address at which the source reaches the target.
    pub fn place<'a>(&'a self, map: &'a SlotMap, link: LinkKind) -> Option<(&'a str, u16)> {
        if !self.ip.is_empty() {
            return Some((&self.ip, self.port));
        }
        let (_, node) = map.find(self.target.as_bytes())?;
        Some((&node.ip, node.port_for(link)))
    }

    /// Number of its slots.
    pub fn slots_len(&self) -> usize {
        self.slots.iter().map(|range| usize::from(range.slots_len())).sum()
    }

    /// Returns true if it is planned or under way.
    pub fn is_active(&self) -> bool {
        self.state == MigrationState::Active
    }

    /// Returns true if nothing becomes of it any more.
    pub fn is_ended(&self) -> bool {
        !matches!(self.state, MigrationState::Active | MigrationState::Retrying)
    }

    /// The id of the group that hides keys of its slots: the target until it owns them, then the source; `None` once these are
    /// removed.
    pub fn hider(&self) -> Option<&str> {
        match self.state {
            MigrationState::Active | MigrationState::Retrying => Some(&self.to),
            _ if self.is_swept => None,
            MigrationState::Done => Some(&self.from),
            MigrationState::Failed | MigrationState::Cancelled => Some(&self.to),
        }
    }

    /// Returns true if an attempt, or the migration whatever it does, may end in `state`. Each attempt fails once.
    fn may_fail(&self, attempt: Option<u64>, state: MigrationState) -> bool {
        let Some(attempt) = attempt else { return !self.is_ended() };
        let has_begun = !self.runner.is_empty();
        match self.state {
            MigrationState::Active if has_begun => self.attempt == attempt,
            MigrationState::Active => self.attempt + 1 == attempt,
            // The target does not remove what it has got: it is given up.
            MigrationState::Retrying => self.attempt == attempt && state != MigrationState::Retrying,
            _ => false,
        }
    }

    pub(crate) fn end(&mut self, state: MigrationState, why: &str, now_s: u64) {
        self.why = why.to_owned();
        self.is_offered = false;
        if state == MigrationState::Retrying && self.retries > 0 {
            self.retries -= 1;
            // Nothing is to be removed of one that has not begun.
            self.state = if self.runner.is_empty() { MigrationState::Active } else { state };
            return;
        }
        self.state = if state == MigrationState::Retrying { MigrationState::Failed } else { state };
        self.ended_s = now_s;
        self.is_swept = self.runner.is_empty();
    }

    fn overlaps(&self, ranges: &[SlotRange]) -> bool {
        ranges.iter().any(|one| self.slots.iter().any(|own| one.start <= own.end && own.start <= one.end))
    }

    pub(crate) fn to_value(&self) -> Value {
        let slots: Vec<[u16; 2]> = self.slots.iter().map(|range| [range.start, range.end]).collect();
        json!({
            "id": self.id, "slots": slots, "from": self.from, "to": self.to, "source": self.source,
            "target": self.target, "state": self.state.name(), "why": self.why, "runner": self.runner,
            "attempt": self.attempt, "retries": self.retries, "planned_s": self.planned_s, "begun_s": self.begun_s, "ended_s": self.ended_s,
            "pause_ms": self.pause_ms, "swept": self.is_swept,
            "offered": self.is_offered, "ip": self.ip, "port": self.port, "keys": self.keys,
        })
    }

    pub(crate) fn from_value(value: &Value) -> Result<SlotMigration, String> {
        let number =
            |name: &str| value.get(name).and_then(Value::as_u64).ok_or_else(|| format!("{name} is missing"));
        let slots: Result<Vec<SlotRange>, String> = list(value, "slots")?.iter().map(range_of).collect();
        Ok(SlotMigration {
            id: text(value, "id")?,
            slots: slots?,
            from: text(value, "from")?,
            to: text(value, "to")?,
            source: text(value, "source")?,
            target: text(value, "target")?,
            state: MigrationState::named(&text(value, "state")?).ok_or("a state is none")?,
            why: text(value, "why")?,
            runner: text(value, "runner")?,
            // The map of an older version has none.
            attempt: value.get("attempt").and_then(Value::as_u64).unwrap_or(0),
            retries: value.get("retries").and_then(Value::as_u64).unwrap_or(0),
            planned_s: number("planned_s")?,
            begun_s: number("begun_s")?,
            ended_s: number("ended_s")?,
            pause_ms: number("pause_ms")?,
            is_swept: value.get("swept").and_then(Value::as_bool).ok_or("swept is missing")?,
            is_offered: value.get("offered").and_then(Value::as_bool).unwrap_or(false),
            ip: value.get("ip").and_then(Value::as_str).unwrap_or_default().to_owned(),
            port: value
                .get("port")
                .and_then(Value::as_u64)
                .and_then(|port| port.try_into().ok())
                .unwrap_or(0),
            keys: value.get("keys").and_then(Value::as_u64).unwrap_or(0),
        })
    }
}

/// A change of a migration, asked of the node `me` of [`MigrationChange::apply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MigrationChange {
    /// Slots of the node's group are to move to another master.
    Export {
        /// The name of the migration.
        id: String,
        /// The slots, as they were said.
        slots: Vec<SlotRange>,
        /// The id of the other master.
        target: String,
        /// How often it may begin again.
        retries: u64,
        /// Unix seconds.
        now_s: u64,
    },
    /// Slots of another group, which has all of them, are to move to this master's.
    Import {
        /// The name of the migration.
        id: String,
        /// The slots, as they were said.
        slots: Vec<SlotRange>,
        /// How often it may begin again.
        retries: u64,
        /// Unix seconds.
        now_s: u64,
    },
    /// The source begins.
    Run {
        /// The name of the migration.
        id: String,
        /// The number of the attempt: the last one and 1.
        attempt: u64,
        /// The boot of the source.
        runner: String,
        /// Unix seconds.
        now_s: u64,
    },
    /// The target has got all, and nobody writes: the slots are its own. Asked of the target.
    Commit {
        /// The name of the migration.
        id: String,
        /// The attempt that has brought the keys.
        attempt: u64,
        /// The boot of the target that has them.
        boot: String,
        /// Unix seconds.
        now_s: u64,
        /// Milliseconds for which writes have waited, and keys of the slots.
        pause_ms: u64,
        /// See above.
        keys: u64,
    },
    /// It is given up, unless it has ended.
    Fail {
        /// The name of the migration.
        id: String,
        /// The attempt that has failed: the one under way, or the next one, which could not even begin; `None`: whatever it does.
        attempt: Option<u64>,
        /// Failed or cancelled; retrying: failed, unless it may begin again.
        state: MigrationState,
        /// Why.
        why: String,
        /// Unix seconds.
        now_s: u64,
    },
    /// Nothing hidden is left of it, or of its attempt of this number.
    Swept(String, u64),
    /// All of these, or none.
    Together(Vec<MigrationChange>),
}

/// Migrations that have ended and are remembered.
const ENDED_MAX: usize = 100;
/// Migrations that may be planned or under way.
const ACTIVE_MAX: usize = 256;

impl MigrationChange {
    /// Makes the change. Errors: why it is refused; the map may have been changed in part then and is to be dropped.
    pub fn apply(&self, map: &mut StoredMap, me: &str) -> Result<(), String> {
        match self {
            MigrationChange::Export { id, slots, target, retries, now_s } => {
                export(map, me, (id, *now_s, *retries), slots, target)
            }
            MigrationChange::Import { id, slots, retries, now_s } => {
                import(map, me, (id, *now_s, *retries), slots)
            }
            MigrationChange::Run { id, attempt, runner, now_s } => {
                run(map, me, (id, *attempt), runner, *now_s)
            }
            MigrationChange::Commit { id, attempt, boot, now_s, pause_ms, keys } => {
                commit(map, (me, boot), (id, *attempt))?;
                done(map, id, *now_s, (*pause_ms, *keys))
            }
            MigrationChange::Fail { id, attempt, state, why, now_s } => {
                let one = find(map, id).filter(|one| one.may_fail(*attempt, *state));
                let one = one.ok_or_else(|| format!("no migration {id} is under way"))?;
                one.attempt = attempt.unwrap_or(one.attempt);
                one.end(*state, why, *now_s);
                forget_old(map);
                Ok(())
            }
            MigrationChange::Together(changes) => changes.iter().try_for_each(|change| change.apply(map, me)),
            MigrationChange::Swept(id, attempt) => {
                let found = find(map, id).filter(|one| !one.is_active() && one.attempt == *attempt);
                if let Some(one) = found {
                    if one.is_ended() {
                        one.is_swept = true;
                    } else {
                        one.state = MigrationState::Active;
                        one.runner.clear();
                    }
                }
                forget_old(map);
                Ok(())
            }
        }
    }
}

/// Errors: a migration that has not ended has one of the slots, so they may not change hands by other means.
pub(crate) fn must_not_move(map: &StoredMap, ranges: &[SlotRange]) -> Result<(), String> {
    match map.migrations.iter().find(|one| !one.is_ended() && one.overlaps(ranges)) {
        None => Ok(()),
        Some(one) => Err(format!("slots are moving by migration {}", one.id)),
    }
}

/// Errors: the group still has hidden keys of one of the slots, so it may not get them. Other groups may: they wait for nobody.
pub(crate) fn must_be_clean(map: &StoredMap, group: &str, ranges: &[SlotRange]) -> Result<(), String> {
    let has_left =
        |one: &&SlotMigration| one.is_ended() && one.hider() == Some(group) && one.overlaps(ranges);
    match map.migrations.iter().find(has_left) {
        None => Ok(()),
        Some(one) => Err(format!("keys of migration {} are being removed, try again later", one.id)),
    }
}

/// Ends the migrations of a group that leaves the map. Its last node, if it comes back, is the group of its own id: until it
/// has removed the keys that it hides, the map remembers them under that id.
pub(crate) fn lose_group(map: &mut StoredMap, group: &NodeGroup) {
    for one in map.migrations.iter_mut().filter(|one| one.from == group.id || one.to == group.id) {
        if !one.is_ended() {
            let end = if one.from == group.id { "source" } else { "target" };
            let now_s = one.planned_s.max(one.begun_s);
            one.end(MigrationState::Failed, &format!("the {end} has left the cluster"), now_s);
        }
        let hides = |side: &str| side == group.id;
        match one.state {
            MigrationState::Done if hides(&one.from) => one.from.clone_from(&group.master.id),
            MigrationState::Failed | MigrationState::Cancelled if hides(&one.to) => {
                one.to.clone_from(&group.master.id);
            }
            _ => {}
        }
    }
    map.migrations.retain(|one| one.hider().is_some() || one.from != group.id && one.to != group.id);
}

/// Ends the migrations under way for which `is_it` returns true, as [`MigrationChange::Fail`] does.
pub(crate) fn end_all(
    map: &mut StoredMap,
    is_it: impl Fn(&SlotMigration) -> bool,
    (state, why): (MigrationState, &str),
    now_s: u64,
) {
    let under_way = map.migrations.iter_mut().filter(|one| !one.is_ended() && is_it(one));
    under_way.for_each(|one| one.end(state, why, now_s));
    forget_old(map);
}

pub(crate) fn find<'m>(map: &'m mut StoredMap, id: &str) -> Option<&'m mut SlotMigration> {
    map.migrations.iter_mut().find(|one| one.id == id)
}

fn active<'m>(map: &'m mut StoredMap, id: &str) -> Result<&'m mut SlotMigration, String> {
    find(map, id).filter(|one| one.is_active()).ok_or_else(|| format!("no migration {id} is under way"))
}

fn export(
    map: &mut StoredMap,
    me: &str,
    named: (&str, u64, u64),
    slots: &[SlotRange],
    target: &str,
) -> Result<(), String> {
    let own = led_group(map, me)?.id.clone();
    let group = seen(map, me).iter().find(|group| group.has(target));
    let group = group.ok_or_else(|| format!("Unknown node {target}"))?;
    if group.master.id != target {
        return Err("Target node is not a master".to_owned());
    }
    if group.id == own {
        return Err("Target node can not be this node".to_owned());
    }
    let to = group.id.clone();
    plan(map, me, named, slots, (&own, &to))
}

fn import(map: &mut StoredMap, me: &str, named: (&str, u64, u64), slots: &[SlotRange]) -> Result<(), String> {
    let own = led_group(map, me)?.id.clone();
    let first = slots.first().ok_or("no slots are named")?.start;
    let owner = seen(map, me).iter().find(|group| has(&group.slots, first));
    let from = owner.ok_or_else(|| format!("slot has no owner: {first}"))?.id.clone();
    if from == own {
        return Err("this node is already the owner of the slot range".to_owned());
    }
    plan(map, me, named, slots, (&from, &own))
}

fn plan(
    map: &mut StoredMap,
    me: &str,
    (id, now_s, retries): (&str, u64, u64),
    slots: &[SlotRange],
    (from, to): (&str, &str),
) -> Result<(), String> {
    let slots =
        join_ranges(slots.to_vec()).map_err(|slot| format!("Slot {slot} specified multiple times"))?;
    must_not_move(map, &slots)?;
    must_be_clean(map, to, &slots)?;
    let group = |id: &str| seen(map, me).iter().find(|group| group.id == id);
    let (Some(source), Some(target)) = (group(from), group(to)) else {
        return Err("a group of the migration is not in the cluster".to_owned());
    };
    owns_all(source, &slots)?;
    let moves =
        |range: &SlotRange| map.moves.iter().find(|one| range.start <= one.slot && one.slot <= range.end);
    if let Some(one) = slots.iter().find_map(moves) {
        return Err(format!("Slot {} moves key by key", one.slot));
    }
    if map.migrations.iter().filter(|one| !one.is_ended()).count() >= ACTIVE_MAX {
        return Err("too many migrations are under way".to_owned());
    }
    let planned = SlotMigration {
        retries,
        ..SlotMigration::planned(
            id.to_owned(),
            slots,
            [from, &source.master.id],
            [to, &target.master.id],
            now_s,
        )
    };
    map.migrations.push(planned);
    Ok(())
}

/// Errors: a slot is not the group's.
fn owns_all(group: &NodeGroup, slots: &[SlotRange]) -> Result<(), String> {
    let is_own =
        |range: &SlotRange| group.slots.iter().any(|own| own.start <= range.start && range.end <= own.end);
    match slots.iter().find(|range| !is_own(range)) {
        None => Ok(()),
        Some(range) => Err(format!("slots {}-{} are not all of one node", range.start, range.end)),
    }
}

fn run(
    map: &mut StoredMap,
    me: &str,
    (id, attempt): (&str, u64),
    runner: &str,
    now_s: u64,
) -> Result<(), String> {
    let one = active(map, id)?;
    if one.source != me || !one.runner.is_empty() || one.attempt + 1 != attempt {
        return Err("the migration is another node's".to_owned());
    }
    (one.runner, one.attempt, one.begun_s) = (runner.to_owned(), attempt, now_s);
    Ok(())
}

/// Errors: not all is as planned.
fn commit(map: &StoredMap, (me, boot): (&str, &str), (id, attempt): (&str, u64)) -> Result<(), String> {
    let found = map.migrations.iter().find(|one| one.id == id && one.is_active());
    let one = found.ok_or_else(|| format!("no migration {id} is under way"))?;
    if one.runner.is_empty() || one.attempt != attempt {
        return Err("the migration has begun again".to_owned());
    }
    let group = |id: &str| map.joined.iter().find(|group| group.id == id);
    let (Some(source), Some(target)) = (group(&one.from), group(&one.to)) else {
        return Err("a group of the migration has gone".to_owned());
    };
    if target.master.id != me || source.master.id != one.source || target.master.id != one.target {
        return Err("a master of the migration was replaced".to_owned());
    }
    if source.master.boot != one.runner || target.master.boot != boot {
        return Err("a master of the migration was restarted".to_owned());
    }
    owns_all(source, &one.slots)
}

/// Gives the slots of a migration to their new group. Errors: it is not under way.
pub(crate) fn done(
    map: &mut StoredMap,
    id: &str,
    now_s: u64,
    (pause_ms, keys): (u64, u64),
) -> Result<(), String> {
    let one = active(map, id)?;
    (one.state, one.ended_s, one.pause_ms, one.keys) = (MigrationState::Done, now_s, pause_ms, keys);
    // Why an earlier attempt has failed.
    one.why.clear();
    one.is_offered = false;
    let one = one.clone();
    map.moves.retain(|single| !one.has(single.slot));
    let epoch = map.epoch();
    hand_over(&mut map.joined, &one, epoch)
}

/// Moves the slots of a migration from one group to the other; the new one's epoch becomes larger than `epoch`.
pub(crate) fn hand_over(groups: &mut [NodeGroup], one: &SlotMigration, epoch: u64) -> Result<(), String> {
    for group in groups {
        if group.id == one.from {
            group.slots = one.slots.iter().fold(group.slots.clone(), |slots, range| without(&slots, *range));
        } else if group.id == one.to {
            let all = group.slots.iter().chain(&one.slots).copied().collect();
            group.slots = join_ranges(all).map_err(|slot| format!("slot {slot} has two owners"))?;
            if group.epoch < epoch || epoch == 0 {
                group.epoch = epoch + 1;
            }
        }
    }
    Ok(())
}

/// Forgets the oldest migrations of which nothing is left.
fn forget_old(map: &mut StoredMap) {
    let is_over = |one: &SlotMigration| one.hider().is_none();
    let mut surplus = map.migrations.iter().filter(|one| is_over(one)).count().saturating_sub(ENDED_MAX);
    map.migrations.retain(|one| {
        let goes = surplus > 0 && is_over(one);
        surplus -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests;
