//! One life of a command: whichever way it comes in, its reply, events, invalidations, WATCH, statistics, replica stream,
//! journal and result are the same.
//!
//! Each sequence of random commands runs once by each way on the same, emptied server; the first way is one command after
//! the other. `DARTER_EQUIVALENCE_ROUNDS` and `DARTER_SEED` choose longer and other runs.

mod draw;
mod observers;
mod waiters;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use darter_command::{Flags, Spec};
use darter_wire::OwnedArgs;

use crate::connection::Connection;
use crate::filling;
use crate::grammar::{FAMILIES, Family, Mode};
use crate::harness::Server;
use crate::harness::journal::{Dir, setting};
use crate::reply::Reply;
use crate::rng::Rng;
use crate::stream::{Op, Stream};
use crate::way::Way;

use draw::Choices;
use observers::Observers;

impl Choices for Rng {
    fn below(&mut self, bound: usize) -> usize {
        Rng::below(self, bound)
    }
}

/// How the commands of a batch are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// Each with what belongs to its way; `joined` in one write, else one after the other.
    Each { way: Way, joined: Joined },
    /// Each by a script that names it and declares its keys, so that only their shards are taken.
    Declared,
    /// All in one transaction.
    Together,
}

/// Whether a batch is one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    Yes,
    No,
}

const ENTRIES: &[Entry] = &[
    Entry::Each { way: Way::Direct, joined: Joined::No },
    Entry::Each { way: Way::Direct, joined: Joined::Yes },
    Entry::Each { way: Way::Exec, joined: Joined::Yes },
    Entry::Each { way: Way::Script, joined: Joined::Yes },
    Entry::Declared,
    Entry::Each { way: Way::Function, joined: Joined::Yes },
    Entry::Together,
];

/// A command, and its row if it comes from one.
#[derive(Clone)]
struct Drawn {
    args: Vec<Vec<u8>>,
    spec: Option<&'static Spec>,
}

/// What a batch has led to.
struct Outcome {
    replies: Vec<Reply>,
    seen: Vec<String>,
}

/// Whether the statistics of keys found and missed have to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hits {
    Compared,
    /// Slices look at a key once more or once less.
    Free,
}

/// A server with a journal, and those who look at it.
struct Stage {
    hits: Hits,
    server: Server,
    observers: Observers,
    client: Connection,
}

impl Stage {
    fn new(dir: &Dir, hits: Hits) -> Stage {
        let log = dir.path().join("log");
        let log = log.to_str().expect("a text");
        let flags = ["--proactor_threads", "2", "--appendfsync", "no", "--databases", "3", "--logfile", log];
        let server = dir.start(&flags);
        let address = address(&server);
        let mut client = Connection::open(address).expect("a connection");
        Way::Function.prepare(&mut client).expect("a library");
        Stage { hits, observers: Observers::new(address), server, client }
    }

    fn address(&self) -> SocketAddr {
        address(&self.server)
    }

    /// Runs batches by one way: what each of them has led to, and what is seen in the end.
    fn run(&mut self, entry: Entry, batches: &[Vec<Drawn>]) -> (Vec<Outcome>, Vec<String>) {
        self.observers.begin();
        let outcomes = batches.iter().map(|batch| {
            self.observers.look();
            let replies = self.send(entry, batch);
            let seen = self.observers.seen();
            Outcome { replies, seen: self.compared(seen) }
        });
        let outcomes = outcomes.collect();
        let end = self.observers.end();
        (outcomes, self.compared(end))
    }

    fn compared(&self, lines: Vec<String>) -> Vec<String> {
        let is_compared = |line: &String| self.hits == Hits::Compared || !line.starts_with("keyspace_");
        lines.into_iter().filter(is_compared).collect()
    }

    fn send(&mut self, entry: Entry, batch: &[Drawn]) -> Vec<Reply> {
        let ops: Vec<Op> = batch
            .iter()
            .map(|drawn| Op { connection: 0, args: drawn.args.clone(), joined: false, pause_ms: 0 })
            .collect();
        let client = &mut self.client;
        match entry {
            Entry::Each { way, joined } => {
                let writes = ops.chunks(if joined == Joined::Yes { ops.len() } else { 1 });
                writes
                    .flat_map(|ops| {
                        way.send(client, ops).expect("sent");
                        ops.iter().map(|_| way.read(client).expect("a reply")).collect::<Vec<_>>()
                    })
                    .collect()
            }
            Entry::Declared => batch.iter().map(|drawn| declared(client, drawn)).collect(),
            Entry::Together => together(client, &ops, batch),
        }
    }
}

