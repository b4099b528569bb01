//! A user: a name, passwords, and selectors. Never changed once it can be seen: a change makes another one in its
//! place, so that connections hold theirs without a lock.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::catalog::Catalog;
use crate::selector::Selector;

/// The name of the user every connection begins as.
pub const DEFAULT: &str = "default";

/// SHA-256 of a password.
pub type Hash = [u8; 32];

/// A user and their rights.
#[derive(Clone, Debug)]
pub struct User {
    /// Without spaces and NULs.
    pub name: Arc<str>,
    /// May log in.
    pub is_on: bool,
    /// Any password is right.
    pub needs_no_password: bool,
    /// RESTORE may trust its payloads.
    pub skips_sanitize: bool,
    /// Those that are right.
    pub passwords: Vec<Hash>,
    /// The user's own, then those in parentheses; never empty.
    selectors: Vec<Selector>,
}

impl User {
    /// One that may do nothing, but for every channel when `all_channels`.
    pub fn new(name: &str, catalog: &Catalog, all_channels: bool) -> User {
        User {
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            skips_sanitize: false,
            passwords: Vec::new(),
            selectors: vec![Selector::empty(catalog, all_channels)],
        }
    }

    /// The user `default` as it is before any rule: it may do everything, without password.
    pub fn new_default(catalog: &Catalog) -> User {
        let mut user = User { is_on: true, needs_no_password: true, ..User::new(DEFAULT, catalog, true) };
        let own = user.own_mut();
        own.set_all_commands(true);
        own.set_all_keys();
        user
    }

    /// Back to nothing, as [`User::new`].
    pub fn reset(&mut self, catalog: &Catalog, all_channels: bool) {
        *self = User::new(&self.name.clone(), catalog, all_channels);
    }

    /// The user's own selector.
    pub fn own(&self) -> &Selector {
        &self.selectors[0]
    }

    /// The user's own selector, to be changed.
    pub(super) fn own_mut(&mut self) -> &mut Selector {
        &mut self.selectors[0]
    }

    /// Every selector, the own one first.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Adds a selector in parentheses.
    pub(super) fn add_selector(&mut self, selector: Selector) {
        self.selectors.push(selector);
    }

    /// Removes those in parentheses.
    pub(super) fn clear_selectors(&mut self) {
        self.selectors.truncate(1);
    }

    /// The database a connection is in once it has logged in as this user, after `db`: the first one allowed where that
    /// one is not.
    pub fn home_db(&self, db: usize) -> usize {
        if self.selectors.iter().any(|selector| selector.databases().allows(db)) {
            return db;
        }
        self.selectors.iter().find_map(|selector| selector.databases().first()).unwrap_or(db)
    }

    /// Whether nothing it could do is refused.
    pub fn is_unlimited(&self) -> bool {
        self.selectors.iter().any(Selector::is_unlimited)
    }

    /// Adds a password.
    pub fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
    }

    /// Makes one password the only right one, or any when it is empty (`requirepass`).
    pub fn set_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.needs_no_password = password.is_empty();
        if !password.is_empty() {
            self.add_password(hash(password));
        }
    }

    /// Whether it may log in with `password`. Cost: a SHA-256; the time tells nothing about the passwords.
    pub fn lets_in(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let is_right = self.passwords.iter().fold(false, |found, known| found | is_same(known, &given));
        self.is_on && (self.needs_no_password || is_right)
    }

    /// The words ACL GETUSER shows for what is no list.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitizes = if self.skips_sanitize { "skip-sanitize-payload" } else { "sanitize-payload" };
        [
            Some(if self.is_on { "on" } else { "off" }),
            self.needs_no_password.then_some("nopass"),
            Some(sanitizes),
        ]
        .into_iter()
        .flatten()
    }

    /// `user name rules...`, as ACL LIST shows it and files have it.
    pub fn describe(&self) -> Vec<u8> {
        let mut line = format!("user {}", self.name).into_bytes();
        let mut add = |word: &[u8]| {
            line.push(b' ');
            line.extend_from_slice(word);
        };
        self.flags().for_each(|flag| add(flag.as_bytes()));
        self.passwords.iter().for_each(|hash| add(format!("#{}", to_hex(hash)).as_bytes()));
        add(&self.own().describe());
        for selector in &self.selectors[1..] {
            add(&[b"(", &*selector.describe(), b")"].concat());
        }
        line
    }
}

/// The hash of a password.
pub fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

/// 64 lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in a time that does not depend on the bytes.
fn is_same(a: &Hash, b: &Hash) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y))) == 0
}
