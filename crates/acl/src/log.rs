//! ACL LOG: what was refused lately, like with like.

use std::collections::VecDeque;

/// One kind of refusal.
#[derive(Clone, Debug)]
pub struct AclLogEntry {
    /// How often.
    pub count: u64,
    /// What was refused.
    pub refusal: AclRefusal,
    /// Never used twice.
    pub id: u64,
    /// When it happened first, Unix ms.
    pub created_ms: u64,
    /// When it happened last, Unix ms.
    pub updated_ms: u64,
    /// The line of CLIENT LIST of the client it happened to last.
    pub client: String,
}

/// What was refused, and to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclRefusal {
    /// `command`, `key`, `channel`, `database` or `auth`.
    pub reason: &'static str,
    /// Where the command came from.
    pub context: Context,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The user.
    pub user: String,
}

/// Where a refused command came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// The client.
    TopLevel,
    /// A transaction, when it was queued or when it was to run.
    Multi,
    /// A script.
    Lua,
}

impl Context {
    /// The word ACL LOG has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// The refusals, newest first.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<AclLogEntry>,
    next_id: u64,
}

/// Refusals of a kind are counted in one entry unless so long has passed since the last.
const GROUPED_MS: u64 = 60_000;
/// As many of the newest entries are compared with a new one.
const COMPARED: usize = 10;
/// Bytes of a key or name that are kept.
const OBJECT_BYTES_MAX: usize = 1024;

impl AclLog {
    /// Notes a refusal; `len_max` is `acllog-max-len`.
    pub fn add(&mut self, mut refusal: AclRefusal, client: String, now_ms: u64, len_max: u64) {
        refusal.object.truncate(OBJECT_BYTES_MAX);
        let len_max = usize::try_from(len_max).unwrap_or(usize::MAX);
        let is_like =
            |entry: &AclLogEntry| entry.refusal == refusal && now_ms.abs_diff(entry.updated_ms) <= GROUPED_MS;
        let like = self.entries.iter().take(COMPARED).position(is_like);
        match like.and_then(|at| self.entries.remove(at)) {
            _ if len_max == 0 => {}
            Some(mut entry) => {
                entry.count += 1;
                entry.updated_ms = now_ms;
                entry.client = client;
                self.entries.push_front(entry);
            }
            None => {
                let id = self.next_id;
                self.next_id += 1;
                let (created_ms, updated_ms) = (now_ms, now_ms);
                self.entries.push_front(AclLogEntry {
                    count: 1,
                    refusal,
                    id,
                    created_ms,
                    updated_ms,
                    client,
                });
            }
        }
        self.entries.truncate(len_max);
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &AclLogEntry> {
        self.entries.iter()
    }

    /// Forgets all of them.
    pub fn reset(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: &str, reason: &'static str) -> AclRefusal {
        AclRefusal { reason, context: Context::TopLevel, object: object.into(), user: "u".into() }
    }

    #[test]
    fn like_refusals_share_an_entry_for_a_minute() {
        let mut log = AclLog::default();
        let add = |log: &mut AclLog, object: &str, now_ms| {
            log.add(refusal(object, "key"), format!("at {now_ms}"), now_ms, 128);
        };
        for now_ms in [1000, 2000, 61_000, 121_500] {
            add(&mut log, "a", now_ms);
        }
        add(&mut log, "b", 121_600);
        add(&mut log, "a", 121_700);
        let shown: Vec<_> = log
            .entries()
            .map(|e| (e.refusal.object.clone(), e.count, e.id, e.created_ms, e.updated_ms))
            .collect();
        assert_eq!(
            shown,
            [
                (b"a".to_vec(), 2, 1, 121_500, 121_700),
                (b"b".to_vec(), 1, 2, 121_600, 121_600),
                (b"a".to_vec(), 3, 0, 1000, 61_000)
            ]
        );
        assert_eq!(log.entries().next().map(|entry| entry.client.as_str()), Some("at 121700"));
    }

    #[test]
    fn the_log_is_cut_to_its_length() {
        let mut log = AclLog::default();
        for n in 0..10 {
            log.add(refusal(&n.to_string(), "key"), String::new(), n, 3);
        }
        let shown: Vec<_> = log.entries().map(|entry| entry.refusal.object.clone()).collect();
        assert_eq!(shown, [b"9", b"8", b"7"]);
        log.add(refusal(&"x".repeat(5000), "key"), String::new(), 20, 3);
        assert_eq!(log.entries().next().map(|entry| entry.refusal.object.len()), Some(OBJECT_BYTES_MAX));
        log.add(refusal("y", "key"), String::new(), 20, 0);
        assert_eq!(log.entries().len(), 0);
    }
}
