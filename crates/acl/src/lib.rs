//! Access rules: who may log in, and what they may do.
//!
//! [`Acl`] holds the users, shared by all threads; a connection keeps the [`User`] it acts as and compares a version
//! number, once for all that arrives together, to learn that there may be a newer one. Called by the server's guard,
//! which asks [`User::check`] before a command runs, and by the ACL commands. Holds no connection and no socket; reads and
//! writes access files.
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod databases;
mod file;
mod log;
mod pattern;
mod permit;
mod rule;
mod selector;
mod user;

pub use catalog::{Catalog, CatalogRow};
pub use check::{CheckedCall, Denied, ReadRights};
pub use databases::Databases;
pub use log::{AclLog, AclRefusal, Context};
pub use pattern::AclPattern;
pub use permit::Permit;
pub use rule::{RuleFault, words};
pub use selector::Selector;
pub use user::{DEFAULT, User, to_hex};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use darter_config::Live;
use rule::{Rules, has_spaces, merge_selectors};

/// Users by name, in order.
pub type Users = BTreeMap<Arc<str>, Arc<User>>;

/// All users and the log of refusals.
pub struct Acl {
    catalog: Catalog,
    users: RwLock<Users>,
    // counts changes of `users`; raised under its lock, after everything else of the change
    version: AtomicU64,
    // what `users` says of the default user
    default_needs_login: AtomicBool,
    default_has_password: AtomicBool,
    log: Mutex<AclLog>,
    denials: [AtomicU64; DENIALS.len()],
}

/// Kinds of refusals that INFO counts, as ACL LOG calls them.
const DENIALS: [&str; 5] = ["auth", "command", "key", "channel", "database"];

/// A user before and after a change.
pub struct Changed {
    /// `None`: it is new.
    pub before: Option<Arc<User>>,
    /// As it is now.
    pub after: Arc<User>,
}

impl Acl {
    /// The default user alone, who may do everything, on a server of so many databases.
    pub fn new(rows: Vec<CatalogRow>, dbs_len: usize) -> Acl {
        let catalog = Catalog::new(rows, dbs_len);
        let acl = Acl {
            users: RwLock::default(),
            version: AtomicU64::new(0),
            default_needs_login: AtomicBool::new(false),
            default_has_password: AtomicBool::new(false),
            log: Mutex::default(),
            denials: Default::default(),
            catalog,
        };
        acl.replace(BTreeMap::new());
        acl
    }

    /// The users that the settings name: `requirepass`, then `user` lines or the access file.
    ///
    /// Errors: a line about what is wrong with them.
    pub fn start(rows: Vec<CatalogRow>, live: &Live) -> Result<Acl, String> {
        let acl = Acl::new(rows, live.dbnum as usize);
        acl.set_default_password(live.requirepass.as_bytes());
        if !live.users.is_empty() && live.aclfile.is_some() {
            return Err(
                "users are given both in the configuration and in an aclfile; use one of them".to_owned()
            );
        }
        acl.load_configured(&live.users, live.acl_pubsub_all)?;
        if let Some(path) = &live.aclfile {
            acl.load_file(path, live.acl_pubsub_all)?;
            if !live.requirepass.is_empty() && !acl.default_has_password() {
                tracing::warn!(
                    "requirepass has no effect: the aclfile {} says who may come in, and asks the user default for no \
                     password",
                    path.display()
                );
            }
        }
        Ok(acl)
    }

    /// The commands rules know.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Changes with every change of a user, and when a client is closed by another.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Has every connection look at its user, and at whether it has been closed, before its next command.
    pub fn have_all_settled(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether new connections must log in: the default user has a password, or is off.
    pub fn default_needs_login(&self) -> bool {
        self.default_needs_login.load(Ordering::Acquire)
    }

    /// Whether the default user has a password, which is what `protected-mode` looks at.
    pub fn default_has_password(&self) -> bool {
        self.default_has_password.load(Ordering::Acquire)
    }

    /// The user called `name`. Cost: a shared lock.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users().get(name).cloned()
    }

    /// The user every connection begins as.
    pub fn default_user(&self) -> Arc<User> {
        // It is never removed.
        self.user(DEFAULT).unwrap_or_else(|| Arc::new(User::new(DEFAULT, &self.catalog, false)))
    }

    /// All users as they are now.
    pub fn all(&self) -> Users {
        self.users().clone()
    }

    /// Returns the user `name` if `password` lets them log in. Cost: a SHA-256.
    ///
    /// For every protocol; a refusal is counted and logged by the caller.
    pub fn login(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.user(name))?;
        user.lets_in(password).then_some(user)
    }

    /// Makes or changes a user by rules, all of them or none. Errors: the error's text without code.
    pub fn set_user<'a>(
        &self,
        name: &str,
        rules: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<Changed, String> {
        let merged = merge_selectors(rules).map_err(unmatched)?;
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let before = users.get(name).cloned();
        let mut user = match &before {
            Some(user) => User::clone(user),
            None => User::new(name, &self.catalog, all_channels),
        };
        let known = Rules { catalog: &self.catalog, all_channels };
        for rule in &merged {
            known.apply(&mut user, rule).map_err(|fault| {
                let rule = String::from_utf8_lossy(rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", fault.text())
            })?;
        }
        let after = Arc::new(user);
        users.insert(after.name.clone(), after.clone());
        self.publish(&users);
        Ok(Changed { before, after })
    }

    /// Removes users; returns those that were there. The default user stays.
    pub fn remove_users<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Arc<User>> {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let removed = names.filter(|name| *name != DEFAULT).filter_map(|name| users.remove(name)).collect();
        self.publish(&users);
        removed
    }

    /// Sets the default user's password, or that it needs none (`requirepass`).
    pub fn set_default_password(&self, password: &[u8]) {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = users.get_mut(DEFAULT) {
            Arc::make_mut(user).set_password(password);
        }
        self.publish(&users);
    }

    /// Puts these users in the place of all; without a default user among them it is as at the start.
    pub fn replace(&self, mut wanted: Users) -> Users {
        wanted.entry(DEFAULT.into()).or_insert_with(|| Arc::new(User::new_default(&self.catalog)));
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *users, wanted);
        self.publish(&users);
        before
    }

    /// Lets everybody see a change; with the lock held.
    fn publish(&self, users: &Users) {
        if let Some(user) = users.get(DEFAULT) {
            self.default_has_password.store(!user.needs_no_password, Ordering::Release);
            self.default_needs_login.store(!(user.needs_no_password && user.is_on), Ordering::Release);
        }
        self.have_all_settled();
    }

    fn users(&self) -> std::sync::RwLockReadGuard<'_, Users> {
        self.users.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of refusals.
    pub fn log(&self) -> std::sync::MutexGuard<'_, AclLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refusals since the start or CONFIG RESETSTAT, by the word ACL LOG has for them.
    pub fn denials(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DENIALS.into_iter().zip(&self.denials).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Sets those counts to zero.
    pub fn reset_denials(&self) {
        self.denials.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Counts a refusal by the word ACL LOG has for it.
    pub fn count_denial(&self, reason: &str) {
        if let Some(at) = DENIALS.iter().position(|known| *known == reason) {
            self.denials[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The error of rules with a selector that never closes.
fn unmatched(first: &[u8]) -> String {
    let first = String::from_utf8_lossy(first);
    format!("Unmatched parenthesis in acl selector starting at '{first}'.")
}

/// Whether a user may be called `name`. Names are text, so that they can be shown.
pub fn is_name(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok().filter(|name| !has_spaces(name.as_bytes()))
}
