//! TLS: which listeners want it, with which certificate, and the bytes of the connections that have it.
//!
//! Called where clients are accepted (`worker`), where bytes come and go (`worker`, `output`), by CONFIG SET and by the link
//! to a master. The reactor knows nothing of it. Unix sockets are never encrypted.

mod channel;
mod identity;
mod outgoing;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

pub use channel::{Channel, Heard, TlsScratch};
pub use identity::{Identity, IdentityFault, PeerNames};
pub use outgoing::Outgoing;

use crate::protocol::ListenerKind;
use crate::sync::lock;
use darter_config::Live;

/// The certificate that new connections are shown, changed by CONFIG SET.
#[derive(Debug, Default)]
pub struct Entrance {
    // none while no listener is encrypted
    identity: Mutex<Option<Identity>>,
}

impl Entrance {
    /// An entrance as `live` describes it.
    ///
    /// Errors: a file is missing, is not what it should be, or the key is not the certificate's.
    pub fn open(live: &Live) -> Result<Entrance, IdentityFault> {
        Ok(Entrance { identity: Mutex::new(identity::load(live)?) })
    }

    /// Reads the files anew; connections that exist keep what they have. After an error all is as before.
    ///
    /// Errors: as [`Entrance::open`].
    pub fn reload(&self, live: &Live) -> Result<(), IdentityFault> {
        let identity = identity::load(live)?;
        *lock(&self.identity) = identity;
        Ok(())
    }

    /// The channel of a new connection of `kind`; none when it is to speak plainly. Where TLS is only allowed, the
    /// first byte tells.
    pub fn channel(
        &self,
        live: &Live,
        kind: ListenerKind,
        is_unix: bool,
        now_ms: u64,
    ) -> Option<Box<Channel>> {
        if is_unix || is_plain_admin(live, kind) {
            return None;
        }
        let identity = lock(&self.identity).clone()?;
        Some(Box::new(Channel::expected(identity, is_required(live, kind), now_ms)))
    }
}

/// Whether clients of `kind` that do not speak TLS are turned away.
pub fn is_required(live: &Live, kind: ListenerKind) -> bool {
    kind == ListenerKind::Tls || (live.tls.enabled && !is_plain_admin(live, kind))
}

fn is_plain_admin(live: &Live, kind: ListenerKind) -> bool {
    kind == ListenerKind::Admin && live.tls.plain_admin_port
}
