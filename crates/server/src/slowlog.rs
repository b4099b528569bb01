//! The slow log: commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;

use darter_wire::Args;

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

impl SlowLog {
    /// Adds a command, dropping the oldest beyond `len_max`.
    pub fn push(&mut self, mut entry: SlowEntry, len_max: usize) {
        if len_max == 0 {
            return;
        }
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.entries.truncate(len_max);
    }

    /// Drops the oldest entries beyond `len_max`.
    pub fn shorten_to(&mut self, len_max: u64) {
        self.entries.truncate(usize::try_from(len_max).unwrap_or(usize::MAX));
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

/// The arguments as the slow log shows them: so many, each so long; what is left out is counted.
pub fn shorten(args: Args<'_>, limits: &crate::config::Slowlog) -> Vec<Vec<u8>> {
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
    use crate::config::Slowlog as Limits;
    use darter_wire::OwnedArgs;

    const LIMITS: Limits = Limits { slower_us: 0, max_len: 3, entry_max_argc: 4, entry_max_string_len: 5 };

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
        let mut log = SlowLog::default();
        let entry = SlowEntry {
            id: 0,
            unix_s: 0,
            duration_us: 1,
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
