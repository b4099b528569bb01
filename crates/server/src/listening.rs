//! The addresses the server listens on: opened at start, moved by CONFIG SET.
//!
//! Thread 0 has the listening sockets; another thread that changes `port` or `bind` tries the new addresses itself and
//! then waits for thread 0 to move.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use darter_reactor::{ListenAddr, ListenerId, Reactor};

use crate::protocol::ListenerKind;
use crate::shared::{Shared, ThreadMessage};
use crate::thread_state::ThreadState;
use crate::tls;
use darter_config::{Changes, Live, SettingRefusal};

mod patience;

pub use patience::Patience;

/// Why a client is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedConnection {
    /// There are `maxclients` already.
    Full,
    /// There is no password, and it is on another machine.
    Unprotected,
}

impl RefusedConnection {
    /// What a client of a `kind` of listener is told.
    pub const fn text(self, kind: ListenerKind) -> &'static [u8] {
        match (self, kind) {
            (RefusedConnection::Full, ListenerKind::Memcached) => b"ERROR Too many open connections\r\n",
            (RefusedConnection::Full, _) => b"-ERR max number of clients reached\r\n",
            (RefusedConnection::Unprotected, ListenerKind::Memcached) => MEMCACHED_DENIED,
            (RefusedConnection::Unprotected, _) => DENIED,
        }
    }
}

/// The first words are Redis'; clients and tools look for `-DENIED`.
const DENIED: &[u8] = b"-DENIED Darter is running in protected mode because protected mode is enabled and no password \
is set for the default user. In this mode connections are only accepted from the loopback interface. To connect from \
other machines, either set a password with 'CONFIG SET requirepass', or turn protected mode off, on this machine, with \
'CONFIG SET protected-mode no' or '--protected-mode no' at start, provided that the port cannot be reached from the \
internet.\r\n";

const MEMCACHED_DENIED: &[u8] =
    b"SERVER_ERROR Darter is in protected mode: it has no password, so only this machine may \
connect; set one with --requirepass, or start it with --protected-mode no\r\n";

/// The listeners of thread 0.
#[derive(Debug, Default)]
pub struct Listening {
    // The TCP listeners on the addresses of `bind`, which CONFIG SET moves.
    tcp: Vec<(ListenerId, ListenerKind)>,
    // Those of every other kind.
    others: Vec<(ListenerId, ListenerKind)>,
}

