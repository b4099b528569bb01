//! Long answers given in slices: a command has written the head, its connection fetches the rest bit by bit.
//!
//! The shard is held for a slice at a time, and other connections are served in between. A client that takes its answer
//! slowly is waited for: what is not asked for stays where it is, in the shard. Called by the worker after it has sent
//! what a connection had to say, and by the executor for slices that had to wait for their shard.

use std::time::{Duration, Instant};

use darter_command::Flags;
use darter_command::incremental::Incremental;
use darter_command::keys::walk::KeyWalk;
use darter_command::slices::SlicesRest;
use darter_latch::Grant;
use darter_reactor::Token;
use darter_store::Shard;
use darter_store::reads::Aside;
use darter_txn::{LockSet, ShardPart};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::command_log::large;
use crate::conn::Conn;
use crate::engine::lease_timer::LeaseTimer;
use crate::engine::origin::{ChangedBy, Origin};
use crate::engine::{commit, lease, plan};
use crate::exec;
use crate::job::{Called, Job, JobBody, Shards};
use crate::memcached::Listing;
use crate::registry::CommandEntry;
use crate::thread_state::ThreadState;

/// A slice ends when it has written so much: some 10 microseconds.
const SLICE_BYTES: usize = 5 << 10;
/// The same of a string, which is copied and no more.
const TEXT_SLICE_BYTES: usize = 32 << 10;
static ZEROS: [u8; TEXT_SLICE_BYTES] = [0; TEXT_SLICE_BYTES];
/// A buffer of so many bytes takes longer to free than a thread to begin.
const LET_GO_BYTES_MIN: usize = 32 << 20;
/// Slices given to one client one after the other; the shard is free in between.
const SLICES_IN_A_ROW: usize = 4;
/// With more unsent than this the client is waited for.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// A read that changes have broken into more pieces is not held up by its client any longer, as it makes further changes
/// dearer.
const PIECES_MAX: usize = 4096;
/// Clients that one thread gives slices to between two looks at what has arrived.
pub const CLIENTS_PER_TURN: usize = 4;

/// Where the rest of an answer comes from.
pub enum ReadSource {
    /// A read of a collection, by its shard and its number there.
    Read(u16, u32),
    /// The keys of all shards, one after the other.
    Keys(Box<KeyWalk>),
    /// The items of all shards, as memcached lists them.
    Items(Box<Listing>),
    /// Collections, one after the other, and what is made of them.
    Incremental(Box<Incremental>),
    /// No answer yet: a long string on its way into its shard.
    Write(WritingReply),
}

/// A long string that is written to where it is to be.
#[derive(Clone, Copy, Debug)]
pub struct WritingReply {
    shard: u16,
    // Of its draft.
    number: u32,
    // It is so many zeros and then one of the command's words.
    zeros: usize,
    word: Option<usize>,
    // How much of it is written.
    at: usize,
}

impl WritingReply {
    /// The piece that comes next; empty at the end.
    fn piece<'a>(&self, args: Args<'a>) -> &'a [u8] {
        if self.at < self.zeros {
            return ZEROS.get(..self.zeros - self.at).unwrap_or(&ZEROS);
        }
        let word = self.word.map_or(&b""[..], |word| args.at(word));
        let piece = word.get(self.at - self.zeros..).unwrap_or_default();
        piece.get(..TEXT_SLICE_BYTES).unwrap_or(piece)
    }
}

impl ReadSource {
    /// What a command with `args` has left to slices.
    pub fn new(local: &ThreadState, rest: SlicesRest, args: Args<'_>, db: usize) -> ReadSource {
        match rest {
            SlicesRest::Read { shard, number } => ReadSource::Read(shard, number),
            SlicesRest::Keys => {
                let shards_len = local.shared.router.shards_len();
                ReadSource::Keys(Box::new(KeyWalk::new(
                    args.at(1),
                    db,
                    local.env.keys_output_limit,
                    shards_len,
                )))
            }
            SlicesRest::Incremental(incremental) => ReadSource::Incremental(incremental),
            SlicesRest::Write { shard, number, zeros, word } => {
                ReadSource::Write(WritingReply { shard, number, zeros, word, at: 0 })
            }
        }
    }

