//! darter-histcheck: clients at work on a real server, and a proof or a counterexample afterwards.
//!
//! 32 clients run transactions, scripts, multi-key, renaming and blocking commands over few keys; what each of them saw
//! is checked for strict serializability (`check`). Done for several numbers of server threads and both I/O drivers; with
//! `--moves N` for a cluster of three groups instead, until N slots have moved between them (`cluster`).
#![forbid(unsafe_code)]

mod check;
mod client;
mod cluster;
mod graph;
mod history;
#[cfg(test)]
mod tests;
mod work;

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::client::Client;
use crate::history::History;
use crate::work::{Worker, World, read_all};

/// Checks that what clients see is strictly serializable.
#[derive(Parser)]
struct Flags {
    /// The server.
    #[arg(long, default_value = "target/release/darter")]
    darter: String,
    /// Operations of each setting.
    #[arg(long, default_value_t = 100_000)]
    ops: u64,
    /// Operations between two moments of rest, after each of which is checked.
    #[arg(long, default_value_t = 20_000)]
    piece: u64,
    /// Clients.
    #[arg(long, default_value_t = 32)]
    clients: u32,
    /// Server threads, a setting each.
    #[arg(long, default_value = "1,2,4,8", value_delimiter = ',')]
    threads: Vec<u32>,
    /// Further flags of the server, a setting each; both I/O drivers unless said otherwise.
    #[arg(long, default_values = ["--force_epoll=true", "--force_epoll=false"])]
    with: Vec<String>,
    /// Moves of slots in a cluster of three groups, instead of all this. Needs etcd and redis-cli.
    #[arg(long, default_value_t = 0)]
    moves: u64,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    if flags.moves > 0 {
        return match cluster::run(&flags) {
            Ok(counts) => {
                println!("three groups: {counts}, no anomaly");
                ExitCode::SUCCESS
            }
            Err(error) => {
                println!("three groups: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut failed = 0;
    for threads in &flags.threads {
        for with in &flags.with {
            let began = Instant::now();
            match run(&flags, *threads, with) {
                Ok(ops) => println!(
                    "{threads} threads, {with}: {ops} operations, no anomaly, {:.1} s",
                    began.elapsed().as_secs_f64()
                ),
                Err(error) => {
                    println!("{threads} threads, {with}: {error}");
                    failed += 1;
                }
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A server process that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port on which nobody listens.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn run(flags: &Flags, threads: u32, with: &str) -> io::Result<u64> {
    let port = free_port()?;
    let process = Command::new(&flags.darter)
        .args(["--bind", "127.0.0.1", "--save", "", "--dbfilename", "", "--port", &port.to_string()])
        .args(["--proactor_threads", &threads.to_string()])
        .arg(with)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut server = Server(process);
    let began = Instant::now();
    let mut reader = loop {
        match Client::connect(port) {
            Ok(client) => break client,
            Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
        if let Some(status) = server.0.try_wait()? {
            return Err(io::Error::other(format!("the server has ended: {status}")));
        }
    };
    let mut done = 0;
    for piece in 0.. {
        if done >= flags.ops {
            break;
        }
        let (history, count) = one_piece(flags, port, piece, &mut reader)?;
        done += count;
        let anomalies = check::check(&history);
        if !anomalies.is_empty() {
            let shown: Vec<String> = anomalies.iter().map(|anomaly| format!("{anomaly:?}")).collect();
            let text = format!("after {done} operations, seed {}:\n{}", flags.seed, shown.join("\n"));
            return Err(io::Error::other(text));
        }
        reader.call(&["FLUSHALL"])?;
    }
    Ok(done)
}

/// One run of all clients from rest to rest.
fn one_piece(flags: &Flags, port: u16, piece: u64, reader: &mut Client) -> io::Result<(History, u64)> {
    let world = World::new(format!("h{piece}"), flags.clients);
    let each = (flags.piece / u64::from(flags.clients)).max(1);
    let parts: Vec<io::Result<History>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..flags.clients)
            .map(|own| {
                let world = &world;
                let seed = flags.seed ^ piece << 20 ^ u64::from(own) << 48;
                scope.spawn(move || Worker::new(world, own, seed, Client::connect(port)?).run(each))
            })
            .collect();
        let panicked = |_| Err(io::Error::other("a client panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    });
    let mut history = read_all(&world, reader)?;
    for part in parts {
        history.add(part?);
    }
    Ok((history, each * u64::from(flags.clients)))
}
