//! Every command by name: the data families of `command` and the server's own.
//!
//! Built once at start, from the rows that `commands` puts together; a lookup is two words compared. It names no command and
//! no connection, so that whatever knows a command's row may stand below both.

use std::collections::HashMap;

use darter_command::incremental::bulk_add::MANY;
use darter_command::spec::{Effect, Inlined, ReplicaForm};
use darter_command::{Flags, Keys, Marks, Reach, Spec};
use darter_wire::{Args, OwnedArgs};

use crate::stats::SampleWeight;

/// A command's body.
#[derive(Clone, Copy)]
pub enum RunKind {
    /// Works on data, with shards held, on whichever thread holds them.
    Data(darter_command::Run),
    /// Works on the connection or the server, on the connection's own thread, with no shard held but those its row reaches for.
    Server(RowId),
    /// Begins or ends a transaction: takes the shards itself.
    Txn(RowId),
    /// Runs a script: takes the shards itself, or finds them held by EXEC.
    Script(RunWay),
}

/// The place of a body in the tables of `commands` or `transaction`. The registry, which everything names, names neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowId {
    /// The family.
    pub family: u8,
    /// The row in it.
    pub row: u8,
}

impl RowId {
    /// The row `row` of the family `family`.
    pub const fn new(family: usize, row: usize) -> RowId {
        assert!(family < 256 && row < 256, "a table is too long");
        RowId { family: family as u8, row: row as u8 }
    }
}

/// How a script is named, and whether it may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunWay {
    /// How it is named.
    pub by: RunBy,
    /// It may write.
    pub may_write: bool,
}

/// How a script is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunBy {
    /// By its text.
    Text,
    /// By the SHA-1 of its text.
    Sha,
    /// As a function of a library.
    Function,
}

/// A command or subcommand.
pub struct CommandEntry {
    /// Its row.
    pub spec: Spec,
    /// What clients call it: the row's name, unless `rename-command` gave it another.
    pub called: Box<str>,
    /// Its body.
    pub run: RunKind,
    /// Its place in per-command statistics.
    pub id: usize,
    /// Its subcommands, when it is a container.
    pub subs: Vec<&'static CommandEntry>,
    /// A data command with exactly one key, at index 1, and no further reach, however it is called.
    pub is_single: bool,
    /// Bit n is set when it is that in calls with n arguments, its name included; bit 0 says so of all from 32 on.
    single_lens: u32,
    /// Its name is made of letters alone.
    is_letters: bool,
    /// Knows more subcommands than the registry, and refuses others itself (DEBUG).
    pub is_open: bool,
    /// Part of DEBUG, which a setting can keep from clients.
    pub is_debug: bool,
    /// What the journal writes of it.
    pub effect: Effect,
    /// What it writes instead while replicas follow.
    pub replica_form: ReplicaForm,
    /// Only administrators' connections may run it (`restricted_commands`).
    pub is_restricted: bool,
    /// Is completed from the connection's fieldsets before it takes a shard (HIMPORT SET).
    pub is_import: bool,
    /// A call about one key is so cheap that only a sample is timed.
    pub is_cheap: bool,
    /// A call about one key with so many words may change or answer so much that it is left to slices.
    pub slices_from: usize,
    /// It has no key, and is as cheap.
    is_cheap_keyless: bool,
    /// The body that is inlined, for calls with `inlined_len` arguments or for several keys.
    pub inlined: Inlined,
    /// With how many arguments `inlined` is the body of GET or SET.
    pub inlined_len: usize,
}

