//! Documents, sketches and time series: server CPU per operation, bytes per byte or item, and the longest hold.
//!
//! A row fills a fresh server, then sends one kind of command in batches over one connection. CPU is that of all threads
//! of the server, so neighbours of the machine change it little. A server that does not know a command has no number.

#[path = "../../../crates/document/examples/catalogue/mod.rs"]
mod catalogue;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::replies::{Protocol, ReplyCounter};
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::usage::Cpu;

/// Commands in flight.
const BATCH: u64 = 50;
/// A command as its words.
type Words = Vec<String>;

/// A row of the table.
struct Row {
    name: &'static str,
    /// What the goal is, in the unit of the row.
    goal: &'static str,
    /// Commands that fill the server: their number, and each of them.
    fill: (u64, fn(u64) -> Words),
    measured: Measured,
}

/// What a row measures.
enum Measured {
    /// Server CPU of so many commands, each of so many items: nanoseconds an item.
    Cpu(u64, u64, fn(u64) -> Words),
    /// Items in a second of server CPU, millions.
    Rate(u64, u64, fn(u64) -> Words),
    /// Growth of `used_memory` by the fill, for each of this number of units.
    Memory(f64),
    /// The longest time that a shard was held, microseconds, while commands run.
    Hold(u64, fn(u64) -> Words),
}

fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

fn none(_: u64) -> Words {
    words("PING")
}

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

/// A document of some 1,065 bytes, half of it one text.
fn product(n: u64) -> String {
    let tags: Vec<String> = (0..8).map(|tag| format!("\"tag-{}\"", mixed(n * 8 + tag) % 500)).collect();
    let text: Vec<String> = (0..60).map(|word| format!("word{}", mixed(n * 60 + word) % 3000)).collect();
    format!(
        "{{\"id\":{n},\"name\":\"Product number {n}\",\"price\":{}.{:02},\"stock\":{},\"active\":{},\"category\":{{\"id\":{},\
         \"name\":\"Category {}\"}},\"tags\":[{}],\"rating\":{}.{},\"size\":{{\"width\":{},\"height\":{},\"depth\":{}}},\
         \"created\":\"2026-03-{:02}T10:20:30Z\",\"description\":\"{}\"}}",
        mixed(n) % 1000,
        mixed(n) % 100,
        mixed(n) % 5000,
        n.is_multiple_of(3),
        n % 90,
        n % 90,
        tags.join(","),
        n % 5,
        n % 10,
        n % 300,
        n % 200,
        n % 100,
        1 + n % 28,
        text.join(" "),
    )
}

/// A document of some 850 bytes with the members of a tweet: half of it texts, a third names.
fn tweet(n: u64) -> String {
    let word = |at: u64| format!("word{}", mixed(n * 97 + at) % 3000);
    let text: Vec<String> = (0..12).map(word).collect();
    format!(
        "{{\"created_at\":\"Sat Nov {:02} {:02}:20:30 +0000 2026\",\"id\":{},\"id_str\":\"{}\",\"text\":\"{}\",\"source\":\"web\",\
         \"truncated\":false,\"in_reply_to_status_id\":null,\"in_reply_to_user_id\":null,\"a\":{{\"b\":{n}}},\
         \"user\":{{\"id\":{},\"name\":\"{} {}\",\"screen_name\":\"{}_{}\",\"location\":\"{}\",\"followers_count\":{},\
         \"friends_count\":{},\"listed_count\":{},\"favourites_count\":{},\"verified\":false,\"statuses_count\":{},\"lang\":\"en\",\
         \"profile_image_url\":\"https://img.example.com/{}/{}.jpeg\"}},\"retweet_count\":{},\"favorite_count\":{},\
         \"entities\":{{\"hashtags\":[\"{}\",\"{}\"],\"urls\":[\"https://t.example/{}\"],\"user_mentions\":[{}]}},\
         \"possibly_sensitive\":false}}",
        1 + n % 28,
        n % 24,
        1_800_000_000_000_000_000 + mixed(n) % 1_000_000_000,
        1_800_000_000_000_000_000 + mixed(n) % 1_000_000_000,
        text.join(" "),
        mixed(n + 1) % 1_000_000_000,
        word(20),
        word(21),
        word(22),
        n % 1000,
        word(23),
        mixed(n) % 100_000,
        mixed(n) % 3000,
        n % 50,
        mixed(n) % 9000,
        mixed(n) % 40_000,
        mixed(n) % 100_000_000,
        word(24),
        n % 70,
        mixed(n) % 700,
        word(25),
        word(26),
        mixed(n) % 10_000_000,
        mixed(n + 2) % 1_000_000_000,
    )
}