    /// The shard that the next slice needs, if it needs one.
    fn shard(&self) -> Option<u16> {
        match self {
            ReadSource::Read(shard, _) => Some(*shard),
            ReadSource::Keys(walk) => Some(walk.shard().unwrap_or(0)),
            ReadSource::Items(listing) => Some(listing.shard().unwrap_or(0)),
            ReadSource::Incremental(incremental) => incremental.shard(),
            ReadSource::Write(writing) => Some(writing.shard),
        }
    }
}

/// An answer that a connection is getting.
pub struct LongRead {
    // None while a slice waits for its shard.
    source: Option<ReadSource>,
    entry: &'static CommandEntry,
    args: OwnedArgs,
    spent: Duration,
    // Of its slices so far; the head of the answer came before them.
    bytes: usize,
    aside: Aside,
    // The bytes of the arguments are still in the connection's input.
    lacks_words: bool,
}

/// How a connection goes on that is getting an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextReadSlice {
    /// There is more to send, and then to read.
    More,
    /// Nothing can be done until the client takes what it has, or the shard comes free.
    Wait,
    /// That was all.
    Done,
}

impl LongRead {
    /// The rest of the answer to this command.
    pub fn new(source: ReadSource, entry: &'static CommandEntry, args: OwnedArgs) -> LongRead {
        LongRead {
            source: Some(source),
            entry,
            args,
            spent: Duration::ZERO,
            bytes: 0,
            aside: Aside::default(),
            lacks_words: false,
        }
    }

    /// The same for a command of many megabytes, which are not copied: [`LongRead::adopt`] must follow.
    pub fn without_words(source: ReadSource, entry: &'static CommandEntry, args: Args<'_>) -> LongRead {
        LongRead { lacks_words: true, ..LongRead::new(source, entry, OwnedArgs::places_of(args)) }
    }

    /// Whether it lacks the bytes of its command.
    pub fn lacks_words(&self) -> bool {
        self.lacks_words
    }

    /// Takes the bytes in which its command came.
    pub fn adopt(&mut self, input: Vec<u8>) {
        self.args.adopt(input);
        self.lacks_words = false;
    }

    /// What the server holds for it beside the connection's output, in bytes.
    pub fn aside_bytes(&self) -> usize {
        self.aside.bytes
    }

    /// Notes a slice of so many bytes that was given.
    fn note(&mut self, slice: ReadSlice, bytes: usize) {
        self.aside = slice.aside;
        self.spent += slice.took;
        self.bytes += bytes;
    }

    /// Ends it early, wherever it is: a slice that is under way is ended by whoever gets it back.
    pub fn give_up(self, local: &mut ThreadState) {
        if let Some(source) = self.source {
            end(local, &source);
        }
        let_go(local, self.args.into_bytes());
    }
}

/// The whole answer is in the output: what came meanwhile follows, and the command is noted with all it took.
pub fn finish(local: &ThreadState, conn: &mut Conn) {
    let Some(reading) = conn.session.reading.take() else { return };
    conn.session.send_own_messages(&mut conn.output);
    crate::command_log::timing::note_job(
        local,
        conn.session.id,
        reading.entry,
        reading.args.args(),
        reading.spent,
    );
    large::note_reply(local, conn.session.id, reading.entry, reading.args.args(), reading.bytes);
    let_go(local, reading.args.into_bytes());
}

/// Frees a buffer; one of many megabytes on a thread of its own, as the kernel takes tens of milliseconds for it.
fn let_go(local: &ThreadState, bytes: Vec<u8>) {
    if bytes.capacity() >= LET_GO_BYTES_MIN {
        // Where there is no thread, it is dropped here.
        let _ = std::thread::Builder::new().name("darter-free".into()).spawn(move || drop(bytes));
    } else {
        local.keep_buffer(bytes);
    }
}

/// Takes note of a slice of `bytes` that had to wait for its shard and is in the output; whether the answer is complete.
pub fn note_slice(
    local: &ThreadState,
    conn: &mut Conn,
    source: ReadSource,
    slice: Option<ReadSlice>,
    bytes: usize,
) -> bool {
    let (Some(reading), Some(slice)) = (&mut conn.session.reading, slice) else { return true };
    reading.source = Some(source);
    reading.note(slice, bytes);
    if slice.is_done {
        finish(local, conn);
    }
    slice.is_done
}

