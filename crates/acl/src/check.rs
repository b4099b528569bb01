//! Whether a user may make a call. Read-only and without locks: the user is held by the connection.

use std::sync::Arc;

use darter_command::call_keys::KeyAccess;
use darter_command::spec::{ChannelArgs, DatabaseReach};
use darter_wire::Args;

use crate::catalog::{Catalog, CatalogRow};
use crate::selector::Selector;
use crate::user::User;

/// Why a user may not make a call. The order is Valkey's: of what several selectors object to, the last is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    /// The selected database, or what this argument names: another one, or, at 0, all of them.
    Database(usize),
    /// The command.
    Command,
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

impl Denied {
    /// The argument that decided: the command's name where it is not a key or channel.
    pub fn at(self) -> usize {
        match self {
            Denied::Command => 0,
            Denied::Database(at) | Denied::Key(at) | Denied::Channel(at) => at,
        }
    }

    /// The word ACL LOG has for it.
    pub fn reason(self) -> &'static str {
        match self {
            Denied::Command => "command",
            Denied::Database(_) => "database",
            Denied::Key(_) => "key",
            Denied::Channel(_) => "channel",
        }
    }

    /// The error text, without code; it names no key and no channel.
    pub fn text(self, user: &User, command: &str) -> String {
        match self {
            Denied::Command => {
                format!("User {} has no permissions to run the '{command}' command", user.name)
            }
            Denied::Database(_) => "No permissions to access database".to_owned(),
            Denied::Key(_) => "No permissions to access a key".to_owned(),
            Denied::Channel(_) => "No permissions to access a channel".to_owned(),
        }
    }

    /// The same for ACL DRYRUN, which names what was refused.
    pub fn long_text(self, user: &User, command: &str, call: Args<'_>) -> Vec<u8> {
        let (name, kind) = match self {
            Denied::Command => return self.text(user, command).into_bytes(),
            Denied::Database(at) => {
                let head = format!("User {} has no permissions to access database ", user.name);
                return [head.as_bytes(), call.at(at)].concat();
            }
            Denied::Key(at) => (call.at(at), "key"),
            Denied::Channel(at) => (call.at(at), "channel"),
        };
        let head = format!("User {} has no permissions to access the '", user.name);
        [head.as_bytes(), name, b"' ", kind.as_bytes()].concat()
    }

    /// What EXEC gives as the reason when rights were taken after MULTI.
    pub fn exec_text(self) -> &'static str {
        match self {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Database(_) => "no permission to access the database",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        }
    }
}

/// A call to be checked.
#[derive(Clone, Copy)]
pub struct CheckedCall<'a> {
    /// The number of the command.
    pub command: usize,
    /// Its arguments, the name first.
    pub args: Args<'a>,
    /// The selected database.
    pub db: usize,
}

