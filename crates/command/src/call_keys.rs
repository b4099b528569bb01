//! What one call does to each of its keys: the table's groups of keys, and the few commands whose arguments decide.
//!
//! COMMAND GETKEYSANDFLAGS shows it, access rules go by it. Where the keys are, [`Spec::each_key`] says, for these as
//! for locking.

use crate::Spec;
use crate::keyspec::{Begin, Find, KeySpec};
use darter_wire::Args;

/// What a call needs of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyAccess {
    /// Its value comes back, or decides what does.
    pub reads: bool,
    /// Its value changes.
    pub writes: bool,
}

impl KeyAccess {
    /// What `access`, in Redis' words (`RW access update`), needs.
    pub fn of(access: &str) -> KeyAccess {
        let has = |word: &str| access.split(' ').any(|flag| flag == word);
        KeyAccess { reads: has("access"), writes: has("insert") || has("update") || has("delete") }
    }
}

/// What a call does to its key at argument `at`, in Redis' words.
pub fn access_at(groups: &[KeySpec], spec: &Spec, call: Args<'_>, at: usize) -> &'static str {
    if let Some(access) = spec.access {
        return access(call);
    }
    let group = groups.iter().find(|group| covers(group, at, call)).or(groups.last());
    group.map_or("RW access update", |group| group.access)
}

/// Whether the key at `at` belongs to `group`.
fn covers(group: &KeySpec, at: usize, call: Args<'_>) -> bool {
    match (group.begin, group.find) {
        (Begin::Index(first), Find::Range { last, .. }) => {
            let first = usize::from(first);
            at >= first && (last < 0 || at <= first.saturating_add(last.unsigned_abs().into()))
        }
        (Begin::Index(first), Find::Count { .. }) => at > usize::from(first),
        (Begin::Keyword(word, _), Find::Range { last: 0, .. }) => {
            at > 0 && call.at(at - 1).eq_ignore_ascii_case(word.as_bytes())
        }
        (Begin::Keyword(..), _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_wire::OwnedArgs;

    fn access(line: &str) -> Vec<(String, &'static str)> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let owned = OwnedArgs::from_slices(&words);
        let call = owned.args();
        let all = crate::FAMILIES.iter().copied().flatten();
        let row = all
            .map(|row| row.spec)
            .find(|spec| spec.name == words[0].to_ascii_lowercase().escape_ascii().to_string());
        let spec = row.expect("a data command");
        let groups = spec.key_specs();
        let mut found = Vec::new();
        spec.each_key(call, &mut |at| {
            let key = String::from_utf8_lossy(call.at(at)).into_owned();
            found.push((key, access_at(&groups, &spec, call, at)));
        });
        found
    }

    #[test]
    fn arguments_decide_what_a_call_needs() {
        let one = |line: &str| access(line)[0].1;
        assert_eq!(one("set k get"), "OW update");
        assert_eq!(one("set k v get"), "RW access update");
        assert_eq!(one("set k v ex get"), "RW access update");
        assert_eq!(one("bitfield k get u4 0"), "RO access");
        assert_eq!(one("bitfield k get u4 0 set u4 0 1"), "RW access update");
        assert_eq!(one("bitfield k get set 0"), "RO access");
    }

    #[test]
    fn groups_of_keys_need_different_things() {
        let of = |line: &str| -> Vec<(String, KeyAccess)> {
            access(line).into_iter().map(|(key, access)| (key, KeyAccess::of(access))).collect()
        };
        let (read, write) =
            (KeyAccess { reads: true, writes: false }, KeyAccess { reads: false, writes: true });
        let named = |pairs: &[(&str, KeyAccess)]| -> Vec<(String, KeyAccess)> {
            pairs.iter().map(|(key, access)| ((*key).to_owned(), *access)).collect()
        };
        assert_eq!(of("copy a b"), named(&[("a", read), ("b", write)]));
        assert_eq!(of("sort a store b"), named(&[("a", read), ("b", write)]));
        assert_eq!(of("zunionstore d 2 a b"), named(&[("d", write), ("a", read), ("b", read)]));
        assert_eq!(of("georadius a 1 2 3 m store b"), named(&[("a", read), ("b", write)]));
        assert_eq!(of("xread streams a b 0 0"), named(&[("a", read), ("b", read)]));
        assert_eq!(of("exists a"), named(&[("a", KeyAccess::default())]));
    }
}
