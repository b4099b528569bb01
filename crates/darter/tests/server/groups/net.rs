//! The net between members: a proxy before each one. It knows which member has opened a connection, so each direction of
//! each pair can be cut. Bytes of a pair that is cut wait, as a net that is mended delivers late.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

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
}

const LOOK: Duration = Duration::from_millis(10);

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
    let from = caller_of(state, caller.peer_addr().ok()?.port());
    let server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
    let (back, forth) = ((server.try_clone().ok()?, caller.try_clone().ok()?), (caller, server));
    let known = state.clone();
    std::thread::spawn(move || {
        pass_on(back, || from.is_some_and(|from| known.is_cut[at][from].load(Relaxed)))
    });
    pass_on(forth, || from.is_some_and(|from| state.is_cut[from][at].load(Relaxed)));
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

/// The member whose process has a socket with this local port.
fn caller_of(state: &NetState, port: u16) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(local.as_str()))?;
    let socket = format!("socket:[{}]", line.split_whitespace().nth(9)?);
    (0..MEMBERS).find(|at| {
        let folder = format!("/proc/{}/fd", state.pids[*at].load(Relaxed));
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|to| to.to_string_lossy() == socket)
    })
}
