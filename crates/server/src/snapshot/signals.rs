//! What signals ask for: the end, or the log opened again. Thread 0 looks once a turn, and while it runs a script.

use darter_reactor::signal::{Signal, Signals};

use crate::logging;
use crate::thread_state::ThreadState;

use super::ending;

/// Does what the signals ask for that have come since the last look. Cost: three loads when none has.
pub fn look(local: &mut ThreadState) {
    while let Some(signal) = local.signals.as_mut().and_then(Signals::take) {
        match signal {
            Signal::Terminate => ending::on_signal(local, local.live.shutdown.on_sigterm, signal),
            Signal::Interrupt => ending::on_signal(local, local.live.shutdown.on_sigint, signal),
            Signal::HangUp => logging::reopen(),
        }
    }
}
