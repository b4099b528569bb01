//! `darter --ping [[HOST:]PORT | settings]`: asks a server whether it serves, for health checks where there is no client.
//! Without an address it is the server that the same settings would start: file, environment and flags.
//!
//! Called by `main` before flags are read. Exit code 0 when it serves, 1 when not, 2 for a wrong call. A server that
//! wants a password or TLS first does serve.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use darter_config::{Settings, Startup};

const USAGE: u8 = 2;
/// For each step: connecting, asking, waiting for the answer.
const TIME_MAX: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: u64 = 256;

/// Does what the arguments ask for if they ask for that; `None` when they do not.
pub fn run(args: &[OsString]) -> Option<ExitCode> {
    let at = args.iter().position(|word| word == "--ping")?;
    let words: Vec<&str> = args.iter().skip(1).filter_map(|word| word.to_str()).collect();
    match words.as_slice() {
        ["--ping", place] if is_address(place) => Some(ping(place)),
        _ => {
            let mut others = args.to_vec();
            others.remove(at);
            Some(ping_by_settings(others))
        }
    }
}

/// Whether a word is `[HOST:]PORT` and no file and no flag.
fn is_address(word: &str) -> bool {
    let port = word.rsplit_once(':').map_or(word, |(_, port)| port);
    !word.starts_with('-') && port.parse::<u16>().is_ok()
}

/// Asks the server that these settings would start.
fn ping_by_settings(args: Vec<OsString>) -> ExitCode {
    match Settings::parse(args, std::env::vars_os()) {
        Ok(Startup::Serve { settings, .. }) => {
            let live = settings.live();
            let Some(port) = live.port.or(live.tls.port).filter(|&port| port != 0) else {
                eprintln!("darter: these settings name no port: darter --ping [HOST:]PORT");
                return ExitCode::from(USAGE);
            };
            // One that listens on all addresses listens on this one.
            let host = live.bind.iter().map(|word| word.trim_start_matches('-'));
            let host = host.into_iter().find(|word| !matches!(*word, "*" | "::*" | "0.0.0.0" | "::"));
            match host.unwrap_or("127.0.0.1") {
                host if host.contains(':') => ping(&format!("[{host}]:{port}")),
                host => ping(&format!("{host}:{port}")),
            }
        }
        Ok(Startup::Print(_)) => ExitCode::from(USAGE),
        Err(usage) => {
            eprintln!("darter: {usage}");
            ExitCode::from(USAGE)
        }
    }
}

fn ping(place: &str) -> ExitCode {
    let address = if place.contains(':') { place.to_owned() } else { format!("127.0.0.1:{place}") };
    match ask(&address) {
        Ok(answer) => {
            // whoever reads may stop early
            let _ = writeln!(std::io::stdout(), "{answer}");
            if serves(&answer) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("darter: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The first line of the answer to PING.
fn ask(address: &str) -> std::io::Result<String> {
    let mut last = std::io::Error::other("no such host");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIME_MAX) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(TIME_MAX))?;
                stream.set_write_timeout(Some(TIME_MAX))?;
                stream.write_all(b"PING\r\n")?;
                let mut answer = Vec::new();
                BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
                return Ok(String::from_utf8_lossy(&answer).trim_end().to_owned());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether an answer is one of a server that takes commands, once the client has logged in or encrypts.
fn serves(answer: &str) -> bool {
    answer == "+PONG" || answer.starts_with("-NOAUTH") || answer.starts_with("-ERR Bad TLS header")
}
