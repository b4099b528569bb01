//! Commands as MONITOR and the slow log may show them: without passwords.

use darter_command::reader::is;
use darter_wire::{Args, OwnedArgs};

use crate::registry::CommandEntry;

const HIDDEN: &[u8] = b"(redacted)";

/// Returns a copy of `args` with secrets hidden, or `None` if there are none.
pub fn hide_secrets(entry: &CommandEntry, args: Args<'_>) -> Option<OwnedArgs> {
    let is_secret = entry.spec.secret?;
    if !(1..args.len()).any(|at| is_secret(args, at)) {
        return None;
    }
    let mut shown = OwnedArgs::with_capacity(args.len(), args.bytes_len());
    for (at, arg) in args.iter().enumerate() {
        shown.push(if is_secret(args, at) { HIDDEN } else { arg });
    }
    Some(shown)
}

/// Whether one of the `reach` arguments before `at` is `word`.
pub fn follows(args: Args<'_>, at: usize, word: &str, reach: usize) -> bool {
    (at.saturating_sub(reach).max(1)..at).any(|i| is(args.at(i), word))
}
