//! HTTP: metrics, health, the console and its API, on the main port and the admin port.
//!
//! Called by a connection whose first line was a request of HTTP. Nothing here waits: a console command that must
//! wait stalls its visit, which continues when its thread has the reply.

pub mod command;
pub mod guard;
pub mod json;
pub mod metrics;
pub mod request;
pub mod response;
pub mod route;
pub mod stats;

use crate::conn::Conn;
use crate::protocol::ListenerKind;
use crate::thread_state::ThreadState;
use command::Task;
use request::RequestStep;
use response::Framing;

/// The state of an HTTP connection between its requests.
#[derive(Default)]
pub struct Visit {
    /// Bytes of the input that hold no end of a head.
    looked_at: usize,
    /// Start of the present incomplete request, Unix ms; 0 without one.
    began_ms: u64,
    /// Commands of the console that run.
    task: Option<Box<Task>>,
}

impl Visit {
    /// Takes the reply of a command that was run elsewhere.
    pub fn answer(&mut self, reply: &[u8]) {
        if let Some(task) = &mut self.task {
            task.reply.extend_from_slice(reply);
        }
    }
}

/// Milliseconds a request may take to arrive.
const REQUEST_MS_MAX: u64 = 10_000;
/// Milliseconds a connection may be silent between requests.
const SILENCE_MS_MAX: u64 = 75_000;

/// Returns true if a connection has exceeded its time: half a request for long, or silence for longer.
pub fn is_late(local: &ThreadState, conn: &Conn) -> bool {
    let Some(visit) = &conn.http else { return false };
    if visit.task.is_some() || conn.sent < conn.output.len() {
        return false;
    }
    let active_ms = conn.info.active_ms.load(std::sync::atomic::Ordering::Relaxed);
    match visit.began_ms {
        0 => local.now_ms.saturating_sub(active_ms) > SILENCE_MS_MAX,
        began_ms => local.now_ms.saturating_sub(began_ms) > REQUEST_MS_MAX,
    }
}

/// Answers the requests at the front of `buf`; returns how many bytes they took.
pub fn receive(conn: &mut Conn, local: &mut ThreadState, buf: &[u8]) -> usize {
    let mut done = 0;
    while !conn.is_held_back() {
        let mut visit = conn.http.take().unwrap_or_else(|| {
            crate::sync::lock(&conn.info.words).lib_name = "http".to_owned();
            Box::default()
        });
        let before = done;
        step(conn, local, &mut visit, buf, &mut done);
        visit.began_ms = match () {
            () if done > before || buf.len() == done => 0,
            () if visit.began_ms == 0 => local.now_ms,
            () => visit.began_ms,
        };
        conn.http = Some(visit);
        if done == before {
            break;
        }
    }
    if conn.session.is_closing { buf.len() } else { done }
}

/// Examines the front of `buf[*done..]` once.
fn step(conn: &mut Conn, local: &mut ThreadState, visit: &mut Visit, buf: &[u8], done: &mut usize) {
    let rest = &buf[*done..];
    let head = match request::parse(rest, &mut visit.looked_at) {
        RequestStep::More => return,
        RequestStep::Head(head) => head,
        RequestStep::Bad(status) => {
            response::refuse(&mut conn.output, Framing::LAST, status, "");
            conn.session.is_closing = true;
            return;
        }
    };
    let framing = Framing::of(&head);
    let admitted = route::find(local, &head).and_then(|found| {
        // A body is kept only for clients that may send one.
        route::admit(conn, local, &head, found)?;
        Ok(found)
    });
    let found = match admitted {
        Ok(found) => found,
        Err((status, why)) => {
            let framing = if head.body_bytes > 0 { Framing::LAST } else { framing };
            response::refuse(&mut conn.output, framing, status, why);
            conn.session.is_closing |= !framing.keep_alive;
            *done += head.head_bytes;
            return;
        }
    };
    let Some(body) = rest[head.head_bytes..].get(..head.body_bytes) else { return };
    *done += head.head_bytes + head.body_bytes;
    local.stats().http_requests.add(1);
    (found.serve)(&mut route::RouteCall { conn, local, visit, framing, body });
    conn.session.is_closing |= !framing.keep_alive && visit.task.is_none();
    if visit.task.is_some() {
        run_task(conn, local, visit);
    }
}

/// Continues the console's commands that waited.
pub fn go_on(conn: &mut Conn, local: &mut ThreadState) {
    let Some(mut visit) = conn.http.take() else { return };
    if visit.task.is_some() && !conn.is_stalled && !conn.is_postponed && !conn.session.is_closing {
        run_task(conn, local, &mut visit);
    }
    conn.http = Some(visit);
}

fn run_task(conn: &mut Conn, local: &mut ThreadState, visit: &mut Visit) {
    let Some(task) = &mut visit.task else { return };
    if command::run(conn, local, task) {
        task.finish(&mut conn.output);
        conn.session.is_closing |= !task.framing.keep_alive;
        visit.task = None;
    }
}

/// Returns true if a client of this kind of listener needs a password.
pub fn needs_password(local: &ThreadState, kind: ListenerKind) -> bool {
    crate::commands::login::is_wanted(local, kind)
}
