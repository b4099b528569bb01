//! The requests of a script to the server.

use darter_wire::Args;

/// The reason why a command cannot be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCall {
    /// There is no such command.
    Unknown,
    /// It takes another number of arguments.
    Arity,
}

/// Runs the commands of a script.
pub trait Host {
    /// Runs one command and writes its reply, an error included, to `out`; in RESP3 if `resp3`.
    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>);

    /// Called repeatedly while the script runs its own code. The implementation must not use the script's Lua state.
    fn breathe(&mut self);

    /// Returns true if the script's user may run a command.
    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall>;
}