fn address(server: &Server) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// Runs commands in one transaction; those that MULTI would refuse to queue run before or after it.
fn together(client: &mut Connection, ops: &[Op], batch: &[Drawn]) -> Vec<Reply> {
    let is_queued = |drawn: &Drawn| drawn.spec.is_none_or(|spec| spec.accepts(drawn.args.len()));
    let mut replies = Vec::new();
    let mut at = 0;
    while at < ops.len() {
        let end = (at..ops.len()).find(|&at| !is_queued(&batch[at])).unwrap_or(ops.len());
        if end == at {
            Way::Direct.send(client, &ops[at..=at]).expect("sent");
            replies.push(client.next().expect("a reply"));
            at += 1;
            continue;
        }
        let (multi, exec) = ([b"MULTI".to_vec()], [b"EXEC".to_vec()]);
        let commands = [multi.as_slice()].into_iter();
        let commands =
            commands.chain(ops[at..end].iter().map(|op| op.args.as_slice())).chain([exec.as_slice()]);
        client.send(commands).expect("sent");
        (0..=end - at).for_each(|_| drop(client.next().expect("a reply")));
        let done = client.next().expect("a reply");
        assert_eq!(
            done.items().map(<[_]>::len),
            Some(end - at),
            "{done} to {:?}",
            ops[at..end].iter().map(Op::line).collect::<Vec<_>>()
        );
        replies.extend(done.items().unwrap_or_default().iter().cloned());
        at = end;
    }
    replies
}

/// Runs a command by a script of its own, which names it and says which arguments are keys; by any script if there are more
/// arguments than a call in Lua may have.
fn declared(client: &mut Connection, drawn: &Drawn) -> Reply {
    const ARGS_MAX: usize = 60;
    if drawn.args.len() > ARGS_MAX {
        let op = Op { connection: 0, args: drawn.args.clone(), joined: false, pause_ms: 0 };
        Way::Script.send(client, &[op]).expect("sent");
        return Way::Script.read(client).expect("a reply");
    }
    let mut is_key = vec![false; drawn.args.len()];
    let words: Vec<&[u8]> = drawn.args.iter().map(Vec::as_slice).collect();
    if let Some(spec) = drawn.spec {
        spec.each_key(OwnedArgs::from_slices(&words).args(), &mut |at| is_key[at] = true);
    }
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    let mut script = format!("return redis.pcall('{}'", drawn.args[0].escape_ascii());
    for (word, is_key) in drawn.args.iter().zip(is_key).skip(1) {
        let (name, list) = if is_key { ("KEYS", &mut keys) } else { ("ARGV", &mut others) };
        list.push(word.clone());
        script.push_str(&format!(", {name}[{}]", list.len()));
    }
    let head = vec![b"EVAL".to_vec(), (script + ")").into_bytes(), keys.len().to_string().into_bytes()];
    client.send([[head, keys, others].concat().as_slice()].into_iter()).expect("sent");
    client.next().expect("a reply")
}

/// Whether two replies to a command are the same, as far as its row says that they have to be.
fn is_same(drawn: &Drawn, left: &Reply, right: &Reply) -> bool {
    let Some(spec) = drawn.spec else { return left == right };
    if spec.tips.contains(&"nondeterministic_output") {
        return left.kind() == right.kind();
    }
    // Without weights a set is answered in the order of its table.
    let is_unsorted = spec.name.starts_with("sort") && drawn.args.iter().any(|arg| arg == b"nosort");
    let has_no_order = is_unsorted || spec.tips.contains(&"nondeterministic_output_order");
    if has_no_order && left.items().is_some() {
        let sorted =
            |reply: &Reply| reply.items().map(|items| items.iter().cloned().collect::<BTreeSet<_>>());
        return left.kind() == right.kind() && sorted(left) == sorted(right);
    }
    // The length of an array may be 2^63, which no integer of Lua's replies holds.
    let is_beyond = |reply: &Reply| reply.kind() == b':' && reply.integer().is_none();
    if is_beyond(left) || is_beyond(right) {
        return left.kind() == right.kind();
    }
    let says_times = spec.name.contains("ttl") || spec.name.contains("expiretime");
    left == right || says_times && is_near(left, right)
}