impl CommandEntry {
    fn new(id: usize, spec: Spec, run: RunKind, subs: Vec<&'static CommandEntry>) -> CommandEntry {
        // What may wait goes the way that parks it.
        let is_local = matches!(run, RunKind::Data(_))
            && matches!(spec.reach, Reach::Keys)
            && !spec.flags.any(Flags::BLOCKING)
            && subs.is_empty();
        // With how many arguments it has one key: always, or when no second one follows the first.
        let one_key_len = match spec.keys {
            Keys::Range { first: 1, last: 1, .. } if is_local => usize::MAX,
            Keys::Range { first: 1, last: -1, step } if is_local => 1 + usize::from(step),
            _ => 0,
        };
        let is_single = one_key_len == usize::MAX;
        let is_marked_cheap = spec.has(Marks::CHEAP);
        let is_cheap_keyless = is_marked_cheap && one_key_len == 0;
        let is_cheap = one_key_len > 0 && spec.flags.any(Flags::FAST) || is_marked_cheap;
        let args_min = usize::from(spec.arity.unsigned_abs());
        let args_len = (args_min, if spec.arity < 0 { usize::MAX } else { args_min });
        let is_letters = spec.name.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_debug = spec.has(Marks::DEBUG);
        let effect = match spec.effect {
            Effect::ByFlags if spec.flags.any(Flags::WRITE) => Effect::Itself,
            Effect::ByFlags => Effect::Nothing,
            other => other,
        };
        let replica_form = match spec.replica_form {
            ReplicaForm::ByAge if spec.flags.any(Flags::WRITE) && spec.adds_to_an_old_type() => {
                ReplicaForm::Values
            }
            ReplicaForm::ByAge => ReplicaForm::Words,
            other => other,
        };
        CommandEntry {
            spec,
            called: spec.name.into(),
            run,
            id,
            subs,
            is_single,
            single_lens: (1..32)
                .filter(|n| *n <= one_key_len && (args_len.0..=args_len.1).contains(n))
                .map(|n| 1 << n)
                .sum::<u32>()
                | u32::from(is_single && args_len.1 >= 32),
            is_open: is_debug && !spec.name.contains('|'),
            is_debug,
            is_restricted: false,
            is_import: spec.has(Marks::IMPORTS),
            is_letters,
            effect,
            replica_form,
            is_cheap,
            // Commands change as much as they name.
            slices_from: if is_cheap && !spec.has(Marks::WORDS_ARE_FEW) { MANY } else { 0 },
            is_cheap_keyless,
            inlined: spec.inlined,
            inlined_len: match spec.inlined {
                Inlined::Get => 2,
                Inlined::Set => 3,
                _ => 0,
            },
        }
    }

    /// The subcommand called `name`, in any case.
    pub fn sub(&self, name: &[u8]) -> Option<&'static CommandEntry> {
        self.subs.iter().copied().find(|sub| sub.sub_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether a call with so many arguments, its name included, is right and about one key, which is at index 1.
    #[inline(always)]
    pub fn is_single_of(&self, args_len: u32) -> bool {
        self.single_lens >> (if args_len < 32 { args_len } else { 0 }) & 1 != 0
    }

    /// Whether a call is timed that `calls` others came before: of cheap ones, which have one key, few or none, only a
    /// sample is, unless `all` are.
    #[inline]
    pub fn is_timed(&self, calls: u64, all: bool, has_one_key: bool) -> bool {
        let is_cheap = if has_one_key { self.is_cheap } else { self.is_cheap_keyless };
        !is_cheap || all || calls.is_multiple_of(SAMPLE)
    }

    /// What a timed call stands for, of those that [`CommandEntry::is_timed`] chooses by the same facts.
    pub fn weight(&self, all: bool, has_one_key: bool) -> SampleWeight {
        let is_cheap = if has_one_key { self.is_cheap } else { self.is_cheap_keyless };
        if is_cheap && !all { SampleWeight::Sample } else { SampleWeight::One }
    }

    /// Whether a call with so many arguments is short work though it is about several keys.
    #[inline]
    pub fn is_brief_many(&self, args_len: usize) -> bool {
        self.is_inlined_many() && args_len <= BRIEF_WORDS_MAX
    }

    /// Whether it is MGET or MSET, whose keys are run by inlined bodies.
    #[inline]
    pub fn is_inlined_many(&self) -> bool {
        matches!(self.inlined, Inlined::GetMany | Inlined::SetMany)
    }

    /// Whether a call with so many arguments (with the name) should have named a subcommand.
    #[inline]
    pub fn lacks_sub(&self, args_len: usize) -> bool {
        !self.subs.is_empty() && !self.is_open && args_len > 1
    }

    /// Whether it is a subcommand.
    pub fn is_sub(&self) -> bool {
        self.spec.name.contains('|')
    }

    /// The name after the `|`, or the whole name.
    pub fn sub_name(&self) -> &'static str {
        self.spec.name.split_once('|').map_or(self.spec.name, |(_, sub)| sub)
    }
}

