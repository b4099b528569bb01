//! An engine of two shards whose sinks write down what they hear.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::OnceLock;

use darter_base::hash::KeyHasher;
use darter_command::{Ctx, Env, FAMILIES, Spec};
use darter_latch::{Cell, Grant, Held, LatchJob, Runner, Waiter};
use darter_store::Shard;
use darter_store::change::{Change, Class, Event};
use darter_txn::waiters::Parked;
use darter_txn::{LockSet, Router, ShardPart, ShardSet};
use darter_wire::{Args, Reply};

use crate::blocking::{self, BlockedKeys, Blocking};
use crate::commit::{ChangedBy, RanCommand, Sinks};
use crate::lease::{self, Post, Thread};

/// A job that waits for shards and counts a change in each of them.
pub struct Task {
    name: &'static str,
    wanted: LockSet,
    grant: Grant<ShardPart, Task>,
}

impl Task {
    pub fn new(name: &'static str, wanted: &LockSet, grant: Grant<ShardPart, Task>) -> Task {
        Task { name, wanted: wanted.clone(), grant }
    }
}

impl LatchJob for Task {
    type Shard = ShardPart;

    fn need(&mut self) -> (&[u16], &mut Grant<ShardPart, Task>) {
        (self.wanted.ids(), &mut self.grant)
    }
}

const SHARDS: u16 = 2;

/// The router of two shards.
pub fn router() -> &'static Router {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    ROUTER.get_or_init(|| Router::new(KeyHasher::new(1), SHARDS))
}

/// Shards that are free.
pub fn cells(len: u16) -> &'static [Cell<ShardPart, Task>] {
    let cell = |id: u16| {
        let hasher = router().hasher();
        let mut shard = Shard::new(1, u64::from(id), *hasher).expect("address space for a shard");
        shard.share_links(std::sync::Arc::clone(router().links()));
        Cell::new(id, ShardPart::new(shard, *hasher))
    };
    Box::leak((0..len).map(cell).collect())
}

/// A thread whose sinks write down what they hear.
pub struct Engine {
    cells: &'static [Cell<ShardPart, Task>],
    /// What happened, a line each.
    pub log: Vec<String>,
    /// Jobs that others have sent home.
    pub sent: RefCell<Vec<&'static str>>,
    /// A key; when it is served, this key of this shard changes.
    pub serves: Vec<(&'static str, u16, &'static str)>,
    /// Clients that may not go on with what they wait for.
    pub refused: Vec<u64>,
    /// Waits that are to be looked at again.
    pub posted: Vec<(u64, Parked, LockSet)>,
    home: RefCell<VecDeque<Box<Waiter<Task>>>>,
    sent_before: u64,
}

impl Engine {
    pub fn new(cells: &'static [Cell<ShardPart, Task>]) -> Engine {
        Engine {
            cells,
            log: Vec::new(),
            sent: RefCell::default(),
            serves: Vec::new(),
            refused: Vec::new(),
            posted: Vec::new(),
            home: RefCell::default(),
            sent_before: 0,
        }
    }

    /// Runs what was sent home.
    pub fn go_home(&mut self) {
        while let Some(job) = self.home.get_mut().pop_front() {
            let grant = self.run(job);
            lease::release(self, grant);
        }
    }
}

impl Runner<Task> for Engine {
    fn run(&mut self, mut job: Box<Waiter<Task>>) -> Grant<ShardPart, Task> {
        let mut grant = std::mem::take(&mut job.grant);
        let ids: Vec<String> = job.wanted.ids().iter().map(u16::to_string).collect();
        self.log.push(format!("run {} over {}", job.name, ids.join(" ")));
        grant.iter_mut().for_each(|held| held.shard.changes.count(1));
        grant
    }

    fn hand_over(&mut self, job: Box<Waiter<Task>>) {
        self.log.push(format!("home {}", job.name));
        self.home.get_mut().push_back(job);
    }
}

impl Thread for Engine {
    type Job = Task;

    fn cells(&self) -> &'static [Cell<ShardPart, Task>] {
        self.cells
    }
}

impl Post for Engine {
    type Job = Task;

    fn cells(&self) -> &'static [Cell<ShardPart, Task>] {
        self.cells
    }

    fn send_home(&self, job: Box<Waiter<Task>>) {
        self.sent.borrow_mut().push(job.name);
        self.home.borrow_mut().push_back(job);
    }
}

/// The keys of changes, behind each other.
fn keys(changes: &[Change]) -> String {
    let keys = changes.iter().map(|change| String::from_utf8_lossy(&change.key).into_owned());
    keys.collect::<Vec<_>>().join(" ")
}