impl Listening {
    /// Opens every configured listener; adds their addresses to `shown`.
    ///
    /// Errors: an address is taken, for longer than `patience` lasts, or not ours.
    pub fn open(
        reactor: &mut Reactor,
        live: &Live,
        shared: &Shared,
        patience: &Patience<'_>,
        shown: &mut Vec<String>,
    ) -> io::Result<Listening> {
        let mut listening = Listening::default();
        listening.open_tcp(reactor, live, shared, patience, shown)?;
        let mut open_other = |kind, bind: &[String], port| {
            for (id, at) in open_all(reactor, bind, port, patience)? {
                listening.others.push((id, kind));
                let tls = if tls::is_required(live, kind) { ", tls" } else { "" };
                shown.push(format!("{at} ({}{tls})", kind.word()));
            }
            io::Result::Ok(())
        };
        if let Some(port) = live.memcached_port {
            open_other(ListenerKind::Memcached, &live.bind, port)?;
        }
        if let Some(port) = live.admin.port.filter(|_| !live.admin.follows_bind()) {
            open_other(ListenerKind::Admin, &live.admin_addresses(), port)?;
        }
        if let Some(port) = live.replication.ha.sentinel_port {
            open_other(ListenerKind::Sentinel, &live.bind, port)?;
        }
        if let Some(path) = &live.unixsocket {
            let address = ListenAddr::Unix { path: path.clone(), mode: live.unixsocketperm };
            patience.listen(reactor, &address).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()))
            })?;
            shown.push(path.display().to_string());
        }
        Ok(listening)
    }

    /// The kind of a listener.
    pub fn kind_of(&self, id: ListenerId) -> ListenerKind {
        self.tcp
            .iter()
            .chain(&self.others)
            .find(|(other, _)| *other == id)
            .map_or(ListenerKind::Main, |&(_, kind)| kind)
    }

    fn open_tcp(
        &mut self,
        reactor: &mut Reactor,
        live: &Live,
        shared: &Shared,
        patience: &Patience<'_>,
        shown: &mut Vec<String>,
    ) -> io::Result<()> {
        shared.port.store(0, Relaxed);
        shared.tls_port.store(0, Relaxed);
        let admin = live.admin.port.filter(|_| live.admin.follows_bind());
        for (kind, port) in [
            (ListenerKind::Tls, live.tls.port),
            (ListenerKind::Main, live.port),
            (ListenerKind::Admin, admin),
        ] {
            let Some(port) = port else { continue };
            for (id, at) in open_all(reactor, &live.bind, port, patience)? {
                self.tcp.push((id, kind));
                // Where both are there the plain one is told to clients, as by Redis.
                if kind.is_main() {
                    shared.port.store(u32::from(at.port()), Relaxed);
                }
                if kind == ListenerKind::Tls {
                    shared.tls_port.store(u32::from(at.port()), Relaxed);
                }
                shown.push(match (kind, tls::is_required(live, kind)) {
                    (ListenerKind::Admin, true) => format!("{at} (admin, tls)"),
                    (ListenerKind::Admin, false) => format!("{at} (admin)"),
                    (_, true) => format!("{at} (tls)"),
                    (_, false) => at.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Leaves the old addresses for those that `live` names, and says so to whoever waits for it.
    pub fn move_to(&mut self, reactor: &mut Reactor, live: &Live, shared: &Shared) {
        self.tcp.drain(..).for_each(|(id, _)| reactor.stop_listening(id));
        let mut shown = Vec::new();
        match self.open_tcp(reactor, live, shared, &Patience::none(), &mut shown) {
            Ok(()) => tracing::info!("listening on {}", shown.join(", ")),
            Err(error) => tracing::error!("{error}"),
        }
        shared.listen_version.store(live.version, Release);
    }
}

/// Listens on `port` of every address that `bind` names; returns where. Port 0 is one free port, the same for all.
fn open_all(
    reactor: &mut Reactor,
    bind: &[String],
    port: u16,
    patience: &Patience<'_>,
) -> io::Result<Vec<(ListenerId, SocketAddr)>> {
    let none = Patience::none();
    // A free port is soon another one.
    let patience = if port == 0 { &none } else { patience };
    let mut left = FREE_PORT_TRIES;
    loop {
        let mut opened = Vec::new();
        match open_each(reactor, bind, port, patience, &mut opened) {
            // What the first address had free another may have in use.
            Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse && left > 0 => {
                opened.drain(..).for_each(|(id, _)| reactor.stop_listening(id));
                left -= 1;
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(opened),
        }
    }
}

fn open_each(
    reactor: &mut Reactor,
    bind: &[String],
    port: u16,
    patience: &Patience<'_>,
    opened: &mut Vec<(ListenerId, SocketAddr)>,
) -> io::Result<()> {
    for Bind { mut at, is_optional } in addresses(bind, port)? {
        if let (0, Some((_, first))) = (port, opened.first()) {
            at.set_port(first.port());
        }
        match patience.listen(reactor, &ListenAddr::Tcp(at)) {
            Ok(id) => match reactor.local_addr(id) {
                Some(ListenAddr::Tcp(at)) => opened.push((id, at)),
                _ => opened.push((id, at)),
            },
            Err(error) if is_optional && (port != 0 || error.kind() != io::ErrorKind::AddrInUse) => {
                tracing::debug!("not listening on {at}: {error}");
            }
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("cannot listen on {at}: {error}")));
            }
        }
    }
    Ok(())
}

/// How many free ports are tried until one is free on all addresses.
const FREE_PORT_TRIES: u32 = 16;

/// Whether a change of settings is one of addresses.
pub fn is_moved(changes: &Changes) -> bool {
    let place = |live: &Live| (live.bind.clone(), live.port, live.tls.port);
    place(&changes.before) != place(&changes.after)
}

/// Tries the new addresses before the change is made.
///
/// Errors: one of them is taken, or not an address of this machine.
pub fn probe(changes: &Changes) -> Result<(), SettingRefusal> {
    let (before, after) = (&changes.before, &changes.after);
    probe_port(after, "port", before.port, after.port)?;
    probe_port(after, "tls-port", before.tls.port, after.tls.port)
}

fn probe_port(
    after: &Live,
    name: &'static str,
    before: Option<u16>,
    port: Option<u16>,
) -> Result<(), SettingRefusal> {
    let Some(port) = port else { return Ok(()) };
    // Our own listeners are still on an unchanged port, so only the addresses can be tried then.
    let (name, text, port) = if before == Some(port) {
        ("bind", "Failed to bind to specified addresses.", 0)
    } else {
        (name, "Unable to listen on this port. Check server logs.", port)
    };
    let refusal = |error: io::Error| {
        tracing::warn!("{name} cannot be changed: {error}");
        SettingRefusal { name, text: text.to_owned() }
    };
    for address in addresses(&after.bind, port).map_err(refusal)? {
        match TcpListener::bind(address.at) {
            Err(error) if !address.is_optional => return Err(refusal(error)),
            _ => {}
        }
    }
    Ok(())
}

/// The longest wait for thread 0.
const MOVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Has thread 0 move, and waits until it has; thread 0 itself moves before it sends its replies.
pub fn move_all(local: &ThreadState, version: u64) {
    let shared = local.shared;
    shared.handle(0).send(ThreadMessage::Move);
    let began = Instant::now();
    while local.thread != 0
        && shared.listen_version.load(Acquire) < version
        && began.elapsed() < MOVE_TIME_MAX
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Bind {
    at: SocketAddr,
    is_optional: bool,
}

/// What `bind` means: names and addresses, `*` for all of a family, nothing for all.
fn addresses(bind: &[String], port: u16) -> io::Result<Vec<Bind>> {
    if bind.is_empty() {
        return Ok(vec![
            Bind { at: (Ipv4Addr::UNSPECIFIED, port).into(), is_optional: false },
            Bind { at: (Ipv6Addr::UNSPECIFIED, port).into(), is_optional: true },
        ]);
    }
    let mut out: Vec<Bind> = Vec::new();
    for word in bind {
        let (name, is_optional) = word.strip_prefix('-').map_or((word.as_str(), false), |rest| (rest, true));
        let found: Vec<SocketAddr> = match name {
            "*" => vec![(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).into()],
            "::*" => vec![(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port).into()],
            _ => match (name, port).to_socket_addrs() {
                Ok(found) => found.collect(),
                Err(_) if is_optional => Vec::new(),
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot resolve bind address {name}: {error}"),
                    ));
                }
            },
        };
        for at in found {
            // A name may stand for both families; one of them may be missing on this machine.
            if !out.iter().any(|bind| bind.at == at) {
                let is_second = out.iter().any(|bind| bind.at.is_ipv4() != at.is_ipv4());
                out.push(Bind { at, is_optional: is_optional || (at.is_ipv6() && is_second) });
            }
        }
    }
    Ok(out)
}