/// The command has ended with what was gathered, and its answer of `bytes` is in the output.
pub fn note_kept(local: &ThreadState, conn: &mut Conn, bytes: usize) {
    if let Some(reading) = &mut conn.session.reading {
        reading.bytes += bytes;
    }
    finish(local, conn);
}

/// Ends what a job has begun, or gone on with, for a client that has gone.
pub fn end_of_nobody(local: &mut ThreadState, body: &JobBody) {
    match body {
        JobBody::Left { source, .. } => end(local, source),
        JobBody::Keep { incremental, .. } => end_incremental(local, incremental),
        JobBody::Read { source, slice: Some(slice) } if !slice.is_done => end(local, source),
        _ => {}
    }
}

/// Reads on for a connection: some slices, unless its client has to be waited for.
pub fn go_on(local: &mut ThreadState, conn: &mut Conn) -> NextReadSlice {
    for _ in 1..SLICES_IN_A_ROW {
        let next = give_one(local, conn);
        if next != NextReadSlice::More {
            return next;
        }
    }
    give_one(local, conn)
}

fn give_one(local: &mut ThreadState, conn: &mut Conn) -> NextReadSlice {
    let unsent = conn.output.len() - conn.sent;
    let (token, client) = (conn.token, conn.session.id);
    let Some(reading) = &mut conn.session.reading else { return NextReadSlice::Done };
    let is_full = unsent > UNSENT_BYTES_MAX && reading.aside.pieces <= PIECES_MAX;
    let Some(mut source) = reading.source.take_if(|_| !is_full) else { return NextReadSlice::Wait };
    if let ReadSource::Incremental(incremental) = &mut source {
        incremental.take_in(reading.args.args());
    }
    if matches!(&source, ReadSource::Incremental(incremental) if incremental.is_to_end()) {
        return keep(local, conn, source);
    }
    if let ReadSource::Write(writing) = source {
        return write(local, conn, writing);
    }
    let shared = local.shared;
    let slice = if let Some(shard) = source.shard() {
        let Some(mut held) = lease::take_one(&shared.cells[usize::from(shard)]) else {
            post(local, (token, client), JobBody::Read { source, slice: None }, shard);
            return NextReadSlice::Wait;
        };
        let slice = ReadSlice::take(local, &mut held, &mut source, &mut conn.output);
        if held.shard.is_over_quota() || held.shard.changes.has_pending() {
            let mut grant = Shards::from(held);
            commit::growth(local, &mut grant, ChangedBy(client));
            lease::release(local, grant);
        } else {
            lease::release_one(local, held);
        }
        slice
    } else {
        ReadSlice::make(&mut source, &mut conn.output)
    };
    conn.was_active = true;
    reading.source = Some(source);
    reading.note(slice, (conn.output.len() - conn.sent).saturating_sub(unsent));
    if slice.is_done {
        count_fault(local, reading);
        finish(local, conn);
        return NextReadSlice::Done;
    }
    NextReadSlice::More
}

/// Counts an answer in slices that is an error, as that of a body is counted.
fn count_fault(local: &ThreadState, reading: &LongRead) {
    if let Some(ReadSource::Incremental(incremental)) = &reading.source
        && let Some(fault) = incremental.fault()
    {
        local.stats().commands[reading.entry.id].failed.add(1);
        local.count_error(&fault.line());
    }
}

