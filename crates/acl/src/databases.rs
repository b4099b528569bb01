//! The databases a selector may be used in: all of them, or some, which were said in Dragonfly's words (`$N`) or in
//! Valkey's (`db=N,M`, `alldbs`, `resetdbs`).
//!
//! The words matter twice. They are shown as they were said; and who is kept to databases by `$N` begins in the first
//! of them and may not reach across databases at all, where Valkey's users stay where they are and may go between those
//! they are given. Used by `selector`, which is asked by `check`.

/// Which databases are allowed.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// `None`: all. Else in ascending order, each once.
    known: Option<Vec<usize>>,
    words: DatabaseWords,
}

/// Whose words said so last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum DatabaseWords {
    /// Nobody said anything, or `$ALL`.
    #[default]
    None,
    /// `$N`.
    Dragonfly,
    /// `db=`, `alldbs`, `resetdbs`.
    Valkey,
}

impl Databases {
    /// `$ALL`: allows every database.
    pub fn set_all(&mut self) {
        *self = Databases::default();
    }

    /// `$N`: allows this database; the first one given takes the place of all, and of a list of Valkey's.
    pub fn add(&mut self, db: usize) {
        if self.words != DatabaseWords::Dragonfly {
            self.known = None;
        }
        let mut known = self.known.take().unwrap_or_default();
        known.push(db);
        *self = Databases { known: Some(sorted(known)), words: DatabaseWords::Dragonfly };
    }

    /// `alldbs`, said so that it is shown.
    pub fn name_all(&mut self) {
        *self = Databases { known: None, words: DatabaseWords::Valkey };
    }

    /// `db=N,M`, or `resetdbs` without any: allows these and no other.
    pub fn name(&mut self, dbs: Vec<usize>) {
        *self = Databases { known: Some(sorted(dbs)), words: DatabaseWords::Valkey };
    }

    /// Whether a database may be used.
    #[inline]
    pub fn allows(&self, db: usize) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(&db))
    }

    /// Whether every database may be used.
    #[inline]
    pub fn allows_all(&self) -> bool {
        self.known.is_none()
    }

    /// Whether a call may reach from one of them to another.
    pub fn lets_across(&self) -> bool {
        self.words != DatabaseWords::Dragonfly
    }

    /// Where who may not stay in a database begins.
    pub fn first(&self) -> Option<usize> {
        if self.lets_across() { None } else { self.known.as_ref()?.first().copied() }
    }

    /// Whether there is anything to show beyond what Redis knows.
    pub fn is_said(&self) -> bool {
        self.words != DatabaseWords::None
    }

    /// As ACL GETUSER shows them.
    pub fn show(&self) -> String {
        match (&self.known, self.words) {
            (None, DatabaseWords::Valkey) => "alldbs".to_owned(),
            _ => self.listed(),
        }
    }

    /// As rules that make the same of all: nothing where all are allowed.
    pub fn describe(&self) -> String {
        match &self.known {
            Some(known) if known.is_empty() => "resetdbs".to_owned(),
            _ => self.listed(),
        }
    }

    fn listed(&self) -> String {
        let Some(known) = self.known.as_ref().filter(|known| !known.is_empty()) else { return String::new() };
        let numbers: Vec<String> = known.iter().map(usize::to_string).collect();
        if self.lets_across() {
            format!("db={}", numbers.join(","))
        } else {
            format!("${}", numbers.join(" $"))
        }
    }
}

fn sorted(mut dbs: Vec<usize>) -> Vec<usize> {
    dbs.sort_unstable();
    dbs.dedup();
    dbs
}
