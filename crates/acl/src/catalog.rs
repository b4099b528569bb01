//! The commands as access rules see them: by the names rules use, with what each call needs of its keys and channels.
//!
//! Made once from the table of commands. Rules go by the rows' own names, whatever `rename-command` made of them.

use std::collections::HashMap;

use darter_command::call_keys::{self, KeyAccess};
use darter_command::category::Categories;
use darter_command::keyspec::KeySpec;
use darter_command::{Flags, Keys, Spec};
use darter_wire::Args;

/// All commands, for rules and checks.
pub struct Catalog {
    by_name: HashMap<&'static str, usize>,
    // by number
    rows: Vec<CatalogRow>,
    debug_number: usize,
    dbs_len: usize,
}

/// A command or subcommand as rules know it.
pub struct CatalogRow {
    /// Its row in the table of commands.
    pub spec: Spec,
    /// The numbers of its subcommands, if it is a container.
    pub subs: Vec<usize>,
    /// Knows more subcommands than the table, and refuses others itself (DEBUG).
    pub is_open: bool,
    /// Part of DEBUG, or DEBUG itself.
    pub is_debug: bool,
    number: usize,
    pub(super) needs: Needs,
    // touches the selected database
    pub(super) is_data: bool,
}

/// What a command needs of its keys.
#[derive(Debug)]
pub(super) enum Needs {
    /// It has none.
    Nothing,
    /// The same of each.
    Same(KeyAccess),
    /// Found out for each call.
    ByCall(Vec<KeySpec>),
}

impl Catalog {
    /// The commands of `rows`, whose places are their numbers, on a server of `dbs_len` databases.
    pub fn new(mut rows: Vec<CatalogRow>, dbs_len: usize) -> Catalog {
        rows.iter_mut().enumerate().for_each(|(number, row)| row.number = number);
        let named = rows.iter().filter(|row| !row.is_part_of_debug());
        let by_name = named.map(|row| (row.spec.name, row.number)).collect();
        let debug_number = rows.iter().find(|row| row.is_open).map_or(0, |row| row.number);
        Catalog { by_name, rows, debug_number, dbs_len }
    }

    /// The command or subcommand (`container|sub`) that a rule calls `name`, in any case.
    pub fn find(&self, name: &str) -> Option<&CatalogRow> {
        self.by_name.get(name.to_ascii_lowercase().as_str()).map(|number| self.row(*number))
    }

    /// Every command and subcommand of a category, containers before what they contain. The subcommands of DEBUG are
    /// one command here, as in Redis.
    pub fn members(&self, category: Categories) -> impl Iterator<Item = &CatalogRow> {
        let commands = self.rows.iter().filter(|row| !row.spec.name.contains('|'));
        let with_subs = |row| std::iter::once(row).chain(self.subs(row));
        commands.flat_map(with_subs).filter(move |row| row.spec.categories().any(category))
    }

    /// The subcommands of a command that rules can name.
    pub(super) fn subs<'a>(&'a self, row: &'a CatalogRow) -> impl Iterator<Item = &'a CatalogRow> {
        row.subs.iter().filter(|_| !row.is_open).map(|number| self.row(*number))
    }

    /// The place of a command in a user's set of commands.
    #[inline]
    pub fn place(&self, row: &CatalogRow) -> usize {
        if row.is_debug { self.debug_number } else { row.number }
    }

    /// Commands and subcommands there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are none, which only an empty table could cause.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of databases.
    pub(super) fn dbs_len(&self) -> usize {
        self.dbs_len
    }

    /// The command with this number.
    #[inline]
    pub fn row(&self, number: usize) -> &CatalogRow {
        &self.rows[number]
    }
}

impl CatalogRow {
    /// The command of `spec`, whose subcommands have the numbers `subs`.
    pub fn new(spec: Spec, subs: Vec<usize>, is_open: bool, is_debug: bool) -> CatalogRow {
        let is_data = spec.flags.any(Flags::WRITE.with(Flags::READONLY)) || !matches!(spec.keys, Keys::None);
        CatalogRow { spec, subs, is_open, is_debug, number: 0, needs: Needs::of(&spec), is_data }
    }

    /// What error texts and the log call it.
    pub fn name(&self) -> &'static str {
        if self.is_debug { "debug" } else { self.spec.name }
    }

    /// Its number in the catalog.
    pub fn number(&self) -> usize {
        self.number
    }

    fn is_part_of_debug(&self) -> bool {
        self.is_debug && !self.is_open
    }
}

impl Needs {
    fn of(spec: &Spec) -> Needs {
        let specs = spec.key_specs();
        match &specs[..] {
            _ if matches!(spec.keys, Keys::None) => Needs::Nothing,
            [only] if only.access == "not_key" => Needs::Nothing,
            [only] if spec.access.is_none() && !matches!(spec.keys, Keys::Count { .. }) => {
                Needs::Same(KeyAccess::of(only.access))
            }
            _ => Needs::ByCall(specs),
        }
    }

    /// Calls `visit` with the place of each key of a call and what it needs, until that returns false.
    #[inline]
    pub fn each(&self, spec: &Spec, args: Args<'_>, mut visit: impl FnMut(usize, KeyAccess) -> bool) {
        let mut goes_on = true;
        match self {
            Needs::Nothing => {}
            Needs::Same(access) => spec.each_key(args, &mut |at| goes_on = goes_on && visit(at, *access)),
            Needs::ByCall(_) if spec.counts_too_many(args) => {}
            Needs::ByCall(specs) => spec.each_key(args, &mut |at| {
                goes_on = goes_on && visit(at, KeyAccess::of(call_keys::access_at(specs, spec, args, at)));
            }),
        }
    }
}
