//! FAILOVER: a master and one of its replicas change roles, and no write is lost.
//!
//! Writes wait until the replica has everything; then this server asks it to take over (PSYNC with FAILOVER) and follows
//! it. If that does not come about, this server goes on as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::replicas::ReplicaStage;
use super::{Replication, roles};
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;

/// Options of a planned failover.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailoverWish {
    /// The replica that takes over; if missing, the first that has everything.
    pub to: Option<(String, u16)>,
    /// It takes over at the end of the time, whatever it has.
    pub is_forced: bool,
    /// Milliseconds for it to catch up; `None`: as long as it takes.
    pub timeout_ms: Option<u64>,
}

/// A failover under way.
#[derive(Debug, Default)]
pub struct Failover {
    stage: AtomicU8,
    is_aborted: AtomicBool,
}

const WAITS: u8 = 0;
const HANDS_OVER: u8 = 1;

/// Time for the replica to take over once it is asked.
const TAKES: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// Time for an aborted failover to end before the client is answered.
const ENDS: Duration = Duration::from_millis(20);

impl Failover {
    fn is_aborted(&self) -> bool {
        self.is_aborted.load(Relaxed)
    }
}

impl Replication {
    /// The state of a failover, as INFO names it.
    pub fn failover_state(&self) -> &'static str {
        match lock(&self.failover).as_ref().map(|one| one.stage.load(Relaxed)) {
            None => "no-failover",
            Some(WAITS) => "waiting-for-sync",
            Some(_) => "failover-in-progress",
        }
    }

    /// Whether a failover is under way.
    pub fn is_failing_over(&self) -> bool {
        lock(&self.failover).is_some()
    }

    /// Aborts the failover and waits some milliseconds for its end. Returns false if there is none.
    pub fn abort_failover(&self) -> bool {
        let Some(failover) = lock(&self.failover).clone() else { return false };
        failover.is_aborted.store(true, Relaxed);
        let began = Instant::now();
        // Its thread looks each millisecond, unless the replica is being asked to take over.
        while lock(&self.failover).is_some() && began.elapsed() < ENDS {
            thread::sleep(LOOK / 10);
        }
        true
    }
}

/// Begins a failover.
///
/// Errors: this server cannot do it now, in the words of Redis.
pub fn begin(shared: &'static Shared, wish: FailoverWish) -> Result<(), String> {
    let replication = &shared.replication;
    let mut current = lock(&replication.failover);
    if current.is_some() {
        return Err("ERR FAILOVER already in progress.".to_owned());
    }
    if replication.is_replica() {
        return Err("ERR FAILOVER is not valid when server is a replica.".to_owned());
    }
    {
        let state = replication.state();
        if state.replicas.is_empty() {
            return Err("ERR FAILOVER requires connected replicas.".to_owned());
        }
        if let Some((host, port)) = &wish.to {
            let found = state.replicas.iter().find(|replica| replica.port == *port && replica.ip() == *host);
            let found = found.ok_or("ERR FAILOVER target HOST and PORT is not a replica.")?;
            if found.stage != ReplicaStage::Online {
                return Err("ERR FAILOVER target replica is not online.".to_owned());
            }
        }
    }
    let failover = Arc::new(Failover::default());
    let known = failover.clone();
    // Writers wait from here on; what a client has paused stays so.
    shared.pause.hold();
    let spawned = thread::Builder::new().name("darter-failover".to_owned()).spawn(move || {
        run(shared, &wish, &known);
        shared.pause.release();
        lock(&shared.replication.failover).take();
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
    });
    if let Err(error) = spawned {
        shared.pause.release();
        return Err(format!("ERR {error}"));
    }
    *current = Some(failover);
    Ok(())
}

fn run(shared: &'static Shared, wish: &FailoverWish, failover: &Failover) {
    let began = Instant::now();
    let ends = wish.timeout_ms.map(Duration::from_millis);
    let Some((host, port)) =
        wait_for_replica(shared, wish, failover, || ends.is_some_and(|ends| began.elapsed() >= ends))
    else {
        tracing::warn!("failover given up: no replica has everything");
        return;
    };
    failover.stage.store(HANDS_OVER, Relaxed);
    tracing::info!("failover: {host}:{port} takes over");
    let asked = Instant::now();
    if let Err(error) = roles::hand_over(shared, &host, port) {
        tracing::error!("failover given up: {error}");
        return;
    }
    let replication = &shared.replication;
    while replication.is_replica() && !replication.link_is_up() {
        let refuses = || replication.state().master.as_ref().is_some_and(|card| card.was_refused());
        if failover.is_aborted() || asked.elapsed() > TAKES || refuses() {
            tracing::warn!("failover given up: {host}:{port} does not take over");
            roles::take_back(shared);
            return;
        }
        thread::sleep(LOOK);
    }
    replication.counts.failovers.fetch_add(1, Relaxed);
}

/// Waits until nobody writes and a replica has everything; returns its place. At the end of the time that is who was
/// asked for, if it is forced, else nobody.
fn wait_for_replica(
    shared: &Shared,
    wish: &FailoverWish,
    failover: &Failover,
    is_late: impl Fn() -> bool,
) -> Option<(String, u16)> {
    let turns = shared.turns();
    // The offset when the last write was in the stream.
    let (mut goal, mut asked) = (None::<u64>, None::<Instant>);
    loop {
        if failover.is_aborted() {
            return None;
        }
        if is_late() {
            return wish.to.clone().filter(|_| wish.is_forced);
        }
        if goal.is_none() {
            shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
            if shared.has_turned(&turns, 2) && !shared.replication.is_feeding_before(shared.journal.end()) {
                goal = Some(shared.replication.state().offset());
            }
        }
        if let Some(goal) = goal {
            if let Some(place) = found(shared, wish, goal) {
                // It has acknowledged before it has read what asked it to.
                thread::sleep(GRACE);
                return Some(place);
            }
            if asked.is_none_or(|at| at.elapsed() > ASK_EVERY) {
                asked = Some(Instant::now());
                shared.replication.ask_for_acks();
                shared.journal.intake.poke();
            }
        }
        thread::sleep(LOOK);
    }
}

const GRACE: Duration = Duration::from_millis(5);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A replica that is wanted and has everything up to an offset.
fn found(shared: &Shared, wish: &FailoverWish, goal: u64) -> Option<(String, u16)> {
    let state = shared.replication.state();
    let online = state.replicas.iter().filter(|replica| replica.has(goal));
    let mut places = online.map(|replica| (replica.ip(), replica.port));
    places.find(|place| wish.to.as_ref().is_none_or(|to| to == place))
}