/// A user of some 470 bytes, with an address and 200 bytes of text.
fn user(n: u64) -> String {
    let word = |at: u64| format!("word{}", mixed(n * 89 + at) % 3000);
    let text: Vec<String> = (0..25).map(word).collect();
    format!(
        "{{\"id\":{n},\"first_name\":\"{}\",\"last_name\":\"{}\",\"email\":\"{}.{}@example.com\",\"active\":{},\"age\":{},\
         \"address\":{{\"street\":\"{} street {}\",\"city\":\"{}\",\"country\":\"DE\",\"postcode\":\"{}\"}},\"about\":\"{}\"}}",
        word(30),
        word(31),
        word(30),
        word(31),
        n.is_multiple_of(3),
        18 + n % 70,
        word(32),
        n % 200,
        word(33),
        10_000 + n % 80_000,
        text.join(" "),
    )
}

fn set_tweet(n: u64) -> Words {
    vec!["JSON.SET".to_owned(), format!("t:{n}"), "$".to_owned(), tweet(n)]
}

fn set_user(n: u64) -> Words {
    vec!["JSON.SET".to_owned(), format!("u:{n}"), "$".to_owned(), user(n)]
}

fn set_catalogue_row(n: u64) -> Words {
    vec!["JSON.SET".to_owned(), format!("c:{n}"), "$".to_owned(), catalogue::row(n)]
}

fn set_product(n: u64) -> Words {
    vec!["JSON.SET".to_owned(), format!("p:{n}"), "$".to_owned(), product(n)]
}

/// A document of 1.4 KB with nested values.
fn set_nested(n: u64) -> Words {
    let text = format!("{{\"a\":{{\"b\":{n},\"c\":[1,2.5,\"x\"]}},\"n\":{n},\"rest\":{}}}", product(n));
    let padded = format!("{},\"pad\":\"{}\"}}", text.strip_suffix('}').unwrap_or(&text), "y".repeat(250));
    vec!["JSON.SET".to_owned(), format!("d:{}", n % 1000), "$".to_owned(), padded]
}

/// A piece of a document of 50 MB.
fn grow_document(n: u64) -> Words {
    if n == 0 {
        return words("JSON.SET big $ {\"rows\":[],\"n\":0}");
    }
    let mut all = words("JSON.ARRAPPEND big $.rows");
    all.extend((0..50).map(|row| product(n * 50 + row)));
    all
}

fn with_items(head: &str, n: u64, count: u64, item: impl Fn(u64) -> String) -> Words {
    let mut all = words(head);
    all.extend((n * count..(n + 1) * count).map(item));
    all
}

/// Samples of a line of TS.MADD.
const SAMPLES: u64 = 500;

fn samples(n: u64, value: impl Fn(u64) -> String) -> Words {
    if n == 0 {
        return words("TS.CREATE ts LABELS kind cpu host a");
    }
    let mut all = words("TS.MADD");
    for at in (n - 1) * SAMPLES..n * SAMPLES {
        all.extend(["ts".to_owned(), (1_700_000_000_000 + at * 10_000).to_string(), value(at)]);
    }
    all
}

fn decimals(n: u64) -> Words {
    samples(n, |at| format!("{}.{}", 20 + mixed(at / 50) % 5, mixed(at) % 10))
}

fn floats(n: u64) -> Words {
    samples(n, |at| format!("{:e}", f64::from_bits(mixed(at) >> 2 | 1 << 52)))
}

