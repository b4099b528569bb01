//! What had not begun when a script was found to run too long: it is answered BUSY, and does not begin later.
//!
//! A command may wait for a shard, as a job; a script, a function or an EXEC also for the end of its thread's turn. In Redis
//! its bytes would still be unread then. Called each turn of a thread that finds the server busy, by the turn inside an
//! overdue script, and where such a thing would begin after a script was killed. It answers nothing that has begun: what
//! another thread may begin, a data command, is begun or answered by whoever takes its [`BusyClaim`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;

use crate::conn::Conn;
use crate::conn::window::ConnWindow;
use crate::engine::admit;
use crate::event_loop::EventLoop;
use crate::exec::CommandCall;
use crate::job::{Job, JobBody};
use crate::scripts::busy_line;
use crate::session::Session;
use crate::thread_state::ThreadState;
use crate::worker::{find, mark_dirty};

use darter_reactor::Token;
use darter_script::ScriptKind;
use darter_wire::{Args, Reply};

/// What a connection waits for: a job, or the end of its thread's turn.
#[derive(Clone, Debug)]
pub struct WaitingClient {
    /// The number of the job; 0 is the turn's end.
    pub number: u32,
    /// `Scripts::kills` when it began to wait.
    pub kills: u32,
    /// It is refused while the server is busy.
    pub may_end: bool,
    /// What must be taken before it is, where any thread may run it.
    pub claim: Option<Arc<BusyClaim>>,
}

/// The right to begin a data command that waits, or to refuse it; one of the two takes it.
#[derive(Debug)]
pub struct BusyClaim {
    is_taken: AtomicBool,
    // `Scripts::kills` when it began to wait.
    kills: u32,
}

impl BusyClaim {
    fn take(&self) -> bool {
        // What follows does not hang on what the other one did: the swap alone decides.
        !self.is_taken.swap(true, AcqRel)
    }
}

/// Whether a data command that has waited does not begin: it has been answered, or it is now, as something was killed
/// since that ran for too long.
pub fn is_over(local: &ThreadState, job: &mut Job) -> bool {
    let Some(claim) = job.claim.take() else { return false };
    if !claim.take() {
        // Nobody waits for it any longer.
        job.origin.client = 0;
        return true;
    }
    let Some(kind) = local.shared.scripts.killed_since(claim.kills) else { return false };
    if let JobBody::One { entry, .. } = &job.body {
        local.stats().commands[entry.id].rejected.add(1);
        Reply::new(&mut job.reply, job.origin.resp3).error(busy_line(kind).as_bytes());
        local.count_error("BUSY");
    }
    true
}

impl WaitingClient {
    /// The wait of `session` for a job with this body; returns the job's number and claim.
    pub fn begin(
        local: &mut ThreadState,
        session: &mut Session,
        body: &JobBody,
    ) -> (u32, Option<Arc<BusyClaim>>) {
        local.jobs_posted = local.jobs_posted.checked_add(1).unwrap_or(1);
        let (number, kills) = (local.jobs_posted, local.shared.scripts.kills());
        let claim = match body {
            JobBody::One { .. } => Some(Arc::new(BusyClaim { is_taken: AtomicBool::new(false), kills })),
            _ => None,
        };
        let may_end = may_end(body) || claim.is_some();
        local.has_waiting |= may_end;
        session.waiting = Some(WaitingClient { number, kills, may_end, claim: claim.clone() });
        (number, claim)
    }

    /// Whether it is refused now; then it will not begin.
    fn ends(&self) -> bool {
        self.may_end && self.claim.as_ref().is_none_or(|claim| claim.take())
    }

    /// The wait of `session` for the end of the turn.
    pub fn begin_due(local: &mut ThreadState, session: &mut Session) {
        local.has_waiting = true;
        let kills = local.shared.scripts.kills();
        session.waiting = Some(WaitingClient { number: 0, kills, may_end: false, claim: None });
    }
}

fn may_end(body: &JobBody) -> bool {
    matches!(body, JobBody::Exec(_) | JobBody::Script { .. })
}

/// Whether the connection of a job that has come home has been answered already.
pub fn is_answered(event_loop: &mut EventLoop, job: &Job) -> bool {
    let conn =
        find(&mut event_loop.conns, job.origin.token).filter(|conn| conn.session.id == job.origin.client);
    may_end(&job.body)
        && conn.is_some_and(|conn| {
            conn.session.waiting.as_ref().is_none_or(|waiting| waiting.number != job.number)
        })
}

/// Answers a job of `session` that would begin now, if a script was killed since it began to wait. Otherwise the wait is
/// over.
pub fn refuse_late(
    local: &mut ThreadState,
    session: &mut Session,
    token: Token,
    job: (&JobBody, &mut Vec<u8>),
) -> bool {
    let (body, out) = job;
    let since = session.waiting.as_ref().filter(|_| may_end(body));
    let Some(kind) = since.and_then(|waiting| local.shared.scripts.killed_since(waiting.kills)) else {
        session.waiting = None;
        return false;
    };
    refuse(local, session, token, out, kind);
    true
}

fn refuse(local: &mut ThreadState, session: &mut Session, token: Token, out: &mut Vec<u8>, kind: ScriptKind) {
    let entries = local.shared.registry.entries();
    if let Some(&entry) = entries.get(session.usage.last_command as usize) {
        let args = Args::new(&[], &[]);
        admit::refuse(
            local,
            &mut CommandCall { session, out, token },
            entry,
            args,
            busy_line(kind).as_bytes(),
        );
    }
}

/// Goes on with what a connection has sent while it waited. If a script was killed meanwhile, it came while the server was
/// busy, and is told so.
pub fn resume(local: &mut ThreadState, window: &mut ConnWindow, conn: &mut Conn) {
    let since = conn.session.waiting.take();
    let killed = since.and_then(|waiting| local.shared.scripts.killed_since(waiting.kills));
    if killed.is_some() && local.busy.is_none() {
        (local.busy, local.is_gated) = (killed, true);
        conn.resume(local, window);
        local.refresh_gate();
    } else {
        conn.resume(local, window);
    }
}

impl EventLoop {
    /// Answers the connections whose command has not begun, if the server is busy. Cost: a look at each connection,
    /// once after one of them has begun to wait.
    pub fn turn_away(&mut self, local: &mut ThreadState, window: &mut ConnWindow) {
        let Some(kind) = local.busy.filter(|_| local.has_waiting) else { return };
        local.has_waiting = false;
        for conn in self.conns.iter_mut().flatten() {
            if conn.is_due {
                conn.is_due = false;
            } else if conn.session.waiting.as_ref().is_some_and(WaitingClient::ends) {
                let mut line = Vec::new();
                refuse(local, &mut conn.session, conn.token, &mut line, kind);
                if !std::mem::take(&mut conn.session.drops_reply) {
                    conn.answer(&line);
                }
                conn.is_stalled = false;
            } else {
                continue;
            }
            conn.session.waiting = None;
            conn.resume(local, window);
            mark_dirty(conn, &mut self.dirty);
        }
    }
}
