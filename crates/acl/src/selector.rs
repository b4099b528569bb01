//! A selector: a set of commands, and the keys, channels and databases they may be used on. A user has one of its own
//! and any number in parentheses; a call is allowed when one selector allows all of it.

use darter_command::call_keys::KeyAccess;
use darter_command::category::Categories;

use crate::catalog::{Catalog, CatalogRow};
use crate::databases::Databases;
use crate::pattern::AclPattern;

/// What may be done.
#[derive(Clone, Debug)]
pub struct Selector {
    /// A bit per command and subcommand, by `Catalog::place`.
    commands: Box<[u64]>,
    /// Every bit has been set and none taken since.
    has_all_commands: bool,
    /// The rules began from all commands, not from none.
    begins_full: bool,
    /// Rules since then, in order: added or taken, and of what.
    rules: Vec<(bool, Box<str>)>,
    /// Arguments with which a command is allowed that is not allowed as such.
    first_args: Vec<(usize, Box<[u8]>)>,
    has_all_keys: bool,
    keys: Vec<KeyPattern>,
    has_all_channels: bool,
    channels: Vec<AclPattern>,
    databases: Databases,
}

#[derive(Clone, Debug)]
struct KeyPattern {
    pattern: AclPattern,
    access: KeyAccess,
}

impl KeyPattern {
    /// Whether it allows all that is wanted.
    #[inline]
    fn gives(&self, wanted: KeyAccess) -> bool {
        self.access.reads >= wanted.reads && self.access.writes >= wanted.writes
    }
}

impl Selector {
    /// One that allows nothing, or every channel when `all_channels`.
    pub fn empty(catalog: &Catalog, all_channels: bool) -> Selector {
        Selector {
            commands: vec![0; catalog.len().div_ceil(64)].into(),
            has_all_commands: false,
            begins_full: false,
            rules: Vec::new(),
            first_args: Vec::new(),
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels: all_channels,
            channels: Vec::new(),
            databases: Databases::default(),
        }
    }

    /// Allows every command, or none.
    pub fn set_all_commands(&mut self, on: bool) {
        self.commands.fill(if on { u64::MAX } else { 0 });
        self.has_all_commands = on;
        self.begins_full = on;
        self.rules.clear();
        self.first_args.clear();
    }

    /// Allows or takes a command with its subcommands.
    pub fn set_command(&mut self, catalog: &Catalog, row: &CatalogRow, on: bool) {
        self.set_bits(catalog, row, on);
        self.note_rule(row.spec.name, on);
    }

    /// Allows or takes every command of a category.
    pub fn set_category(&mut self, catalog: &Catalog, name: &str, category: Categories, on: bool) {
        for row in catalog.members(category) {
            self.set_bits(catalog, row, on);
        }
        self.note_rule(name, on);
    }

    /// Allows a command where its first argument is `arg`.
    pub fn add_first_arg(&mut self, catalog: &Catalog, row: &CatalogRow, arg: &str) {
        let item = (catalog.place(row), arg.as_bytes().into());
        if !self.first_args.contains(&item) {
            self.first_args.push(item);
        }
        self.note_rule(&format!("{}|{arg}", row.spec.name), true);
    }

    fn set_bits(&mut self, catalog: &Catalog, row: &CatalogRow, on: bool) {
        self.set_bit(catalog.place(row), on);
        let place = catalog.place(row);
        self.first_args.retain(|(there, _)| *there != place);
        for sub in catalog.subs(row) {
            self.set_bit(catalog.place(sub), on);
        }
        self.has_all_commands &= on;
    }

    fn set_bit(&mut self, place: usize, on: bool) {
        let (word, bit) = (&mut self.commands[place / 64], 1 << (place % 64));
        if on { *word |= bit } else { *word &= !bit }
    }

    /// Keeps a rule to be shown: it takes the place of an earlier one about the same, and of those about parts of it.
    fn note_rule(&mut self, name: &str, on: bool) {
        let name = name.to_ascii_lowercase();
        let is_about = |known: &str| {
            known.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|(_, known)| !is_about(known));
        self.rules.push((on, name.into()));
    }

    /// Allows every key.
    pub fn set_all_keys(&mut self) {
        self.has_all_keys = true;
        self.keys.clear();
    }

    /// Allows no key.
    pub fn reset_keys(&mut self) {
        self.has_all_keys = false;
        self.keys.clear();
    }

    /// Whether every key is allowed.
    pub fn has_all_keys(&self) -> bool {
        self.has_all_keys
    }

