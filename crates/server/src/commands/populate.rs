//! DEBUG POPULATE: makes keys for tests and measurements, on a thread of its own, one shard at a time.

use darter_base::number;
use darter_base::rng::Rng;
use darter_command::{Ctx, Env, Fault, Reader};
use darter_store::Key;
use darter_txn::ShardSet;
use darter_wire::{Args, OwnedArgs, Reply};

use crate::dispatch::Caller;
use crate::engine::lease;
use crate::registry::Run;
use crate::shared::{Mail, Shared};
use crate::waiting::{Parking, TimeUp};

/// What POPULATE was asked for.
struct Plan {
    count: u64,
    prefix: Vec<u8>,
    size: usize,
    is_random: bool,
    kind: Kind,
    elements: u64,
    ttl_s: Option<(u64, u64)>,
    seed: u64,
}

/// A type of value, with the command that adds to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    name: &'static str,
    command: &'static str,
    /// What an element is made of.
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Value,
    Elements,
    Pairs,
    Scored,
    Entry,
    Document,
}

const KINDS: &[Kind] = &[
    Kind { name: "string", command: "set", shape: Shape::Value },
    Kind { name: "list", command: "rpush", shape: Shape::Elements },
    Kind { name: "set", command: "sadd", shape: Shape::Elements },
    Kind { name: "hash", command: "hset", shape: Shape::Pairs },
    Kind { name: "zset", command: "zadd", shape: Shape::Scored },
    Kind { name: "stream", command: "xadd", shape: Shape::Entry },
    Kind { name: "json", command: "json.set", shape: Shape::Document },
];

/// DEBUG POPULATE.
pub fn populate(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let plan = parse(args, caller.core.env.proto_max_bulk_len)?;
    let shared = caller.core.shared;
    let Some(Run::Data(_)) = shared.registry.find(plan.kind.command.as_bytes()).map(|entry| entry.run) else {
        return Err(Fault::Text(format!("ERR values of type {} are not there yet", plan.kind.name).into()));
    };
    if !caller.may_wait {
        return Err(Fault::text(
            "ERR DEBUG POPULATE takes shards one by one and cannot run in a transaction",
        ));
    }
    let (env, db) = (caller.core.env, caller.session.db);
    let (dbs_len, home) = (caller.core.live.dbnum as usize, caller.core.thread);
    let (token, client) = (caller.card.token, caller.card.id);
    let spawned = std::thread::Builder::new().name("darter-populate".into()).spawn(move || {
        let mut reply = Vec::new();
        match run(shared, &plan, &env, db, dbs_len) {
            Ok(()) => Reply::new(&mut reply, false).ok(),
            Err(fault) => Reply::new(&mut reply, false).error(fault.line().as_bytes()),
        }
        shared.door(home).send(Mail::Served { token, client, reply });
    });
    spawned.map_err(|error| Fault::Text(format!("ERR cannot start a thread: {error}").into()))?;
    let on_timeout = TimeUp::Reply(Vec::new());
    caller.session.parking = Some(Parking { ticket: None, deadline_ms: None, ripe_ms: None, on_timeout });
    Ok(())
}

