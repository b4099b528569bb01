//! What stands at the doors: health checks, and what those are told who may not come in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::{Server, Value, wait_until};
use crate::nodes::signal;

/// Exit code of `darter --ping` and what it printed; asked again where the server had no time for three seconds.
fn ping(args: &[&str]) -> (Option<i32>, String) {
    let mut answer = (None, String::new());
    wait_until("it is answered or refused", || {
        let command = Command::new(env!("CARGO_BIN_EXE_darter")).arg("--ping").args(args).output();
        let out = command.expect("it runs");
        answer = (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned());
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        !["timed out", "temporarily unavailable"].iter().any(|late| why.contains(late))
    });
    answer
}

#[test]
fn a_health_check_needs_no_client() {
    let server = Server::start(&[]);
    let port = server.port().to_string();
    assert_eq!(ping(&[&port]), (Some(0), "+PONG\n".to_owned()));
    assert_eq!(ping(&[&format!("localhost:{port}")]), (Some(0), "+PONG\n".to_owned()));
    assert_eq!(ping(&[&port, "more"]).0, Some(2));
    // Without an address it is the server of the same settings.
    assert_eq!(ping(&["--port", &port]), (Some(0), "+PONG\n".to_owned()));
    let folder = Folder::new("ping");
    let file = folder.path().join("darter.conf");
    std::fs::write(&file, format!("port {port}\nbind 127.0.0.1 -::1\n")).expect("a file");
    assert_eq!(ping(&[file.to_str().expect("a text")]), (Some(0), "+PONG\n".to_owned()));
    assert_eq!(server.client().call(&["CONFIG", "SET", "requirepass", "secret"]), Value::ok());
    let (code, said) = ping(&[&port]);
    assert!(code == Some(0) && said.starts_with("-NOAUTH "), "{code:?} {said}");
    drop(server);
    assert_eq!(ping(&[&port]), (Some(1), String::new()));
    assert_eq!(ping(&["no port"]), (Some(2), String::new()));
}

#[test]
fn who_finds_no_place_is_told_in_his_own_words() {
    let memcached = crate::harness::free_port();
    let server = Server::start(&["--maxclients", "1", "--memcached_port", &memcached.to_string()]);
    let mut first = server.client();
    assert_eq!(first.call(&["PING"]), Value::Status("PONG".to_owned()));
    for (port, expected) in [
        (server.port(), "-ERR max number of clients reached\r\n"),
        (memcached, "ERROR Too many open connections\r\n"),
    ] {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        let mut said = String::new();
        let _ = socket.read_to_string(&mut said);
        assert_eq!(said, expected);
    }
}

/// More than Redis' queue of 511 holds, and less than most processes may have files.
const CROWD: usize = 800;

#[test]
fn a_crowd_that_comes_while_the_server_rests_is_served_to_the_last() {
    let kernel = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("the kernel's limit");
    let crowd = kernel.trim().parse::<usize>().expect("a number").min(CROWD);
    let server = Server::start(&[]);
    signal(server.pid(), "STOP");
    let came: Vec<_> = (0..crowd)
        .map(|_| {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
            // Who finds the queue full is not let in while the server rests, however often it comes again.
            let socket = TcpStream::connect_timeout(&address, crate::harness::PATIENCE);
            let mut socket = socket.expect("a place in the queue");
            socket.write_all(b"PING\r\n").expect("it takes a request");
            socket
        })
        .collect();
    signal(server.pid(), "CONT");
    for mut socket in came {
        socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        let mut said = [0; 7];
        socket.read_exact(&mut said).expect("an answer");
        assert_eq!(&said, b"+PONG\r\n");
    }
}

