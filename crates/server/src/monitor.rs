//! MONITOR: every command of every client, as a line, to those who asked.
//!
//! Free while nobody has: commands then never come here.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use darter_command::Flags;
use darter_reactor::Token;
use darter_wire::Args;

use crate::clients::ClientInfo;
use crate::redact;
use crate::registry::CommandEntry;
use crate::shared::ThreadMessage;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// The clients that see every command.
#[derive(Debug, Default)]
pub struct Monitors {
    len: AtomicUsize,
    list: Mutex<Vec<Watcher>>,
}

#[derive(Clone, Copy, Debug)]
struct Watcher {
    thread: u16,
    token: Token,
    client: u64,
}

impl Monitors {
    /// Whether there are any.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.len.load(Relaxed) != 0
    }

    /// Adds a client.
    pub fn add(&self, info: &ClientInfo) {
        let mut list = lock(&self.list);
        list.push(Watcher { thread: info.thread, token: info.token, client: info.id });
        self.len.store(list.len(), Relaxed);
    }

    /// Removes a client.
    pub fn remove(&self, client: u64) {
        let mut list = lock(&self.list);
        list.retain(|watcher| watcher.client != client);
        self.len.store(list.len(), Relaxed);
    }
}

/// Shows a command that `info`'s client ran in database `db` to all monitors, unless it is an administrator's.
#[cold]
pub fn show(local: &ThreadState, info: &ClientInfo, db: usize, entry: &CommandEntry, args: Args<'_>) {
    if !entry.spec.flags.any(HIDDEN) {
        send(local, &origin(info), db, entry, args);
    }
}

/// Shows a command that runs a script: before the script's own commands, which [`show_scripted`] shows.
#[cold]
pub fn show_script(local: &ThreadState, info: &ClientInfo, db: usize, entry: &CommandEntry, args: Args<'_>) {
    send(local, &origin(info), db, entry, args);
}

/// Shows a command that a script ran.
#[cold]
pub fn show_scripted(local: &ThreadState, db: usize, entry: &CommandEntry, args: Args<'_>) {
    if !entry.spec.flags.any(HIDDEN) {
        send(local, "lua", db, entry, args);
    }
}

/// Commands that are not shown: an administrator's, and those that are shown another way.
const HIDDEN: Flags = Flags::SKIP_MONITOR.with(Flags::ADMIN);

fn origin(info: &ClientInfo) -> String {
    match info.is_unix {
        true => format!("unix:{}", info.peer.strip_suffix(":0").unwrap_or(&info.peer)),
        false => info.peer.clone(),
    }
}

fn send(local: &ThreadState, origin: &str, db: usize, entry: &CommandEntry, args: Args<'_>) {
    let monitors = &local.shared.monitors;
    let hidden = redact::hide_secrets(entry, args);
    let args = hidden.as_ref().map_or(args, |hidden| hidden.args());
    let line: Arc<[u8]> = line(origin, db, args).into();
    for watcher in lock(&monitors.list).iter() {
        let mail = ThreadMessage::Push { token: watcher.token, client: watcher.client, bytes: line.clone() };
        local.shared.handle(watcher.thread).send(mail);
    }
}

/// `+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`
fn line(origin: &str, db: usize, args: Args<'_>) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = format!("+{}.{:06} [{db} {origin}]", now.as_secs(), now.subsec_micros()).into_bytes();
    for arg in args.iter() {
        line.push(b' ');
        quote(&mut line, arg);
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Appends `bytes` in double quotes, all that cannot be printed escaped.
pub fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_wire::OwnedArgs;

    #[test]
    fn a_line_has_every_argument_quoted() {
        let args = OwnedArgs::from_slices(&[b"set", b"a b", b"\"\\\n\r\t\x07\x08\x00\xff~"]);
        let line = String::from_utf8(line("127.0.0.1:7", 3, args.args())).expect("ASCII");
        let (stamp, rest) = line.split_once(" [").expect("a time");
        assert!(stamp.starts_with('+') && stamp.split_once('.').is_some_and(|(_, us)| us.len() == 6));
        let wanted = r#"3 127.0.0.1:7] "set" "a b" "\"\\\n\r\t\a\b\x00\xff~""#.to_owned() + "\r\n";
        assert_eq!(rest, wanted);
    }
}
