//! One thread's reactor: the interface over the two drivers, and the choice between spinning and sleeping.
//!
//! Called by a worker thread that owns it. A worker's loop is: `turn` (collect received bytes), execute, `send` the
//! replies, housekeeping. The sink of a turn has no access to the reactor, so nothing changes during a turn.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::epoll::Epoll;
use crate::listener::{ListenAddr, Listener};
use crate::uring::Uring;
use crate::waker::Waker;
use crate::{Config, DriverChoice, ListenerId, ReactorEvent, Socket, Token, cpu, sys};

/// Accepts, receives and sends for one thread. May be moved to its thread before the first turn, not after.
#[derive(Debug)]
pub struct Reactor {
    driver: Driver,
    config: Config,
    waker: Waker,
    note: Option<String>,
    // Moving average of how long sleeps last, in microseconds; only kept when spinning is allowed.
    sleep_us: u64,
    // Set before the first rest: the kernel may not make it longer than asked for.
    has_exact_timers: bool,
}

#[derive(Debug)]
enum Driver {
    Epoll(Epoll),
    Uring(Box<Uring>),
}

/// Runs the same expression on either driver.
macro_rules! on {
    ($driver:expr, $name:ident => $body:expr) => {
        match $driver {
            Driver::Epoll($name) => $body,
            Driver::Uring($name) => $body,
        }
    };
}

impl Reactor {
    /// Makes a reactor with no connections. Errors: no descriptors left, or `Uring` if the kernel refuses it.
    pub fn new(choice: DriverChoice, config: &Config) -> io::Result<Reactor> {
        let waker = Waker::new()?;
        let (driver, note) = match choice {
            DriverChoice::Epoll => (Driver::Epoll(Epoll::new(config, &waker)?), None),
            DriverChoice::Uring => (Driver::Uring(open_uring(config, &waker)?), None),
            DriverChoice::Auto => match open_uring(config, &waker) {
                Ok(uring) => (Driver::Uring(uring), None),
                Err(error) => {
                    let note = format!("io_uring is not available here: {error}");
                    (Driver::Epoll(Epoll::new(config, &waker)?), Some(note))
                }
            },
        };
        Ok(Reactor { driver, config: config.clone(), waker, note, sleep_us: 0, has_exact_timers: false })
    }

