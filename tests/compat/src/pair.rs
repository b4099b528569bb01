//! The two servers side by side: both get the same ops, and the first differing reply is found.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::events::Events;
use crate::grammar::{Family, Mode};
use crate::reply::Reply;
use crate::rules;
use crate::server::Server;
use crate::stream::{Op, is_scan};
use crate::way::{self, Way};

/// The first difference of a stream.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The index of the op.
    pub at: usize,
    /// What the left server answered.
    pub left: String,
    /// What the right server answered.
    pub right: String,
    /// Whether the table's rule allows for the clock, so that it may be bad luck.
    pub by_clock: bool,
}

/// Two servers.
pub struct Pair {
    /// The reference.
    pub left: Side,
    /// The one under test.
    pub right: Side,
    /// Classes of keyspace events that are compared too; none when empty.
    pub events: String,
}

/// One of the two servers with its connections.
pub struct Side {
    /// The server.
    pub server: Server,
    connections: Vec<Connection>,
    events: Option<Events>,
    /// Commands queued by MULTI, per connection.
    queued: Vec<Vec<Vec<Vec<u8>>>>,
    /// How commands are sent to it.
    pub way: Way,
}

/// A reply, or why there is none.
type Answer = Result<Reply, String>;

impl Side {
    /// A side without connections yet.
    pub fn new(server: Server) -> Self {
        Self { server, connections: Vec::new(), events: None, queued: Vec::new(), way: Way::Direct }
    }

    /// Whether the server has the command `name`; none needs nothing.
    pub fn knows(&self, name: &str) -> io::Result<bool> {
        if name.is_empty() {
            return Ok(true);
        }
        let info = Connection::open(self.server.address())?.ask(&["COMMAND", "INFO", name])?;
        Ok(info
            .items()
            .and_then(<[_]>::first)
            .is_some_and(|row| row.items().is_some_and(|row| !row.is_empty())))
    }

    /// New connections of protocol `version` to an emptied server, started again when it has ended.
    fn reset(&mut self, connections: usize, version: u8) -> io::Result<()> {
        self.server.revive()?;
        self.try_reset(connections, version).or_else(|_| {
            // It may just be ending.
            thread::sleep(Duration::from_millis(500));
            self.server.revive()?;
            self.try_reset(connections, version)
        })
    }

    fn try_reset(&mut self, connections: usize, version: u8) -> io::Result<()> {
        self.connections.clear();
        let mut admin = Connection::open(self.server.address())?;
        for command in [
            &["FLUSHALL"][..],
            &["SCRIPT", "FLUSH"],
            &["FUNCTION", "FLUSH"],
            &["ACL", "DELUSER", "u0", "u1", "u2"],
            &["ACL", "LOG", "RESET"],
            &["CONFIG", "RESETSTAT"],
        ] {
            // A server without scripts answers with an error, and has nothing to forget.
            admin.ask(command)?;
        }
        self.way.prepare(&mut admin)?;
        self.queued = vec![Vec::new(); connections];
        for _ in 0..connections {
            self.connections.push(self.open(version)?);
        }
        Ok(())
    }

    fn open(&self, version: u8) -> io::Result<Connection> {
        let mut connection = Connection::open(self.server.address())?;
        if version == 3 {
            let hello = connection.ask(&["HELLO", "3"])?;
            if hello.is_error() {
                return Err(io::Error::other(format!(
                    "{} does not speak RESP3: {hello}",
                    self.server.name()
                )));
            }
        }
        Ok(connection)
    }

    /// Reads the reply to `op`, following a scan to its end.
    fn answer(&mut self, op: &Op) -> Answer {
        let connection = &mut self.connections[op.connection];
        let reply = self.way.read(connection).map_err(|e| format!("(no reply: {})", why(e.kind())))?;
        if is_scan(&op.args) && reply.items().is_some_and(|items| items.len() == 2) {
            return follow_scan(connection, op, reply).map_err(|e| format!("(scan broke off: {})", e.kind()));
        }
        Ok(reply)
    }
}