const FILL: u64 = 20_001;

fn rows() -> Vec<Row> {
    use Measured::{Cpu, Hold, Memory, Rate};
    let row = |name, goal, fill, measured| Row { name, goal, fill, measured };
    let rows: f64 = (0..50_000).map(|n| catalogue::row(n).len() as f64).sum();
    let bytes_of = |text: fn(u64) -> String| (0..50_000).map(|n| text(n).len() as f64).sum();
    let (raw, tweets, users): (f64, f64, f64) = (bytes_of(product), bytes_of(tweet), bytes_of(user));
    vec![
        row(
            "JSON, bytes for a byte of text: rows of a catalogue",
            "<= 0.80",
            (50_000, set_catalogue_row),
            Memory(rows),
        ),
        row(
            "JSON, bytes for a byte of text: half of it one text",
            "<= 0.80",
            (50_000, set_product),
            Memory(raw),
        ),
        row("JSON, bytes for a byte of text: like tweets", "<= 0.80", (50_000, set_tweet), Memory(tweets)),
        row(
            "JSON, bytes for a byte of text: users with an address",
            "<= 0.80",
            (50_000, set_user),
            Memory(users),
        ),
        row("JSON.SET of 1.4 KB, ns", "<= 4000", (1000, set_nested), Cpu(100_000, 1, set_nested)),
        row(
            "JSON.GET of 1.4 KB, ns",
            "<= 2000",
            (1000, set_nested),
            Cpu(100_000, 1, |n| words(&format!("JSON.GET d:{}", n % 1000))),
        ),
        row(
            "JSON.GET d $.a.b, ns",
            "<= 400",
            (1000, set_nested),
            Cpu(300_000, 1, |n| words(&format!("JSON.GET d:{} $.a.b", n % 1000))),
        ),
        row(
            "JSON.NUMINCRBY d $.n, ns",
            "<= 600",
            (1000, set_nested),
            Cpu(300_000, 1, |n| words(&format!("JSON.NUMINCRBY d:{} $.n 1", n % 1000))),
        ),
        row(
            "JSON.SET of one path in 50 MB, ns",
            "<= 20000",
            (1000, grow_document),
            Cpu(20_000, 1, |n| words(&format!("JSON.SET big $.rows[{}].price {n}", mixed(n) % 49_000))),
        ),
        row(
            "BF at 1 % without items, bits an item of its capacity",
            "<= 11.03",
            (1, |_| words("BF.RESERVE bf 0.01 10000000")),
            Memory(1e7 / 8.0),
        ),
        row(
            "BF full at 1 %, bits an item",
            "11.03 + 2 %",
            (10_001, |n| {
                if n == 0 {
                    words("BF.RESERVE bf 0.01 10000000")
                } else {
                    with_items("BF.MADD bf", n, 1000, |i| i.to_string())
                }
            }),
            Memory(1e7 / 8.0),
        ),
        row(
            "BF NONSCALING full, bits an item",
            "9.585 + 2 %",
            (10_001, |n| {
                if n == 0 {
                    words("BF.RESERVE bf 0.01 10000000 NONSCALING")
                } else {
                    with_items("BF.MADD bf", n - 1, 1000, |i| i.to_string())
                }
            }),
            Memory(1e7 / 8.0),
        ),
        row(
            "BF.ADD, ns",
            "a third of RedisBloom's",
            (1, |_| words("BF.RESERVE bf 0.01 1000000")),
            Cpu(500_000, 1, |n| words(&format!("BF.ADD bf item:{n}"))),
        ),
        row(
            "BF.EXISTS, ns",
            "a third of RedisBloom's",
            (1001, |n| {
                if n == 0 {
                    words("BF.RESERVE bf 0.01 1000000")
                } else {
                    with_items("BF.MADD bf", n, 1000, |i| format!("item:{i}"))
                }
            }),
            Cpu(500_000, 1, |n| words(&format!("BF.EXISTS bf item:{n}"))),
        ),
        row(
            "BF.MADD of 1,000 in a filter of 1 GiB, ns an item",
            "<= 60",
            (2001, |n| {
                if n == 0 {
                    words("BF.RESERVE bf 0.01 800000000")
                } else {
                    with_items("BF.MADD bf", n, 1000, |i| i.to_string())
                }
            }),
            Cpu(2000, 1000, |n| with_items("BF.MADD bf", 5000 + n, 1000, |i| i.to_string())),
        ),
        row(
            "CF.ADD, ns",
            "-",
            (1, |_| words("CF.RESERVE cf 2000000")),
            Cpu(300_000, 1, |n| words(&format!("CF.ADD cf item:{n}"))),
        ),
        row(
            "CMS.INCRBY, ns",
            "-",
            (1, |_| words("CMS.INITBYDIM cm 2000 7")),
            Cpu(300_000, 1, |n| words(&format!("CMS.INCRBY cm item:{} 1", n % 5000))),
        ),
        row(
            "TOPK.ADD, ns",
            "-",
            (1, |_| words("TOPK.RESERVE tk 50 2000 7 0.925")),
            Cpu(300_000, 1, |n| words(&format!("TOPK.ADD tk item:{}", mixed(n) % 5000))),
        ),
        row(
            "TDIGEST.ADD of 1,000, ns a value",
            "<= 40",
            (1, |_| words("TDIGEST.CREATE td")),
            Cpu(3000, 1000, |n| {
                with_items("TDIGEST.ADD td", n, 1000, |i| (mixed(i) % 1_000_000).to_string())
            }),
        ),
        row(
            "TDIGEST.QUANTILE of five, ns",
            "-",
            (11, |n| {
                if n == 0 {
                    words("TDIGEST.CREATE td")
                } else {
                    with_items("TDIGEST.ADD td", n, 1000, |i| (mixed(i) % 1_000_000).to_string())
                }
            }),
            Cpu(100_000, 1, |_| words("TDIGEST.QUANTILE td 0.1 0.5 0.9 0.99 0.999")),
        ),
        row(
            "series of decimals at regular times, bytes a sample",
            "<= 1.2",
            (2001, decimals),
            Memory(2000.0 * SAMPLES as f64),
        ),
        row(
            "series of any floats at regular times, bytes a sample",
            "<= 8.2",
            (2001, floats),
            Memory(2000.0 * SAMPLES as f64),
        ),
        row(
            "TS.ADD in order, ns",
            "<= 800",
            (1, decimals),
            Cpu(500_000, 1, |n| {
                words(&format!("TS.ADD ts {} {}.{}", 1_800_000_000_000 + n * 10_000, n % 7, n % 10))
            }),
        ),
        row(
            "TS.RANGE of 10M samples, avg by weeks, million samples/s",
            ">= 300",
            (FILL, decimals),
            Rate(40, 10_000_000, |_| words("TS.RANGE ts - + AGGREGATION avg 604800000")),
        ),
        row(
            "TS.RANGE of 10M samples, max by hours, million samples/s",
            "-",
            (FILL, decimals),
            Rate(10, 10_000_000, |_| words("TS.RANGE ts - + AGGREGATION max 3600000")),
        ),
        row(
            "TS.MRANGE of 10M samples, longest hold in us",
            "<= 1000",
            (FILL, decimals),
            Hold(3, |_| words("TS.MRANGE - + FILTER kind=cpu")),
        ),
        row(
            "TS.DEL of 10M samples, longest hold in us",
            "<= 1000",
            (FILL, decimals),
            Hold(1, |_| words("TS.DEL ts - +")),
        ),
        row("PING, ns: what a command costs that does nothing", "-", (1, none), Cpu(500_000, 1, none)),
    ]
}