    /// `epoll` or `io_uring`.
    pub fn driver_name(&self) -> &'static str {
        match self.driver {
            Driver::Epoll(_) => "epoll",
            Driver::Uring(_) => "io_uring",
        }
    }

    /// The reason why `Auto` did not take io_uring, for the log; `None` if it did or was not asked.
    pub fn driver_note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// A handle for other threads to end this reactor's sleep.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Starts accepting at `address`; connections arrive as `Accepted`. Errors as bind and listen give them.
    ///
    /// A Unix socket with a mode sets the process's umask for a moment: open listeners before other threads work.
    pub fn listen(&mut self, address: &ListenAddr) -> io::Result<ListenerId> {
        let listener = Listener::open(address, &self.config)?;
        on!(&mut self.driver, driver => driver.listen(listener))
    }

    /// The real address of a listener, including the port; `None` for a stale id.
    pub fn local_addr(&self, id: ListenerId) -> Option<ListenAddr> {
        on!(&self.driver, driver => driver.listener_address(id).cloned())
    }

    /// Default idle time before accepted sockets probe a silent peer.
    pub fn keepalive(&self) -> Option<Duration> {
        self.config.keepalive
    }

    /// Closes a listener and removes its Unix path. Clients not yet reported as `Accepted` are dropped.
    pub fn stop_listening(&mut self, id: ListenerId) {
        on!(&mut self.driver, driver => driver.stop_listening(id))
    }

    /// Starts receiving from a socket. Errors: out of kernel memory; the socket is closed then.
    pub fn register(&mut self, socket: Socket) -> io::Result<Token> {
        on!(&mut self.driver, driver => driver.register(socket))
    }

    /// The socket of a connection, for its names and options.
    pub fn socket(&self, token: Token) -> Option<&Socket> {
        on!(&self.driver, driver => driver.socket(token))
    }

    /// Number of registered connections.
    pub fn connections(&self) -> usize {
        on!(&self.driver, driver => driver.connections_len())
    }

    /// Passes all events to the sink; sleeps for them up to `timeout` (`None`: without end) if there are none.
    ///
    /// Before sleeping, the reactor raises its sleeping flag and then calls `may_sleep`. That function must check
    /// every queue whose posters call [`Waker::wake`], and return false if one has work. Returns the number of
    /// events; 0 is normal after a wake, a timeout or a signal. Errors are faults of the driver itself, none are
    /// expected.
    pub fn turn(
        &mut self,
        timeout: Option<Duration>,
        mut may_sleep: impl FnMut() -> bool,
        mut sink: impl FnMut(ReactorEvent<'_>),
    ) -> io::Result<usize> {
        if timeout == Some(Duration::ZERO) {
            return self.poll(&mut sink);
        }
        if self.config.spin_us == 0 {
            return self.sleep(timeout, &mut may_sleep, &mut sink);
        }
        let spin_us = u64::from(self.config.spin_us);
        let start = Instant::now();
        if self.sleep_us <= spin_us {
            let spin = Duration::from_micros(spin_us).min(timeout.unwrap_or(Duration::MAX));
            loop {
                let told = self.poll(&mut sink)?;
                if told > 0 || !may_sleep() {
                    self.learn(start.elapsed());
                    return Ok(told);
                }
                if start.elapsed() >= spin {
                    break;
                }
                std::hint::spin_loop();
            }
        }
        let told = self.sleep(timeout, &mut may_sleep, &mut sink);
        self.learn(start.elapsed());
        told
    }

    /// Leaves the core to others for a moment in which nothing is received. Wakes and signals wait until it is over.
    pub fn rest(&mut self, time: Duration) {
        if !self.has_exact_timers {
            cpu::use_exact_timers();
            self.has_exact_timers = true;
        }
        std::thread::sleep(time);
    }

    /// Sends as much as the kernel takes now, without waiting: `Ok(n)` with `n < bytes.len()` (0 included) means its
    /// buffer is full; the caller keeps the rest and calls [`Reactor::want_writable`]. Errors: the connection is
    /// broken (`NotConnected` for a stale token); close it.
    #[inline]
    pub fn send(&mut self, token: Token, bytes: &[u8]) -> io::Result<usize> {
        match self.socket(token) {
            Some(socket) => sys::send(socket.raw_fd(), bytes),
            None => Err(stale()),
        }
    }

    /// Like [`Reactor::send`] for two pieces, one behind the other.
    pub fn send_two(&mut self, token: Token, first: &[u8], second: &[u8]) -> io::Result<usize> {
        match self.socket(token) {
            Some(socket) => sys::send_two(socket.raw_fd(), first, second),
            None => Err(stale()),
        }
    }

    /// Like [`Reactor::send`] for many connections with few system calls: appends the result of each piece to `took`.
    /// Returns false if the driver has no such calls: then nothing was sent, and `took` is unchanged.
    pub fn send_many(&mut self, pieces: &[(Token, &[u8])], took: &mut Vec<io::Result<usize>>) -> bool {
        match &mut self.driver {
            Driver::Epoll(_) => false,
            Driver::Uring(uring) => uring.send_many(pieces, took),
        }
    }

    /// Requests one `Writable` when a send may get further, or has become pointless because the peer has closed.
    pub fn want_writable(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.want_writable(token))
    }

    /// Stops receiving, so that TCP slows the peer down. Bytes that the kernel had already delivered are still
    /// reported. A peer that closes meanwhile is noticed after `resume`, or by a send.
    pub fn pause(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.pause(token))
    }

    /// Receives again after `pause`.
    pub fn resume(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.resume(token))
    }

    /// Ends the `Data` events of a connection: `Readable` comes in their place, and [`Reactor::receive`] takes the bytes to where
    /// they are to stay. Bytes that the kernel had already delivered are still reported as `Data`.
    pub fn receive_by_hand(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.receive_by_hand(token))
    }

    /// Begins the `Data` events of a connection again.
    pub fn receive_lent(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.receive_lent(token))
    }

    /// Appends up to `bytes_max` bytes of a connection to `buffer`; returns their number, 0 at the end of the stream. Called after a
    /// `Readable` only. Errors: `WouldBlock` if there are none yet; another one if the connection is broken.
    pub fn receive(&mut self, token: Token, buffer: &mut Vec<u8>, bytes_max: usize) -> io::Result<usize> {
        let Some(socket) = self.socket(token) else { return Err(stale()) };
        let received = sys::receive_behind(socket.raw_fd(), buffer, bytes_max.max(1));
        let is_over = match &received {
            Ok(n) => *n == 0,
            Err(error) => !sys::is_transient(error),
        };
        if is_over {
            on!(&mut self.driver, driver => driver.end_receiving(token));
        } else {
            on!(&mut self.driver, driver => driver.await_more(token));
        }
        received
    }

    /// Closes a connection; its token is stale from now on and no event for it follows.
    pub fn close(&mut self, token: Token) {
        on!(&mut self.driver, driver => driver.close(token))
    }

    /// Ends our side of the stream after the bytes sent. The peer sees the end; we still receive.
    pub fn shutdown_write(&mut self, token: Token) {
        if let Some(socket) = self.socket(token) {
            // A peer already gone makes this fail, and its `Closed` comes anyway.
            // SAFETY: shutdown takes no pointers.
            let _ = unsafe { libc::shutdown(socket.raw_fd(), libc::SHUT_WR) };
        }
    }

    fn sleep(
        &mut self,
        timeout: Option<Duration>,
        may_sleep: &mut impl FnMut() -> bool,
        sink: &mut impl FnMut(ReactorEvent<'_>),
    ) -> io::Result<usize> {
        self.waker.before_sleep();
        let timeout = if may_sleep() { timeout } else { Some(Duration::ZERO) };
        let waited = on!(&mut self.driver, driver => driver.wait(timeout));
        // The flag comes down before the sink runs: posters need not wake a thread that is awake.
        self.waker.after_sleep();
        waited?;
        on!(&mut self.driver, driver => driver.deliver(sink))
    }

    /// Collects present events without sleeping.
    fn poll(&mut self, sink: &mut impl FnMut(ReactorEvent<'_>)) -> io::Result<usize> {
        on!(&mut self.driver, driver => {
            driver.wait(Some(Duration::ZERO))?;
            driver.deliver(sink)
        })
    }

    /// Moves the average an eighth of the way to the latest wait.
    fn learn(&mut self, waited: Duration) {
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX).min(WAIT_US_MAX);
        self.sleep_us = (self.sleep_us * 7 + waited_us) / 8;
    }
}

/// The io_uring driver, after the process's one live probe of it.
fn open_uring(config: &Config, waker: &Waker) -> io::Result<Box<Uring>> {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    match PROBE.get_or_init(|| Uring::probe().map_err(|error| error.to_string())) {
        Ok(()) => Uring::new(config, waker).map(Box::new),
        Err(why) => Err(io::Error::new(io::ErrorKind::Unsupported, why.clone())),
    }
}

fn stale() -> io::Error {
    io::Error::from(io::ErrorKind::NotConnected)
}

// One long sleep must not forbid spinning for the next hundred short ones.
const WAIT_US_MAX: u64 = 1_000;