/// Why there is no reply; how a closed connection shows is chance.
fn why(kind: io::ErrorKind) -> io::ErrorKind {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let is_closed = matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
    if is_closed { UnexpectedEof } else { kind }
}

impl Pair {
    /// Runs `ops` from an empty state and returns the first difference.  Errors: a server cannot be reached at all.
    pub fn run(&mut self, family: &Family, ops: &[Op], version: u8) -> io::Result<Option<Difference>> {
        for side in [&mut self.left, &mut self.right] {
            side.reset(family.connections, version).map_err(|error| {
                let name = side.server.name();
                io::Error::other(format!(
                    "{name} cannot be emptied: {error}; its log: {}",
                    side.server.log_tail()
                ))
            })?;
        }
        if !self.events.is_empty() {
            for side in [&mut self.left, &mut self.right] {
                side.events = Some(Events::open(side.server.address(), &self.events)?);
            }
        }
        match family.mode {
            Mode::Direct => self.run_direct(ops, version),
            Mode::Settled => self.run_settled(family, ops),
            Mode::Raw => self.run_raw(ops),
        }
    }

    fn run_direct(&mut self, ops: &[Op], version: u8) -> io::Result<Option<Difference>> {
        let mut at = 0;
        while at < ops.len() {
            // A scan is followed to its end at once, and what the reference has not stored is made good: shrinking may
            // have brought another op next to it.
            let is_alone = |op: &Op| is_scan(&op.args) || rules::stored_alone(&op.args).is_some();
            let is_apart = |i: &usize| !ops[*i].joined || is_alone(&ops[*i]) || is_alone(&ops[*i - 1]);
            let end = (at + 1..ops.len()).find(is_apart).unwrap_or(ops.len());
            let batch = &ops[at..end];
            thread::sleep(Duration::from_millis(batch[0].pause_ms));
            for side in [&mut self.left, &mut self.right] {
                // A write to a closed connection shows as a missing reply below.
                let _ = side.way.send(&mut side.connections[batch[0].connection], batch);
            }
            let mut closed = false;
            for (index, op) in batch.iter().enumerate() {
                if closed {
                    break;
                }
                let left = self.left.answer(op);
                let right = self.right.answer(op);
                closed = left.is_err();
                let is_excused = matches!((&left, &right), (Ok(l), Ok(r)) if l.is_error() && !r.is_error());
                if let Some(difference) = self.compare(at + index, op, left, right) {
                    return Ok(Some(difference));
                }
                closed = closed || op.name() == "QUIT";
                if let Some(key) = rules::stored_alone(&op.args).filter(|_| is_excused) {
                    self.forget(op.connection, key)?;
                }
            }
            let is_told_more = batch.iter().any(|op| rules::tells_more(&op.args));
            if let Some(difference) = self.compare_events(end - 1)?.filter(|_| !is_told_more) {
                return Ok(Some(difference));
            }
            if closed {
                for side in [&mut self.left, &mut self.right] {
                    // When the server has ended, the next reply is missing.
                    if let Ok(connection) = side.open(version) {
                        side.connections[batch[0].connection] = connection;
                    }
                    side.queued[batch[0].connection].clear();
                }
            }
            at = end;
        }
        self.compare_counts(ops.len().saturating_sub(1))
    }

    /// Compares what the servers have counted of each command, where the same server was reached by two ways.
    fn compare_counts(&mut self, at: usize) -> io::Result<Option<Difference>> {
        if self.right.way == Way::Direct {
            return Ok(None);
        }
        let left = way::counts(&mut self.left.connections[0])?;
        let right = way::counts(&mut self.right.connections[0])?;
        let is_same = |name: &String| left.get(name) == right.get(name);
        let wrong = left.keys().chain(right.keys()).find(|name| !is_same(name));
        Ok(wrong.map(|name| {
            let show = |counts: Option<&(u64, u64, u64)>| {
                counts.map_or_else(
                    || format!("{name}: not counted"),
                    |(calls, rejected, failed)| {
                        format!("{name}: {calls} calls, {rejected} rejected, {failed} failed")
                    },
                )
            };
            Difference { at, left: show(left.get(name)), right: show(right.get(name)), by_clock: false }
        }))
    }