/// Writes a piece of a long string; with the last one the command runs.
fn write(local: &mut ThreadState, conn: &mut Conn, mut writing: WritingReply) -> NextReadSlice {
    let shared = local.shared;
    let Some(reading) = &mut conn.session.reading else { return NextReadSlice::Done };
    let args = reading.args.args();
    let piece = writing.piece(args);
    let is_over = piece.is_empty();
    if is_over && (shared.pause.is_on(local.now_ms) || shared.snapshots.holds_writers()) {
        reading.source = Some(ReadSource::Write(writing));
        conn.postpone(local);
        return NextReadSlice::Wait;
    }
    let Some(mut held) = lease::take_one(&shared.cells[usize::from(writing.shard)]) else {
        // It is soon free again, and nobody else is to have these bytes.
        reading.source = Some(ReadSource::Write(writing));
        return NextReadSlice::More;
    };
    let hold = LeaseTimer::begin();
    if !is_over {
        held.shard.fill_text_draft(writing.number, writing.at, piece);
        let took = hold.end(local);
        lease::release_one(local, held);
        local.stats().slice_times.add(took.as_nanos() as u64);
        reading.spent += took;
        writing.at += piece.len();
        reading.source = Some(ReadSource::Write(writing));
        return NextReadSlice::More;
    }
    let entry = reading.entry;
    let origin = Origin { may_slice: false, ..Origin::of(local, &conn.session, conn.token, Some(entry)) };
    let Some(reading) = &mut conn.session.reading else { return NextReadSlice::Done };
    let mut answer = Vec::new();
    held.shard.use_text_draft(writing.number);
    let mut grant = Shards::from(held);
    exec::run_written(local, &mut grant, origin, (entry, reading.args.args()), &mut answer);
    grant.iter_mut().for_each(|part| part.shard.drop_text_draft(writing.number));
    reading.spent += hold.end(local);
    reading.bytes += answer.len();
    lease::release(local, grant);
    Reply::new(&mut conn.output, origin.resp3).take_over(answer);
    conn.was_active = true;
    finish(local, conn);
    NextReadSlice::Done
}

/// Has the command end with what was gathered for it, with all its shards held; one that writes not while writers are
/// held back.
fn keep(local: &mut ThreadState, conn: &mut Conn, source: ReadSource) -> NextReadSlice {
    let shared = local.shared;
    let Some(reading) = &mut conn.session.reading else { return NextReadSlice::Done };
    let is_write = reading.entry.spec.flags.any(Flags::WRITE);
    if is_write && (shared.pause.is_on(local.now_ms) || shared.snapshots.holds_writers()) {
        reading.source = Some(source);
        conn.postpone(local);
        return NextReadSlice::Wait;
    }
    let ReadSource::Incremental(mut incremental) = source else { return NextReadSlice::Done };
    let entry = reading.entry;
    let args = reading.args.args().to_owned();
    let wanted = plan::lock_set(&entry.spec, args.args(), &shared.router);
    let origin = Origin::of(local, &conn.session, conn.token, Some(entry));
    let mut grant = match lease::take(local, &wanted) {
        Ok(grant) => grant,
        Err(grant) => {
            local.stats().contended.add(1);
            let body = JobBody::Keep { incremental, entry, args };
            Job::new(origin, body, wanted, grant).enqueue(local);
            return NextReadSlice::Wait;
        }
    };
    let hold = LeaseTimer::begin();
    let mut answer = Vec::new();
    let left = exec::keep(local, &mut grant, origin, &mut incremental, (entry, args.args()), &mut answer);
    let took = hold.end(local);
    lease::release(local, grant);
    let bytes = answer.len();
    Reply::new(&mut conn.output, origin.resp3).take_over(answer);
    conn.was_active = true;
    let Some(reading) = &mut conn.session.reading else { return NextReadSlice::Done };
    reading.spent += took;
    reading.bytes += bytes;
    match left {
        Some(rest) => {
            let args = reading.args.args();
            reading.source = Some(ReadSource::new(local, rest, args, origin.db));
            NextReadSlice::More
        }
        None => {
            finish(local, conn);
            NextReadSlice::Done
        }
    }
}

/// What came of one slice.
#[derive(Clone, Copy, Debug)]
pub struct ReadSlice {
    /// It was the last one, and the read is ended.
    pub is_done: bool,
    aside: Aside,
    took: Duration,
}

