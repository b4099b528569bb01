//! What a limited user may do on the batch path: found out once for calls of one command that follow each other, so
//! that each of them costs a look at its key.
//!
//! It says yes only where `check` would; what it does not cover is asked about call by call.

use darter_command::spec::Inlined;
use darter_wire::Span;

use super::catalog::{Catalog, Needs};
use super::pattern::Pattern;
use super::selector::Selector;
use super::user::User;
use crate::call_keys::Access;
use crate::registry::Entry;
use crate::window::Prepared;

/// Calls of a command with one key that are allowed.
pub struct Permit<'a> {
    selector: &'a Selector,
    access: Access,
    /// Every call is.
    covers_all: bool,
    /// With so many arguments only, the name included.
    args_len: Option<usize>,
    /// The one pattern that matters, where there is one.
    only: Option<&'a Pattern>,
}

impl User {
    /// First bytes of keys that are worth knowing alike in commands that follow each other: what [`Permit::covered_len`]
    /// would look at in each.
    pub fn key_head_len(&self) -> usize {
        if let [selector] = self.selectors() { selector.key_head_len() } else { 0 }
    }

    /// The calls of `entry`, a data command, that are allowed as far as their one key is. `None`: each is to be asked
    /// about, which says nothing of whether it is allowed.
    pub fn permit(&self, catalog: &Catalog, entry: &'static Entry) -> Option<Permit<'_>> {
        let [selector] = self.selectors() else { return None };
        if !selector.allows_command(catalog.place(entry), None) || !selector.databases().allows_all() {
            return None;
        }
        let covers_all = selector.has_all_keys();
        let (access, args_len) = match catalog.row(entry).needs {
            Needs::Same(access) => (access, None),
            // SET without options reads nothing.
            Needs::ByCall(_) if entry.inlined == Inlined::Set => {
                (Access { reads: false, writes: true }, Some(entry.inlined_len))
            }
            Needs::ByCall(_) | Needs::Nothing => return None,
        };
        let only = selector.only_pattern(access);
        Some(Permit { selector, access, covers_all, args_len: args_len.filter(|_| !covers_all), only })
    }
}

impl Permit<'_> {
    /// Whether it covers every call, whatever its key.
    #[inline]
    pub fn covers_all(&self) -> bool {
        self.covers_all
    }

    /// How many of `commands`, calls of `entry`, it covers before the first that it does not.
    #[inline]
    pub fn covered_len(
        &self,
        entry: &'static Entry,
        (buf, spans): (&[u8], &[Span]),
        commands: &[Prepared],
    ) -> usize {
        // All that begin as the first one does have its pattern's prefix if it has.
        if let (Some(pattern), Some(first)) = (self.only, commands.first())
            && pattern.prefix_len().is_some_and(|len| len <= usize::from(first.key_head_len))
            && first.alike_len > 0
            && self.covers(first.key(buf, spans), first.args_len())
        {
            return 1 + usize::from(first.alike_len);
        }
        let is_alike =
            |planned: &Prepared| planned.ready.entry.is_some_and(|other| std::ptr::eq(other, entry));
        let is_other = |planned: &Prepared| {
            !is_alike(planned) || !self.covers(planned.key(buf, spans), planned.args_len())
        };
        let Some((word, mask)) = self.only.and_then(Pattern::head) else {
            return commands.iter().position(is_other).unwrap_or(commands.len());
        };
        // Nearly all users have one prefix and nearly all keys eight bytes: then the loop holds nothing but a comparison.
        let is_plain = |planned: &Prepared| {
            planned.args_len() == entry.inlined_len
                && is_alike(planned)
                && (planned.own_arg::<1>(buf).first_chunk())
                    .is_some_and(|head| (u64::from_le_bytes(*head) ^ word) & mask == 0)
        };
        commands.iter().position(|planned| !is_plain(planned) && is_other(planned)).unwrap_or(commands.len())
    }

    /// Whether it covers a call about `key`.
    #[inline]
    pub(super) fn covers(&self, key: &[u8], args_len: usize) -> bool {
        self.args_len.is_none_or(|only| only == args_len)
            && match self.only {
                Some(pattern) => pattern.matches(key),
                None => self.selector.allows_key(key, self.access),
            }
    }
}
