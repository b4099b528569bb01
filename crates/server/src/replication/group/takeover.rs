//! A planned change of the leader: writers wait until all members have everything, then one of them takes its place.
//!
//! The leader serves no more before it asks the member (DARTER TAKEOVER), so the new one need not wait for its lease to
//! end. If nobody takes the place within two seconds, the old leader does.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use darter_reactor::process::boot_ms;
use darter_replica::stream;

use super::{FailoverGroup, GroupEvent, beats, place};
use crate::shared::{Shared, ThreadMessage};

/// Time for members to catch up while writers wait, unless the command says another.
const CATCH_UP: Duration = Duration::from_secs(10);
/// Time for the member to take over.
const TAKES: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(1);

/// Gives the lead to a member: to the one that `to` names, else to any.
///
/// Errors: this server does not lead, or there is no such member, in the words of FAILOVER.
pub fn begin(
    shared: &'static Shared,
    group: &'static FailoverGroup,
    to: Option<(String, u16)>,
    timeout: Option<Duration>,
) -> Result<(), String> {
    let found = group.with_machine(shared, |machine| {
        let term = machine.state().map_or(0, |(_, state)| state.term);
        let members = machine.required().into_iter().filter(|member| !machine.is_candidate(member));
        let mut names = members.map(|member| member.name);
        let is_it = |name: &String| to.is_none() || place::find(shared, name) == to;
        (machine.leads(), term, names.find(is_it))
    });
    let (leads, term, name) = found.ok_or_else(|| super::NAMELESS.to_owned())?;
    if !leads {
        return Err("ERR FAILOVER is not valid when server is a replica.".to_owned());
    }
    let name = name.ok_or("ERR FAILOVER target is no member of the group that has everything.")?;
    if group.hands_over.swap(true, SeqCst) {
        return Err("ERR FAILOVER already in progress.".to_owned());
    }
    let body = move || {
        shared.pause.hold();
        if let Err(why) = run(shared, group, &name, term, timeout.unwrap_or(CATCH_UP)) {
            tracing::warn!("the lead stays here: {why}");
        }
        shared.pause.release();
        group.has_abdicated.store(false, SeqCst);
        group.hands_over.store(false, SeqCst);
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
    };
    let spawned = thread::Builder::new().name("darter-failover".to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| {
        group.hands_over.store(false, SeqCst);
        format!("ERR {error}")
    })
}

fn run(
    shared: &'static Shared,
    group: &FailoverGroup,
    name: &str,
    term: u64,
    timeout: Duration,
) -> Result<(), String> {
    let began = Instant::now();
    // Connected before anybody waits for it.
    let (host, port) = place::find(shared, name).ok_or_else(|| format!("{name} has no address"))?;
    let wire = beats::connect(shared, &host, port, timeout);
    let mut wire = wire.map_err(|error| format!("{name}: {error}"))?;
    let is_fed = || !shared.replication.is_feeding_before(shared.journal.end());
    wait_for_turns(shared, || {
        shared.journal.intake.poke();
        let has_time = began.elapsed() <= timeout;
        let has_all = is_fed() && group.commit.waiting() == 0;
        has_time.then_some(has_all).ok_or("the members do not catch up in time")
    })?;
    let actions = group.with_machine(shared, |machine| machine.abdicate(boot_ms())).unwrap_or_default();
    if actions.is_empty() {
        return Err("this server leads no more".to_owned());
    }
    group.has_abdicated.store(true, SeqCst);
    group.tell(GroupEvent::Actions(actions));
    while !shared.replication.is_replica() {
        if began.elapsed() > timeout + TAKES {
            return Err("it cannot be given away now".to_owned());
        }
        thread::sleep(LOOK);
    }
    // Whoever reads here from now on reads at a replica.
    wait_for_turns(shared, || {
        let has_time = began.elapsed() <= timeout + TAKES;
        has_time.then_some(true).ok_or("a thread is busy")
    })?;
    let mut out = Vec::new();
    stream::write(&mut out, &[b"DARTER", b"TAKEOVER", term.to_string().as_bytes()]);
    wire.send(&out).map_err(|error| format!("{name}: {error}"))?;
    tracing::info!("{name} is asked to lead; writers have waited for {} ms", began.elapsed().as_millis());
    let asked = Instant::now();
    while asked.elapsed() < TAKES {
        let known = group.with_machine(shared, |machine| {
            machine.read_soon(boot_ms());
            machine.state().map_or(0, |(_, state)| state.term)
        });
        if known.is_some_and(|known| known > term) {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    Err(format!("{name} does not take it"))
}

/// Waits until each thread has begun another turn, and `is_so`.
///
/// Errors: of `is_so`.
fn wait_for_turns(shared: &Shared, is_so: impl Fn() -> Result<bool, &'static str>) -> Result<(), String> {
    let before = shared.turns();
    while !(is_so()? && shared.has_turned(&before, 2)) {
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
        thread::sleep(LOOK);
    }
    Ok(())
}
