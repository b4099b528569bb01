//! Becoming a user and ceasing to be one.

use std::sync::Arc;

use crate::clients::ClientInfo;
use crate::commands::login::is_wanted;
use crate::session::{Gate, Session};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_acl::{Acl, User};

/// Makes a connection act as `user`, who has been let in; one who is kept to other databases goes to the first of them.
pub fn log_in(session: &mut Session, info: &ClientInfo, user: Arc<User>) {
    lock(&info.words).user = user.name.to_string();
    session.gate.set(Gate::LOGIN, false);
    session.was_trusted = true;
    session.db = user.home_db(session.db);
    session.become_user(user);
}

/// Makes the client a stranger again, who acts as the default user if that needs no password.
pub fn log_out(local: &ThreadState, session: &mut Session, info: &ClientInfo) {
    session.gate.set(Gate::LOGIN, is_wanted(local, session.listener));
    session.become_user(local.shared.acl.default_user());
    lock(&info.words).user = session.user.name.to_string();
}

impl Session {
    /// Acts as `user` from the next command on. Rights taken meanwhile are found out with the next bytes.
    fn become_user(&mut self, user: Arc<User>) {
        self.gate.set(Gate::ACL, !user.is_unlimited());
        self.user = user;
        self.acl_version = 0;
    }

    /// Catches up with changes of its user; a connection whose user has gone is closed. Cost: a shared lock.
    #[cold]
    pub fn settle_user(&mut self, acl: &Acl) {
        // Looked at first: a change in between is then found next time.
        let version = acl.version();
        match acl.user(&self.user.name) {
            Some(user) => {
                self.become_user(user);
                self.acl_version = version;
            }
            None => self.is_closing = true,
        }
    }

    /// Whether its user may have changed since the last look.
    #[inline]
    pub fn is_user_stale(&self, acl: &Acl) -> bool {
        self.acl_version != acl.version()
    }
}
