//! What a limited user may do on the batch path: found out once for calls of one command that follow each other, so
//! that each of them costs a look at its key.
//!
//! It says yes only where `check` would; what it does not cover is asked about call by call.

use darter_command::call_keys::KeyAccess;
use darter_command::spec::Inlined;

use crate::catalog::{Catalog, CatalogRow, Needs};
use crate::pattern::AclPattern;
use crate::selector::Selector;
use crate::user::User;

/// Calls of a command with one key that are allowed.
pub struct Permit<'a> {
    selector: &'a Selector,
    access: KeyAccess,
    /// Every call is.
    covers_all: bool,
    /// With so many arguments only, the name included.
    args_len: Option<usize>,
    /// The one pattern that matters, where there is one.
    only: Option<&'a AclPattern>,
}

/// The words of SET without options.
const SET_WORDS: usize = 3;

impl User {
    /// First bytes of keys that are worth knowing alike in commands that follow each other: what a permit looks at in each.
    pub fn key_head_len(&self) -> usize {
        if let [selector] = self.selectors() { selector.key_head_len() } else { 0 }
    }

    /// The calls of `row`, a data command, that are allowed as far as their one key is. `None`: each is to be asked
    /// about, which says nothing of whether it is allowed.
    pub fn permit(&self, catalog: &Catalog, row: &CatalogRow) -> Option<Permit<'_>> {
        let [selector] = self.selectors() else { return None };
        if !selector.allows_command(catalog.place(row), None) || !selector.databases().allows_all() {
            return None;
        }
        let covers_all = selector.has_all_keys();
        let (access, args_len) = match row.needs {
            Needs::Same(access) => (access, None),
            // SET without options reads nothing.
            Needs::ByCall(_) if row.spec.inlined == Inlined::Set => {
                (KeyAccess { reads: false, writes: true }, Some(SET_WORDS))
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

    /// The one pattern that decides, if there is one.
    #[inline]
    pub fn only(&self) -> Option<&AclPattern> {
        self.only
    }

    /// Whether it covers a call about `key`.
    #[inline]
    pub fn covers(&self, key: &[u8], args_len: usize) -> bool {
        self.args_len.is_none_or(|only| only == args_len)
            && match self.only {
                Some(pattern) => pattern.matches(key),
                None => self.selector.allows_key(key, self.access),
            }
    }
}
