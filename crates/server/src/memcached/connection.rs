//! A connection that speaks memcached: its bytes as commands, run in order.

use std::borrow::Cow;

use darter_engine::admit::EntryPoints;
use darter_wire::memcache::{
    self, MemcacheCommand, MemcacheDecoder, MemcacheError, MemcacheLimits, MemcacheStep,
};
use darter_wire::{Args, OwnedArgs};
use smallvec::SmallVec;

use super::detail::DetailOperation;
use super::listing::Listing;
use super::run::{self, write_error};
use super::{Counter, DB, admin, auth, batch, flush, stats};
use crate::conn::Conn;
use crate::engine::admit;
use crate::engine::cluster::route;
use crate::engine::lease_timer::LeaseTimer;
use crate::exec::{self, CommandCall, Ran};
use crate::long_reads::{LongRead, ReadSource};
use crate::monitor;
use crate::registry::CommandEntry;
use crate::thread_state::ThreadState;

/// Commands read ahead of the one that runs.
const WINDOW: usize = 16;
/// Shorter windows are not worth a look ahead.
const WARM_LEN_MIN: usize = 4;

/// A command that has been read.
struct ReadRequest<'a> {
    command: MemcacheCommand<'a>,
    /// Of its key, if it has exactly one.
    hash: Option<u64>,
    /// Offset of its first byte, and of the first after it.
    start: usize,
    end: usize,
}

/// Why reading stopped.
enum NextRequest<'a> {
    /// The window is full.
    Command,
    /// There is no whole command.
    More,
    /// A line was refused; what follows it starts there.
    Refused(MemcacheError, bool, Option<Cow<'a, [u8]>>, usize),
    /// The connection ends.
    Close,
}

