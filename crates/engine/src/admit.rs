//! Admit: whether a command may run now, or is refused and with which text.
//!
//! One ordered list of checks, in the order of Redis, for every way in: [`ORDER`]. Called before a command runs: of a
//! client, of memcached, of a script, in EXEC, and when a wait has ended. It asks [`AdmitFacts`] and changes nothing.

use std::borrow::Cow;

use darter_command::{Flags, Marks, Spec};

/// An error line without its `-`.
pub type Line = Cow<'static, [u8]>;

/// Ways in, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPoints(u8);

impl EntryPoints {
    /// A client's command, RESP or HTTP.
    pub const CLIENT: EntryPoints = EntryPoints(1);
    /// A command of memcached, which stands for one of Redis.
    pub const MEMCACHED: EntryPoints = EntryPoints(2);
    /// A command of a script or function.
    pub const SCRIPT: EntryPoints = EntryPoints(4);
    /// A queued command that EXEC runs: it was admitted when it was queued.
    pub const EXEC: EntryPoints = EntryPoints(8);
    /// A command that has waited: it was admitted before.
    pub const WAITED: EntryPoints = EntryPoints(16);

    /// Both sets together.
    pub const fn with(self, other: EntryPoints) -> EntryPoints {
        EntryPoints(self.0 | other.0)
    }

    /// Whether any of `other` is in it.
    #[inline]
    pub const fn any(self, other: EntryPoints) -> bool {
        self.0 & other.0 != 0
    }
}

/// The rights of a script that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptRights {
    /// It was not called read-only.
    pub may_write: bool,
    /// It may write though memory is full.
    pub allows_oom: bool,
    /// It has written: what it does is no longer broken off.
    pub has_written: bool,
}

/// The facts that the checks ask for. Lines are the error replies.
pub trait AdmitFacts {
    /// The row of the command.
    fn spec(&self) -> &Spec;
    /// The error if the number of words or the subcommand is wrong.
    fn misuse(&self) -> Option<Line> {
        None
    }
    /// The connection must log in first.
    fn must_log_in(&self) -> bool {
        false
    }
    /// The command is reserved for connections of administrators; this is an ordinary one.
    fn is_restricted(&self) -> bool {
        false
    }
    /// MULTI is open.
    fn is_in_multi(&self) -> bool {
        false
    }
    /// The command is a DEBUG that scripts may call.
    fn may_debug(&self) -> bool {
        false
    }
    /// The error if its user lacks a right; the refusal is counted and logged.
    fn denied(&self) -> Option<Line>;
    /// The error if this server, as a node of a cluster, does not serve its keys.
    fn misrouted(&self) -> Option<Line> {
        None
    }
    /// The error that names the master for a write, if the connection wants to be told.
    fn redirected_write(&self) -> Option<Line> {
        None
    }
    /// The same for a read.
    fn redirected_read(&self) -> Option<Line> {
        None
    }
    /// The rights of the script that calls it.
    fn script(&self) -> ScriptRights {
        ScriptRights::default()
    }
    /// Memory is full.
    fn is_over_memory(&self) -> bool {
        false
    }
    /// Snapshots fail, and writes are refused because of that.
    fn snapshots_fail(&self) -> bool {
        false
    }
    /// Why the journal cannot be written.
    fn journal_fault(&self) -> Option<Line> {
        None
    }
    /// Too few replicas follow.
    fn lacks_replicas(&self) -> bool {
        false
    }
    /// This server follows another one.
    fn follows(&self) -> bool {
        false
    }
    /// The connection is subscribed under RESP2.
    fn is_subscribed(&self) -> bool {
        false
    }
    /// The master is away, and old data is not to be served.
    fn is_stale(&self) -> bool {
        false
    }
    /// A snapshot is loading.
    fn is_loading(&self) -> bool {
        false
    }
    /// A snapshot is loading, and the data before it is served.
    fn is_loading_aside(&self) -> bool {
        false
    }
    /// A script has run for too long.
    fn busy(&self) -> Option<Line> {
        None
    }
    /// Whether one of the commands that EXEC would run has one of `flags`.
    fn queues_any(&self, flags: Flags) -> bool {
        let _ = flags;
        false
    }
    /// Whether each of the commands that EXEC would run has one of `flags`.
    fn queues_only(&self, flags: Flags) -> bool {
        let _ = flags;
        true
    }
}