    /// Deletes a key on both sides, and what was told meanwhile.
    fn forget(&mut self, connection: usize, key: &[u8]) -> io::Result<()> {
        for side in [&mut self.left, &mut self.right] {
            let del = [b"DEL".to_vec(), key.to_vec()];
            side.connections[connection].send(std::iter::once(&del[..]))?;
            side.connections[connection].next()?;
            side.events.as_mut().map(Events::take).transpose()?;
        }
        Ok(())
    }

    /// Compares the events of the batch that ended with op `at`.
    fn compare_events(&mut self, at: usize) -> io::Result<Option<Difference>> {
        let (Some(left), Some(right)) = (&mut self.left.events, &mut self.right.events) else {
            return Ok(None);
        };
        let (left, right) = (left.take()?, right.take()?);
        let show = |events: Vec<String>| format!("events: {}", events.join(", "));
        Ok((left != right).then(|| Difference { at, left: show(left), right: show(right), by_clock: false }))
    }

    fn compare(&mut self, at: usize, op: &Op, left: Answer, right: Answer) -> Option<Difference> {
        let fits = match (&left, &right) {
            (Ok(left), Ok(right)) => {
                let way = self.right.way;
                way.replaces(left, right) || self.fits(op, &way.expected(left), &way.expected(right))
            }
            (left, right) => left == right,
        };
        if fits {
            return None;
        }
        let show = |answer: Answer| answer.map_or_else(|e| e, |reply| reply.to_string());
        let by_clock = rules::by_clock(&op.args) || op.name() == "EXEC";
        Some(Difference { at, left: show(left), right: show(right), by_clock })
    }

    /// Compares by the table, and inside EXEC by the rules of the commands that were queued.
    fn fits(&mut self, op: &Op, left: &Reply, right: &Reply) -> bool {
        let queued = &mut self.left.queued[op.connection];
        if left.is_queued() {
            queued.push(op.args.clone());
        }
        match op.name().as_str() {
            "EXEC" => {
                let commands = std::mem::take(queued);
                if let (Some(mine), Some(theirs)) = (left.items(), right.items())
                    && mine.len() == commands.len()
                    && theirs.len() == commands.len()
                {
                    let mut results = commands.iter().zip(mine.iter().zip(theirs));
                    return left.kind() == right.kind()
                        && results.all(|(args, (m, t))| rules::same(args, m, t));
                }
            }
            "DISCARD" | "RESET" => queued.clear(),
            _ => {}
        }
        rules::same(&op.args, left, right)
    }

