//! How long any one command holds its shards: every command of `holds/commands.tsv` on large collections, by the
//! server's own clock.
//!
//! A hold that is interrupted by other load is as long as the interruption, so of several runs the one with the shortest
//! longest hold counts.

mod rows;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::replies::{Protocol, ReplyCounter};
use crate::server::Server;
use crate::setting::Setting;
use rows::{Row, Rows, Sizes};

/// What came of one command.
struct Hold {
    command: String,
    whole: String,
    // Microseconds, of the best run.
    longest_us: f64,
    p99_us: f64,
    // Holds of that run.
    count: u64,
    // Blocks of memory that the greatest of them asked for, where the server counts them (a debug build).
    blocks: Option<f64>,
}

/// Runs all commands whose text contains `only`, and prints the table, the longest holds first.
pub fn run(setting: &Setting, (members, words): (u64, u64), only: &str) -> io::Result<()> {
    let server = Server::start(&setting.darter(1), &setting.server_cores)?;
    let sizes = Sizes { members, words };
    let rows = Rows::new();
    let mut client = Client::connect(&server)?;
    client.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])?;
    for (head, item) in &rows.fills {
        client.fill(&sizes, head, item)?;
    }
    let mut holds = Vec::new();
    for row in rows.commands.iter().filter(|row| row.command.contains(only)) {
        match client.measure(&sizes, row, setting.rounds)? {
            Ok(hold) => holds.push(hold),
            Err(line) => eprintln!("{}: {line}", row.command),
        }
    }
    holds.sort_by(|a, b| b.longest_us.total_cmp(&a.longest_us));
    println!("| command | longest hold, µs | p99, µs | holds | blocks | why |\n|---|---|---|---|---|---|");
    for hold in &holds {
        let blocks = hold.blocks.map_or_else(|| "-".to_owned(), |blocks| blocks.to_string());
        println!(
            "| {} | {:.1} | {:.1} | {} | {blocks} | {} |",
            hold.command, hold.longest_us, hold.p99_us, hold.count, hold.whole
        );
    }
    Ok(())
}

struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> io::Result<Client> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream.set_nodelay(true)?;
        Ok(Client(stream))
    }

    fn fill(&mut self, sizes: &Sizes, head: &[String], item: &[String]) -> io::Result<()> {
        let is_single = head.first().is_some_and(|name| name.starts_with('!'));
        let step = if is_single { 1 } else { 1000 };
        for first in (0..sizes.members).step_by(step) {
            let mut words = sizes.item(head, first);
            let last = sizes.members.min(first + step as u64);
            (first..last).for_each(|n| words.extend(sizes.item(item, n)));
            if let Some(name) = words.first_mut() {
                *name = name.trim_start_matches('!').to_owned();
            }
            self.call(&words)?;
        }
        Ok(())
    }

    /// The best run of a command, or the error it was answered with.
    fn measure(&mut self, sizes: &Sizes, row: &Row, rounds: usize) -> io::Result<Result<Hold, String>> {
        let mut best: Option<Hold> = None;
        for _ in 0..rounds.max(1) {
            for before in &row.before {
                self.call(&sizes.spell(before))?;
            }
            self.call(&["CONFIG", "RESETSTAT"])?;
            let reply = self.call(&sizes.spell(&row.command))?;
            if reply.first() == Some(&b'-') {
                return Ok(Err(String::from_utf8_lossy(&reply).trim().to_owned()));
            }
            let text = self.call(&["INFO", "TRANSACTION"])?;
            let text = String::from_utf8_lossy(&text);
            let field = |name: &str| {
                text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse::<f64>().ok())
            };
            let hold = Hold {
                command: row.command.clone(),
                whole: row.whole.clone(),
                longest_us: field("hold_usec_max").unwrap_or(f64::NAN),
                p99_us: field("hold_usec_p99").unwrap_or(f64::NAN),
                count: field("holds_total").unwrap_or(0.0) as u64,
                blocks: field("hold_blocks_max"),
            };
            if best.as_ref().is_none_or(|best| hold.longest_us < best.longest_us) {
                best = Some(hold);
            }
        }
        best.map(Ok).ok_or_else(|| io::Error::other("no round"))
    }

    /// Sends a command and reads its whole reply; returns the beginning of it.
    fn call(&mut self, words: &[impl AsRef<str>]) -> io::Result<Vec<u8>> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.0.write_all(&request)?;
        let mut counter = ReplyCounter::new(Protocol::Resp);
        let (mut reply, mut chunk) = (Vec::new(), vec![0; KEPT_BYTES]);
        loop {
            let len = self.0.read(&mut chunk)?;
            let bytes = chunk.get(..len).unwrap_or_default();
            if reply.len() < KEPT_BYTES {
                reply.extend_from_slice(bytes);
            }
            let ended = counter.feed(bytes).map_err(|error| io::Error::other(format!("{error:?}")))?;
            if len == 0 || ended > 0 {
                return Ok(reply);
            }
        }
    }
}

/// As much of a reply is kept, and a little more.
const KEPT_BYTES: usize = 64 << 10;
