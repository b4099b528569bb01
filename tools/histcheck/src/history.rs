//! What clients did and saw: operations on lists that only grow.
//!
//! Every value is appended once in a run, so a list that is read tells who wrote before whom.

/// One operation of a client: a command, a transaction or a script.
#[derive(Clone, Debug)]
pub struct Op {
    /// What it was sent as.
    pub name: &'static str,
    /// Before its first byte was sent, nanoseconds of one clock.
    pub begin: u64,
    /// After its last byte was read.
    pub end: u64,
    /// What it did, in its own order.
    pub steps: Vec<Step>,
    /// False: the server said that nothing of it was done.
    pub is_done: bool,
}

/// A step of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A value went to the end of a list.
    Append {
        /// The list.
        key: u32,
        /// The value.
        value: u64,
    },
    /// A whole list was read.
    Read {
        /// The list.
        key: u32,
        /// What was in it.
        values: Vec<u64>,
    },
}

/// Everything that happened between two moments at which no operation was under way.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations, in any order.
    pub ops: Vec<Op>,
    /// Elements that were put into queues.
    pub pushed: Vec<u64>,
    /// Elements that were taken out, what was left at the end included.
    pub popped: Vec<u64>,
}

impl History {
    /// Adds what another client did.
    pub fn add(&mut self, part: History) {
        self.ops.extend(part.ops);
        self.pushed.extend(part.pushed);
        self.popped.extend(part.popped);
    }
}