    /// Allows `access` to the keys that match.
    pub fn add_keys(&mut self, text: &[u8], access: KeyAccess) {
        match self.keys.iter_mut().find(|known| known.pattern.text() == text) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { pattern: AclPattern::new(text), access }),
        }
    }

    /// Patterns of keys there are.
    pub fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// Allows every channel, or none.
    pub fn set_all_channels(&mut self, on: bool) {
        self.has_all_channels = on;
        self.channels.clear();
    }

    /// Whether every channel is allowed.
    pub fn has_all_channels(&self) -> bool {
        self.has_all_channels
    }

    /// Allows the channels that match.
    pub fn add_channels(&mut self, text: &[u8]) {
        if !self.channels.iter().any(|known| known.text() == text) {
            self.channels.push(AclPattern::new(text));
        }
    }

    /// The patterns of the channels allowed, where not all are.
    pub fn channels(&self) -> &[AclPattern] {
        &self.channels
    }

    /// The databases allowed.
    #[inline]
    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// The same, to be changed.
    pub(super) fn databases_mut(&mut self) -> &mut Databases {
        &mut self.databases
    }

    /// Whether nothing is refused.
    pub fn is_unlimited(&self) -> bool {
        self.has_all_commands && self.has_all_keys && self.has_all_channels && self.databases.allows_all()
    }

    /// Whether the command at `place` is allowed; `arg` is its first argument.
    #[inline]
    pub(super) fn allows_command(&self, place: usize, arg: Option<&[u8]>) -> bool {
        self.has_all_commands
            || self.commands[place / 64] >> (place % 64) & 1 == 1
            || arg.is_some_and(|arg| {
                let is_it = |known: &[u8]| known.eq_ignore_ascii_case(arg);
                self.first_args.iter().any(|(there, known)| *there == place && is_it(known))
            })
    }

    /// Whether `key` may be used so.
    #[inline]
    pub(super) fn allows_key(&self, key: &[u8], wanted: KeyAccess) -> bool {
        self.has_all_keys || self.keys.iter().any(|known| known.gives(wanted) && known.pattern.matches(key))
    }

    /// The pattern that alone says which keys may be used so; `None` when there are more, or none.
    pub(super) fn only_pattern(&self, wanted: KeyAccess) -> Option<&AclPattern> {
        let mut giving = self.keys.iter().filter(|known| known.gives(wanted));
        let first = giving.next().filter(|_| !self.has_all_keys)?;
        giving.next().is_none().then_some(&first.pattern)
    }

    /// First bytes of keys that are worth knowing alike for [`Selector::only_pattern`].
    pub(super) fn key_head_len(&self) -> usize {
        // More patterns than for reading and for writing are looked at one by one.
        self.keys.iter().take(2).filter_map(|known| known.pattern.prefix_len()).max().unwrap_or(0)
    }

    /// Whether any key whatever may be read.
    pub(super) fn may_read_everything(&self) -> bool {
        self.has_all_keys || self.keys.iter().any(|known| known.access.reads && known.pattern.is_anything())
    }

    /// Whether a channel, or a pattern of channels, may be used; a pattern only as it is written here.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let fits = |known: &AclPattern| if is_pattern { known.text() == name } else { known.matches(name) };
        self.has_all_channels || self.channels.iter().any(fits)
    }

    /// The rules about commands, from the first that says all or none.
    pub fn describe_commands(&self) -> String {
        let mut text = String::from(if self.begins_full { "+@all" } else { "-@all" });
        for (on, name) in &self.rules {
            text.push_str(if *on { " +" } else { " -" });
            text.push_str(name);
        }
        text
    }

    /// The rules about keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let shown = self.keys.iter().map(|known| {
            let mark: &[u8] = match known.access {
                KeyAccess { reads: true, writes: false } => b"%R~",
                KeyAccess { reads: false, .. } => b"%W~",
                KeyAccess { .. } => b"~",
            };
            [mark, known.pattern.text()].concat()
        });
        shown.collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let shown = self.channels.iter().map(|known| [b"&", known.text()].concat());
        shown.collect::<Vec<_>>().join(&b' ')
    }

    /// All of it, as rules that make the same selector from an empty one.
    pub fn describe(&self) -> Vec<u8> {
        let channels = self.describe_channels();
        let reset: &[u8] = if self.has_all_channels { b"" } else { b"resetchannels" };
        let commands = self.describe_commands();
        let databases = self.databases.describe();
        let parts: [&[u8]; 5] =
            [&self.describe_keys(), reset, &channels, databases.as_bytes(), commands.as_bytes()];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(&b' ')
    }
}
