//! DEBUG POPULATE: makes keys for tests and measurements.
//!
//! A thread of its own makes commands, and has the threads that serve run them by jobs, a few hundred keys at a time.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;

use darter_base::number;
use darter_base::rng::Rng;
use darter_command::{ArgReader, Fault};
use darter_latch::Grant;
use darter_txn::{LockSet, ShardPart};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::dispatch::Caller;
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::Origin;
use crate::exec;
use crate::job::{Job, JobBody, Shards};
use crate::registry::CommandEntry;
use crate::shared::{Shared, ThreadMessage};
use crate::thread_state::ThreadState;
use crate::waiting::{BlockedState, TimeUp};

/// The arguments of POPULATE.
struct PopulatePlan {
    count: u64,
    prefix: Vec<u8>,
    size: usize,
    is_random: bool,
    kind: PopulateKind,
    elements: u64,
    ttl_s: Option<(u64, u64)>,
    seed: u64,
}

/// A type of value, with the command that adds to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PopulateKind {
    name: &'static str,
    command: &'static str,
    /// The content of an element.
    shape: ValueShape,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ValueShape {
    Value,
    Elements,
    Pairs,
    Scored,
    Entry,
    Document,
}

const KINDS: &[PopulateKind] = &[
    PopulateKind { name: "string", command: "set", shape: ValueShape::Value },
    PopulateKind { name: "list", command: "rpush", shape: ValueShape::Elements },
    PopulateKind { name: "set", command: "sadd", shape: ValueShape::Elements },
    PopulateKind { name: "hash", command: "hset", shape: ValueShape::Pairs },
    PopulateKind { name: "zset", command: "zadd", shape: ValueShape::Scored },
    PopulateKind { name: "stream", command: "xadd", shape: ValueShape::Entry },
    PopulateKind { name: "json", command: "json.set", shape: ValueShape::Document },
];

/// DEBUG POPULATE.
pub fn populate(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let plan = parse(args, caller.local.env.proto_max_bulk_len)?;
    let shared = caller.local.shared;
    if !caller.may_wait {
        return Err(Fault::text(
            "ERR DEBUG POPULATE takes shards one by one and cannot run in a transaction",
        ));
    }
    let (db, home) = (caller.session.db, caller.local.thread);
    let (token, client) = (caller.info.token, caller.info.id);
    let spawned = std::thread::Builder::new().name("darter-populate".into()).spawn(move || {
        let mut reply = Vec::new();
        match run(shared, &plan, db) {
            Ok(()) => Reply::new(&mut reply, false).ok(),
            Err(fault) => Reply::new(&mut reply, false).error(fault.line().as_bytes()),
        }
        shared.handle(home).send(ThreadMessage::Served { token, client, reply });
    });
    spawned.map_err(|error| Fault::Text(format!("ERR cannot start a thread: {error}").into()))?;
    let on_timeout = TimeUp::Reply(Vec::new());
    caller.session.blocked =
        Some(BlockedState { ticket: None, deadline_ms: None, ready_at_ms: None, on_timeout });
    Ok(())
}

fn parse(args: Args<'_>, size_max: u64) -> Result<PopulatePlan, Fault> {
    const NOT_POSITIVE: Fault = Fault::text("ERR value is out of range, must be positive");
    let mut reader = ArgReader::new(args, 2);
    let positive = |reader: &mut ArgReader<'_>| {
        let n = number::parse_i64(reader.bytes()?).and_then(|n| u64::try_from(n).ok());
        n.ok_or(NOT_POSITIVE)
    };
    let count = positive(&mut reader)?;
    let is_option = |arg: &[u8]| {
        [&b"rand"[..], b"type", b"elements", b"expire"].iter().any(|word| arg.eq_ignore_ascii_case(word))
    };
    let mut prefix = b"key".to_vec();
    let mut size = 0;
    if reader.peek().is_some_and(|arg| !is_option(arg)) {
        prefix = reader.bytes()?.to_vec();
        if reader.peek().is_some_and(|arg| !is_option(arg)) {
            size = positive(&mut reader)?;
        }
    }
    if size > size_max {
        return Err(Fault::TooLong);
    }
    let seed = crate::clock::unix_ms();
    let mut plan = PopulatePlan {
        count,
        prefix,
        size: size as usize,
        is_random: false,
        kind: KINDS[0],
        elements: 1,
        ttl_s: None,
        seed,
    };
    while !reader.is_done() {
        if reader.take("rand") {
            plan.is_random = true;
        } else if reader.take_with("type", 1) {
            let name = reader.bytes()?;
            let known = KINDS.iter().find(|kind| name.eq_ignore_ascii_case(kind.name.as_bytes()));
            plan.kind = *known.ok_or(Fault::Syntax)?;
        } else if reader.take_with("elements", 1) {
            plan.elements = positive(&mut reader)?.max(1);
        } else if reader.take_with("expire", 2) {
            let (low, high) = (positive(&mut reader)?, positive(&mut reader)?);
            if low == 0 || high < low || high > TTL_S_MAX {
                return Err(Fault::InvalidExpire("debug"));
            }
            plan.ttl_s = Some((low, high));
        } else {
            return Err(Fault::Syntax);
        }
    }
    Ok(plan)
}