fn parse(args: Args<'_>, size_max: u64) -> Result<Plan, Fault> {
    const NOT_POSITIVE: Fault = Fault::text("ERR value is out of range, must be positive");
    let mut reader = Reader::new(args, 2);
    let positive = |reader: &mut Reader<'_>| {
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
    let seed = crate::core::unix_ms();
    let mut plan = Plan {
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

fn run(shared: &'static Shared, plan: &Plan, env: &Env, db: usize, dbs_len: usize) -> Result<(), Fault> {
    let mut rng = Rng::new(plan.seed);
    let mut name = plan.prefix.clone();
    name.push(b':');
    let prefix_len = name.len();
    for n in 0..plan.count {
        if shared.is_stopping.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        name.truncate(prefix_len);
        name.extend_from_slice(n.to_string().as_bytes());
        let key = shared.router.key(&name);
        make(shared, plan, env, (db, dbs_len), key, n, &mut rng)?;
    }
    Ok(())
}

/// Makes one key that is not there yet, its shard held.
fn make(
    shared: &'static Shared,
    plan: &Plan,
    env: &Env,
    (db, dbs_len): (usize, usize),
    key: Key<'_>,
    n: u64,
    rng: &mut Rng,
) -> Result<(), Fault> {
    let id = shared.router.shard_of(key.hash);
    let cell = &shared.cells[usize::from(id)];
    let mut held = loop {
        match lease::take_one_patiently(cell, 1000) {
            Some(held) => break held,
            // Whoever has it may need this core to go on.
            None => std::thread::yield_now(),
        }
    };
    let set = ShardSet::one(&shared.router, id, &mut held);
    let mut ctx = Ctx::new(set, env, db, dbs_len, crate::core::unix_ms(), None);
    ctx.may_wait = false;
    let done =
        if ctx.at(key.bytes).exists() { Ok(()) } else { fill(shared, plan, &mut ctx, key.bytes, n, rng) };
    drop(ctx);
    if held.shard.changes.is_journalled() {
        let set = ShardSet::one(&shared.router, id, &mut held);
        crate::journal::note::note_foreign(shared, set, db, key.bytes);
    }
    for change in held.shard.changes.take() {
        held.watches.touch(change.db, &change.key);
    }
    lease::release_as_stranger(shared, held);
    done
}

fn fill(
    shared: &Shared,
    plan: &Plan,
    ctx: &mut Ctx<'_>,
    key: &[u8],
    n: u64,
    rng: &mut Rng,
) -> Result<(), Fault> {
    let Some(Run::Data(body)) = shared.registry.find(plan.kind.command.as_bytes()).map(|entry| entry.run)
    else {
        return Ok(());
    };
    let mut added = 0;
    let mut scratch = Vec::new();
    while added < plan.elements {
        let batch = if plan.kind.shape == Shape::Entry { 1 } else { (plan.elements - added).min(BATCH) };
        let mut args = OwnedArgs::from_slices(&[plan.kind.command.as_bytes(), key]);
        if plan.kind.shape == Shape::Entry {
            args.push(b"*");
        } else if plan.kind.shape == Shape::Document {
            args.push(b"$");
        }
        for element in added..added + batch {
            push_element(plan, &mut args, (n, element), rng);
        }
        added = if matches!(plan.kind.shape, Shape::Value | Shape::Document) {
            plan.elements
        } else {
            added + batch
        };
        scratch.clear();
        body(ctx, args.args(), &mut Reply::new(&mut scratch, false))?;
    }
    if let Some((low, high)) = plan.ttl_s {
        let ttl_ms = (low + rng.below(high - low + 1)).saturating_mul(1000);
        let deadline_ms = ctx.now_ms.saturating_add(ttl_ms);
        ctx.at(key).set_deadline(Some(deadline_ms))?;
    }
    Ok(())
}

fn push_element(plan: &Plan, args: &mut OwnedArgs, (n, element): (u64, u64), rng: &mut Rng) {
    match plan.kind.shape {
        Shape::Value if element == 0 => args.push(&value(plan, n, rng)),
        Shape::Document if element == 0 => {
            let text = value(plan, n, rng);
            args.push(
                format!("{{\"value\":\"{}\"}}", String::from_utf8_lossy(&text).replace('\0', "")).as_bytes(),
            );
        }
        Shape::Value | Shape::Document => {}
        Shape::Elements => args.push(&value(plan, element, rng)),
        Shape::Pairs | Shape::Entry => {
            args.push(format!("field:{element}").as_bytes());
            args.push(&value(plan, element, rng));
        }
        Shape::Scored => {
            args.push(element.to_string().as_bytes());
            args.push(&value(plan, element, rng));
        }
    }
}

/// `value:<n>`, or random letters, cut or filled with zeros to the size asked for.
fn value(plan: &Plan, n: u64, rng: &mut Rng) -> Vec<u8> {
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

    fn plan(words: &[&str]) -> Result<Plan, Fault> {
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