/// The table of all commands.
pub struct Registry {
    /// Names of at most 8 letters, folded to lower case; a word of zeros is an empty place.
    by_letters: Box<[(u64, Option<&'static CommandEntry>); LETTERS_LEN]>,
    by_word: Vec<Option<(Word, &'static CommandEntry)>>,
    long_names: HashMap<Vec<u8>, &'static CommandEntry>,
    entries: Vec<&'static CommandEntry>,
    commands: Vec<&'static CommandEntry>,
}

/// A name of up to 16 bytes, folded to lower case.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    head: u64,
    tail: u64,
    len: usize,
}

/// The first of so many calls of a cheap command is timed. A prime number, so that clients whose calls are of two or ten
/// sizes in turn have all of them in the sample.
pub const SAMPLE: u64 = 127;

/// An MGET or MSET of more words is timed each time.
const BRIEF_WORDS_MAX: usize = 40;

const TABLE_LEN: usize = 2048;
const LOWER: u64 = 0x2020_2020_2020_2020;

/// Places of the table of short names: so many that most names stand where they hash to.
const LETTERS_LEN: usize = 1024;

#[inline]
fn letters_place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

impl Word {
    #[inline]
    fn of(name: &[u8]) -> Option<Word> {
        let len = name.len();
        let (head, tail) = match len {
            8..=16 => (u64_at(name, 0), u64_at(name, len - 8)),
            4..=7 => (u32_at(name, 0), u32_at(name, len - 4)),
            1..=3 => {
                let at = |i: usize| u64::from(name[i.min(len - 1)]);
                (at(0) | at(1) << 8 | at(2) << 16, 0)
            }
            _ => return None,
        };
        Some(Word { head: head | LOWER, tail: tail | LOWER, len })
    }

    #[inline]
    fn place(self) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(29)).wrapping_add(self.len as u64);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize % TABLE_LEN
    }
}

