//! Beats between members: a thread for each other one says about ten times within a lease that this server lives, and how
//! far it is (DARTER BEAT). The answer of a leader shows its clock, which the next beat acknowledges.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use darter_base::number;
use darter_quorum::beat::{Beat, BeatAnswer, Standing};
use darter_quorum::state::GroupMember;
use darter_reactor::process::boot_ms;
use darter_replica::stream;
use darter_wire::{Args, Reply};

use super::{FailoverGroup, GroupEvent, place};
use crate::replication::{Wire, login_request};
use crate::shared::Shared;

/// Members that are beaten to, each with what ends its thread.
#[derive(Default)]
pub struct Beaters(HashMap<String, Arc<AtomicBool>>);

impl Beaters {
    /// Has a thread for each of these members, and for no other.
    pub fn settle(&mut self, shared: &'static Shared, names: &[String]) {
        self.0.retain(|name, is_over| {
            let stays = names.contains(name);
            is_over.store(!stays, Relaxed);
            stays
        });
        for name in names {
            if !self.0.contains_key(name) {
                let is_over = Arc::new(AtomicBool::new(false));
                let (known, own) = (is_over.clone(), name.clone());
                let body = move || run(shared, &own, &known);
                match thread::Builder::new().name("darter-beat".to_owned()).spawn(body) {
                    Ok(_) => drop(self.0.insert(name.clone(), is_over)),
                    Err(error) => tracing::error!("{name} is not heard: {error}"),
                }
            }
        }
    }
}

fn run(shared: &'static Shared, name: &str, is_over: &AtomicBool) {
    let Some(group) = &shared.group else { return };
    let ha = shared.settings.live().replication.ha.clone();
    let period = Duration::from_millis((ha.lease_ms / 10).clamp(1, 100));
    let patience = Duration::from_millis(ha.lease_ms / 2);
    let mut wire = None;
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        if let Err(error) = beat(shared, group, name, &mut wire, patience) {
            tracing::debug!("member {name}: {error}");
            wire = None;
        }
        let changes = group.changes.load(Relaxed);
        // A new leader serves as soon as its members have acknowledged its clock, which it shows in an answer.
        let owes = group.with_machine(shared, |machine| machine.owes_first_echo(name));
        let period = if owes == Some(true) { NAP } else { period };
        while began.elapsed() < period && changes == group.changes.load(Relaxed) {
            thread::sleep(NAP.min(period.saturating_sub(began.elapsed())));
        }
    }
}

fn beat(
    shared: &'static Shared,
    group: &FailoverGroup,
    name: &str,
    wire: &mut Option<Wire>,
    patience: Duration,
) -> std::io::Result<()> {
    let wire = match wire {
        Some(wire) => wire,
        empty => {
            let (host, port) = place::find(shared, name).ok_or(std::io::ErrorKind::NotFound)?;
            empty.insert(connect(shared, &host, port, patience)?)
        }
    };
    let beat = group.with_machine(shared, |machine| machine.beat_for(boot_ms(), name));
    let Some(beat) = beat else { return Ok(()) };
    wire.send(&words_of(&beat))?;
    let answer = lines(wire, ANSWER_LINES, patience)?;
    let answer = read_answer(&answer).ok_or_else(|| std::io::Error::other("it answers with no beat"))?;
    group.note_name(&answer.from.boot, &answer.from.name);
    let actions = group.with_machine(shared, |machine| machine.hear_answer(boot_ms(), &answer));
    if let Some(actions) = actions.filter(|actions| !actions.is_empty()) {
        group.tell(GroupEvent::Actions(actions));
    }
    Ok(())
}

/// A connection to a member, logged in as a replica is.
///
/// Errors: the member cannot be reached within `patience`, or refuses the login.
pub fn connect(shared: &Shared, host: &str, port: u16, patience: Duration) -> std::io::Result<Wire> {
    let live = shared.settings.live();
    let mut wire = Wire::connect_within(host, port, &live.tls, patience)?;
    let login = login_request(&live);
    if !login.is_empty() {
        wire.send(&login)?;
        lines(&mut wire, 1, patience)?;
    }
    Ok(wire)
}

/// Time between two looks at whether the role has changed.
const NAP: Duration = Duration::from_millis(10);
/// Lines of an answer: its head, a text in two, and five numbers.
const ANSWER_LINES: usize = 8;

fn words_of(beat: &Beat) -> Vec<u8> {
    let Standing { position, is_whole, recovers } = beat.standing;
    let numbers = [beat.term, beat.echo_ms, position, is_whole.into(), recovers.into()];
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let from = beat.from.to_string();
    let mut words: Vec<&[u8]> = vec![b"DARTER", b"BEAT", from.as_bytes()];
    words.extend(numbers.iter().map(String::as_bytes));
    let mut out = Vec::new();
    stream::write(&mut out, &words);
    out
}

fn lines(wire: &mut Wire, count: usize, patience: Duration) -> std::io::Result<Vec<Vec<u8>>> {
    let (began, mut lines) = (Instant::now(), Vec::new());
    while lines.len() < count {
        match wire.line()? {
            Some(line) if line.starts_with(b"-") => {
                return Err(std::io::Error::other(String::from_utf8_lossy(&line).into_owned()));
            }
            Some(line) => lines.push(line),
            None if began.elapsed() > patience => return Err(std::io::ErrorKind::TimedOut.into()),
            None => drop(wire.fill()?),
        }
    }
    Ok(lines)
}

fn read_answer(lines: &[Vec<u8>]) -> Option<BeatAnswer> {
    let number = |at: usize| {
        let number = lines.get(at)?.strip_prefix(b":").and_then(number::parse_i64)?;
        u64::try_from(number).ok()
    };
    let from = std::str::from_utf8(lines.get(2)?).ok()?;
    Some(BeatAnswer {
        from: GroupMember::parse(from)?,
        term: number(3)?,
        clock_ms: number(4)?,
        standing: Standing { position: number(5)?, is_whole: number(6)? != 0, recovers: number(7)? != 0 },
    })
}

/// Takes the beat of another member, and answers it; false: it is none, or there is no group here.
pub fn hear(shared: &Shared, args: Args<'_>, reply: &mut Reply<'_>) -> bool {
    let Some(group) = &shared.group else { return false };
    let number = |at: usize| args.get(at).and_then(number::parse_i64).and_then(|n| u64::try_from(n).ok());
    let read = || {
        let from = GroupMember::parse(std::str::from_utf8(args.at(2)).ok()?)?;
        let standing =
            Standing { position: number(5)?, is_whole: number(6)? != 0, recovers: number(7)? != 0 };
        Some(Beat { from, term: number(3)?, echo_ms: number(4)?, standing })
    };
    let Some(beat) = read() else { return false };
    group.note_name(&beat.from.boot, &beat.from.name);
    let answer = group.with_machine(shared, |machine| machine.hear_beat(boot_ms(), &beat));
    let Some(answer) = answer else { return false };
    let BeatAnswer { from, term, clock_ms, standing } = answer;
    reply.array(6);
    reply.bulk(from.to_string().as_bytes());
    let numbers = [term, clock_ms, standing.position, standing.is_whole.into(), standing.recovers.into()];
    numbers.into_iter().for_each(|n| reply.int(i64::try_from(n).unwrap_or(i64::MAX)));
    true
}
