//! The slow log: commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;

/// One slow command.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// Ever growing number.
    pub id: u64,
    /// When it ran, Unix seconds.
    pub unix_s: u64,
    /// How long, microseconds.
    pub duration_us: u64,
    /// Its arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// Address of the client.
    pub peer: String,
    /// Name of the client.
    pub name: String,
}

/// The newest slow commands.
#[derive(Debug, Default)]
pub struct SlowLog {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

/// Arguments shown of a command; the last place says how many more there were.
const ARGS_MAX: usize = 32;
/// Bytes shown of an argument.
const ARG_BYTES_MAX: usize = 128;

impl SlowLog {
    /// Adds a command, dropping the oldest beyond `len_max`.
    pub fn push(&mut self, mut entry: SlowEntry, len_max: usize) {
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.entries.truncate(len_max);
    }

    /// The newest entries first.
    pub fn iter(&self) -> impl Iterator<Item = &SlowEntry> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was slow.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// The arguments as the slow log shows them.
pub fn shorten(args: darter_wire::Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut out: Vec<Vec<u8>> = (0..shown)
        .map(|i| {
            let arg = args.at(i);
            match arg.len().checked_sub(ARG_BYTES_MAX) {
                None | Some(0) => arg.to_vec(),
                Some(more) => [&arg[..ARG_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
            }
        })
        .collect();
    if args.len() > shown {
        out.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    out
}