/// Runs the complete commands at the front of `buf`; returns how many bytes they took.
pub(crate) fn process(conn: &mut Conn, local: &mut ThreadState, buf: &[u8]) -> usize {
    let mut done = 0;
    loop {
        if auth::is_needed(local, &conn.session) {
            match auth::step(conn, local, &buf[done..]) {
                0 => return done,
                taken => done += taken,
            }
            if conn.is_held_back() {
                return done;
            }
            continue;
        }
        done += batch::run(conn, local, &buf[done..]);
        if done == buf.len() || conn.is_held_back() {
            return done;
        }
        let mut window: SmallVec<[ReadRequest<'_>; WINDOW]> = SmallVec::new();
        let (next, read_to) = read_ahead(conn, local, buf, done, &mut window);
        if local.looks_ahead && window.len() >= WARM_LEN_MIN {
            let shared = local.shared;
            exec::prefetch(
                local,
                DB,
                false,
                window.iter().filter_map(|read| Some(exec::cell_of(shared, read.hash?))),
            );
        }
        for read in &window {
            if conn.is_held_back() {
                conn.decoder = MemcacheDecoder::new();
                return done;
            }
            match execute(conn, local, &buf[read.start..read.end], &read.command, read.hash) {
                Ran::Postponed => {
                    conn.decoder = MemcacheDecoder::new();
                    return done;
                }
                Ran::Stalled => conn.is_stalled = true,
                Ran::Done => {}
            }
            done = read.end;
        }
        if conn.is_held_back() {
            conn.decoder = MemcacheDecoder::new();
            return done;
        }
        done = read_to;
        match next {
            NextRequest::Command => {}
            NextRequest::More => return done,
            NextRequest::Refused(error, is_quiet, remove, after) => {
                refuse(conn, local, error, is_quiet, remove);
                done = after;
                if conn.is_held_back() {
                    return done;
                }
            }
            NextRequest::Close => {
                conn.session.is_closing = true;
                return buf.len();
            }
        }
    }
}

/// Reads commands from `buf[from..]` until the window is full or there is no further one; returns where it stopped.
fn read_ahead<'a>(
    conn: &mut Conn,
    local: &ThreadState,
    buf: &'a [u8],
    from: usize,
    window: &mut SmallVec<[ReadRequest<'a>; WINDOW]>,
) -> (NextRequest<'a>, usize) {
    let limits =
        MemcacheLimits { item_bytes_max: local.live.memcached_item_size_max, ..MemcacheLimits::default() };
    let mut at = from;
    while window.len() < WINDOW {
        match conn.decoder.next(&buf[at..], &limits) {
            MemcacheStep::Command { command, consumed } => {
                let hash = run::key_of(&command).map(|key| {
                    let hash = local.shared.router.hasher().hash_key(key);
                    local.shared.cells[usize::from(local.shared.router.shard_of(hash))].prefetch();
                    hash
                });
                window.push(ReadRequest { command, hash, start: at, end: at + consumed });
                at += consumed;
            }
            // Once the rest of a refused value is dropped, what comes is a command again.
            MemcacheStep::Skipped { consumed } => {
                at += consumed;
                if window.is_empty() {
                    continue;
                }
                return (NextRequest::Command, at);
            }
            MemcacheStep::More { .. } => return (NextRequest::More, at),
            MemcacheStep::Refused { error, noreply, remove, consumed } => {
                return (NextRequest::Refused(error, noreply, remove, at + consumed), at);
            }
            MemcacheStep::Close => return (NextRequest::Close, at),
        }
    }
    (NextRequest::Command, at)
}

/// Runs one command and answers it, or leaves it to a job.
fn execute(
    conn: &mut Conn,
    local: &mut ThreadState,
    raw: &[u8],
    command: &MemcacheCommand<'_>,
    hash: Option<u64>,
) -> Ran {
    let entry = local.shared.verbs.of(command);
    conn.session.usage.commands += 1;
    conn.session.usage.last_command = entry.id as u32;
    if conn.session.gate.0 != 0 || local.is_gated {
        match pass_gate(conn, local, entry, command) {
            Passed::Yes => {}
            Passed::No => return Ran::Done,
            Passed::NotNow => {
                conn.session.usage.commands -= 1;
                postpone(conn, local);
                return Ran::Postponed;
            }
        }
    }
    let calls = local.stats().commands[entry.id].calls.bump();
    if !entry.is_timed(calls, local.times_all, true) {
        return perform(conn, local, raw, command, hash);
    }
    let hold = LeaseTimer::begin();
    let ran = perform(conn, local, raw, command, hash);
    if ran == Ran::Done {
        let args = args_of(entry, command);
        let took = hold.end(local);
        let weight = entry.weight(local.times_all, true);
        crate::command_log::timing::note(local, &conn.info, entry, args.args(), took, weight);
    }
    ran
}

fn perform(
    conn: &mut Conn,
    local: &mut ThreadState,
    raw: &[u8],
    command: &MemcacheCommand<'_>,
    hash: Option<u64>,
) -> Ran {
    let out = &mut conn.output;
    match command {
        MemcacheCommand::FlushAll { delay, noreply } => {
            local.stats().memcached.add(Counter::Flush);
            let call = CommandCall { session: &mut conn.session, out, token: conn.token };
            return flush::run(local, call, *delay, *noreply);
        }
        MemcacheCommand::Verbosity { noreply } => answer(out, b"OK\r\n", *noreply),
        MemcacheCommand::Version => {
            out.extend_from_slice(b"VERSION ");
            out.extend_from_slice(stats::VERSION.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        MemcacheCommand::MetaNoop => out.extend_from_slice(b"MN\r\n"),
        MemcacheCommand::Quit => conn.session.is_closing = true,
        MemcacheCommand::Stats(words) => stats::run(local, words.clone(), out),
        MemcacheCommand::Admin { name: b"cache_memlimit", words, noreply } => {
            let line = admin::limit_memory(conn, local, words.clone());
            answer(&mut conn.output, line, *noreply);
        }
        MemcacheCommand::Admin { name: b"refresh_certs", noreply, .. } => {
            let line = admin::refresh_certificates(conn, local);
            answer(&mut conn.output, line, *noreply);
        }
        MemcacheCommand::Admin { name, words, noreply } => {
            match Listing::asked(name, words.clone(), local.shared.router.shards_len()) {
                Some(listing) => return list(conn, local, command, listing),
                None => answer(out, admin::reply(name, words.clone()), *noreply),
            }
        }
        _ => {
            let call = CommandCall { session: &mut conn.session, out, token: conn.token };
            return run::run(local, call, raw, command, hash);
        }
    }
    Ran::Done
}

/// Has the connection fetch all items.
#[cold]
fn list(conn: &mut Conn, local: &ThreadState, command: &MemcacheCommand<'_>, listing: Listing) -> Ran {
    let entry = local.shared.verbs.of(command);
    let source = ReadSource::Items(Box::new(listing));
    conn.session.reading = Some(Box::new(LongRead::new(source, entry, args_of(entry, command))));
    Ran::Stalled
}

fn answer(out: &mut Vec<u8>, line: &[u8], is_quiet: bool) {
    if !is_quiet {
        out.extend_from_slice(line);
    }
}

/// Answers a line that is no command. A key whose new value is too large loses the old one.
fn refuse(
    conn: &mut Conn,
    local: &mut ThreadState,
    error: MemcacheError,
    is_quiet: bool,
    remove: Option<Cow<'_, [u8]>>,
) {
    if error == MemcacheError::TooLarge {
        local.stats().memcached.add(Counter::TooLarge);
    }
    if !is_quiet {
        write_error(error, &mut conn.output);
    }
    let Some(key) = remove else { return };
    if local.shared.memcached_detail.is_on() {
        local.shared.memcached_detail.note(&key, DetailOperation::Set);
    }
    // A value that has expired already is stored as none; nothing is answered.
    let mut raw = b"ms ".to_vec();
    memcache::write_key(&mut raw, &key, true);
    raw.extend_from_slice(b" 0 b q T-1\r\n\r\n");
    if let MemcacheStep::Command { command, .. } =
        MemcacheDecoder::new().next(&raw, &MemcacheLimits::default())
        && execute(conn, local, &raw, &command, None) == Ran::Stalled
    {
        conn.is_stalled = true;
    }
}

/// Whether a command may run.
enum Passed {
    Yes,
    /// It has been refused.
    No,
    /// It is to be tried again: CLIENT PAUSE.
    NotNow,
}

/// What stands before a command where something may: access rights, a memory limit, a pause; MONITOR sees it.
#[cold]
fn pass_gate(
    conn: &mut Conn,
    local: &mut ThreadState,
    entry: &'static CommandEntry,
    command: &MemcacheCommand<'_>,
) -> Passed {
    let args = args_of(entry, command);
    if let Some(line) = admit::refusal_after_relief(
        local,
        &conn.session,
        &conn.info,
        (EntryPoints::MEMCACHED, entry),
        args.args(),
    ) {
        // A client that counts answers up to `MN` gets it while data is loaded or a script runs, too.
        if matches!(command, MemcacheCommand::MetaNoop) && !line.starts_with(b"NOAUTH") {
            return Passed::Yes;
        }
        local.stats().commands[entry.id].rejected.add(1);
        if route::is_redirect(&line) {
            conn.output.extend_from_slice(&[b"SERVER_ERROR ", &*line, b"\r\n"].concat());
            return Passed::No;
        }
        conn.output.extend_from_slice(match line.split(|&byte| byte == b' ').next() {
            Some(b"OOM") => {
                local.stats().memcached.add(Counter::NoRoom);
                super::NO_ROOM
            }
            Some(b"NOAUTH") => b"CLIENT_ERROR unauthenticated\r\n",
            Some(b"LOADING") => b"SERVER_ERROR loading data\r\n",
            Some(b"BUSY") => b"SERVER_ERROR busy running a script\r\n",
            Some(b"NOPERM") => b"CLIENT_ERROR permission denied\r\n",
            _ => b"SERVER_ERROR not possible now\r\n",
        });
        return Passed::No;
    }
    if admit::must_wait(local, &conn.session, entry, args.args()) {
        return Passed::NotNow;
    }
    if local.shared.monitors.is_any() {
        monitor::show(local, &conn.info, DB, entry, args.args());
    }
    Passed::Yes
}

#[cold]
fn postpone(conn: &mut Conn, local: &mut ThreadState) {
    conn.is_postponed = true;
    conn.info.is_postponed.store(true, std::sync::atomic::Ordering::Relaxed);
    local.has_postponed = true;
}

/// A command as the one of Redis that stands for it, for those who look at arguments: its keys, and as many words more
/// as it must have.
#[cold]
pub(super) fn args_of(entry: &CommandEntry, command: &MemcacheCommand<'_>) -> OwnedArgs {
    let mut args = OwnedArgs::from_slices(&[entry.spec.name.as_bytes()]);
    match command {
        MemcacheCommand::Get { keys, .. } => keys.clone().for_each(|key| args.push(key)),
        command => {
            if let Some(key) = run::key_of(command) {
                args.push(key);
            }
        }
    }
    if let MemcacheCommand::Store { value, .. } = command {
        args.push(value);
    }
    while Args::len(&args.args()) < usize::from(entry.spec.arity.unsigned_abs()) {
        args.push(b"0");
    }
    args
}
