//! The floor under every server here: receives, counts bytes, answers, and parses nothing.
//!
//! `echo_floor PORT DRIVER REQUEST_BYTES REPLY_BYTES [SPIN_US]` answers one fixed reply of `REPLY_BYTES` for each
//! full `REQUEST_BYTES` a connection received, so a bench tool measures only the kernel and the reactor. DRIVER is
//! `epoll`, `uring` or `auto`. The reply reads as a RESP status or bulk when there is room for one. One thread; ends
//! on SIGINT or SIGTERM and prints its CPU time.

use std::error::Error;
use std::net::SocketAddr;

use darter_reactor::signal::Signals;
use darter_reactor::{Config, DriverChoice, ListenAddr, Reactor, ReactorEvent, Token, process};

struct Connection {
    // Bytes of a request not yet complete, < request_bytes.
    partial_bytes: usize,
    unsent: Vec<u8>,
    closing: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, port, driver, request_bytes, reply_bytes, rest @ ..] = args.as_slice() else {
        return Err("usage: echo_floor PORT epoll|uring|auto REQUEST_BYTES REPLY_BYTES [SPIN_US]".into());
    };
    let choice = match driver.as_str() {
        "epoll" => DriverChoice::Epoll,
        "uring" => DriverChoice::Uring,
        "auto" => DriverChoice::Auto,
        other => return Err(format!("no driver is called {other}").into()),
    };
    let spin_us = rest.first().map_or(Ok(0), |text| text.parse())?;
    let request_bytes: usize = request_bytes.parse::<usize>()?.max(1);
    let reply = fixed_reply(reply_bytes.parse()?);
    process::raise_open_files(65_536)?;
    let mut reactor = Reactor::new(choice, &Config { spin_us, ..Config::default() })?;
    let mut signals = Signals::install(reactor.waker())?;
    reactor.listen(&ListenAddr::Tcp(SocketAddr::from(([127, 0, 0, 1], port.parse()?))))?;
    println!("driver {} {}", reactor.driver_name(), reactor.driver_note().unwrap_or(""));
    serve(&mut reactor, &mut signals, request_bytes, &reply)?;
    let times = process::cpu_times();
    println!("user {:?} system {:?} rss {} KiB", times.user, times.system, process::rss_bytes() / 1024);
    Ok(())
}

/// `+xxx\r\n`, as long as asked, or zeros if that is too short for a reply.
fn fixed_reply(reply_bytes: usize) -> Vec<u8> {
    if reply_bytes < 3 {
        return vec![0; reply_bytes];
    }
    let mut reply = vec![b'x'; reply_bytes];
    reply[0] = b'+';
    reply[reply_bytes - 2..].copy_from_slice(b"\r\n");
    reply
}

fn serve(
    reactor: &mut Reactor,
    signals: &mut Signals,
    request_bytes: usize,
    reply: &[u8],
) -> Result<(), Box<dyn Error>> {
    // By slot of the token, so that the floor holds no hashing.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut accepted = Vec::new();
    let mut touched: Vec<Token> = Vec::new();
    while signals.take().is_none() {
        reactor.turn(
            None,
            || !signals.pending(),
            |event| match event {
                ReactorEvent::Accepted { socket, .. } => accepted.push(socket),
                ReactorEvent::Data { token, bytes } => {
                    let Some(connection) = at(&mut connections, token) else { return };
                    let total_bytes = connection.partial_bytes + bytes.len();
                    connection.partial_bytes = total_bytes % request_bytes;
                    for _ in 0..total_bytes / request_bytes {
                        connection.unsent.extend_from_slice(reply);
                    }
                    touched.push(token);
                }
                ReactorEvent::Closed { token, .. } => {
                    if let Some(connection) = at(&mut connections, token) {
                        connection.closing = true;
                        touched.push(token);
                    }
                }
                ReactorEvent::Writable { token } => touched.push(token),
                // Nobody takes bytes by hand here.
                ReactorEvent::Readable { .. } => {}
            },
        )?;
        for socket in accepted.drain(..) {
            let token = reactor.register(socket)?;
            if connections.len() <= token.index() {
                connections.resize_with(token.index() + 1, || None);
            }
            connections[token.index()] =
                Some(Connection { partial_bytes: 0, unsent: Vec::new(), closing: false });
        }
        for token in touched.drain(..) {
            if !flush(reactor, token, &mut connections) {
                reactor.close(token);
                connections[token.index()] = None;
            }
        }
    }
    Ok(())
}

/// Sends the pending bytes; returns false if the connection is broken.
fn flush(reactor: &mut Reactor, token: Token, connections: &mut [Option<Connection>]) -> bool {
    let Some(connection) = at(connections, token) else { return true };
    if connection.unsent.is_empty() {
        return !connection.closing;
    }
    match reactor.send(token, &connection.unsent) {
        Ok(sent) if sent == connection.unsent.len() => connection.unsent.clear(),
        Ok(sent) => drop(connection.unsent.drain(..sent)),
        Err(_) => return false,
    }
    if connection.unsent.is_empty() {
        return !connection.closing;
    }
    reactor.want_writable(token);
    true
}

/// The connection of a token of this turn, so that its slot is still its own.
fn at(connections: &mut [Option<Connection>], token: Token) -> Option<&mut Connection> {
    connections.get_mut(token.index()).and_then(Option::as_mut)
}
