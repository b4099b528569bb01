//! Long answers given in slices: a command has written the head, its connection fetches the rest bit by bit.
//!
//! The shard is held for a slice at a time, and other connections are served in between. A client that takes its answer
//! slowly is waited for: what is not asked for stays where it is, in the shard. Called by the worker after it has sent
//! what a connection had to say, and by the executor for slices that had to wait for their shard.

use std::time::{Duration, Instant};

use darter_command::slices::Rest;
use darter_latch::{Grant, Waiter, drive_one, queue_for};
use darter_reactor::Token;
use darter_store::reads::Aside;
use darter_txn::{LockSet, Part};
use darter_wire::OwnedArgs;

use crate::conn::Conn;
use crate::core::Core;
use crate::job::{BUDGET, Body, Job};
use crate::registry::Entry;
use crate::shared::Mail;

/// A slice ends when it has written so much: some 10 microseconds.
const SLICE_BYTES: usize = 8 << 10;
/// Slices given to one client one after the other; the shard is free in between.
const SLICES_IN_A_ROW: usize = 4;
/// With more unsent than this the client is waited for.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// A read that changes have broken into more pieces is not held up by its client any longer, as it makes further changes
/// dearer.
const PIECES_MAX: usize = 4096;
/// Clients that one thread gives slices to between two looks at what has arrived.
pub const CLIENTS_PER_TURN: usize = 4;
/// Looks at a busy shard this many times before the slice is queued there.
const SPINS: u32 = 200;

/// An answer that a connection is getting.
pub struct Reading {
    rest: Rest,
    entry: &'static Entry,
    args: OwnedArgs,
    spent: Duration,
    aside: Aside,
    // A slice of it waits for the shard.
    is_posted: bool,
}

/// How a connection goes on that is getting an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// There is more to send, and then to read.
    More,
    /// Nothing can be done until the client takes what it has, or the shard comes free.
    Wait,
    /// That was all.
    Done,
}

impl Reading {
    /// The rest of the answer to this command.
    pub fn new(rest: Rest, entry: &'static Entry, args: OwnedArgs) -> Reading {
        Reading { rest, entry, args, spent: Duration::ZERO, aside: Aside::default(), is_posted: false }
    }

    /// What the server holds for it beside the connection's output, in bytes.
    pub fn aside_bytes(&self) -> usize {
        self.aside.bytes
    }

    /// Notes a slice of it that was given.
    pub fn note(&mut self, slice: Slice) {
        (self.aside, self.is_posted) = (slice.aside, false);
        self.spent += slice.took;
    }

    /// Ends it early, wherever it is: a slice that is under way is ended by whoever gets it back.
    pub fn give_up(self, core: &mut Core) {
        if !self.is_posted {
            end(core, self.rest);
        }
    }
}

/// The whole answer is in the output: what came meanwhile follows, and the command is noted with all it took.
fn finish(core: &Core, conn: &mut Conn) {
    let Some(reading) = conn.session.reading.take() else { return };
    conn.session.send_own_messages(&mut conn.output);
    crate::timing::note_job(core, conn.session.id, reading.entry, reading.args.args(), reading.spent);
}

/// Takes note of a slice that had to wait for its shard and is in the output; whether the answer is complete.
pub fn note_slice(core: &Core, conn: &mut Conn, slice: Option<Slice>) -> bool {
    let (Some(reading), Some(slice)) = (&mut conn.session.reading, slice) else { return true };
    reading.note(slice);
    if slice.is_done {
        finish(core, conn);
    }
    slice.is_done
}

/// Ends what a job has begun, or gone on with, for a client that has gone.
pub fn end_of_nobody(core: &mut Core, body: &Body) {
    match body {
        Body::Left { rest, .. } => end(core, *rest),
        Body::Read { rest, slice: Some(slice) } if !slice.is_done => end(core, *rest),
        _ => {}
    }
}

/// Reads on for a connection: some slices, unless its client has to be waited for.
pub fn go_on(core: &mut Core, conn: &mut Conn) -> Next {
    for _ in 1..SLICES_IN_A_ROW {
        let next = give_one(core, conn);
        if next != Next::More {
            return next;
        }
    }
    give_one(core, conn)
}

fn give_one(core: &mut Core, conn: &mut Conn) -> Next {
    let unsent = conn.output.len() - conn.sent;
    let (token, client) = (conn.token, conn.session.id);
    let Some(reading) = &mut conn.session.reading else { return Next::Done };
    if reading.is_posted || unsent > UNSENT_BYTES_MAX && reading.aside.pieces <= PIECES_MAX {
        return Next::Wait;
    }
    let shared = core.shared;
    let Some(mut held) = shared.cells[usize::from(reading.rest.shard)].take_spinning(SPINS) else {
        reading.is_posted = true;
        let rest = reading.rest;
        post(core, (token, client), Body::Read { rest, slice: None }, rest);
        return Next::Wait;
    };
    let slice = Slice::take(core, &mut held, reading.rest, &mut conn.output);
    drive_one(shared.cells, held, core, BUDGET);
    conn.was_active = true;
    reading.note(slice);
    if slice.is_done {
        finish(core, conn);
        return Next::Done;
    }
    Next::More
}

/// What came of one slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// It was the last one, and the read is ended.
    pub is_done: bool,
    aside: Aside,
    took: Duration,
}

impl Slice {
    /// Gives one slice of a read, with its shard held.
    pub fn take(core: &Core, part: &mut Part, rest: Rest, out: &mut Vec<u8>) -> Slice {
        let (began, bytes_max) = (Instant::now(), out.len() + SLICE_BYTES);
        let is_done = part.shard.read_step(rest.number, out, bytes_max);
        let aside = part.shard.read_aside(rest.number);
        if is_done {
            part.shard.end_read(rest.number);
        }
        let took = began.elapsed();
        core.stats().slice_times.add(took.as_nanos() as u64);
        Slice { is_done, aside, took }
    }
}

/// Ends a read whose client has gone.
pub fn end(core: &mut Core, rest: Rest) {
    let shared = core.shared;
    match shared.cells[usize::from(rest.shard)].take_spinning(SPINS) {
        Some(mut held) => {
            held.shard.end_read(rest.number);
            drive_one(shared.cells, held, core, BUDGET);
        }
        None => post(core, (Token::NOBODY, 0), Body::EndRead(rest), rest),
    }
}

/// Leaves work on a read to whoever has its shard.
fn post(core: &Core, (token, client): (Token, u64), body: Body, rest: Rest) {
    core.stats().contended.add(1);
    let job = Waiter::new(Job {
        grant: Grant::empty(),
        wanted: LockSet::one(rest.shard),
        home: core.thread,
        token,
        client,
        body,
        db: 0,
        resp3: false,
        reply: Vec::new(),
        tracks: false,
        no_touch: false,
        acl_version: 0,
        parking: None,
    });
    if let Some(ready) = queue_for(core.shared.cells, job, 0) {
        core.shared.door(core.thread).send(Mail::Run(ready));
    }
}