    fn run_settled(&mut self, family: &Family, ops: &[Op]) -> io::Result<Option<Difference>> {
        let mut owed = vec![0; family.connections];
        for (at, op) in ops.iter().enumerate() {
            // What stands behind a command that waits is run at some moment after it: whose is first is chance.
            if family.waits && owed[op.connection] > 0 {
                continue;
            }
            thread::sleep(Duration::from_millis(op.pause_ms));
            for side in [&mut self.left, &mut self.right] {
                let _ = side.connections[op.connection].send(std::iter::once(&op.args[..]));
            }
            owed[op.connection] += 1;
            let (left, right) = self.settle();
            for (owed, replies) in owed.iter_mut().zip(&left) {
                *owed -= replies.len().min(*owed);
            }
            for (connection, (mine, theirs)) in left.iter().zip(&right).enumerate() {
                if rules::same_messages(&op.args, connection == op.connection, mine, theirs) {
                    continue;
                }
                let show = |replies: &[Reply]| {
                    let replies: Vec<String> = replies.iter().map(Reply::to_string).collect();
                    format!("connection {connection}: [{}]", replies.join("; "))
                };
                return Ok(Some(Difference { at, left: show(mine), right: show(theirs), by_clock: false }));
            }
            if let Some(difference) = self.compare_events(at)? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    /// Collects replies on all connections until both sides have as many and nothing came for two milliseconds.
    fn settle(&mut self) -> (Vec<Vec<Reply>>, Vec<Vec<Reply>>) {
        let connections = self.left.connections.len();
        let (mut left, mut right) = (vec![Vec::new(); connections], vec![Vec::new(); connections]);
        let begin = Instant::now();
        let mut last = begin;
        loop {
            for (side, replies) in [(&mut self.left, &mut left), (&mut self.right, &mut right)] {
                for (connection, collected) in side.connections.iter_mut().zip(replies.iter_mut()) {
                    let arrived: Vec<Reply> = connection.arrived().unwrap_or_default();
                    if !arrived.is_empty() {
                        last = Instant::now();
                    }
                    collected.extend(arrived);
                }
            }
            let even = left.iter().zip(&right).all(|(mine, theirs)| mine.len() == theirs.len());
            if (even && last.elapsed() > Duration::from_millis(2)) || begin.elapsed() > Duration::from_secs(1)
            {
                return (left, right);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn run_raw(&mut self, ops: &[Op]) -> io::Result<Option<Difference>> {
        for (at, op) in ops.iter().enumerate() {
            let bytes = op.args.first().map_or(&[][..], Vec::as_slice);
            let (left, left_closed) = Connection::open(self.left.server.address())?.exchange(bytes)?;
            let (right, right_closed) = Connection::open(self.right.server.address())?.exchange(bytes)?;
            let same = (hide_versions(&left), left_closed) == (hide_versions(&right), right_closed);
            if !same
                && !rules::accepted_raw(&right)
                && rules::accepted_request(bytes, &left, &right).is_none()
            {
                let show = |reply: &[u8], closed| {
                    format!("{}{}", reply.escape_ascii(), if closed { "" } else { " (and stays open)" })
                };
                let (left, right) = (show(&left, left_closed), show(&right, right_closed));
                return Ok(Some(Difference { at, left, right, by_clock: false }));
            }
        }
        Ok(None)
    }
}

/// HELLO's answer names the server, its version, the connection and the modules: nothing of that counts.
fn hide_versions(reply: &[u8]) -> Vec<u8> {
    const MODULES: &[u8] = b"$7\r\nmodules\r\n";
    const NO_MODULE: &[u8] = b"*0\r\n";
    const MODULE_END: &[u8] = b"$4\r\nargs\r\n*0\r\n";
    let find = |word: &[u8]| reply.windows(word.len()).position(|window| window == word);
    let Some((from, list)) = find(b"$6\r\nserver\r\n").zip(find(MODULES).map(|at| at + MODULES.len())) else {
        return reply.to_vec();
    };
    let last = reply.windows(MODULE_END.len()).rposition(|window| window == MODULE_END);
    let end = match last {
        _ if reply[list..].starts_with(NO_MODULE) => list + NO_MODULE.len(),
        Some(last) if last > list => last + MODULE_END.len(),
        _ => return reply.to_vec(),
    };
    if from < list { [&reply[..from], &reply[end..]].concat() } else { reply.to_vec() }
}

/// Asks for the rest of a scan and returns all elements sorted and without repeats, as promised by no server otherwise.
fn follow_scan(connection: &mut Connection, op: &Op, first: Reply) -> io::Result<Reply> {
    let is_keys = op.name() == "SCAN";
    let cursor_at = if is_keys { 1 } else { 2 };
    let step = if op.name() == "HSCAN" || op.name() == "ZSCAN" { 2 } else { 1 };
    let mut elements: BTreeSet<Vec<Reply>> = BTreeSet::new();
    let mut reply = first;
    // Far more rounds than the members of a stream's values can need.
    for _ in 0..1_000_000 {
        let Some([cursor, page]) = reply.items() else { return Ok(reply) };
        elements.extend(page.items().unwrap_or_default().chunks(step).map(<[Reply]>::to_vec));
        let cursor = cursor.bytes().unwrap_or_default().to_vec();
        if cursor == b"0" {
            let all = elements.into_iter().flatten().collect();
            return Ok(Reply::List(b'*', all));
        }
        let mut args = op.args.clone();
        args[cursor_at] = cursor;
        connection.send(std::iter::once(&args[..]))?;
        reply = connection.next()?;
    }
    Err(io::Error::other("the scan does not end"))
}