impl Sinks for Engine {
    type Entry = &'static str;

    fn router(&self) -> &'static Router {
        router()
    }

    fn note(&mut self, mut set: ShardSet<'_>, ran: Option<RanCommand<'_, &'static str>>) {
        set.each_mut(|_, part| drop(part.shard.changes.take_notes()));
        self.log.push(format!("journal {}", ran.map_or("-", |ran| ran.entry)));
    }

    fn note_values<'k>(
        &mut self,
        _: &mut Grant<ShardPart, Task>,
        _: usize,
        names: impl Iterator<Item = &'k [u8]>,
    ) {
        self.log.push(format!("values {}", names.count()));
    }

    fn make_room(&mut self, _: &mut Held<ShardPart, Task>) {
        self.log.push("room".to_owned());
    }

    fn make_room_in(&mut self, _: &mut Grant<ShardPart, Task>) {
        self.log.push("room".to_owned());
    }

    fn publish(&mut self, changes: &[Change]) {
        self.log.push(format!("publish {}", keys(changes)));
    }

    fn has_caches(&self) -> bool {
        true
    }

    fn invalidate(&mut self, _: &mut Grant<ShardPart, Task>, changes: &[Change], by: ChangedBy) {
        self.log.push(format!("invalidate {} by {}", keys(changes), by.0));
    }

    fn sent_before(&mut self) -> &mut u64 {
        &mut self.sent_before
    }

    fn serve(&mut self, grant: &mut Grant<ShardPart, Task>, _: usize, key: &[u8]) {
        let key = String::from_utf8_lossy(key).into_owned();
        self.log.push(format!("serve {key}"));
        blocking::serve(self, grant, 0, key.as_bytes());
        if let Some(at) = self.serves.iter().position(|(waits, ..)| *waits == key) {
            let (_, id, changed) = self.serves.remove(at);
            let part = grant.get_mut(id).expect("the whole grant is held");
            part.shard.changes.push(0, changed.as_bytes(), Event::new(Class::LIST, "lpop"));
        }
    }
}

/// The row of a data command.
pub fn row(name: &str) -> &'static darter_command::DataCommand {
    let mut rows = FAMILIES.iter().flat_map(|family| family.iter());
    rows.find(|row| row.spec.name == name).expect("a data command")
}

/// Runs a command's body over shards that are held; the wait that it asks for.
pub fn run_body<'a>(
    set: ShardSet<'a>,
    name: &str,
    args: Args<'_>,
    only_key: Option<&'a [u8]>,
    out: &mut Vec<u8>,
) -> Option<Box<darter_command::BlockingWait>> {
    static ENV: OnceLock<Env> = OnceLock::new();
    let mut ctx = Ctx::new(set, ENV.get_or_init(Env::default), 0, 1, NOW_MS, None);
    ctx.only_key = only_key;
    (row(name).run)(&mut ctx, args, &mut Reply::new(out, false)).expect("it runs");
    ctx.wait
}

const NOW_MS: u64 = 1_000_000;

/// A client is its origin.
impl Blocking for Engine {
    type Origin = u64;
    type Effort = ();

    fn spec(entry: &'static str) -> &'static Spec {
        &row(entry).spec
    }

    fn db(_: u64) -> usize {
        0
    }

    fn changed_by(origin: u64) -> ChangedBy {
        ChangedBy(origin)
    }

    fn now_ms(&self) -> u64 {
        NOW_MS
    }

    fn ends(&mut self, ticket: &Parked, waiting: &BlockedKeys<u64, &'static str>) -> bool {
        let is_refused = self.refused.contains(&waiting.origin);
        if is_refused {
            self.log.push(format!("refuse {}", waiting.origin));
            ticket.finish();
        }
        is_refused
    }

    fn try_again<'a>(
        &'a mut self,
        set: ShardSet<'a>,
        waiting: &BlockedKeys<u64, &'static str>,
        only_key: Option<&'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        run_body(set, waiting.entry, waiting.args(), only_key, out).is_none().then_some(())
    }

    fn answer(&mut self, waiting: &BlockedKeys<u64, &'static str>, (): (), reply: Vec<u8>) {
        let reply = String::from_utf8_lossy(&reply).replace("\r\n", " ");
        self.log.push(format!("answer {}: {}", waiting.origin, reply.trim_end()));
    }

    fn remember(&mut self, _: &mut Grant<ShardPart, Task>, _: &BlockedKeys<u64, &'static str>) {}

    fn post(&mut self, origin: u64, ticket: Parked, wanted: LockSet) {
        self.log.push(format!("later {origin}"));
        self.posted.push((origin, ticket, wanted));
    }
}