/// Prints the rows whose name contains `only`, for Darter, and for Redis if it has the modules.
pub fn run(setting: &Setting, only: &str, redis_flags: &[String]) -> io::Result<()> {
    let mut programs = vec![setting.darter(1)];
    if !redis_flags.is_empty() {
        let flags: Vec<&str> = redis_flags.iter().map(String::as_str).collect();
        programs.push(setting.redis().with_flags(&flags));
    }
    let names: Vec<&str> = programs.iter().map(Program::label).collect();
    println!("| what | goal | {} |\n|---|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for row in rows().iter().filter(|row| row.name.contains(only)) {
        let numbers: Vec<String> = programs.iter().map(|program| shown(row, program, setting)).collect();
        println!("| {} | {} | {} |", row.name, row.goal, numbers.join(" | "));
    }
    Ok(())
}

/// The best of the rounds.
fn shown(row: &Row, program: &Program, setting: &Setting) -> String {
    let is_larger_better = matches!(row.measured, Measured::Rate(..));
    let mut best: Option<f64> = None;
    for _ in 0..setting.rounds.max(1) {
        match measure(row, program, setting) {
            Err(error) => return error.to_string().chars().take(60).collect(),
            Ok(number) => {
                let is_better = |old: f64| if is_larger_better { number > old } else { number < old };
                best = best.filter(|old| !is_better(*old)).or(Some(number));
            }
        }
    }
    let best = best.unwrap_or(f64::NAN);
    if best < 100.0 { format!("{best:.2}") } else { format!("{best:.0}") }
}

