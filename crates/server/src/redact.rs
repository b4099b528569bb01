//! Commands as MONITOR and the slow log may show them: without passwords.

use darter_command::reader::is;
use darter_wire::{Args, OwnedArgs};

use crate::registry::Entry;

const HIDDEN: &[u8] = b"(redacted)";

/// A copy of `args` with secrets hidden, or nothing when it holds none.
pub fn hide_secrets(entry: &Entry, args: Args<'_>) -> Option<OwnedArgs> {
    let is_secret: fn(Args<'_>, usize) -> bool = match entry.spec.name {
        "auth" => |_, at| at >= 1,
        "hello" => |args, at| follows(args, at, "AUTH", 2),
        "migrate" => |args, at| follows(args, at, "AUTH", 1) || follows(args, at, "AUTH2", 2),
        "config|set" => |args, at| at >= 3 && at % 2 == 1 && is_secret_setting(args.at(at - 1)),
        "acl|setuser" => |_, at| at >= 2,
        _ => return None,
    };
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
fn follows(args: Args<'_>, at: usize, word: &str, reach: usize) -> bool {
    (at.saturating_sub(reach).max(1)..at).any(|i| is(args.at(i), word))
}

fn is_secret_setting(name: &[u8]) -> bool {
    use crate::config::{Secrecy, find};
    std::str::from_utf8(name)
        .ok()
        .and_then(find)
        .is_some_and(|setting| matches!(setting.secrecy, Secrecy::Secret))
}
