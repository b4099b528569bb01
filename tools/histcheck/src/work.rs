//! What the clients do: random operations on a few lists, groups of strings and queues.
//!
//! A list is given up after some appends and another one takes its place, so that reading it stays cheap. A group of
//! strings is written by one client alone, all at once and with rising numbers, so a read of number n stands for a list
//! of the numbers up to n.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use darter_base::rng::Rng;
use darter_wire::value::Value;

use crate::client::{Client, Refusal, number, numbers};
use crate::history::{History, Op, Step};

/// Lists in use at a time.
const LISTS: u32 = 6;
/// Lists that move between two names, in use at a time.
const MOVING: u32 = 3;
/// Appends after which a list is given up.
const APPENDS_MAX: u32 = 48;
/// Strings of a group.
const GROUP_LEN: u32 = 4;
/// Queues.
const QUEUES: u32 = 2;
/// Numbers of lists: moving ones from here, groups and counters from there.
const FIRST_MOVING: u32 = 1 << 24;
const FIRST_GROUP: u32 = 2 << 24;
const FIRST_COUNTER: u32 = 3 << 24;

/// What all clients of a run share.
pub struct World {
    /// Where the names of this run begin.
    pub prefix: String,
    /// When it began: the zero of its clock.
    pub began: Instant,
    /// Clients.
    pub clients: u32,
    /// The next value.
    pub next: AtomicU64,
    appends: [AtomicU32; LISTS as usize],
    moving: [AtomicU32; MOVING as usize],
    counts: AtomicU32,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(prefix: String, clients: u32) -> World {
        World {
            prefix,
            began: Instant::now(),
            clients,
            next: AtomicU64::new(1),
            appends: Default::default(),
            moving: Default::default(),
            counts: AtomicU32::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn value(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// A list to use, and its number; `appends`: it is counted.
    fn list(&self, rng: &mut Rng, appends: bool) -> u32 {
        let at = rng.below(u64::from(LISTS)) as u32;
        let count = self.appends[at as usize].fetch_add(u32::from(appends), Relaxed);
        at + count / APPENDS_MAX * LISTS
    }

    fn moving(&self, rng: &mut Rng, appends: bool) -> u32 {
        let at = rng.below(u64::from(MOVING)) as u32;
        let count = self.moving[at as usize].fetch_add(u32::from(appends), Relaxed);
        FIRST_MOVING + at + count / APPENDS_MAX * MOVING
    }

    fn counter(&self) -> u32 {
        FIRST_COUNTER + self.counts.fetch_add(1, Relaxed) / APPENDS_MAX
    }

    fn name(&self, list: u32) -> String {
        format!("{}:{list}", self.prefix)
    }

    fn names(&self, list: u32) -> [String; 2] {
        ["a", "b"].map(|place| format!("{}:{list}:{place}", self.prefix))
    }

    fn strings(&self, group: u32) -> Vec<String> {
        (0..GROUP_LEN).map(|n| format!("{}:{}:{n}", self.prefix, FIRST_GROUP + group)).collect()
    }

    fn queue(&self, n: u64) -> String {
        format!("{}:queue:{}", self.prefix, n % u64::from(QUEUES))
    }
}

/// Appends what is not empty, reads otherwise; keys are named.
const NAMED: &str = "local out = {} for n = 1, #KEYS do
    if ARGV[n] == '' then out[n] = redis.call('lrange', KEYS[n], 0, -1) else out[n] = redis.call('rpush', KEYS[n], ARGV[n]) end
end return out";
/// The same; keys are put together from a beginning and numbers.
const UNNAMED: &str = "local out = {} for n = 2, #ARGV, 2 do local key = ARGV[1] .. ':' .. ARGV[n]
    if ARGV[n + 1] == '' then out[#out + 1] = redis.call('lrange', key, 0, -1)
    else out[#out + 1] = redis.call('rpush', key, ARGV[n + 1]) end
end return out";
/// Appends to a list where it is at the moment.
const FOLLOW: &str =
    "if redis.call('exists', KEYS[2]) == 1 then return redis.call('rpush', KEYS[2], ARGV[1]) end
    return redis.call('rpush', KEYS[1], ARGV[1])";

/// One client's share of a run.
pub struct Worker<'a> {
    world: &'a World,
    own: u32,
    rng: Rng,
    client: Client,
    written: u64,
    history: History,
}

impl<'a> Worker<'a> {
    /// Client `own` of the world, with its seed.
    pub fn new(world: &'a World, own: u32, seed: u64, client: Client) -> Worker<'a> {
        Worker { world, own, rng: Rng::new(seed), client, written: 0, history: History::default() }
    }

    /// Does `ops` operations; returns what happened. Errors: the server said something that it never should.
    pub fn run(mut self, ops: u64) -> io::Result<History> {
        for _ in 0..ops {
            self.act(UNNAMED)?;
        }
        Ok(self.history)
    }

    /// Does operations until it is over, on a slot that moves. Errors: as above.
    pub fn run_moving(mut self, is_over: &AtomicBool) -> io::Result<History> {
        while !is_over.load(Relaxed) {
            // A script that does not name its keys is not for a cluster.
            let Err(error) = self.act(NAMED) else { continue };
            match Refusal::of(&error) {
                Some(Refusal::Moved(port)) => self.client.reconnect(port)?,
                // What was sent behind the refusal is answered to nobody.
                Some(_) => {
                    self.client.reconnect(self.client.port()?)?;
                    thread::sleep(Duration::from_millis(1));
                }
                None => return Err(error),
            }
        }
        Ok(self.history)
    }

    fn act(&mut self, script: &'static str) -> io::Result<()> {
        match self.rng.below(100) {
            0..20 => self.transaction(),
            20..35 => self.script(NAMED),
            35..50 => self.script(script),
            50..58 => self.write_group(),
            58..68 => self.read_group(),
            68..74 => self.watched(),
            74..79 => self.rename(),
            79..85 => self.follow(),
            85..90 => self.read_moving(),
            90..93 => self.single(),
            93..95 => self.count(),
            _ => self.queue(),
        }
    }

    fn note(&mut self, name: &'static str, begin: u64, steps: Vec<Step>, is_done: bool) {
        self.history.ops.push(Op { name, begin, end: self.world.now(), steps, is_done });
    }

    /// One to four steps, still to be done: reads have no values yet.
    fn wishes(&mut self) -> Vec<Step> {
        let len = 1 + self.rng.below(4);
        let mut wishes = Vec::new();
        for _ in 0..len {
            let appends = self.rng.below(2) == 0;
            let key = self.world.list(&mut self.rng, appends);
            wishes.push(match appends {
                true => Step::Append { key, value: self.world.value() },
                false => Step::Read { key, values: Vec::new() },
            });
        }
        wishes
    }

    fn add_wishes(&mut self, wishes: &[Step]) {
        for wish in wishes {
            match wish {
                Step::Append { key, value } => {
                    self.client.add(&["RPUSH", &self.world.name(*key), &value.to_string()])
                }
                Step::Read { key, .. } => {
                    self.client.add(&["LRANGE", &self.world.name(*key), "0", "-1"]);
                }
            }
        }
    }

    fn transaction(&mut self) -> io::Result<()> {
        let wishes = self.wishes();
        let begin = self.world.now();
        self.client.add(&["MULTI"]);
        self.add_wishes(&wishes);
        self.client.add(&["EXEC"]);
        self.client.send()?;
        for _ in 0..=wishes.len() {
            self.client.read()?;
        }
        let replies = self.client.read()?;
        let steps = filled(wishes, &replies)?;
        self.note("MULTI", begin, steps, true);
        Ok(())
    }

    fn script(&mut self, text: &'static str) -> io::Result<()> {
        let wishes = self.wishes();
        let value = |wish: &Step| match wish {
            Step::Append { value, .. } => value.to_string(),
            Step::Read { .. } => String::new(),
        };
        let list = |wish: &Step| match wish {
            Step::Append { key, .. } | Step::Read { key, .. } => *key,
        };
        let mut words = vec!["EVAL".to_owned(), text.to_owned()];
        if text == NAMED {
            words.push(wishes.len().to_string());
            words.extend(wishes.iter().map(|wish| self.world.name(list(wish))));
            words.extend(wishes.iter().map(value));
        } else {
            words.extend(["0".to_owned(), self.world.prefix.clone()]);
            words.extend(wishes.iter().flat_map(|wish| [list(wish).to_string(), value(wish)]));
        }
        let begin = self.world.now();
        let replies = self.client.call(&words)?;
        let steps = filled(wishes, &replies)?;
        self.note(if text == NAMED { "EVAL" } else { "EVAL without keys" }, begin, steps, true);
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        let next = self.written + 1;
        let value = group_value(self.own, next);
        let strings = self.world.strings(self.own);
        let mut words = vec!["MSET".to_owned()];
        words.extend(strings.into_iter().flat_map(|name| [name, next.to_string()]));
        let begin = self.world.now();
        self.client.call(&words)?;
        self.written = next;
        self.note("MSET", begin, vec![Step::Append { key: FIRST_GROUP + self.own, value }], true);
        Ok(())
    }

    fn read_group(&mut self) -> io::Result<()> {
        let group = self.rng.below(u64::from(self.world.clients)) as u32;
        let mut words = vec!["MGET".to_owned()];
        words.extend(self.world.strings(group));
        let begin = self.world.now();
        let Value::Array(texts) = self.client.call(&words)? else { return Err(io::Error::other("no array")) };
        // Strings that differ are two reads of one operation, which no order explains.
        let mut steps = Vec::new();
        for text in &texts {
            let written = if *text == Value::Null { 0 } else { number(text)? };
            let values = (1..=written).map(|n| group_value(group, n)).collect();
            let step = Step::Read { key: FIRST_GROUP + group, values };
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
        self.note("MGET", begin, steps, true);
        Ok(())
    }

    fn watched(&mut self) -> io::Result<()> {
        let key = self.world.list(&mut self.rng, true);
        let (name, value) = (self.world.name(key), self.world.value());
        let begin = self.world.now();
        self.client.call(&["WATCH", &name])?;
        let values = numbers(&self.client.call(&["LRANGE", &name, "0", "-1"])?)?;
        self.client.add(&["MULTI"]);
        self.client.add(&["RPUSH", &name, &value.to_string()]);
        self.client.add(&["EXEC"]);
        self.client.send()?;
        self.client.read()?;
        self.client.read()?;
        let is_done = matches!(self.client.read()?, Value::Array(_));
        self.note("WATCH", begin, vec![Step::Read { key, values }, Step::Append { key, value }], is_done);
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let [mut from, mut to] = {
            let list = self.world.moving(&mut self.rng, false);
            self.world.names(list)
        };
        if self.rng.below(2) == 0 {
            std::mem::swap(&mut from, &mut to);
        }
        match self.client.call(&["RENAME", &from, &to]) {
            // It is under the other name, or not there yet.
            Err(error) if error.to_string().contains("no such key") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn follow(&mut self) -> io::Result<()> {
        let key = self.world.moving(&mut self.rng, true);
        let ([a, b], value) = (self.world.names(key), self.world.value());
        let begin = self.world.now();
        self.client.call(&["EVAL", FOLLOW, "2", &a, &b, &value.to_string()])?;
        self.note("EVAL that follows", begin, vec![Step::Append { key, value }], true);
        Ok(())
    }

    fn read_moving(&mut self) -> io::Result<()> {
        let key = self.world.moving(&mut self.rng, false);
        let begin = self.world.now();
        let values = read_both(&mut self.client, &self.world.names(key))?;
        self.note("MULTI of two names", begin, vec![Step::Read { key, values }], true);
        Ok(())
    }

    fn single(&mut self) -> io::Result<()> {
        let wish = self.wishes().swap_remove(0);
        let begin = self.world.now();
        self.add_wishes(std::slice::from_ref(&wish));
        self.client.send()?;
        let reply = match self.client.read() {
            Err(error) => match Refusal::of(&error) {
                Some(Refusal::Ask(port)) => self.ask(port, &wish)?,
                _ => return Err(error),
            },
            Ok(reply) => reply,
        };
        let steps = filled(vec![wish], &Value::Array(vec![reply]))?;
        self.note("single", begin, steps, true);
        Ok(())
    }

    /// Sends a step to the node that gets the slot.
    fn ask(&mut self, port: u16, wish: &Step) -> io::Result<Value> {
        let here = self.client.port()?;
        self.client.reconnect(port)?;
        self.client.call(&["ASKING"])?;
        self.add_wishes(std::slice::from_ref(wish));
        self.client.send()?;
        let reply = self.client.read();
        self.client.reconnect(here)?;
        reply
    }

    /// Counts up. A count stands for a list of the numbers up to it.
    fn count(&mut self) -> io::Result<()> {
        let counter = self.world.counter();
        let begin = self.world.now();
        let counted = self.client.call(&["INCR", &self.world.name(counter)])?;
        let Value::Int(counted) = counted else { return Err(io::Error::other("no number")) };
        let (values, value) = (counts(counter, counted as u64 - 1), count_value(counter, counted as u64));
        let steps = vec![Step::Read { key: counter, values }, Step::Append { key: counter, value }];
        self.note("INCR", begin, steps, true);
        Ok(())
    }

    fn queue(&mut self) -> io::Result<()> {
        let (first, second) = (self.rng.next_u64(), self.rng.next_u64());
        match self.rng.below(5) {
            0..2 => {
                let value = self.world.value();
                self.client.call(&["LPUSH", &self.world.queue(first), &value.to_string()])?;
                self.history.pushed.push(value);
            }
            2 => {
                let from = [self.world.queue(first), self.world.queue(first + 1)];
                let popped = self.client.call(&["BLPOP", &from[0], &from[1], "0.01"])?;
                if let Value::Array(pair) = &popped {
                    let value = pair.get(1).ok_or_else(|| io::Error::other("half a pair"))?;
                    self.history.popped.push(number(value)?);
                }
            }
            3 => {
                let queue = self.world.queue(first);
                let popped = self.client.call(&["BRPOP", &queue, "0.005"])?;
                if let Value::Array(pair) = &popped {
                    let value = pair.get(1).ok_or_else(|| io::Error::other("half a pair"))?;
                    self.history.popped.push(number(value)?);
                }
            }
            _ => {
                let (from, to) = (self.world.queue(first), self.world.queue(second));
                self.client.call(&["BLMOVE", &from, &to, "LEFT", "RIGHT", "0.005"])?;
            }
        }
        Ok(())
    }
}

/// Reads every list, group and queue once nobody writes any more.
pub fn read_all(world: &World, client: &mut Client) -> io::Result<History> {
    let mut history = History::default();
    let count = |counts: &[AtomicU32], len: u32| {
        let most = counts.iter().map(|count| count.load(Relaxed)).max().unwrap_or(0);
        (most / APPENDS_MAX + 1) * len
    };
    let mut note = |key: u32, begin: u64, values: Vec<u64>| {
        let steps = vec![Step::Read { key, values }];
        history.ops.push(Op { name: "last read", begin, end: world.now(), steps, is_done: true });
    };
    for list in 0..count(&world.appends, LISTS) {
        let begin = world.now();
        let values = numbers(&client.call(&["LRANGE", &world.name(list), "0", "-1"])?)?;
        note(list, begin, values);
    }
    for list in (0..count(&world.moving, MOVING)).map(|n| FIRST_MOVING + n) {
        let begin = world.now();
        let values = read_both(client, &world.names(list))?;
        note(list, begin, values);
    }
    for group in 0..world.clients {
        let begin = world.now();
        let text = client.call(&["GET", &world.strings(group)[0]])?;
        let written = if text == Value::Null { 0 } else { number(&text)? };
        note(FIRST_GROUP + group, begin, (1..=written).map(|n| group_value(group, n)).collect());
    }
    for counter in (0..=world.counts.load(Relaxed) / APPENDS_MAX).map(|n| FIRST_COUNTER + n) {
        let begin = world.now();
        let text = client.call(&["GET", &world.name(counter)])?;
        let counted = if text == Value::Null { 0 } else { number(&text)? };
        note(counter, begin, counts(counter, counted));
    }
    for queue in 0..QUEUES {
        let left = numbers(&client.call(&["LRANGE", &world.queue(u64::from(queue)), "0", "-1"])?)?;
        history.popped.extend(left);
    }
    Ok(history)
}

/// A list that is under one of two names, never under both.
fn read_both(client: &mut Client, names: &[String; 2]) -> io::Result<Vec<u64>> {
    client.add(&["MULTI"]);
    names.iter().for_each(|name| client.add(&["LRANGE", name, "0", "-1"]));
    client.add(&["EXEC"]);
    client.send()?;
    for _ in 0..3 {
        client.read()?;
    }
    let Value::Array(lists) = client.read()? else { return Err(io::Error::other("EXEC has no replies")) };
    let mut values = Vec::new();
    for list in &lists {
        let part = numbers(list)?;
        if !part.is_empty() && !values.is_empty() {
            return Err(io::Error::other(format!("a list is under two names: {lists:?}")));
        }
        values.extend(part);
    }
    Ok(values)
}

/// The number that stands for the `n`th write to a group; no value of a list is as large.
fn group_value(group: u32, n: u64) -> u64 {
    (u64::from(group) + 1) << 40 | n
}

/// The number that stands for the `n`th count of a counter; no group has as large ones.
fn count_value(counter: u32, n: u64) -> u64 {
    u64::from(counter) << 36 | n
}

fn counts(counter: u32, len: u64) -> Vec<u64> {
    (1..=len).map(|n| count_value(counter, n)).collect()
}

/// The steps with what the replies say.
fn filled(mut wishes: Vec<Step>, replies: &Value) -> io::Result<Vec<Step>> {
    let Value::Array(replies) = replies else {
        return Err(io::Error::other(format!("no replies: {replies:?}")));
    };
    if replies.len() != wishes.len() {
        return Err(io::Error::other(format!("{} replies to {} commands", replies.len(), wishes.len())));
    }
    for (wish, reply) in wishes.iter_mut().zip(replies) {
        if let Step::Read { values, .. } = wish {
            *values = numbers(reply)?;
        }
    }
    Ok(wishes)
}