#[inline]
fn u64_at(name: &[u8], at: usize) -> u64 {
    name[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn u32_at(name: &[u8], at: usize) -> u64 {
    name[at..].first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
}

impl Registry {
    /// The table of `rows`, with commands called otherwise: pairs of old and new name, a command with an empty new name has
    /// none; and with commands and subcommands (`container|sub`) that only administrators' connections may run, by the names
    /// of their rows. Errors: one line about a name that is not there, or is there already.
    pub fn of(
        rows: &[(Spec, RunKind)],
        renamed: &[(String, String)],
        restricted: &[String],
    ) -> Result<Registry, String> {
        let mut registry = Registry {
            by_letters: Box::new([(0, None); LETTERS_LEN]),
            by_word: vec![None; TABLE_LEN],
            long_names: HashMap::new(),
            entries: Vec::new(),
            commands: Vec::new(),
        };
        let mut subs: HashMap<&str, Vec<&'static CommandEntry>> = HashMap::new();
        for (id, (spec, run)) in rows.iter().enumerate().filter(|(_, (spec, _))| spec.name.contains('|')) {
            let mut entry = CommandEntry::new(id, *spec, *run, Vec::new());
            let container = spec.name.split_once('|').map_or("", |(container, _)| container);
            entry.is_restricted = is_named(restricted, spec.name) || is_named(restricted, container);
            let entry: &'static CommandEntry = Box::leak(Box::new(entry));
            subs.entry(container).or_default().push(entry);
            registry.entries.push(entry);
        }
        for (id, (spec, run)) in rows.iter().enumerate().filter(|(_, (spec, _))| !spec.name.contains('|')) {
            let subs = subs.remove(spec.name).unwrap_or_default();
            let mut entry = CommandEntry::new(id, *spec, *run, subs);
            entry.is_restricted = is_named(restricted, spec.name);
            if let Some(name) = new_name(renamed, spec.name) {
                entry.called = name.into();
                entry.is_letters = name.bytes().all(|byte| byte.is_ascii_alphabetic());
            }
            registry.add(Box::leak(Box::new(entry)))?;
        }
        assert!(subs.is_empty(), "subcommands without a container: {:?}", subs.keys());
        registry.entries.sort_by_key(|entry| entry.id);
        let is_known = |old: &str| registry.entries.iter().any(|e| e.spec.name.eq_ignore_ascii_case(old));
        if let Some(name) = restricted.iter().find(|name| !is_known(name)) {
            return Err(format!("restricted_commands: no such command {name}"));
        }
        match renamed.iter().find(|(old, _)| !is_known(old)) {
            Some((old, _)) => Err(format!("rename-command: no such command {old}")),
            None => Ok(registry),
        }
    }

    fn add(&mut self, entry: &'static CommandEntry) -> Result<(), String> {
        self.entries.push(entry);
        let name = entry.called.as_bytes();
        if name.is_empty() {
            return Ok(());
        }
        self.commands.push(entry);
        if self.find(name).is_some() {
            return Err(format!("command {} is there twice", entry.called));
        }
        if entry.is_letters
            && let Some(word) = OwnedArgs::from_slices(&[name]).args().folded_word(0)
        {
            let mut place = letters_place(word);
            while self.by_letters[place].0 != 0 {
                place = (place + 1) % LETTERS_LEN;
            }
            self.by_letters[place] = (word, Some(entry));
        }
        match Word::of(name) {
            Some(word) => {
                let mut place = word.place();
                while self.by_word[place].is_some() {
                    place = (place + 1) % TABLE_LEN;
                }
                self.by_word[place] = Some((word, entry));
            }
            None => {
                self.long_names.insert(name.to_ascii_lowercase(), entry);
            }
        }
        Ok(())
    }

    /// The command that `args` name, in any case.
    #[inline]
    pub fn find_named(&self, args: Args<'_>) -> Option<&'static CommandEntry> {
        args.folded_word(0).and_then(|word| self.find_word(word)).or_else(|| self.find(args.at(0)))
    }

    /// The command whose name is the letters of `word`, as [`Args::folded_word`] makes it; `None` does not say that
    /// there is none.
    #[inline(always)]
    pub fn find_word(&self, word: u64) -> Option<&'static CommandEntry> {
        // One comparison decides, but for what hashes to another's place.
        let place = letters_place(word);
        let (there, entry) = self.by_letters[place];
        if there == word { entry } else { self.find_word_after(place, word) }
    }

    #[inline(never)]
    fn find_word_after(&self, mut place: usize, word: u64) -> Option<&'static CommandEntry> {
        while self.by_letters[place].0 != 0 {
            place = (place + 1) % LETTERS_LEN;
            if self.by_letters[place].0 == word {
                return self.by_letters[place].1;
            }
        }
        None
    }

    /// The command called `name`, in any case.
    #[inline(never)]
    pub fn find(&self, name: &[u8]) -> Option<&'static CommandEntry> {
        let Some(word) = Word::of(name) else { return self.find_long(name) };
        let mut place = word.place();
        while let Some((there, entry)) = self.by_word[place] {
            if there == word {
                // Letters fold to letters only; beside them other bytes can fold to the same word.
                let is_same = entry.is_letters || entry.called.as_bytes().eq_ignore_ascii_case(name);
                return is_same.then_some(entry);
            }
            place = (place + 1) % TABLE_LEN;
        }
        None
    }

    #[cold]
    fn find_long(&self, name: &[u8]) -> Option<&'static CommandEntry> {
        self.long_names.get(&name.to_ascii_lowercase()).copied()
    }

    /// The command or subcommand whose row is called `name`, whatever clients call it.
    pub fn row(&self, name: &str) -> Option<&'static CommandEntry> {
        self.entries.iter().copied().find(|entry| entry.spec.name == name)
    }

    /// Every command and subcommand, by id.
    pub fn entries(&self) -> &[&'static CommandEntry] {
        &self.entries
    }

    /// Every command, without subcommands.
    pub fn commands(&self) -> &[&'static CommandEntry] {
        &self.commands
    }
}

