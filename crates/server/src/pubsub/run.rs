//! Messages of one channel that come one behind the other in a thread's mail: each subscriber gets them in one piece.
//!
//! Called by the worker as it reads its mail. A pipeline of PUBLISH is one run: 30 messages to 1,000 subscribers are
//! then 1,000 copies instead of 30,000 visits to connections.

use std::iter::Peekable;
use std::sync::Arc;

use super::Message;
use crate::event_loop::EventLoop;
use crate::shared::ThreadMessage;
use crate::thread_state::ThreadState;
use crate::worker::{find, mark_dirty};

/// Bytes of messages in one run, beside its first: they are copied once more.
const BYTES_MAX: usize = 64 << 10;

/// Takes the messages from the front of `mail` that `first` makes a run with; at least `first` is in it.
pub fn take(
    first: Arc<Message>,
    mail: &mut Peekable<impl Iterator<Item = ThreadMessage>>,
) -> Vec<Arc<Message>> {
    let mut bytes = 0;
    let mut run = vec![first];
    let mut goes_on = |next: &ThreadMessage| match next {
        ThreadMessage::Publish(next) if next.follows(&run[0]) => {
            bytes += next.frame_len();
            bytes <= BYTES_MAX
        }
        _ => false,
    };
    let mut more = Vec::new();
    while let Some(ThreadMessage::Publish(next)) = mail.next_if(&mut goes_on) {
        more.push(next);
    }
    run.append(&mut more);
    run
}

/// Appends a run to the output of every connection of this thread that is subscribed.
pub fn deliver(local: &ThreadState, event_loop: &mut EventLoop, run: &[Arc<Message>]) {
    let Some(first) = run.first() else { return };
    let EventLoop { conns, dirty, .. } = event_loop;
    // As RESP2 and as RESP3, made when somebody is to get it.
    let mut frames = [Vec::new(), Vec::new()];
    local.subscribers.each_of_channel(first, |token, client, since| {
        let hears = |conn: &&mut crate::conn::Conn| conn.session.id == client && !conn.session.is_closing;
        let Some(conn) = find(conns, token).filter(hears) else { return };
        let resp3 = conn.session.resp3;
        if since > first.seq() {
            // It has come in the middle of the run.
            let late = run.iter().filter(|message| message.seq() >= since);
            late.for_each(|message| message.write_to(conn.messages(), None, resp3));
        } else {
            let frame = &mut frames[usize::from(resp3)];
            if frame.is_empty() {
                run.iter().for_each(|message| message.write_to(frame, None, resp3));
            }
            conn.messages().extend_from_slice(frame);
        }
        mark_dirty(conn, dirty);
    });
}