fn measure(row: &Row, program: &Program, setting: &Setting) -> io::Result<f64> {
    let server = Server::start(program, &setting.server_cores)?;
    let mut line = Line::open(&server)?;
    let before = field(&server, "memory", "used_memory")?;
    line.send(row.fill.0, row.fill.1)?;
    match row.measured {
        Measured::Memory(units) => Ok((field(&server, "memory", "used_memory")? - before) / units),
        Measured::Cpu(calls, items, command) => {
            let used = spent(&server, || line.send(calls, command))?;
            Ok(used.as_nanos() as f64 / (calls * items) as f64)
        }
        Measured::Rate(calls, items, command) => {
            let used = spent(&server, || line.send(calls, command))?;
            Ok((calls * items) as f64 / used.as_secs_f64() / 1e6)
        }
        Measured::Hold(calls, command) => {
            server.ask(&["CONFIG", "RESETSTAT"])?;
            line.send(calls, command)?;
            field(&server, "transaction", "hold_usec_max")
        }
    }
}

/// Server CPU while `run` runs.
fn spent(server: &Server, run: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let before = Cpu::of(server.pid())?;
    run()?;
    Ok(Cpu::of(server.pid())?.since(&before).total)
}

/// A number of INFO.
fn field(server: &Server, section: &str, name: &str) -> io::Result<f64> {
    let info = server.ask(&["INFO", section])?;
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = value.and_then(|value| value.trim().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("INFO {section} has no {name}")))
}

/// A connection that sends commands and counts what comes back.
struct Line {
    stream: TcpStream,
    counter: ReplyCounter,
    chunk: Vec<u8>,
}

impl Line {
    fn open(server: &Server) -> io::Result<Line> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Line { stream, counter: ReplyCounter::new(Protocol::Resp), chunk: vec![0; 256 << 10] })
    }

    /// Sends `count` commands and waits for their replies.
    ///
    /// Errors: one of them is answered an error.
    fn send(&mut self, count: u64, command: fn(u64) -> Words) -> io::Result<()> {
        let mut next = 0;
        while next < count {
            let end = (next + BATCH).min(count);
            let mut request = Vec::new();
            for words in (next..end).map(command) {
                request.extend(format!("*{}\r\n", words.len()).into_bytes());
                for word in words {
                    request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
                }
            }
            self.stream.write_all(&request)?;
            let mut missing = end - next;
            while missing > 0 {
                let len = self.stream.read(&mut self.chunk)?;
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let done = self.counter.feed(&self.chunk[..len]);
                missing -= done.map_err(|bad| io::Error::other(bad.0))?;
            }
            next = end;
        }
        match self.counter.first_error() {
            Some(error) => Err(io::Error::other(error.to_owned())),
            None => Ok(()),
        }
    }
}