impl User {
    /// Whether the user may make a call.
    pub fn check(&self, catalog: &Catalog, call: CheckedCall<'_>) -> Result<(), Denied> {
        let mut worst = Denied::Database(0);
        for selector in self.selectors() {
            match selector.check(catalog, call) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether the user may make a call by a selector that lets every key be read (patterns of SORT).
    pub fn may_read_everything(&self, catalog: &Catalog, call: CheckedCall<'_>) -> bool {
        let may =
            |selector: &Selector| selector.may_read_everything() && selector.check(catalog, call).is_ok();
        self.selectors().iter().any(may)
    }

    /// The keys that the user may read by an allowed call that finds its keys itself.
    pub fn read_rights(self: Arc<User>, catalog: &Catalog, call: CheckedCall<'_>) -> ReadRights {
        let allows: Vec<bool> =
            self.selectors().iter().map(|selector| selector.check(catalog, call).is_ok()).collect();
        ReadRights { user: self, allows }
    }

    /// What an allowed SORT is still refused for: its patterns name keys that no rule can be asked about.
    pub fn check_sort(&self, catalog: &Catalog, call: CheckedCall<'_>) -> Result<(), &'static str> {
        let args = call.args;
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
            let value = args.get(at + 1);
            let reads = is("get") || (is("by") && value.is_some_and(|by| by.contains(&b'*')));
            if reads && value.is_some() && !self.may_read_everything(catalog, call) {
                return Err(if is("get") { SORT_GET } else { SORT_BY });
            }
            at += match () {
                () if is("limit") => 3,
                () if is("get") || is("by") || is("store") => 2,
                () => 1,
            };
        }
        Ok(())
    }
}

/// The keys that one call may read: those that a selector gives which allows the call.
pub struct ReadRights {
    user: Arc<User>,
    /// For each selector, whether it allows the call.
    allows: Vec<bool>,
}

impl ReadRights {
    /// Whether `key` may be read.
    pub fn covers(&self, key: &[u8]) -> bool {
        let wanted = KeyAccess { reads: true, writes: false };
        let mut selectors = self.user.selectors().iter().zip(&self.allows);
        selectors.any(|(selector, allows)| *allows && selector.allows_key(key, wanted))
    }
}

const SORT_BY: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const SORT_GET: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";

impl Selector {
    #[inline]
    fn check(&self, catalog: &Catalog, call: CheckedCall<'_>) -> Result<(), Denied> {
        let CheckedCall { command, args, db } = call;
        let row = catalog.row(command);
        if !self.databases().allows_all()
            && let Some(at) = self.refused_database(catalog.dbs_len(), row, args, db)
        {
            return Err(Denied::Database(at));
        }
        let is_sub = row.spec.name.contains('|') && !row.is_debug;
        let is_free = row.spec.flags.any(darter_command::Flags::NO_AUTH);
        if !is_free && !self.allows_command(catalog.place(row), args.get(1 + usize::from(is_sub))) {
            return Err(Denied::Command);
        }
        if !self.has_all_keys() {
            let mut refused = None;
            row.needs.each(&row.spec, args, |at, access| {
                if !self.allows_key(args.at(at), access) {
                    refused = Some(at);
                }
                refused.is_none()
            });
            if let Some(at) = refused {
                return Err(Denied::Key(at));
            }
        }
        if row.spec.channels != ChannelArgs::None && !self.has_all_channels() {
            let end = if row.spec.channels == ChannelArgs::First { 2.min(args.len()) } else { args.len() };
            let is_pattern = row.spec.channels == ChannelArgs::Patterns;
            let refused = (1..end).find(|&at| !self.allows_channel(args.at(at), is_pattern));
            return refused.map_or(Ok(()), |at| Err(Denied::Channel(at)));
        }
        Ok(())
    }

    /// The argument for whose database a call is refused, 0 for the selected one or for all.
    #[cold]
    fn refused_database(&self, dbs_len: usize, row: &CatalogRow, args: Args<'_>, db: usize) -> Option<usize> {
        let dbs = self.databases();
        let is_refused = |at: &usize| {
            let number = args.get(*at).and_then(|arg| std::str::from_utf8(arg).ok()?.parse().ok());
            // What is no database is the command's to refuse.
            number.is_some_and(|db| db < dbs_len && !dbs.allows(db))
        };
        let after_db = |at: &usize| args.at(*at - 1).eq_ignore_ascii_case(b"db");
        let reached = row.spec.databases;
        let (named, is_elsewhere) = match reached {
            DatabaseReach::Moved | DatabaseReach::Exchanged | DatabaseReach::All if !dbs.lets_across() => {
                return Some(0);
            }
            DatabaseReach::All => return (0..dbs_len).any(|db| !dbs.allows(db)).then_some(0),
            DatabaseReach::First => ((1..2).find(is_refused), true),
            DatabaseReach::Exchanged => ((1..3).find(is_refused), true),
            DatabaseReach::Moved => ((2..3).find(is_refused), false),
            DatabaseReach::Copied => ((4..args.len()).filter(after_db).find(is_refused), false),
            DatabaseReach::Selected => (None, false),
        };
        named.or((row.is_data && !is_elsewhere && !dbs.allows(db)).then_some(0))
    }
}
