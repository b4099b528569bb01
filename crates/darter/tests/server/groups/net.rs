//! The net between members: a proxy before each one. It knows which member has opened a connection, so each direction of
//! each pair can be cut. Bytes of a pair that is cut wait, as a net that is mended delivers late.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::MEMBERS;

/// See above.
pub struct Net {
    ports: Vec<u16>,
    state: Arc<NetState>,
}

#[derive(Default)]
struct NetState {
    // from, to
    is_cut: [[AtomicBool; MEMBERS]; MEMBERS],
    pids: [AtomicU32; MEMBERS],
    // when a look at the system's table began, and what it has shown
    known: Mutex<(Option<Instant>, HashMap<u16, usize>)>,
}

const LOOK: Duration = Duration::from_millis(10);
/// Connections of a member that cannot reach another end sooner.
const LASTS: Duration = Duration::from_millis(300);

impl Net {
    /// A proxy before each of these ports.
    pub fn before(ports: &[u16]) -> Net {
        let state = Arc::new(NetState::default());
        let proxy = |(at, port): (usize, &u16)| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let own = listener.local_addr().expect("an address").port();
            let (state, port) = (state.clone(), *port);
            std::thread::spawn(move || {
                for caller in listener.incoming().flatten() {
                    let state = state.clone();
                    std::thread::spawn(move || join(&state, caller, at, port));
                }
            });
            own
        };
        Net { ports: ports.iter().enumerate().map(proxy).collect(), state: state.clone() }
    }

    /// The port of the proxy before a member.
    pub fn port(&self, at: usize) -> u16 {
        self.ports[at]
    }

    /// Notes the process of a member.
    pub fn is_run_by(&self, at: usize, pid: u32) {
        self.state.pids[at].store(pid, Relaxed);
    }

    /// Cuts one direction, or mends it.
    pub fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.state.is_cut[from][to].store(is_cut, Relaxed);
    }

    /// Cuts a member off from all others.
    pub fn isolate(&self, at: usize) {
        for other in (0..MEMBERS).filter(|other| *other != at) {
            self.cut(at, other, true);
            self.cut(other, at, true);
        }
    }

    /// Mends everything.
    pub fn mend(&self) {
        self.state.is_cut.iter().flatten().for_each(|cut| cut.store(false, Relaxed));
    }
}

fn join(state: &Arc<NetState>, caller: TcpStream, at: usize, port: u16) -> Option<()> {
    let from = Arc::new(Caller { port: caller.peer_addr().ok()?.port(), member: OnceLock::new() });
    let server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
    let (back, forth) = ((server.try_clone().ok()?, caller.try_clone().ok()?), (caller, server));
    // Known before the first cut, if it lasts: a look holds up all that is sent.
    let (known, lasting) = (state.clone(), Arc::downgrade(&from));
    std::thread::spawn(move || {
        std::thread::sleep(LASTS);
        lasting.upgrade().map(|from| from.member(&known))
    });
    let (known, to) = (state.clone(), from.clone());
    std::thread::spawn(move || {
        let is_cut = |to: usize| known.is_cut[at][to].load(Relaxed);
        pass_on(back, || known.is_any_cut() && to.member(&known).is_some_and(is_cut))
    });
    let is_cut = |from: usize| state.is_cut[from][at].load(Relaxed);
    pass_on(forth, || state.is_any_cut() && from.member(state).is_some_and(is_cut));
    Some(())
}

fn pass_on((mut from, mut to): (TcpStream, TcpStream), is_cut: impl Fn() -> bool) {
    let _ = from.set_read_timeout(Some(Duration::from_millis(200)));
    let mut bytes = vec![0; 64 << 10];
    loop {
        let len = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        while is_cut() {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A connection's other end: which member it is, found when that first matters.
struct Caller {
    port: u16,
    member: OnceLock<Option<usize>>,
}

impl Caller {
    fn member(&self, state: &NetState) -> Option<usize> {
        *self.member.get_or_init(|| state.members().get(&self.port).copied())
    }
}

impl NetState {
    fn is_any_cut(&self) -> bool {
        self.is_cut.iter().flatten().any(|cut| cut.load(Relaxed))
    }

    /// The members by the local ports of their sockets. A system with many connections takes tenths of a second for its table,
    /// so one look at it serves all that ask meanwhile.
    fn members(&self) -> HashMap<u16, usize> {
        let asked = Instant::now();
        let mut known = self.known.lock().expect("no panic");
        if known.0.is_none_or(|began| began < asked) {
            let began = Instant::now();
            *known = (Some(began), self.look());
        }
        known.1.clone()
    }

    fn look(&self) -> HashMap<u16, usize> {
        let sockets: Vec<HashSet<String>> =
            self.pids.iter().map(|pid| sockets_of(pid.load(Relaxed))).collect();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let member = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = sockets.iter().position(|own| own.contains(words[9]))?;
            let port = words[1].strip_prefix("0100007F:")?;
            Some((u16::from_str_radix(port, 16).ok()?, at))
        };
        table.lines().skip(1).filter_map(member).collect()
    }
}

/// The numbers of the sockets that a process has.
fn sockets_of(pid: u32) -> HashSet<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let number = |path: PathBuf| Some(path.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    files.filter_map(|file| number(std::fs::read_link(file.path()).ok()?)).collect()
}
