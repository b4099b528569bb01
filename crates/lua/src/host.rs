//! What a script may ask of the server.

use darter_wire::Args;

/// Why there is nothing to say of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCall {
    /// There is no such command.
    Unknown,
    /// It takes more arguments, or fewer.
    Arity,
}

/// Runs the commands of a script.
pub trait Host {
    /// Runs one command and writes its reply, an error included, to `out`; in RESP3 when `resp3`.
    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>);

    /// Called every so often while the script runs code of its own; its state of Lua is not to be used here.
    fn breathe(&mut self);

    /// Whether the script's user may run a command.
    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall>;
}