/// The same but for integers, of which each may be up to ten seconds of milliseconds apart.
fn is_near(left: &Reply, right: &Reply) -> bool {
    match (left.items(), right.items(), left.integer(), right.integer()) {
        (Some(mine), Some(theirs), ..) => {
            mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(mine, theirs)| is_near(mine, theirs))
        }
        (_, _, Some(mine), Some(theirs)) => {
            mine.signum() == theirs.signum() && mine.abs_diff(theirs) < 10_000
        }
        _ => left == right,
    }
}

/// Compares all that two ways have led to.
fn compare(
    name: &str,
    batches: &[Vec<Drawn>],
    entry: Entry,
    left: &(Vec<Outcome>, Vec<String>),
    right: &(Vec<Outcome>, Vec<String>),
) {
    let way = match entry {
        Entry::Each { way, .. } => way,
        Entry::Declared => Way::Script,
        Entry::Together => Way::Exec,
    };
    for (at, (batch, (mine, theirs))) in batches.iter().zip(left.0.iter().zip(&right.0)).enumerate() {
        for (drawn, (mine, theirs)) in batch.iter().zip(mine.replies.iter().zip(&theirs.replies)) {
            let (expected, reply) = (way.expected(mine), way.expected(theirs));
            assert!(
                is_same(drawn, &expected, &reply) || way.replaces(mine, theirs),
                "{name}, batch {at}, {entry:?}: {}\n  direct: {mine}\n  here:   {theirs}\n{}",
                line(drawn),
                history(batches, at)
            );
        }
        for (mine, theirs) in mine.seen.iter().zip(&theirs.seen) {
            assert_eq!(mine, theirs, "{name}, batch {at}, {entry:?}\n{}", history(batches, at));
        }
    }
    let differs = |lines: &[String], others: &[String]| {
        lines.iter().filter(|line| !others.contains(line)).cloned().collect::<Vec<_>>().join("\n  ")
    };
    assert!(
        left.1 == right.1,
        "{name}, {entry:?}, in the end:\n direct:\n  {}\n here:\n  {}\n{}",
        differs(&left.1, &right.1),
        differs(&right.1, &left.1),
        history(batches, batches.len() - 1)
    );
}

fn line(drawn: &Drawn) -> String {
    Op { connection: 0, args: drawn.args.clone(), joined: false, pause_ms: 0 }.line()
}