macro_rules! checks {
    ($($(#[doc = $doc:literal])* $check:ident: $entries:expr;)*) => {
        /// The checks in their order, and the ways in that they are for.
        pub const ORDER: &[(&str, EntryPoints)] = &[$((stringify!($check), $entries)),*];

        /// The first check that refuses a command which comes by `entry`, as its error line.
        #[inline(always)]
        pub fn refusal<F: AdmitFacts>(entry: EntryPoints, facts: &F) -> Option<Line> {
            $(
                const $check: EntryPoints = $entries;
                if $check.any(entry) && let Some(line) = check::$check(entry, facts) {
                    return Some(line);
                }
            )*
            None
        }
    };
}

/// Clients, whatever they speak.
const ALL_CLIENTS: EntryPoints = EntryPoints::CLIENT.with(EntryPoints::MEMCACHED);
/// Every command that was not admitted before.
const ALL_NEW: EntryPoints = ALL_CLIENTS.with(EntryPoints::SCRIPT);

// As processCommand of Redis, and scriptCall for scripts: these ask the replica's role before the disk, and memory last.
checks! {
    WORDS: ALL_NEW;
    LOGIN: ALL_CLIENTS;
    NOT_IN_SCRIPTS: EntryPoints::SCRIPT;
    RESTRICTED: ALL_NEW;
    NOT_IN_MULTI: ALL_CLIENTS;
    STALE_IN_SCRIPT: EntryPoints::SCRIPT;
    RIGHTS: ALL_NEW.with(EntryPoints::EXEC).with(EntryPoints::WAITED);
    SLOTS: ALL_NEW.with(EntryPoints::WAITED);
    REDIRECT: EntryPoints::CLIENT;
    READ_ONLY_SCRIPT: EntryPoints::SCRIPT;
    ROLE_IN_SCRIPT: EntryPoints::SCRIPT;
    MEMORY: ALL_CLIENTS;
    SNAPSHOTS: ALL_NEW;
    JOURNAL: ALL_NEW;
    REPLICAS: ALL_NEW;
    ROLE: ALL_CLIENTS;
    MEMORY_IN_SCRIPT: EntryPoints::SCRIPT;
    SUBSCRIBED: ALL_CLIENTS;
    STALE: ALL_CLIENTS;
    LOADING: ALL_CLIENTS;
    BUSY: ALL_CLIENTS;
}

/// The checks, by the names that [`ORDER`] gives them.
#[allow(non_snake_case, reason = "named as in the list")]
mod check {
    use super::*;

    fn line(text: &'static str) -> Line {
        Cow::Borrowed(text.as_bytes())
    }

    fn has(facts: &impl AdmitFacts, flags: Flags) -> bool {
        facts.spec().flags.any(flags)
    }

    /// Whether the command changes data; EXEC does if one of its commands does.
    fn writes(facts: &impl AdmitFacts) -> bool {
        has(facts, Flags::WRITE) || runs_any(facts, Flags::WRITE)
    }

    fn runs_any(facts: &impl AdmitFacts, flags: Flags) -> bool {
        facts.spec().has(Marks::RUNS_QUEUE) && facts.queues_any(flags)
    }

    /// Whether the command has one of `flags`; for EXEC its commands have too.
    fn all_have(facts: &impl AdmitFacts, flags: Flags) -> bool {
        has(facts, flags) && (!facts.spec().has(Marks::RUNS_QUEUE) || facts.queues_only(flags))
    }

    /// Whether a write is refused for the state of the server: a script that has written goes on.
    fn may_fail(entry: EntryPoints, facts: &impl AdmitFacts) -> bool {
        writes(facts) && !(entry == EntryPoints::SCRIPT && facts.script().has_written)
    }

    pub fn WORDS(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let misuse = facts.misuse()?;
        Some(if entry == EntryPoints::SCRIPT { Cow::Borrowed(WRONG_WORDS.as_bytes()) } else { misuse })
    }

    pub fn LOGIN(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (!has(facts, Flags::NO_AUTH) && facts.must_log_in()).then(|| line(NO_AUTH))
    }

    pub fn NOT_IN_SCRIPTS(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (has(facts, Flags::NOSCRIPT) && !facts.may_debug()).then(|| line(NO_SCRIPT))
    }

    pub fn RESTRICTED(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (facts.is_restricted()).then(|| line(super::RESTRICTED_LINE))
    }

    pub fn NOT_IN_MULTI(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (has(facts, Flags::NO_MULTI) && facts.is_in_multi()).then(|| line(NO_MULTI))
    }

    pub fn RIGHTS(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        facts.denied()
    }

    pub fn SLOTS(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        facts.misrouted()
    }

    pub fn REDIRECT(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        if writes(facts) {
            return facts.redirected_write();
        }
        let reads = has(facts, Flags::READONLY) || runs_any(facts, Flags::READONLY);
        if reads { facts.redirected_read() } else { None }
    }

    pub fn READ_ONLY_SCRIPT(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let writes = has(facts, Flags::WRITE.with(Flags::MAY_REPLICATE));
        (writes && !facts.script().may_write).then(|| line(NO_WRITES))
    }

    pub fn ROLE_IN_SCRIPT(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        ROLE(entry, facts)
    }

    pub fn MEMORY(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let fills = has(facts, Flags::DENYOOM) || runs_any(facts, Flags::DENYOOM);
        (fills && facts.busy().is_none() && facts.is_over_memory()).then(|| line(OUT_OF_MEMORY))
    }

    pub fn SNAPSHOTS(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let fails = entry != EntryPoints::SCRIPT && facts.spec().has(Marks::FAILS_WITH_SNAPSHOTS);
        ((fails || may_fail(entry, facts)) && facts.snapshots_fail()).then(|| line(SNAPSHOTS_FAIL))
    }

    pub fn JOURNAL(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        if may_fail(entry, facts) { facts.journal_fault() } else { None }
    }

    pub fn REPLICAS(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (may_fail(entry, facts) && facts.lacks_replicas()).then(|| line(NO_REPLICAS))
    }

    pub fn ROLE(entry: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (may_fail(entry, facts) && facts.follows()).then(|| line(READ_ONLY))
    }

    pub fn MEMORY_IN_SCRIPT(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let ScriptRights { allows_oom, has_written, .. } = facts.script();
        let fills = has(facts, Flags::DENYOOM) && !has_written && !allows_oom;
        (fills && facts.is_over_memory()).then(|| line(OUT_OF_MEMORY))
    }

    pub fn SUBSCRIBED(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let spec = facts.spec();
        if spec.has(Marks::ALLOWED_SUBSCRIBED) || !facts.is_subscribed() {
            return None;
        }
        let line = format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            spec.name
        );
        Some(line.into_bytes().into())
    }

    pub fn STALE(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (facts.is_stale() && !all_have(facts, Flags::STALE)).then(|| line(MASTER_DOWN))
    }

    pub fn STALE_IN_SCRIPT(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        (facts.is_stale() && !has(facts, Flags::STALE)).then(|| line(STALE_SCRIPT))
    }

    pub fn LOADING(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        let keeps_out = has(facts, Flags::NO_ASYNC_LOADING) || runs_any(facts, Flags::NO_ASYNC_LOADING);
        let is_refused = facts.is_loading() && !all_have(facts, Flags::LOADING);
        (is_refused || keeps_out && facts.is_loading_aside()).then(|| line(IS_LOADING))
    }

    pub fn BUSY(_: EntryPoints, facts: &impl AdmitFacts) -> Option<Line> {
        if has(facts, Flags::ALLOW_BUSY) { None } else { facts.busy() }
    }
}

const WRONG_WORDS: &str = "ERR Wrong number of args calling Redis command from script";
const NO_AUTH: &str = "NOAUTH Authentication required.";
const NO_SCRIPT: &str = "ERR This Redis command is not allowed from script";
const NO_MULTI: &str = "ERR Command not allowed inside a transaction";
const STALE_SCRIPT: &str = "ERR Can not execute the command on a stale replica";
const NO_WRITES: &str = "ERR Write commands are not allowed from read-only scripts.";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// Why nothing runs while a snapshot is loading.
const IS_LOADING: &str = "LOADING Redis is loading the dataset in memory";
/// Why nothing is answered while the master is away.
const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// The reply to a restricted command on other ports than that of administrators.
pub const RESTRICTED_LINE: &str = "ERR Cannot execute restricted command (admin only)";
/// Why nothing is written while `min-replicas-to-write` asks for some.
pub const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// Why nothing is written on a replica.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// Why nothing is written after a snapshot has failed.
pub const SNAPSHOTS_FAIL: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report \
errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
details about the RDB error.";

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use darter_command::Keys;

    use super::*;

    /// A server in every trouble at once, of which some are cured.
    struct Trouble {
        spec: Spec,
        script: ScriptRights,
        queued: Flags,
        cured: RefCell<Vec<&'static str>>,
    }

    impl Trouble {
        fn new(spec: Spec) -> Trouble {
            Trouble { spec, script: ScriptRights::default(), queued: Flags::NONE, cured: RefCell::default() }
        }

        fn is(&self, trouble: &str) -> bool {
            !self.cured.borrow().contains(&trouble)
        }

        /// The words that refusals begin with, each cured in turn.
        fn refusals(&mut self, entry: EntryPoints) -> Vec<String> {
            let mut all = Vec::new();
            while let Some(line) = refusal(entry, self) {
                let line = String::from_utf8_lossy(&line).into_owned();
                let word = line.split(' ').next().unwrap_or_default();
                let (trouble, shown) = match (word, line.as_str()) {
                    ("words", _) => ("words", "words"),
                    ("NOAUTH", _) => ("login", "NOAUTH"),
                    ("NOPERM", _) => ("rights", "NOPERM"),
                    ("REDIRECT", _) => ("redirect", "REDIRECT"),
                    ("OOM", _) => ("memory", "OOM"),
                    ("MISCONF", line) if line.contains("RDB") => ("snapshots", "RDB"),
                    ("MISCONF", _) => ("journal", "AOF"),
                    ("NOREPLICAS", _) => ("replicas", "NOREPLICAS"),
                    ("READONLY", _) => ("role", "READONLY"),
                    ("MASTERDOWN", _) => ("stale", "MASTERDOWN"),
                    ("LOADING", _) if self.is("loading") => ("loading", "LOADING"),
                    ("LOADING", _) => ("loading aside", "LOADING"),
                    ("BUSY", _) => ("busy", "BUSY"),
                    (_, STALE_SCRIPT) => ("stale", "stale replica"),
                    (_, WRONG_WORDS) => ("words", "words"),
                    (_, RESTRICTED_LINE) => ("restricted", "restricted"),
                    (_, NO_MULTI) => ("multi", "multi"),
                    (_, NO_SCRIPT) => ("noscript", "noscript"),
                    (_, NO_WRITES) => ("may_write", "read-only"),
                    _ => ("subscribed", "subscribed"),
                };
                assert!(self.is(trouble), "{line} though it is cured");
                self.cured.borrow_mut().push(trouble);
                self.script.may_write |= trouble == "may_write";
                all.push(shown.to_owned());
            }
            all
        }
    }

    impl AdmitFacts for Trouble {
        fn spec(&self) -> &Spec {
            &self.spec
        }
        fn misuse(&self) -> Option<Line> {
            self.is("words").then_some(b"words".as_slice().into())
        }
        fn must_log_in(&self) -> bool {
            self.is("login")
        }
        fn is_restricted(&self) -> bool {
            self.is("restricted")
        }
        fn is_in_multi(&self) -> bool {
            self.is("multi")
        }
        fn may_debug(&self) -> bool {
            !self.is("noscript")
        }
        fn denied(&self) -> Option<Line> {
            self.is("rights").then_some(b"NOPERM".as_slice().into())
        }
        fn redirected_write(&self) -> Option<Line> {
            self.is("redirect").then_some(b"REDIRECT".as_slice().into())
        }
        fn redirected_read(&self) -> Option<Line> {
            self.redirected_write()
        }
        fn script(&self) -> ScriptRights {
            self.script
        }
        fn is_over_memory(&self) -> bool {
            self.is("memory")
        }
        fn snapshots_fail(&self) -> bool {
            self.is("snapshots")
        }
        fn journal_fault(&self) -> Option<Line> {
            self.is("journal").then_some(b"MISCONF Errors writing to the AOF file: full".as_slice().into())
        }
        fn lacks_replicas(&self) -> bool {
            self.is("replicas")
        }
        fn follows(&self) -> bool {
            self.is("role")
        }
        fn is_subscribed(&self) -> bool {
            self.is("subscribed")
        }
        fn is_stale(&self) -> bool {
            self.is("stale")
        }
        fn is_loading(&self) -> bool {
            self.is("loading")
        }
        fn is_loading_aside(&self) -> bool {
            self.is("loading aside")
        }
        fn busy(&self) -> Option<Line> {
            self.is("busy").then_some(b"BUSY".as_slice().into())
        }
        fn queues_any(&self, flags: Flags) -> bool {
            self.queued.any(flags)
        }
        fn queues_only(&self, flags: Flags) -> bool {
            self.queued.any(flags)
        }
    }

    const SET: Spec = Spec::write("set", -3, Keys::ONE).flag(Flags::NO_MULTI.with(Flags::NOSCRIPT));

    #[test]
    fn a_clients_write_is_refused_in_the_order_of_redis() {
        let mut all = Trouble::new(SET);
        // A script that runs for too long has the memory that it has.
        let order = [
            "words",
            "NOAUTH",
            "restricted",
            "multi",
            "NOPERM",
            "REDIRECT",
            "RDB",
            "AOF",
            "NOREPLICAS",
            "READONLY",
            "subscribed",
            "MASTERDOWN",
            "LOADING",
            "BUSY",
            "OOM",
        ];
        assert_eq!(all.refusals(EntryPoints::CLIENT), order);
        let mut quiet = Trouble::new(SET);
        quiet.cured.borrow_mut().extend([
            "words",
            "login",
            "restricted",
            "multi",
            "rights",
            "redirect",
            "busy",
        ]);
        let order = ["OOM", "RDB", "AOF", "NOREPLICAS", "READONLY", "subscribed", "MASTERDOWN", "LOADING"];
        assert_eq!(quiet.refusals(EntryPoints::CLIENT), order);
        assert_eq!(
            Trouble::new(SET).refusals(EntryPoints::MEMCACHED).len(),
            14,
            "memcached is refused alike"
        );
    }

    #[test]
    fn a_scripts_write_is_refused_for_its_role_first_and_for_memory_last() {
        let order = [
            "words",
            "noscript",
            "restricted",
            "stale replica",
            "NOPERM",
            "read-only",
            "READONLY",
            "RDB",
            "AOF",
            "NOREPLICAS",
            "OOM",
        ];
        assert_eq!(Trouble::new(SET).refusals(EntryPoints::SCRIPT), order);
        let mut begun = Trouble::new(SET);
        begun.script = ScriptRights { may_write: true, has_written: true, allows_oom: false };
        assert_eq!(
            begun.refusals(EntryPoints::SCRIPT),
            ["words", "noscript", "restricted", "stale replica", "NOPERM"]
        );
    }

    #[test]
    fn what_was_admitted_before_is_asked_for_its_rights_and_after_a_wait_for_its_slots() {
        // EXEC asks for the slots of all it runs once, before its first command.
        let checks = [(EntryPoints::EXEC, &["RIGHTS"][..]), (EntryPoints::WAITED, &["RIGHTS", "SLOTS"])];
        for (entry, wanted) in checks {
            assert_eq!(Trouble::new(SET).refusals(entry), ["NOPERM"]);
            let names: Vec<&str> =
                ORDER.iter().filter(|(_, entries)| entries.any(entry)).map(|(name, _)| *name).collect();
            assert_eq!(names, wanted);
        }
    }

    #[test]
    fn what_does_not_go_with_a_load_aside_is_refused_then_and_nothing_else() {
        let refusals = |flags: Flags, queued: Flags| {
            let mut all = Trouble::new(Spec::other("replicaof", 3).flag(flags).mark(Marks::RUNS_QUEUE));
            all.queued = queued;
            all.cured.borrow_mut().push("loading");
            all.refusals(EntryPoints::CLIENT).iter().filter(|word| *word == "LOADING").count()
        };
        assert_eq!(refusals(Flags::STALE, Flags::NONE), 0);
        assert_eq!(refusals(Flags::NO_ASYNC_LOADING, Flags::NONE), 1);
        assert_eq!(refusals(Flags::STALE, Flags::NO_ASYNC_LOADING), 1);
    }

    #[test]
    fn a_read_is_refused_for_less_and_exec_for_what_it_runs() {
        let read = Trouble::new(Spec::read("get", 2, Keys::ONE)).refusals(EntryPoints::CLIENT);
        let order = [
            "words",
            "NOAUTH",
            "restricted",
            "NOPERM",
            "REDIRECT",
            "subscribed",
            "MASTERDOWN",
            "LOADING",
            "BUSY",
        ];
        assert_eq!(read, order);
        let flags = Flags::STALE.with(Flags::LOADING);
        let exec = || Trouble::new(Spec::other("exec", 1).flag(flags).mark(Marks::RUNS_QUEUE));
        let mut reads = exec();
        reads.queued = Flags::STALE;
        let refusals = reads.refusals(EntryPoints::CLIENT);
        assert!(!refusals.iter().any(|word| word == "READONLY" || word == "MASTERDOWN"), "{refusals:?}");
        let mut writes = exec();
        writes.queued = Flags::WRITE.with(Flags::DENYOOM);
        writes.cured.borrow_mut().push("busy");
        let refusals = writes.refusals(EntryPoints::CLIENT);
        for word in ["OOM", "RDB", "AOF", "NOREPLICAS", "READONLY", "MASTERDOWN", "LOADING"] {
            assert!(refusals.iter().any(|known| known == word), "{word}: {refusals:?}");
        }
    }
}
