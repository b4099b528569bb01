//! Any bytes to a live server: a fixed number of broken, cut and spliced requests, from the corpus and from a seed.
//!
//! Whatever comes, the server answers or closes the connection, goes on serving others, loses no key and stays small.
//! An input that ever broke it goes to `tests/corpus/wire/parser` as a file.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use crate::harness::{Server, Value};
use darter_base::rng::Rng;

/// Inputs sent; the seed makes each the same on every run.
const INPUTS: usize = 1500;
const SEED: u64 = 0x5eed_0002;
/// Far above what a server without data needs, far below what one claimed length could ask for.
const RSS_KB_MAX: u64 = 200_000;

fn below(random: &mut Rng, n: usize) -> usize {
    random.below(n as u64) as usize
}

/// The requests to start from: what the codecs' corpora hold, and whole commands of every shape.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = COMMANDS.iter().map(|words| request(words)).collect();
    for folder in ["parser", "memcache"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/wire").join(folder);
        let mut files: Vec<_> =
            std::fs::read_dir(path).expect("the corpus").flatten().map(|f| f.path()).collect();
        files.sort();
        seeds.extend(files.iter().map(|file| std::fs::read(file).expect("a seed")));
    }
    seeds
}

/// Nothing that ends, stops or empties the server: such a command is allowed to.
const COMMANDS: &[&[&str]] = &[
    &["GET", "canary"],
    &["SET", "k:1", "value", "EX", "100"],
    &["MSET", "k:1", "a", "k:2", "b"],
    &["APPEND", "k:1", "x"],
    &["SETRANGE", "k:3", "100", "x"],
    &["LPUSH", "list", "a", "b"],
    &["HSET", "hash", "f", "v"],
    &["ZADD", "zset", "1.5", "m"],
    &["SADD", "set", "1", "x"],
    &["XADD", "stream", "*", "f", "v"],
    &["EVAL", "return redis.call('get', KEYS[1])", "1", "canary"],
    &["MULTI"],
    &["EXEC"],
    &["SUBSCRIBE", "channel"],
    &["BLPOP", "nolist", "0.01"],
    &["HELLO", "3"],
    &["CLIENT", "TRACKING", "ON"],
    &["SCAN", "0", "COUNT", "1000"],
    &["SORT", "list", "ALPHA"],
    &["OBJECT", "ENCODING", "k:1"],
    &["PFADD", "hll", "x"],
    &["GEOADD", "geo", "13.4", "52.5", "b"],
    &["BITFIELD", "bits", "SET", "u8", "0", "255"],
];

/// Words that a command must not have here: what they do is no defect. The corpus has some of them.
const FORBIDDEN: &[&[u8]] =
    &[b"shutdown", b"flush", b"swapdb", b"debug", b"pause", b"failover", b"rename", b"kill"];

/// Whether `word` stands in `bytes`, in any case.
fn has_word(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Pieces with a meaning in the protocol, put where they do not belong.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"*",
    b"$",
    b"*-1\r\n",
    b"$-1\r\n",
    b"*2147483648\r\n",
    b"*1048576\r\n",
    b"$536870912\r\n",
    b"$99999999999999999999\r\n",
    b"\0",
    b"\xff\xff",
    b"$0\r\n\r\n",
    b"*0\r\n",
    b"\"",
    b"'",
    b"\\x",
    b"get ",
    b"mg ",
    b"*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n",
    b" ",
];

/// One seed, or two together, with some of its bytes changed.
fn broken(random: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[below(random, seeds.len())].clone();
    if below(random, 3) == 0 {
        bytes.extend_from_slice(&seeds[below(random, seeds.len())]);
    }
    for _ in 0..below(random, 6) {
        let at = below(random, bytes.len() + 1);
        match below(random, 6) {
            0 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << below(random, 8),
            2 => bytes.truncate(at),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => {
                let piece = PIECES[below(random, PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => {
                let noise: Vec<u8> = (0..below(random, 40)).map(|_| random.next_u64() as u8).collect();
                bytes.splice(at..at, noise);
            }
        }
    }
    bytes
}

/// Sends the bytes in two pieces, ends the stream and reads until the server ends it too.
fn send(port: u16, bytes: &[u8], cut: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
    // A server that has closed already refuses the rest; that is an answer.
    let _ = stream.write_all(head).and_then(|()| stream.write_all(tail));
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("neither answered nor closed ({error}): {}", bytes.escape_ascii()),
    }
}

fn rss_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its resident size");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("kilobytes")
}

fn bombard(flags: &[&str], seed: u64) {
    let server = Server::start(flags);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "canary", "alive"]), Value::ok());
    let (seeds, mut random) = (seeds(), Rng::new(seed));
    for n in 0..INPUTS {
        let bytes = broken(&mut random, &seeds);
        if FORBIDDEN.iter().any(|word| has_word(&bytes, word)) {
            continue;
        }
        let cut = below(&mut random, bytes.len() + 1);
        send(server.port(), &bytes, cut);
        if n % 100 == 0 {
            assert_eq!(client.call(&["GET", "canary"]), Value::Text("alive".into()), "after {n} inputs");
            assert_eq!(server.client().call(&["PING"]), Value::Status("PONG".into()), "after {n} inputs");
        }
    }
    assert_eq!(client.call(&["GET", "canary"]), Value::Text("alive".into()));
    let rss_kb = rss_kb(server.pid());
    assert!(rss_kb < RSS_KB_MAX, "{rss_kb} kB resident");
}

#[test]
fn any_bytes_leave_the_server_serving() {
    bombard(&["--proactor_threads=2"], SEED);
}

#[test]
fn any_bytes_leave_the_server_serving_by_epoll_alone() {
    bombard(&["--proactor_threads=2", "--force_epoll"], SEED + 1);
}