impl ReadSlice {
    /// Gives one slice, with its shard held.
    pub fn take(
        local: &ThreadState,
        part: &mut ShardPart,
        source: &mut ReadSource,
        out: &mut Vec<u8>,
    ) -> ReadSlice {
        let hold = LeaseTimer::begin();
        let (is_done, aside) = match source {
            ReadSource::Read(_, number) => read(part, *number, out),
            ReadSource::Keys(walk) => {
                walk.step(&part.shard, local.now_ms);
                let is_done = walk.shard().is_none();
                if is_done {
                    walk.finish(out);
                    part.shard.answers_cut += u64::from(walk.is_cut());
                }
                (is_done, Aside { bytes: walk.found_bytes(), pieces: 0 })
            }
            ReadSource::Items(listing) => {
                if listing.shard().is_some() {
                    listing.step(&part.shard, local.now_ms, out);
                }
                let is_done = listing.shard().is_none();
                if is_done {
                    listing.finish(out);
                }
                (is_done, Aside::default())
            }
            ReadSource::Incremental(incremental) => {
                incremental.step(part);
                (false, Aside { bytes: incremental.bytes(), pieces: 0 })
            }
            // Who has its words writes it.
            ReadSource::Write(_) => (false, Aside::default()),
        };
        let took = hold.end(local);
        local.stats().slice_times.add(took.as_nanos() as u64);
        ReadSlice { is_done, aside, took }
    }

    /// Makes a slice of an answer of what was gathered, with no shard held.
    fn make(source: &mut ReadSource, out: &mut Vec<u8>) -> ReadSlice {
        let began = Instant::now();
        let ReadSource::Incremental(incremental) = source else {
            return ReadSlice { is_done: true, aside: Aside::default(), took: Duration::ZERO };
        };
        let is_done = incremental.answer(out);
        ReadSlice { is_done, aside: Aside { bytes: incremental.bytes(), pieces: 0 }, took: began.elapsed() }
    }
}

/// A slice of a collection; ends the read if that was all.
fn read(part: &mut ShardPart, number: u32, out: &mut Vec<u8>) -> (bool, Aside) {
    let slice_bytes = if part.shard.is_text_read(number) { TEXT_SLICE_BYTES } else { SLICE_BYTES };
    let bytes_max = out.len() + slice_bytes;
    let is_done = part.shard.read_step(number, out, bytes_max);
    let aside = part.shard.read_aside(number);
    if is_done {
        part.shard.end_read(number);
    }
    (is_done, aside)
}

/// Ends an answer whose client has gone.
fn end(local: &mut ThreadState, source: &ReadSource) {
    match source {
        ReadSource::Read(shard, number) => end_read(local, *shard, *number),
        ReadSource::Keys(_) | ReadSource::Items(_) => {}
        ReadSource::Incremental(incremental) => end_incremental(local, incremental),
        ReadSource::Write(WritingReply { shard, number, .. }) => {
            let number = *number;
            let later: Called = Box::new(move |_, grant| {
                grant.iter_mut().for_each(|part| part.shard.drop_text_draft(number));
            });
            end_at(local, *shard, JobBody::Call(Some(later)), |part| part.drop_text_draft(number));
        }
    }
}

fn end_incremental(local: &mut ThreadState, incremental: &Incremental) {
    incremental.open_reads().for_each(|(shard, number)| end_read(local, shard, number));
    if let Some((shard, number)) = incremental.draft() {
        end_at(local, shard, JobBody::EndDraft(number), |part| part.drop_draft(number));
    }
}

fn end_read(local: &mut ThreadState, shard: u16, number: u32) {
    end_at(local, shard, JobBody::EndRead(number), |part| part.end_read(number));
}

/// Ends something of a shard now, or by `later` where it is busy.
fn end_at(local: &mut ThreadState, shard: u16, later: JobBody, end: impl FnOnce(&mut Shard)) {
    let shared = local.shared;
    match lease::take_one(&shared.cells[usize::from(shard)]) {
        Some(mut held) => {
            end(&mut held.shard);
            lease::release_one(local, held);
        }
        None => post(local, (Token::NOBODY, 0), later, shard),
    }
}

/// Leaves work on a read to whoever has its shard.
fn post(local: &ThreadState, (token, client): (Token, u64), body: JobBody, shard: u16) {
    local.stats().contended.add(1);
    let origin = Origin { token, client, ..Origin::nobody(local.thread) };
    Job::new(origin, body, LockSet::one(shard), Grant::empty()).enqueue(local);
}
