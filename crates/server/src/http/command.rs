//! Commands that came by HTTP: read from JSON, run one after the other as any client's, answered as JSON.

use darter_command::{Flags, Marks};
use std::time::Instant;

use darter_wire::value::{DecodeLimits, decode};
use darter_wire::{OwnedArgs, Reply, base64};
use serde_json::Value as Json;

use super::json;
use super::response::{self, ContentKind, Framing, HttpStatus};
use crate::conn::Conn;
use crate::dispatch;
use crate::exec::{CommandCall, Ran};
use crate::registry::{CommandEntry, RunKind};
use crate::thread_state::ThreadState;

/// Commands of one request.
const COMMANDS_MAX: usize = 512;
/// Bytes of one command's reply that are passed on.
const REPLY_BYTES_MAX: usize = 8 << 20;
/// Bytes of JSON of one answer, beyond which commands are not run any more.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// The forms of a request and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyShape {
    /// `{"db": 0, "commands": [["GET", "k"], ...]}`, answered by `{"replies": [...], "us": 12}`.
    Console,
    /// `["GET", "k"]`, answered by `{"result": ...}` or `{"error": ...}`: Dragonfly's.
    Program,
}

/// The commands of one request on their way.
pub struct Task {
    commands: Vec<OwnedArgs>,
    next: usize,
    db: usize,
    /// The reply, in RESP3, of the command that runs.
    pub(super) reply: Vec<u8>,
    answer: Vec<u8>,
    began: Instant,
    shape: ReplyShape,
    /// The framing of the answer.
    pub framing: Framing,
    waits: bool,
}

impl Task {
    /// Reads a request.
    ///
    /// Errors: it is not JSON, or not of that shape; in words.
    pub fn read(body: &[u8], shape: ReplyShape, framing: Framing, dbs: usize) -> Result<Task, String> {
        let json: Json = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
        let (db, commands) = match shape {
            ReplyShape::Console => {
                let db = json.get("db").map_or(Some(0), Json::as_u64).and_then(|db| usize::try_from(db).ok());
                let db = db.filter(|db| *db < dbs).ok_or("db is not the number of a database")?;
                let list = json.get("commands").and_then(Json::as_array).ok_or("commands is not an array")?;
                (db, list.iter().map(command).collect::<Option<Vec<_>>>())
            }
            ReplyShape::Program => (0, command(&json).map(|command| vec![command])),
        };
        let commands = commands.ok_or("a command is an array of strings, at least one")?;
        if commands.is_empty() || commands.len() > COMMANDS_MAX {
            return Err(format!("1 to {COMMANDS_MAX} commands are wanted"));
        }
        let answer = if shape == ReplyShape::Console { b"{\"replies\":[".to_vec() } else { Vec::new() };
        let (reply, began) = (Vec::new(), Instant::now());
        Ok(Task { commands, next: 0, db, reply, answer, began, shape, framing, waits: false })
    }

    /// Appends the whole answer to a connection's output.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.shape == ReplyShape::Console {
            self.answer
                .extend_from_slice(format!("],\"us\":{}}}", self.began.elapsed().as_micros()).as_bytes());
        }
        self.answer.push(b'\n');
        response::write(out, self.framing, HttpStatus::Ok, ContentKind::Json, &self.answer);
    }

    /// Turns the reply that is there into JSON.
    fn take_reply(&mut self) {
        if self.next > 1 {
            self.answer.push(b',');
        }
        if self.reply.len() > REPLY_BYTES_MAX || self.answer.len() > ANSWER_BYTES_MAX {
            let line = format!("ERR a reply of {} bytes is too long for HTTP", self.reply.len());
            self.reply.clear();
            Reply::new(&mut self.reply, true).error(line.as_bytes());
        }
        match (decode(&self.reply, &DecodeLimits::default()), self.shape) {
            (Ok(Some((value, _))), ReplyShape::Console) => json::write_typed(&mut self.answer, &value),
            (Ok(Some((value, _))), ReplyShape::Program) => json::write_result(&mut self.answer, &value),
            // A command that answers nothing, as one that closes its connection.
            _ => self.answer.extend_from_slice(b"null"),
        }
        self.reply = Vec::new();
    }
}

const READONLY: &[u8] =
    b"READONLY this console changes nothing: the server was started with --http_console_readonly";

/// Returns true if a command changes neither data nor the server.
fn only_tells(entry: &CommandEntry) -> bool {
    let spec = &entry.spec;
    spec.has(Marks::ONLY_TELLS) || matches!(entry.run, RunKind::Data(_)) && spec.flags.any(Flags::READONLY)
}

/// The words of a command: strings, numbers, or `{"base64": "..."}` for bytes that are not text.
fn command(json: &Json) -> Option<OwnedArgs> {
    let words = json.as_array().filter(|words| !words.is_empty())?;
    let mut args = OwnedArgs::with_capacity(words.len(), 0);
    for word in words {
        match word {
            Json::String(text) => args.push(text.as_bytes()),
            Json::Number(number) => args.push(number.to_string().as_bytes()),
            Json::Object(bytes) => match bytes.get("base64")?.as_str()? {
                "" => args.push(b""),
                text => args.push(&base64::decode(text.as_bytes())?),
            },
            _ => return None,
        }
    }
    Some(args)
}

/// Runs the rest of a task; returns true if all of it has run.
pub(super) fn run(conn: &mut Conn, local: &mut ThreadState, task: &mut Task) -> bool {
    if std::mem::take(&mut task.waits) {
        task.take_reply();
    }
    conn.session.resp3 = true;
    conn.session.db = task.db;
    while let Some(args) = task.commands.get(task.next) {
        let args = args.args();
        let ready = dispatch::prepare(local, args);
        if let Some(entry) = ready.entry.filter(|entry| entry.spec.has(Marks::NOT_OVER_HTTP)) {
            let line = format!(
                "ERR {}has no meaning over HTTP, because each request is independent",
                entry.spec.name
            );
            Reply::new(&mut task.reply, true).error(line.as_bytes());
            task.next += 1;
            task.take_reply();
            continue;
        }
        let is_readonly = task.shape == ReplyShape::Console && local.live.http.console_readonly;
        if is_readonly && ready.entry.is_some_and(|entry| !only_tells(entry)) {
            Reply::new(&mut task.reply, true).error(READONLY);
            task.next += 1;
            task.take_reply();
            continue;
        }
        if conn.defers(local, ready) {
            return false;
        }
        let call = CommandCall { session: &mut conn.session, out: &mut task.reply, token: conn.token };
        match dispatch::execute(local, call, &conn.info, ready, args) {
            Ran::Done if conn.session.blocked.is_none() => {
                task.next += 1;
                task.take_reply();
            }
            Ran::Done | Ran::Stalled => {
                task.next += 1;
                task.waits = true;
                task.db = conn.session.db;
                conn.is_stalled = true;
                return false;
            }
            Ran::Postponed => {
                conn.postpone(local);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests;