/// The batches up to `at`.
fn history(batches: &[Vec<Drawn>], at: usize) -> String {
    let lines = batches[..=at].iter().map(|batch| batch.iter().map(line).collect::<Vec<_>>().join(" ; "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Cuts commands into batches of up to five.
fn cut(commands: Vec<Drawn>, rng: &mut Rng) -> Vec<Vec<Drawn>> {
    let mut batches: Vec<Vec<Drawn>> = vec![Vec::new()];
    let mut room = 1;
    for drawn in commands {
        if room == 0 {
            batches.push(Vec::new());
            room = 1 + rng.below(5);
        }
        room -= 1;
        batches.last_mut().expect("one at least").push(drawn);
    }
    batches
}

/// Runs batches by every way, and reads the journal back after the last.
fn run_all(stage: &mut Stage, name: &str, batches: &[Vec<Drawn>]) {
    let direct = stage.run(ENTRIES[0], batches);
    for &entry in &ENTRIES[1..] {
        let other = stage.run(entry, batches);
        compare(name, batches, entry, &direct, &other);
    }
    let before = stage.observers.contents();
    stage.observers.reload(stage.address());
    assert_eq!(
        before,
        stage.observers.contents(),
        "{name}: read back from the journal\n{}",
        history(batches, batches.len() - 1)
    );
}

/// Every data command, drawn from its row.
#[test]
fn every_way_in_does_the_same_with_every_data_command() {
    let (rounds, seed) = (setting("DARTER_EQUIVALENCE_ROUNDS", 2), setting("DARTER_SEED", 1) as u64);
    let dir = Dir::new("equivalence");
    let mut runs = Runs::new(&dir, Hits::Compared);
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        for (family, rows) in draw::families().filter(|(_, rows)| !rows.is_empty()) {
            // Each row comes at least three times, among those that write.
            let mut order: Vec<&Spec> = rows.iter().copied().cycle().take(rows.len() * 3).collect();
            let writes: Vec<&Spec> =
                rows.iter().copied().filter(|spec| spec.flags.any(Flags::WRITE)).collect();
            if !writes.is_empty() {
                order.extend((0..rows.len()).map(|_| *rng.pick(&writes)));
            }
            (1..order.len()).for_each(|at| order.swap(at, rng.below(at + 1)));
            let drawn = |spec: &'static Spec| Drawn { args: draw::command(spec, &mut rng), spec: Some(spec) };
            let commands = order.into_iter().map(drawn).collect();
            let batches = cut(commands, &mut rng);
            runs.run(&format!("{family}, seed {seed}, round {round}"), &batches);
        }
    }
    runs.end();
}

/// Deeper sequences of one type each, also on values so long that some ways in run in slices and others do not.
#[test]
fn every_way_in_does_the_same_with_long_values() {
    const MEMBERS: usize = 3_000;
    let (ops, seed) = (setting("DARTER_EQUIVALENCE_OPS", 40), setting("DARTER_SEED", 1) as u64);
    let dir = Dir::new("equivalence-long");
    let mut runs = Runs::new(&dir, Hits::Free);
    let mut rng = Rng::new(seed);
    let is_plain =
        |family: &&Family| family.mode == Mode::Direct && family.connections == 1 && family.mixed_types;
    for family in FAMILIES.iter().filter(is_plain) {
        // A stream is filled by a command for each entry.
        let long = if family.name == "streams" { MEMBERS / 4 } else { MEMBERS };
        for (members, ops) in [(0, ops * 4), (long, ops)] {
            let stream = Stream::new(family, seed, true, &[]).expect("a family").take(ops);
            let stream =
                if members > 0 { filling::under(stream, family.name, members, seed) } else { stream };
            let commands: Vec<Drawn> = stream.into_iter().filter_map(data_command).collect();
            let batches = cut(commands, &mut rng);
            runs.run(&format!("{}, {members} members, seed {seed}", family.name), &batches);
        }
    }
    runs.end();
}

/// A data command of the comparison with Redis, unless it acts by chance or by the clock.
fn data_command(op: Op) -> Option<Drawn> {
    const TIMED: &[&str] =
        &["EX", "PX", "EXPIRE", "PEXPIRE", "HEXPIRE", "HPEXPIRE", "SETEX", "PSETEX", "RESTORE"];
    let is =
        |at: usize, word: &str| op.args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let name = op.name().to_lowercase();
    let sub =
        op.args.get(1).map_or(String::new(), |arg| format!("{name}|{}", arg.escape_ascii()).to_lowercase());
    let mut rows = draw::families().flat_map(|(_, rows)| rows);
    let spec = rows.find(|spec| spec.name == name || spec.name == sub)?;
    // What dies while a sequence runs dies sooner by one way than by another.
    let is_timed = (0..op.args.len()).any(|at| TIMED.iter().any(|word| is(at, word)));
    let is_short = |arg: &Vec<u8>| arg.len() < 4 && !arg.is_empty() && arg.iter().all(u8::is_ascii_digit);
    let dies_soon = is_timed && op.args.iter().any(is_short);
    let asks_clock = name == "xadd" && (0..op.args.len()).any(|at| is(at, "*"));
    (!dies_soon && !asks_clock && op.pause_ms == 0).then_some(Drawn { args: op.args, spec: Some(spec) })
}

/// Runs of sequences, whose failures are collected.
struct Runs<'d> {
    dir: &'d Dir,
    stage: Stage,
    failed: Vec<String>,
}

impl Runs<'_> {
    fn new(dir: &Dir, hits: Hits) -> Runs<'_> {
        Runs { dir, stage: Stage::new(dir, hits), failed: Vec::new() }
    }

    fn run(&mut self, name: &str, batches: &[Vec<Drawn>]) {
        let began = Instant::now();
        let run = AssertUnwindSafe(|| run_all(&mut self.stage, name, batches));
        if catch_unwind(run).is_err() {
            // Its connections may be amid something.
            self.stage = Stage::new(self.dir, self.stage.hits);
            self.failed.push(name.to_owned());
        }
        println!("{name}: {} batches in {:?}", batches.len(), began.elapsed());
    }

    fn end(self) {
        assert!(self.failed.is_empty(), "{:?}", self.failed);
    }
}