fn is_named(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// What `renamed` makes of `name`; the last word counts.
fn new_name<'a>(renamed: &'a [(String, String)], name: &str) -> Option<&'a str> {
    renamed.iter().rev().find(|(old, _)| old.eq_ignore_ascii_case(name)).map(|(_, new)| new.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_nothing_else() {
        let registry = Registry::build();
        for entry in registry.commands() {
            let name = entry.spec.name;
            assert_eq!(registry.find(name.as_bytes()).map(|e| e.id), Some(entry.id), "{name}");
            assert_eq!(registry.find(name.to_uppercase().as_bytes()).map(|e| e.id), Some(entry.id), "{name}");
        }
        for entry in registry.commands() {
            for name in [entry.spec.name.to_owned(), entry.spec.name.to_uppercase()] {
                let found = |text: &str| {
                    let owned = OwnedArgs::from_slices(&[text.as_bytes(), b"and what follows it"]);
                    registry.find_named(owned.args()).map(|e| e.id)
                };
                assert_eq!(found(&name), Some(entry.id), "{name}");
                for wrong in [format!("{name}\0"), format!("{name} "), format!("\x07{name}")] {
                    assert_eq!(found(&wrong), None, "{wrong:?}");
                }
            }
        }
        for wrong in ["", "ge", "gett", "g\x05t", "averyveryverylongname", "GE\u{0}T"] {
            assert!(registry.find(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn calls_with_one_key_are_known_by_their_length() {
        let registry = Registry::build();
        let lens = |name: &str| -> Vec<u32> {
            let entry = registry.find(name.as_bytes()).expect(name);
            (1..40).filter(|&len| entry.is_single_of(len)).collect()
        };
        for (name, wanted) in [
            ("get", vec![2]),
            ("del", vec![2]),
            ("exists", vec![2]),
            ("mget", vec![2]),
            ("mset", vec![3]),
            ("pfmerge", vec![2]),
            ("sadd", (3..40).collect()),
            ("hset", (4..40).collect()),
            ("hsetnx", vec![4]),
            ("sunionstore", vec![]),
            ("rename", vec![]),
            ("blpop", vec![]),
            ("bitop", vec![]),
            ("sort", vec![]),
            ("ping", vec![]),
            ("eval", vec![]),
            ("watch", vec![]),
        ] {
            assert_eq!(lens(name), wanted, "{name}");
        }
    }

    #[test]
    fn renamed_commands_go_by_their_new_names_only() {
        let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect()
        };
        let registry = Registry::build_renamed(&pairs(&[
            ("SET", "Put"),
            ("get", ""),
            ("ping", "averyveryveryLONGname"),
        ]))
        .expect("names that exist");
        let named = |name: &str| registry.find(name.as_bytes()).map(|e| e.spec.name);
        assert_eq!(
            (named("put"), named("PUT"), named("set"), named("get")),
            (Some("set"), Some("set"), None, None)
        );
        assert_eq!((named("AveryveryverylongName"), named("ping")), (Some("ping"), None));
        assert!(Registry::build_renamed(&pairs(&[("nosuch", "x")])).is_err());
        assert!(Registry::build_renamed(&pairs(&[("set", "get")])).is_err());
    }

    #[test]
    fn restricted_commands_are_marked_with_what_they_contain() {
        let names = |list: &[&str]| -> Vec<String> { list.iter().map(|name| (*name).to_owned()).collect() };
        let registry = Registry::build_with(&[], &names(&["FLUSHALL", "config", "client|kill"]))
            .expect("names that exist");
        let marked =
            registry.entries().iter().filter(|entry| entry.is_restricted).map(|entry| entry.spec.name);
        let mut marked: Vec<&str> = marked.filter(|name| !name.starts_with("config|")).collect();
        marked.sort_unstable();
        assert_eq!(marked, ["client|kill", "config", "flushall"]);
        let config = registry.find(b"config").expect("CONFIG");
        assert!(config.subs.iter().all(|sub| sub.is_restricted));
        assert!(Registry::build_with(&[], &names(&["nosuch"])).is_err());
    }
}
