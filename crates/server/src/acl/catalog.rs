//! The commands as access rules see them: by the names rules use, with what each call needs of its keys and channels.
//!
//! Made once from the registry. Rules go by the rows' own names, whatever `rename-command` made of them.

use std::collections::HashMap;

use darter_command::category::Categories;
use darter_command::keyspec::KeySpec;
use darter_command::spec::ChannelArgs;
use darter_command::{Keys, Spec};
use darter_wire::Args;

use crate::call_keys::{self, Access};
use crate::registry::{Entry, Registry};

/// All commands, for rules and checks.
pub struct Catalog {
    by_name: HashMap<&'static str, &'static Entry>,
    /// By `Entry::id`.
    rows: Vec<Row>,
    commands: Vec<&'static Entry>,
    debug_id: usize,
    dbs_len: usize,
}

/// What is checked for calls of one command.
pub(super) struct Row {
    pub needs: Needs,
    pub channels: ChannelArgs,
    /// Touches the selected database.
    pub is_data: bool,
}

/// What a command needs of its keys.
#[derive(Debug)]
pub(super) enum Needs {
    /// It has none.
    Nothing,
    /// The same of each.
    Same(Access),
    /// Found out for each call.
    ByCall(Vec<KeySpec>),
}

impl Catalog {
    /// The commands of `registry`, on a server of so many databases.
    pub fn new(registry: &Registry, dbs_len: usize) -> Catalog {
        let rows = registry.entries().iter().map(|entry| Row::of(&entry.spec)).collect();
        let is_named = |entry: &&&'static Entry| !is_part_of_debug(entry);
        let by_name = registry.entries().iter().filter(is_named).map(|entry| (entry.spec.name, *entry));
        let top = registry.entries().iter().filter(|entry| !entry.spec.name.contains('|'));
        let debug_id = registry.entries().iter().find(|entry| entry.is_open).map_or(0, |e| e.id);
        Catalog { rows, by_name: by_name.collect(), commands: top.copied().collect(), debug_id, dbs_len }
    }

    /// The command or subcommand (`container|sub`) that a rule calls `name`, in any case.
    pub fn find(&self, name: &str) -> Option<&'static Entry> {
        self.by_name.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// Every command, without subcommands.
    pub fn commands(&self) -> &[&'static Entry] {
        &self.commands
    }

    /// Every command and subcommand of a category, containers before what they contain. The subcommands of DEBUG are
    /// one command here, as in Redis.
    pub fn members(&self, category: Categories) -> impl Iterator<Item = &'static Entry> {
        let with_subs = |entry: &&'static Entry| {
            let subs: &'static [&'static Entry] = if entry.is_open { &[] } else { &entry.subs };
            std::iter::once(*entry).chain(subs.iter().copied())
        };
        let all = self.commands.iter().flat_map(with_subs);
        all.filter(move |entry| entry.spec.categories().any(category))
    }

    /// The place of a command in a user's set of commands.
    #[inline]
    pub fn place(&self, entry: &Entry) -> usize {
        if entry.is_debug { self.debug_id } else { entry.id }
    }

    /// Commands and subcommands there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none, which only a registry without rows could cause.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What error texts and the log call a command.
    pub fn name_of(&self, entry: &Entry) -> &'static str {
        if entry.is_debug { "debug" } else { entry.spec.name }
    }

    /// Number of databases.
    pub(super) fn dbs_len(&self) -> usize {
        self.dbs_len
    }

    #[inline]
    pub(super) fn row(&self, entry: &Entry) -> &Row {
        &self.rows[entry.id]
    }
}

fn is_part_of_debug(entry: &Entry) -> bool {
    entry.is_debug && !entry.is_open
}

impl Row {
    fn of(spec: &Spec) -> Row {
        Row {
            needs: Needs::of(spec),
            channels: spec.channels,
            is_data: spec.flags.any(darter_command::Flags::WRITE.with(darter_command::Flags::READONLY))
                || !matches!(spec.keys, Keys::None),
        }
    }
}

impl Needs {
    fn of(spec: &Spec) -> Needs {
        let specs = spec.key_specs();
        match &specs[..] {
            _ if matches!(spec.keys, Keys::None) => Needs::Nothing,
            [only] if only.access == "not_key" => Needs::Nothing,
            [only] if spec.access.is_none() && !matches!(spec.keys, Keys::Count { .. }) => {
                Needs::Same(Access::of(only.access))
            }
            _ => Needs::ByCall(specs),
        }
    }

    /// Calls `visit` with the place of each key of a call and what it needs, until that returns false.
    #[inline]
    pub fn each(&self, spec: &Spec, args: Args<'_>, mut visit: impl FnMut(usize, Access) -> bool) {
        let mut goes_on = true;
        match self {
            Needs::Nothing => {}
            Needs::Same(access) => spec.each_key(args, &mut |at| goes_on = goes_on && visit(at, *access)),
            Needs::ByCall(_) if spec.counts_too_many(args) => {}
            Needs::ByCall(specs) => spec.each_key(args, &mut |at| {
                goes_on = goes_on && visit(at, Access::of(call_keys::access_at(specs, spec, args, at)));
            }),
        }
    }
}