#[test]
fn a_free_port_is_the_same_on_every_address() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_darter"))
        .args(["--port=-1", "--dbfilename=", "--fiber_safety_margin=4096", "--tiered_storage_write_depth=9"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let lines = BufReader::new(process.stderr.take().expect("its log")).lines().map_while(Result::ok);
    let said = lines.take(50).find(|line| line.contains("listening on ")).unwrap_or_default();
    let _ = process.kill();
    let _ = process.wait();
    let (_, addresses) = said.split_once("listening on ").expect("it says where");
    let ports: Vec<&str> =
        addresses.split(", ").filter_map(|at| at.rsplit_once(':')).map(|(_, port)| port).collect();
    assert!(ports.iter().all(|port| *port == ports[0] && *port != "0"), "{said}");
    assert!(!ports.is_empty());
}

/// An address of this machine that no other process or test uses, so that its ports are free when they should be.
fn own_address() -> String {
    let [low, middle, high, _] = std::process::id().to_le_bytes();
    // Process numbers have 22 bits; this is never 127.0.0.x nor the last address.
    format!("127.{}.{middle}.{low}", high + 1)
}

/// A server's process, which ends with the test.
struct Started(Child);

impl Started {
    fn new(address: &str, flags: &[&str]) -> Started {
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(["--bind", address, "--dbfilename", ""]).args(flags);
        Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts"))
    }

    /// Waits for what `attempt` gives while the process lives.
    fn wait_for<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = attempt() {
                return found;
            }
            assert!(began.elapsed() < crate::harness::PATIENCE, "it takes too long");
            assert_eq!(self.0.try_wait().expect("its state"), None, "the server has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it answers at an address and port.
    fn wait_until_it_answers(&mut self, at: (&str, u16)) {
        self.wait_for(|| {
            let mut socket = TcpStream::connect(at).ok()?;
            socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
            let mut said = [0; 7];
            socket.write_all(b"PING\r\n").and_then(|()| socket.read_exact(&mut said)).ok()?;
            (&said == b"+PONG\r\n").then_some(())
        });
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_start_waits_for_addresses_that_nobody_answers_at() {
    let (folder, address) = (Folder::new("addresses"), own_address());
    let path = folder.path().join("socket");
    let tcp = TcpListener::bind((address.as_str(), 7001)).expect("a port");
    let unix = UnixListener::bind(&path).expect("a socket");
    tcp.set_nonblocking(true).expect("an option");
    unix.set_nonblocking(true).expect("an option");
    let path = path.to_str().expect("a text");
    let mut server = Started::new(&address, &["--port", "7001", "--unixsocket", path]);
    // It has found each address in use, and asked who is there.
    let met = server.wait_for(|| tcp.accept().ok());
    drop((tcp, met));
    let met = server.wait_for(|| unix.accept().ok());
    drop((unix, met));
    server.wait_until_it_answers((&address, 7001));
    assert!(UnixStream::connect(path).is_ok());
}

#[test]
fn a_start_does_not_wait_for_a_server_that_lives() {
    let (folder, address) = (Folder::new("living"), own_address());
    let path = folder.path().join("socket");
    let path = path.to_str().expect("a text");
    let flags = ["--port", "7011", "--memcached_port", "7012", "--unixsocket", path];
    let mut server = Started::new(&address, &flags);
    server.wait_until_it_answers((&address, 7011));
    for (flag, taken) in [("--port", "7011"), ("--memcached_port", "7012"), ("--unixsocket", path)] {
        let began = Instant::now();
        let out = Command::new(env!("CARGO_BIN_EXE_darter"))
            .args(["--bind", &address, "--dbfilename", "", "--port", "7013", flag, taken])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("a server answers there") && said.contains(taken), "{said}");
        assert_eq!(out.status.code(), Some(1));
        assert!(began.elapsed() < Duration::from_secs(8), "it waited: {said}");
    }
    server.wait_until_it_answers((&address, 7011));
}

#[test]
fn a_server_that_was_killed_is_started_again_at_once() {
    let (folder, address) = (Folder::new("again"), own_address());
    let path = folder.path().join("socket");
    let path = path.to_str().expect("a text");
    for _ in 0..5 {
        let flags =
            ["--port", "7021", "--memcached_port", "7022", "--admin_port", "7023", "--unixsocket", path];
        Started::new(&address, &flags).wait_until_it_answers((&address, 7021));
    }
}

/// What waits to happen to the server's end of a client's connection: `02` is a probe of whether it is still there.
fn timer(server: &Server, client: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let (local, remote) = (format!(":{:04X}", server.port()), format!(":{client:04X}"));
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = words.next()?.ends_with(&local) && words.next()?.ends_with(&remote);
        is_it.then(|| words.nth(2)?.split(':').next().map(str::to_owned)).flatten()
    })
}

#[test]
fn silent_clients_are_probed_as_the_settings_say() {
    let server = Server::start(&["--tcp-keepalive", "100"]);
    let mut admin = server.client();
    for (seconds, wanted) in [("100", "02"), ("0", "00"), ("30", "02"), ("100", "02")] {
        assert_eq!(admin.call(&["CONFIG", "SET", "tcp-keepalive", seconds]), Value::ok());
        // Each thread reads its settings once a turn.
        let deadline = Instant::now() + crate::harness::PATIENCE;
        let mut seen = None;
        while seen.as_deref() != Some(wanted) && Instant::now() < deadline {
            let mut client = server.client();
            assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
            let port = client.stream().local_addr().expect("an address").port();
            // Until the reply is acknowledged another timer runs.
            std::thread::sleep(Duration::from_millis(50));
            seen = timer(&server, port);
        }
        assert_eq!(seen.as_deref(), Some(wanted), "tcp-keepalive {seconds}");
    }
}
