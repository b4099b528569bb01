//! CLIENT PAUSE, UNPAUSE

use std::thread;

use darter_base::number;
use darter_command::Fault;
use darter_command::reader::is;
use darter_wire::{Args, Reply};

use crate::clock::unix_ms;
use crate::commands::persistence::{answer, asking, wait};
use crate::dispatch::Caller;
use crate::replication::with_all_shards;
use crate::shared::ThreadMessage;

/// CLIENT PAUSE
pub fn pause(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let reads_too = match args.get(3) {
        _ if args.len() > 4 => return Err(Fault::wrong_form(args)),
        None => true,
        Some(arg) if is(arg, "ALL") => true,
        Some(arg) if is(arg, "WRITE") => false,
        Some(_) => return Err(Fault::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let no_number = Fault::text("ERR timeout is not an integer or out of range");
    let timeout_ms = number::parse_i64(args.at(2)).ok_or(no_number)?;
    if timeout_ms < 0 {
        return Err(Fault::text("ERR timeout is negative"));
    }
    let now_ms = unix_ms();
    let until_ms = timeout_ms.checked_add(now_ms as i64).ok_or(Fault::text("ERR timeout is out of range"))?;
    caller.local.shared.pause.begin(now_ms, until_ms, reads_too);
    caller.local.refresh_gate();
    if !caller.may_wait || !answer_later(caller, until_ms) {
        reply.ok();
    }
    Ok(())
}

/// Has the caller wait until no write runs any more that another thread let through before the pause. Returns false if there is no
/// other thread to wait for, or none that could wait.
fn answer_later(caller: &mut Caller<'_>, until_ms: i64) -> bool {
    let (shared, to) = (caller.local.shared, asking(caller));
    if shared.handles.len() == 1 {
        return false;
    }
    let body = move || {
        // Behind these turns all that was let through has its shards or stands in line for them, and this call stands behind it.
        if shared.wait_for_turns(|| until_ms < unix_ms() as i64) {
            with_all_shards(shared, |_, _| ());
        }
        answer(shared, to, Ok(()));
    };
    let is_begun = thread::Builder::new().name("darter-pause".to_owned()).spawn(body).is_ok();
    if is_begun {
        wait(caller);
    }
    is_begun
}

/// CLIENT UNPAUSE
pub fn unpause(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.local.shared.pause.end();
    caller.local.refresh_gate();
    for handle in &caller.local.shared.handles {
        handle.send(ThreadMessage::Unpaused);
    }
    reply.ok();
    Ok(())
}