/// The longest time to live, seconds: a thousand years.
const TTL_S_MAX: u64 = 31_536_000_000;
/// Elements added by one call of a command.
const BATCH: u64 = 64;

/// Keys of which a round makes something, and bytes of the commands that do so, but for the one that goes beyond it.
const ROUND_KEYS_MAX: usize = 256;
const ROUND_BYTES_MAX: usize = 256 << 10;

/// A part of a key that is made with its shard held once.
struct KeyPiece {
    n: u64,
    name: Vec<u8>,
    /// Nothing of the key is made yet: if it is there, it stays as it is.
    is_first: bool,
    commands: Vec<(&'static CommandEntry, OwnedArgs)>,
}

/// Pieces that are made together, by one job a shard.
struct Round {
    shared: &'static Shared,
    db: usize,
    pieces: BTreeMap<u16, Vec<KeyPiece>>,
    keys: usize,
    bytes: usize,
}

impl Round {
    fn new(shared: &'static Shared, db: usize) -> Round {
        Round { shared, db, pieces: BTreeMap::new(), keys: 0, bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.keys >= ROUND_KEYS_MAX || self.bytes >= ROUND_BYTES_MAX
    }

    /// Adds a command for the key `n`.
    fn add(
        &mut self,
        (n, name): (u64, &[u8]),
        is_first: bool,
        entry: &'static CommandEntry,
        args: OwnedArgs,
    ) {
        let router = &self.shared.router;
        let pieces = self.pieces.entry(router.shard_of(router.key(name).hash)).or_default();
        self.bytes += args.heap_bytes();
        match pieces.last_mut().filter(|piece| piece.n == n) {
            Some(piece) => piece.commands.push((entry, args)),
            None => {
                self.keys += 1;
                pieces.push(KeyPiece { n, name: name.to_vec(), is_first, commands: vec![(entry, args)] });
            }
        }
    }

    /// Makes what was added; returns which keys were there already.
    ///
    /// Errors: a command was refused, or the server ends.
    fn make(&mut self) -> Result<Vec<u64>, Fault> {
        let db = self.db;
        let (tell, hear) = channel();
        for (id, pieces) in std::mem::take(&mut self.pieces) {
            let tell = tell.clone();
            let call = move |local: &mut ThreadState, grant: &mut Shards| {
                let _ = tell.send(make(local, grant, db, &pieces));
            };
            let home = self.shared.home_of(id);
            let body = JobBody::Call(Some(Box::new(call)));
            Job::new(Origin::nobody(home), body, LockSet::one(id), Grant::empty())
                .enqueue_from_outside(self.shared);
        }
        drop(tell);
        (self.keys, self.bytes) = (0, 0);
        let mut known = Vec::new();
        for made in hear {
            known.extend(made?);
        }
        Ok(known)
    }
}

/// Makes pieces of keys of one shard, which is held; returns which keys were there already.
fn make(
    local: &mut ThreadState,
    grant: &mut Shards,
    db: usize,
    pieces: &[KeyPiece],
) -> Result<Vec<u64>, Fault> {
    let timer = LeaseTimer::begin();
    let origin = Origin { db, ..Origin::nobody(local.thread) };
    let (mut known, mut reply) = (Vec::new(), Vec::new());
    let mut ended = Ok(());
    'all: for piece in pieces {
        let key = local.shared.router.key(&piece.name);
        let is_there = |held: &ShardPart| held.shard.peek(db, key, local.now_ms).is_some();
        if piece.is_first && grant.iter_mut().any(|held| is_there(held)) {
            known.push(piece.n);
            continue;
        }
        for (entry, args) in &piece.commands {
            reply.clear();
            exec::run_granted(local, grant, origin, entry, args.args(), &mut reply);
            if let Some(line) = reply.strip_prefix(b"-") {
                let line = String::from_utf8_lossy(line).trim_end().to_owned();
                ended = Err(Fault::Text(line.into()));
                break 'all;
            }
        }
    }
    timer.end(local);
    ended.map(|()| known)
}

fn run(shared: &'static Shared, plan: &PopulatePlan, db: usize) -> Result<(), Fault> {
    let row = |name: &str| shared.registry.row(name).ok_or(Fault::text("ERR no such command"));
    let (adds, expires) = (row(plan.kind.command)?, row("pexpireat")?);
    let mut rng = Rng::new(plan.seed);
    let mut round = Round::new(shared, db);
    for n in 0..plan.count {
        if shared.is_stopping.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let name = [&plan.prefix, b":".as_slice(), n.to_string().as_bytes()].concat();
        let (mut added, mut is_known) = (0, false);
        while added < plan.elements && !is_known {
            let (args, next) = command(plan, &name, (n, added), &mut rng);
            round.add((n, &name), added == 0, adds, args);
            added = next;
            if added < plan.elements && round.is_full() {
                is_known = round.make()?.contains(&n);
            }
        }
        if let Some((low, high)) = plan.ttl_s.filter(|_| !is_known) {
            let ttl_ms = (low + rng.below(high - low + 1)).saturating_mul(1000);
            let deadline_ms = crate::clock::unix_ms().saturating_add(ttl_ms).to_string();
            let words = [b"pexpireat".as_slice(), &name, deadline_ms.as_bytes()];
            round.add((n, &name), false, expires, OwnedArgs::from_slices(&words));
        }
        if round.is_full() {
            round.make()?;
        }
    }
    round.make().map(drop)
}

/// The command that adds the elements of key `n` from `added` on, and how many there are then.
fn command(plan: &PopulatePlan, name: &[u8], (n, added): (u64, u64), rng: &mut Rng) -> (OwnedArgs, u64) {
    let batch = if plan.kind.shape == ValueShape::Entry { 1 } else { (plan.elements - added).min(BATCH) };
    let mut args = OwnedArgs::from_slices(&[plan.kind.command.as_bytes(), name]);
    if plan.kind.shape == ValueShape::Entry {
        args.push(b"*");
    } else if plan.kind.shape == ValueShape::Document {
        args.push(b"$");
    }
    for element in added..added + batch {
        push_element(plan, &mut args, (n, element), rng);
    }
    let is_whole = matches!(plan.kind.shape, ValueShape::Value | ValueShape::Document);
    (args, if is_whole { plan.elements } else { added + batch })
}

fn push_element(plan: &PopulatePlan, args: &mut OwnedArgs, (n, element): (u64, u64), rng: &mut Rng) {
    match plan.kind.shape {
        ValueShape::Value if element == 0 => args.push(&value(plan, n, rng)),
        ValueShape::Document if element == 0 => {
            let text = value(plan, n, rng);
            args.push(
                format!("{{\"value\":\"{}\"}}", String::from_utf8_lossy(&text).replace('\0', "")).as_bytes(),
            );
        }
        ValueShape::Value | ValueShape::Document => {}
        ValueShape::Elements => args.push(&value(plan, element, rng)),
        ValueShape::Pairs | ValueShape::Entry => {
            args.push(format!("field:{element}").as_bytes());
            args.push(&value(plan, element, rng));
        }
        ValueShape::Scored => {
            args.push(element.to_string().as_bytes());
            args.push(&value(plan, element, rng));
        }
    }
}

/// `value:<n>`, or random letters, truncated or padded with zeros to the requested size.
fn value(plan: &PopulatePlan, n: u64, rng: &mut Rng) -> Vec<u8> {
    let mut text = format!("value:{n}").into_bytes();
    if plan.size > 0 {
        text.resize(plan.size, 0);
    }
    if plan.is_random {
        text.iter_mut().for_each(|byte| *byte = b'a' + rng.below(26) as u8);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Result<PopulatePlan, Fault> {
        let words: Vec<&[u8]> =
            ["debug", "populate"].iter().chain(words).map(|word| word.as_bytes()).collect();
        parse(OwnedArgs::from_slices(&words).args(), 1 << 20)
    }

    #[test]
    fn arguments_of_redis_and_of_dragonfly_are_understood() {
        let simple = plan(&["10"]).expect("a plan");
        assert_eq!((simple.count, &simple.prefix[..], simple.size), (10, &b"key"[..], 0));
        let full = plan(&["5", "p", "16", "RAND", "TYPE", "hash", "ELEMENTS", "7", "EXPIRE", "10", "20"])
            .expect("a plan");
        assert_eq!((full.size, full.is_random, full.kind.name, full.elements), (16, true, "hash", 7));
        assert_eq!(full.ttl_s, Some((10, 20)));
        assert_eq!(plan(&["5", "type", "list"]).map(|plan| plan.kind.name), Ok("list"));
    }

    #[test]
    fn wrong_numbers_are_refused_before_anything_is_made() {
        for words in [&["x"][..], &["-1"], &["3", "k", "x"]] {
            let text = plan(words).map(|_| ()).map_err(|fault| fault.line().into_owned());
            assert_eq!(text, Err("ERR value is out of range, must be positive".into()), "{words:?}");
        }
        assert!(plan(&["1", "k", "99999999999"]).is_err());
        assert!(plan(&["1", "expire", "5", "4"]).is_err());
        assert!(plan(&["1", "type", "nothing"]).is_err());
    }

    #[test]
    fn values_have_the_size_asked_for() {
        let mut sized = plan(&["1", "k", "12"]).expect("a plan");
        let mut rng = Rng::new(1);
        assert_eq!(value(&sized, 7, &mut rng), b"value:7\0\0\0\0\0");
        sized.is_random = true;
        assert!(value(&sized, 7, &mut rng).iter().all(u8::is_ascii_lowercase));
        sized.size = 3;
        sized.is_random = false;
        assert_eq!(value(&sized, 7, &mut rng), b"val");
    }
}
