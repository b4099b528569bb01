//! Ends connections that may not be answered any more, because this server has lost the right to answer.
//!
//! Their output is held back. First no command may run that is owed more, then each thread closes its connections,
//! and only then is output let go. The thread of the group takes these steps, one at a tick.

use crate::shared::{CloseScope, Shared, ThreadMessage};

use super::FailoverGroup;

/// The step when all is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterClosing {
    /// Output waits no longer: commands that show data are refused.
    LetGo,
    /// Output is committed again, without the members that have left.
    Thaw,
}

/// A closing under way.
#[derive(Debug)]
pub struct Closing {
    scope: CloseScope,
    after: AfterClosing,
    is_told: bool,
    turns: Vec<u64>,
}

impl Closing {
    /// Begins it: commands are refused already, or will be from each thread's next turn on.
    pub fn begin(shared: &Shared, scope: CloseScope, after: AfterClosing) -> Closing {
        Closing { scope, after, is_told: false, turns: shared.turns() }
    }

    /// Goes on; returns whether it is done.
    pub fn go_on(&mut self, shared: &Shared, group: &FailoverGroup) -> bool {
        // The turn that goes on may have begun before; the one after the next has not.
        let has_turned = shared.has_turned(&self.turns, 2);
        if !has_turned {
            shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
            return false;
        }
        if !self.is_told {
            let scope = self.scope;
            shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Close(scope)));
            (self.is_told, self.turns) = (true, shared.turns());
            return false;
        }
        match self.after {
            AfterClosing::LetGo => group.commit.let_go(),
            AfterClosing::Thaw => drop(group.commit.thaw()),
        }
        shared.journal.release(shared);
        true
    }
}
