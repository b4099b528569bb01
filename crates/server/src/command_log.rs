//! The logs of SLOWLOG and COMMANDLOG: commands that took long, and those whose request or reply was large.
//!
//! `timing` and `large` say which commands are kept, and `slots` counts them by slot; the commands that show them are in `commands::slowlog`.

pub mod large;
pub mod slots;
pub mod timing;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use darter_command::Flags;
use darter_config::Measure;
use darter_wire::Args;

use crate::clients::ClientInfo;
use crate::registry::CommandEntry;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// A command that is kept.
#[derive(Clone, Debug)]
pub struct LoggedCommand {
    /// Ever growing number.
    pub id: u64,
    /// When it ran, Unix seconds.
    pub unix_s: u64,
    /// How much of its measure: microseconds or bytes.
    pub amount: u64,
    /// Its arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// Address of the client.
    pub peer: String,
    /// Name of the client.
    pub name: String,
}

/// One log for each measure.
#[derive(Debug, Default)]
pub struct CommandLogs([Mutex<CommandLog>; 3]);

impl CommandLogs {
    /// The log of one measure.
    pub fn of(&self, measure: Measure) -> MutexGuard<'_, CommandLog> {
        let [time, request, reply] = &self.0;
        lock(match measure {
            Measure::Time => time,
            Measure::Request => request,
            Measure::Reply => reply,
        })
    }
}

/// The newest commands that were kept.
#[derive(Debug, Default)]
pub struct CommandLog {
    entries: VecDeque<LoggedCommand>,
    next_id: u64,
}

impl CommandLog {
    /// Adds a command, dropping the oldest beyond `len_max`.
    pub fn push(&mut self, mut entry: LoggedCommand, len_max: u64) {
        if len_max == 0 {
            return;
        }
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.shorten_to(len_max);
    }

    /// Drops the oldest entries beyond `len_max`.
    pub fn shorten_to(&mut self, len_max: u64) {
        self.entries.truncate(usize::try_from(len_max).unwrap_or(usize::MAX));
    }

    /// The newest entries first.
    pub fn iter(&self) -> impl Iterator<Item = &LoggedCommand> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Keeps a command of the client that `info` shows, unless it is one that is never shown or there is no room for any;
/// returns whether it did.
#[cold]
pub fn keep(
    local: &ThreadState,
    info: &ClientInfo,
    entry: &CommandEntry,
    args: Args<'_>,
    measure: Measure,
    amount: u64,
) -> bool {
    let limits = &local.live.slowlog;
    let len_max = limits.len_max(measure);
    if len_max == 0 || entry.spec.flags.any(Flags::SKIP_SLOWLOG) {
        return false;
    }
    let hidden = crate::redact::hide_secrets(entry, args);
    let args = hidden.as_ref().map_or(args, |hidden| hidden.args());
    let entry = LoggedCommand {
        id: 0,
        unix_s: local.now_ms / 1000,
        amount,
        args: shorten(args, limits),
        peer: info.peer.clone(),
        name: lock(&info.words).name.clone(),
    };
    local.shared.command_logs.of(measure).push(entry, len_max);
    true
}

/// The arguments as the logs show them: their number and lengths are limited, and what is left out is counted.
fn shorten(args: Args<'_>, limits: &darter_config::Slowlog) -> Vec<Vec<u8>> {
    let args_max = (limits.entry_max_argc as usize).max(2);
    let bytes_max = limits.entry_max_string_len as usize;
    let shown = if args.len() > args_max { args_max - 1 } else { args.len() };
    let mut out: Vec<Vec<u8>> = (0..shown)
        .map(|i| {
            let arg = args.at(i);
            match arg.split_at_checked(bytes_max) {
                None | Some((_, [])) => arg.to_vec(),
                Some((head, rest)) => [head, format!("... ({} more bytes)", rest.len()).as_bytes()].concat(),
            }
        })
        .collect();
    if args.len() > shown {
        out.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_config::Slowlog as Limits;
    use darter_wire::OwnedArgs;

    const LIMITS: Limits = Limits {
        slower_us: 0,
        max_len: 3,
        large_request_bytes: u64::MAX,
        large_request_max_len: 0,
        large_reply_bytes: u64::MAX,
        large_reply_max_len: 0,
        entry_max_argc: 4,
        entry_max_string_len: 5,
    };

    #[test]
    fn long_commands_are_shortened() {
        let args = OwnedArgs::from_slices(&[b"sadd", b"12345", b"1234567", b"d", b"e"]);
        let shown = shorten(args.args(), &LIMITS);
        assert_eq!(shown, [&b"sadd"[..], b"12345", b"12345... (2 more bytes)", b"... (2 more arguments)"]);
        let args = OwnedArgs::from_slices(&[b"sadd", b"1", b"2", b"3"]);
        assert_eq!(shorten(args.args(), &LIMITS).len(), 4);
    }

    #[test]
    fn the_newest_entries_stay() {
        let mut log = CommandLog::default();
        let entry = LoggedCommand {
            id: 0,
            unix_s: 0,
            amount: 1,
            args: Vec::new(),
            peer: String::new(),
            name: String::new(),
        };
        (0..5).for_each(|_| log.push(entry.clone(), 3));
        assert_eq!(log.iter().map(|entry| entry.id).collect::<Vec<_>>(), [4, 3, 2]);
        log.shorten_to(1);
        assert_eq!(log.len(), 1);
        log.clear();
        log.push(entry.clone(), 0);
        log.push(entry, 3);
        assert_eq!(log.iter().next().map(|entry| entry.id), Some(5));
    }
}
