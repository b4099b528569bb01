//! The append-only journal against real processes: what is read back is what was there, for every family of commands,
//! any number of threads, and an end at any moment.

#[path = "../../../tests/compat/src/form.rs"]
mod form;
#[path = "../../../tests/compat/src/grammar/mod.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod grammar;
mod harness;
#[path = "../../../tests/compat/src/rng.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod rng;
#[path = "../../../tests/compat/src/stream.rs"]
#[allow(dead_code, reason = "the comparison with Redis uses all of it")]
mod stream;
#[path = "../../../tests/compat/src/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use form::Form;
use grammar::{FAMILIES, Mode};
use harness::{Server, Value};
use rng::Rng;
use stream::Stream;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("darter-aof-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Dir(path)
    }

    fn start(&self, flags: &[&str]) -> Server {
        let dir = self.0.to_str().expect("a plain name");
        let own = ["--dir", dir, "--appendonly", "yes", "--enable-debug-command", "yes"];
        Server::start(&[&own, flags].concat())
    }

    fn journal(&self) -> PathBuf {
        self.0.join("appendonlydir")
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.journal()).expect("a folder").flatten().map(|file| file.path());
        let mut found: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
        found.sort();
        found
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A number from the environment, for campaigns that are longer than what every run does.
fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A reply, its bytes untouched.
#[derive(Clone, PartialEq, Debug)]
enum Raw {
    Line(Vec<u8>),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Raw>),
}

impl Raw {
    fn bytes(&self) -> &[u8] {
        match self {
            Raw::Line(bytes) | Raw::Bulk(Some(bytes)) => bytes,
            _ => b"",
        }
    }

    fn items(&self) -> &[Raw] {
        if let Raw::Array(items) = self { items } else { &[] }
    }

    fn text(&self) -> String {
        match self {
            Raw::Array(items) => items.iter().map(Raw::text).collect::<Vec<_>>().join(" "),
            other => other.bytes().escape_ascii().to_string(),
        }
    }
}

struct Link(BufReader<TcpStream>);

impl Link {
    fn new(server: &Server) -> Link {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("an option");
        stream.set_nodelay(true).expect("an option");
        Link(BufReader::new(stream))
    }

    fn send(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.0.get_mut().write_all(&encoded(args))
    }

    fn try_call(&mut self, args: &[impl AsRef<[u8]>]) -> Option<Raw> {
        self.send(args).ok()?;
        self.read()
    }

    fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Raw {
        self.try_call(args).expect("a reply")
    }

    fn read(&mut self) -> Option<Raw> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?;
        let (kind, rest) = line.split_first()?;
        let len = || std::str::from_utf8(rest).ok()?.parse::<i64>().ok();
        match kind {
            b'$' => {
                let Ok(len) = usize::try_from(len()?) else { return Some(Raw::Bulk(None)) };
                let mut bytes = vec![0; len + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(len);
                Some(Raw::Bulk(Some(bytes)))
            }
            b'*' => {
                let Ok(len) = usize::try_from(len()?) else { return Some(Raw::Bulk(None)) };
                (0..len).map(|_| self.read()).collect::<Option<Vec<_>>>().map(Raw::Array)
            }
            _ => Some(Raw::Line(line.to_vec())),
        }
    }
}

fn encoded(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Everything that is there, by database and key, but for keys that die within two minutes.
fn contents(server: &Server) -> BTreeMap<(usize, Vec<u8>), String> {
    let mut link = Link::new(server);
    let mut found = BTreeMap::new();
    for db in 0..16_usize {
        link.call(&["SELECT", &db.to_string()]);
        let mut cursor = b"0".to_vec();
        loop {
            let page = link.call(&[b"SCAN".as_slice(), &cursor, b"COUNT", b"500"]);
            let [next, keys] = page.items() else { panic!("a page: {page:?}") };
            for key in keys.items() {
                let key = key.bytes();
                let deadline = link.call(&[b"PEXPIRETIME".as_slice(), key]).text();
                let dies_at: i64 = deadline.trim_start_matches(':').parse().expect("a time");
                if dies_at == -2 || dies_at > 0 && (dies_at as u64) < now_ms() + 120_000 {
                    continue;
                }
                let kind = link.call(&[b"TYPE".as_slice(), key]).text();
                let digest = link.call(&[b"DEBUG".as_slice(), b"DIGEST-VALUE", key]).text();
                let more = match kind.as_str() {
                    "+stream" => {
                        link.call(&[b"XINFO".as_slice(), b"STREAM", key, b"FULL", b"COUNT", b"0"]).text()
                    }
                    "+string" => link.call(&[b"GET".as_slice(), key]).text(),
                    _ => String::new(),
                };
                // of a stream the digest covers when consumers were last seen, as below
                let digest = if kind == "+stream" { "" } else { &digest };
                found.insert(
                    (db, key.to_vec()),
                    format!("{kind} {dies_at} {digest} {}", without_layout(&more)),
                );
            }
            cursor = next.bytes().to_vec();
            if cursor == b"0" {
                break;
            }
        }
    }
    let functions = link.call(&["FUNCTION", "LIST", "WITHCODE"]).text();
    found.insert((99, b"functions".to_vec()), functions);
    found
}

/// How the entries of a stream lie in memory is nobody's business, and when a consumer came and found nothing is not
/// written down, as in Redis.
fn without_layout(text: &str) -> String {
    let mut words = Vec::new();
    let mut skips = 0;
    for word in text.split(' ') {
        if skips > 0 {
            skips -= 1;
        } else if ["radix-tree-keys", "radix-tree-nodes", "seen-time"].contains(&word) {
            skips = 1;
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

fn assert_same(
    before: &BTreeMap<(usize, Vec<u8>), String>,
    after: &BTreeMap<(usize, Vec<u8>), String>,
    what: &str,
) {
    for (place, value) in before {
        let name = place.1.escape_ascii();
        match after.get(place) {
            Some(now) => assert_eq!(value, now, "{what}: db {}, key {name}", place.0),
            None => panic!("{what}: db {}, key {name} is gone: {value}", place.0),
        }
    }
    for (place, value) in after {
        assert!(before.contains_key(place), "{what}: key {} was not there: {value}", place.1.escape_ascii());
    }
}

/// Commands that depend on chance, on how values lie in memory, or on clocks, which Redis could not be compared in.
const BY_CHANCE: &[&str] = &[
    "SADD <key> { <member> }",
    "SADD <key> { <int> }",
    "SPOP <key>",
    "SPOP <key> <count>",
    "SORT <key> BY nosort STORE <key>",
    "SORT <key> ALPHA LIMIT 0 3 STORE <key>",
    "SORT <key> BY x STORE <key>",
    "XADD <key> * f v",
    "XADD <key> NOMKSTREAM MAXLEN ~ 5 LIMIT 3 * f v ~ 3",
    "XADD <key> MAXLEN ~ 120 * maxlen ~",
    "XTRIM <key> MAXLEN ~ 110",
    "XTRIM <key> MINID ~ 5",
    "XGROUP CREATE <key> g 0 MKSTREAM",
    "XREADGROUP GROUP g ( alice | bob ) COUNT 3 STREAMS <key> >",
    "XAUTOCLAIM <key> g bob 0 0 COUNT 2",
    "XACK <key> g 1-1",
    "XGROUP DELCONSUMER <key> g alice",
    "GEOADD <key> 1 1 a 1.1 1.1 b 1.2 1.2 c",
    "GEOSEARCHSTORE <key> <key> FROMLONLAT 1 1 BYRADIUS 1000 km COUNT 1 ANY",
    "GEORADIUS <key> 1 1 1000 km COUNT 1 ANY STORE <key>",
    "SADDEX <key> 1 <member>",
    "SADDEX <key> 1000 <member>",
    "HSET <key> { <member> <value> }",
    "HSETEX <key> 1 <member> <value>",
    "HSETEX <key> 1000 <member> <value>",
    "FIELDEXPIRE <key> 1 <member>",
    "HGETALL <key>",
    "SMEMBERS <key>",
    "SET <key> <value> PX 20",
    "SET <key> <value> NX",
    "PEXPIRE <key> 15",
    "GET <key>",
    "EXISTS <key>",
    "INCR <key>",
    "INCRBYFLOAT <key> 1.1",
    "PFADD <key> { <member> }",
    "PFCOUNT <key>",
    "PFCOUNT <key> <key>",
    "PFMERGE <key> <key>",
    "DEL <key>",
    "RENAME <key> <key>",
    "ZADD <key> <score> <member>",
    "ZPOPMIN <key> 2",
    "RPUSH <key> { <elem> }",
    "LMPOP 2 <key> <key> LEFT COUNT 2",
    "SWAPDB 0 1",
    "MOVE <key> 1",
    "COPY <key> <key> DB 1 REPLACE",
    "EVAL redis.call('spop',KEYS[1])·redis.call('incr','n')·return·redis.call('set',KEYS[1]..'x',redis.call('time')[2]) 1 <key>",
    "EVAL return·redis.call('randomkey') 0",
];

/// Sends ops on several connections, whose replies nobody looks at.
struct Crowd {
    links: Vec<(TcpStream, std::thread::JoinHandle<()>)>,
}

impl Crowd {
    fn new(server: &Server, len: usize) -> Crowd {
        let link = || {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
            let mut reader = stream.try_clone().expect("a copy");
            let drain = std::thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while reader.read(&mut bytes).is_ok_and(|n| n > 0) {}
            });
            (stream, drain)
        };
        Crowd { links: (0..len).map(|_| link()).collect() }
    }

    fn send(&mut self, at: usize, args: &[Vec<u8>]) {
        // a connection that a command has closed is of no use any more
        let at = at % self.links.len();
        let _ = self.links[at].0.write_all(&encoded(args));
    }

    /// Waits until nothing is under way, then leaves.
    fn leave(self, server: &Server) {
        let mut link = Link::new(server);
        link.call(&["CLIENT", "UNPAUSE"]);
        let calm = Instant::now();
        let mut last = String::new();
        loop {
            std::thread::sleep(Duration::from_millis(60));
            let stats = link.call(&["INFO", "stats"]).text();
            let field = |name: &str| {
                stats.split("\\r\\n").find(|line| line.starts_with(name)).unwrap_or("").to_owned()
            };
            let now = field("total_net_input_bytes");
            // the question itself counts: it is what is left when nobody else speaks
            let is_calm = now.len() == last.len() && delta(&last, &now) < 200;
            last = now;
            if is_calm || calm.elapsed() > Duration::from_secs(20) {
                break;
            }
        }
        for (stream, drain) in self.links {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = drain.join();
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn delta(before: &str, after: &str) -> u64 {
    let number = |text: &str| text.split(':').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    number(after).saturating_sub(number(before))
}

fn replay_all_families(threads: usize) {
    let ops = setting("DARTER_REPLAY_OPS", 300);
    let seed = setting("DARTER_SEED", 1) as u64;
    let dir = Dir::new(&format!("families-{threads}"));
    let threads_flag = threads.to_string();
    let flags = ["--proactor_threads", &threads_flag, "--appendfsync", "no"];
    let mut server = dir.start(&flags);
    let direct: Vec<_> = FAMILIES.iter().filter(|family| family.mode != Mode::Raw).collect();
    for (round, family) in direct.iter().enumerate() {
        let mut crowd = Crowd::new(&server, family.connections.max(3));
        let stream = Stream::new(family, seed + round as u64, true, &[]).expect("a family");
        for (n, op) in stream.take(ops).into_iter().enumerate() {
            if n == ops / 2 && round % 2 == 0 {
                crowd.send(0, &[b"BGREWRITEAOF".to_vec()]);
            }
            let name = op.name();
            if ["CONFIG", "SHUTDOWN", "QUIT", "MONITOR"].contains(&name.as_str()) {
                continue;
            }
            crowd.send(op.connection, &op.args);
        }
        crowd.leave(&server);
        let before = contents(&server);
        drop(server);
        server = dir.start(&flags);
        assert_same(
            &before,
            &contents(&server),
            &format!("{threads} threads, family {}, seed {seed}", family.name),
        );
    }
}

#[test]
fn every_family_is_read_back_with_one_thread() {
    replay_all_families(1);
}

#[test]
fn every_family_is_read_back_with_four_threads() {
    replay_all_families(4);
}

#[test]
fn chance_clocks_and_layout_are_read_back_as_they_were() {
    let ops = setting("DARTER_REPLAY_OPS", 1500);
    let seed = setting("DARTER_SEED", 1) as u64;
    let dir = Dir::new("chance");
    let flags = ["--proactor_threads", "2", "--appendfsync", "no"];
    let forms: Vec<Form> = BY_CHANCE.iter().map(|text| Form::parse(text).expect("a form")).collect();
    let mut rng = Rng::new(seed);
    let mut server = dir.start(&flags);
    for round in 0..4 {
        let mut crowd = Crowd::new(&server, 6);
        for n in 0..ops {
            let args = forms[rng.below(forms.len())].expand(&mut rng);
            crowd.send(rng.below(6), &args);
            if n == ops / 2 {
                crowd.send(0, &[b"BGREWRITEAOF".to_vec()]);
            }
            if n % 100 == 0 {
                // members and keys die meanwhile
                std::thread::sleep(Duration::from_millis(40));
            }
        }
        crowd.leave(&server);
        std::thread::sleep(Duration::from_millis(1300));
        let before = contents(&server);
        drop(server);
        server = dir.start(&flags);
        assert_same(&before, &contents(&server), &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn the_memory_of_dead_members_does_not_come_back() {
    let dir = Dir::new("members");
    let server = dir.start(&[]);
    let mut client = server.client();
    client.call(&["HSETEX", "h", "1", "f", "v"]);
    client.call(&["SADDEX", "s", "1", "m"]);
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!(client.call(&["EXISTS", "h", "s"]), Value::Int(0));
    assert_eq!(client.call(&["SET", "h", "1", "NX"]), Value::ok());
    assert_eq!(client.call(&["RPUSH", "s", "a"]), Value::Int(1));
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["GET", "h"]), Value::Text("1".to_owned()));
    assert_eq!(client.call(&["LRANGE", "s", "0", "-1"]), Value::array(&["a"]));
}

/// Counts pairs up in transactions until the server is killed; what was answered must be there, and pairs equal.
///
/// Without `always` a reply does not wait for older records of other threads: what they had not handed to the kernel
/// takes what came after it along, though never what the round before had left.
fn kill_round(dir: &Dir, fsync: &str, round: usize, rng: &mut Rng, expected: &mut [(u64, u64); 4]) {
    let threads = THREADS[round % 3];
    let server = Arc::new(dir.start(&["--appendfsync", fsync, "--proactor_threads", threads]));
    let mut link = Link::new(&server);
    for (writer, expected) in expected.iter_mut().enumerate() {
        let pair = link.call(&["MGET".to_owned(), format!("a{writer}"), format!("b{writer}")]);
        let [a, b] = pair.items() else { panic!("a pair: {pair:?}") };
        assert_eq!(a, b, "round {round}: half a transaction");
        let found: u64 = a.text().parse().unwrap_or(0);
        let (safe, acknowledged) = *expected;
        let is_alone = round > 0 && THREADS[(round - 1) % 3] == "1";
        let wanted = if fsync == "always" || is_alone { acknowledged } else { safe };
        assert!(found >= wanted, "round {round}, {fsync}: {found} of {wanted} are there");
        *expected = (found, found);
    }
    let acknowledged: Arc<[AtomicU64; 4]> = Arc::new(expected.map(|(found, _)| AtomicU64::new(found)));
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (server, acknowledged, ends) = (server.clone(), acknowledged.clone(), ends.clone());
            std::thread::spawn(move || write_pairs(&server, writer, &acknowledged[writer], &ends))
        })
        .collect();
    let ends_at = Instant::now() + Duration::from_millis(20 + rng.below(150) as u64);
    while Instant::now() < ends_at {
        // a new base at any moment, too
        if round % 2 == 1 {
            link.call(&["BGREWRITEAOF"]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = std::process::Command::new("kill").args(["-9", &server.pid().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    ends.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    expected
        .iter_mut()
        .zip(&*acknowledged)
        .for_each(|(expected, seen)| expected.1 = seen.load(Ordering::Relaxed));
}

const THREADS: [&str; 3] = ["1", "2", "4"];

fn write_pairs(server: &Server, writer: usize, acknowledged: &AtomicU64, ends: &AtomicBool) {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", server.port())) else { return };
    let mut link = Link(BufReader::new(stream));
    let (a, b) = (format!("a{writer}"), format!("b{writer}"));
    for n in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        // as a transaction, as a script, as one command of two keys
        let reply = match n % 3 {
            0 => {
                let sent = [vec!["MULTI"], vec!["INCR", &a], vec!["INCR", &b], vec!["EXEC"]];
                let bytes: Vec<u8> = sent.iter().flat_map(|args| encoded(args)).collect();
                if link.0.get_mut().write_all(&bytes).is_err() {
                    return;
                }
                (0..4).map(|_| link.read()).last().flatten().and_then(|reply| reply.items().first().cloned())
            }
            1 => {
                let script = "redis.call('incr',KEYS[1]) return redis.call('incr',KEYS[2])";
                link.try_call(&["EVAL", script, "2", &a, &b])
            }
            _ => {
                let next = (acknowledged.load(Ordering::Relaxed) + 1).to_string();
                let reply = link.try_call(&["MSET", &a, &next, &b, &next]);
                reply.map(|_| Raw::Line(format!(":{next}").into_bytes()))
            }
        };
        let Some(reply) = reply else { return };
        let text = reply.text();
        let Ok(value) = text.trim_start_matches(':').parse() else { panic!("a number: {text}") };
        acknowledged.store(value, Ordering::Relaxed);
    }
}

fn kill_campaign(fsync: &str, usual: usize) {
    let rounds = setting("DARTER_KILL_ROUNDS", usual);
    let dir = Dir::new(&format!("kill-{fsync}"));
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut expected = [(0, 0); 4];
    for round in 0..=rounds {
        kill_round(&dir, fsync, round, &mut rng, &mut expected);
    }
    let written: u64 = expected.iter().map(|(found, _)| found).sum();
    assert!(written > rounds as u64, "nothing was written: {expected:?}");
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered_with_always() {
    kill_campaign("always", 6);
}

#[test]
fn a_kill_at_any_moment_leaves_a_prefix_with_everysec() {
    kill_campaign("everysec", 6);
}

#[test]
fn a_torn_end_is_left_out_and_kept_aside() {
    let dir = Dir::new("torn");
    let server = dir.start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    for n in 0..100 {
        client.call(&["RPUSH", "l", &n.to_string()]);
    }
    drop(server);
    let segment = dir.segments().remove(0);
    let bytes = fs::read(&segment).expect("a segment");
    fs::write(&segment, &bytes[..bytes.len() - 3]).expect("a segment");
    let (is_sound, told) = check(&dir.journal());
    assert!(!is_sound && told.contains("99 records") && told.contains("is cut off"), "{told}");
    let (is_sound, told) = check(&segment);
    assert!(!is_sound && told.contains("is cut off") && told.contains("offset"), "{told}");
    let server = dir.start(&["--proactor_threads", "2"]);
    assert_eq!(server.client().call(&["LLEN", "l"]), Value::Int(99));
    assert!(check(&dir.journal()).0, "what is left is sound");
    server.client().call(&["RPUSH", "l", "new"]);
    drop(server);
    let kept = fs::read_dir(dir.journal()).expect("a folder").flatten();
    assert!(kept.into_iter().any(|file| file.path().to_string_lossy().ends_with(".torn")));
    let server = dir.start(&[]);
    assert_eq!(server.client().call(&["LINDEX", "l", "-1"]), Value::Text("new".to_owned()));
    assert_eq!(server.client().call(&["LLEN", "l"]), Value::Int(100));
}

/// Whether `darter --check` finds a journal or a segment sound, and what it says.
fn check(path: &Path) -> (bool, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_darter")).arg("--check").arg(path).output();
    let output = output.expect("it runs");
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn a_journal_that_may_not_be_cut_is_refused() {
    let dir = Dir::new("refused");
    let server = dir.start(&[]);
    server.client().call(&["SET", "k", "v"]);
    drop(server);
    let segment = dir.segments().remove(0);
    let mut bytes = fs::read(&segment).expect("a segment");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&segment, &bytes).expect("a segment");
    let told = output_of(&dir.0, &["--aof-load-truncated", "no"]);
    assert!(told.contains("journal is damaged") && told.contains("checksum"), "{told}");
    fs::write(dir.journal().join("darter.manifest"), "darter-journal 1\nbase -\n").expect("a manifest");
    let told = output_of(&dir.0, &[]);
    assert!(told.contains("manifest is cut off"), "{told}");
}

/// What a server says that refuses to start.
fn output_of(dir: &Path, flags: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_darter"))
        .args(["--port", "0", "--appendonly", "yes", "--dir", dir.to_str().expect("a plain name")])
        .args(flags)
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn renamed_commands_are_written_under_their_own_names() {
    let dir = Dir::new("renamed");
    let server = dir.start(&["--rename-command", "SET put"]);
    assert_eq!(server.client().call(&["PUT", "k", "v"]), Value::ok());
    drop(server);
    let server = dir.start(&[]);
    assert_eq!(server.client().call(&["GET", "k"]), Value::Text("v".to_owned()));
}

#[test]
fn what_memcached_clients_write_is_read_back() {
    let dir = Dir::new("memcached");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    drop(listener);
    let talk = |text: &str| {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
        stream.write_all(format!("{text}quit\r\n").as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    let server = dir.start(&["--memcached_port", &port]);
    talk(
        "set a 7 0 3\r\nabc\r\nappend a 0 0 1\r\nd\r\nset n 0 0 1\r\n5\r\nincr n 4\r\nset gone 0 0 1\r\nx\r\ndelete gone\r\n",
    );
    talk("set t 1 3000 1\r\nx\r\ntouch t 4000\r\nms m 2 T0 F9\r\nhi\r\n");
    let before = talk("gets a n gone t m\r\n");
    assert!(before.contains("VALUE a 7 4") && before.contains("VALUE m 9 2"), "{before}");
    let deadline = server.client().call(&["PEXPIRETIME", "t"]);
    drop(server);
    let server = dir.start(&["--memcached_port", &port]);
    assert_eq!(talk("get a n gone t m\r\n"), without_cas(&before));
    assert_eq!(server.client().call(&["PEXPIRETIME", "t"]), deadline);
    talk("flush_all\r\n");
    drop(server);
    let server = dir.start(&[]);
    assert_eq!(server.client().call(&["DBSIZE"]), Value::Int(0));
}

/// The reply of `gets` as `get` would give it.
fn without_cas(reply: &str) -> String {
    let line = |line: &str| match line.starts_with("VALUE") {
        true => line.split(' ').take(4).collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    };
    reply.split("\r\n").map(line).collect::<Vec<_>>().join("\r\n")
}

#[test]
fn waitaof_waits_for_the_sync() {
    let dir = Dir::new("waitaof");
    let server = dir.start(&["--appendfsync", "everysec"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    assert_eq!(client.call(&["WAITAOF", "1", "0", "5000"]), Value::array(&[":1", ":0"]));
    client.call(&["SET", "k", "w"]);
    assert_eq!(client.call(&["WAITAOF", "0", "1", "50"]).clone(), Value::array(&[":0", ":0"]));
    let Value::Error(text) = client.call(&["WAITAOF", "2", "0", "0"]) else { panic!("an error") };
    assert!(text.contains("out of range"), "{text}");
    let info = client.call(&["INFO", "persistence"]);
    let Value::Text(info) = info else { panic!("a text") };
    assert!(info.contains("aof_enabled:1") && info.contains("aof_last_write_status:ok"), "{info}");
    let plain = Server::start(&[]);
    let Value::Error(text) = plain.client().call(&["WAITAOF", "1", "0", "0"]) else { panic!("an error") };
    assert!(text.contains("appendonly is disabled"), "{text}");
}

/// Waits until the journal says that no base is being written or due.
fn wait_for_base(server: &Server) {
    let began = Instant::now();
    let mut client = server.client();
    loop {
        let Value::Text(info) = client.call(&["INFO", "persistence"]) else { panic!("a text") };
        let is_idle = info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0");
        if is_idle && info.contains("aof_enabled:1") && info.contains("aof_last_bgrewrite_status:ok") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{info}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_new_base_takes_the_place_of_what_came_before() {
    let dir = Dir::new("base");
    let server = dir.start(&[]);
    let mut client = server.client();
    for n in 0..200 {
        client.call(&["SET", &format!("k{n}"), "v"]);
    }
    // alive at the cut, made immortal after it: the base must hold it whenever it is read
    client.call(&["SET", "late", "v", "PX", "900"]);
    client.call(&["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)"]);
    let started = client.call(&["BGREWRITEAOF"]);
    assert_eq!(started, Value::Status("Background append only file rewriting started".to_owned()));
    client.call(&["PERSIST", "late"]);
    client.call(&["DEL", "k0"]);
    wait_for_base(&server);
    let names: Vec<PathBuf> = dir.segments();
    assert!(names.iter().all(|path| path.to_string_lossy().contains("journal.2.")), "{names:?}");
    drop(server);
    std::thread::sleep(Duration::from_millis(1000));
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(200));
    assert_eq!(client.call(&["GET", "late"]), Value::Text("v".to_owned()));
    assert_eq!(client.call(&["FCALL", "f", "0"]), Value::Int(1));
}

#[test]
fn appendonly_is_switched_while_the_server_runs() {
    let dir = Dir::new("switched");
    let start = |mode: &str| {
        Server::start(&[
            "--dir",
            dir.0.to_str().expect("a plain name"),
            "--appendonly",
            mode,
            "--dbfilename",
            "",
        ])
    };
    let server = start("no");
    let mut client = server.client();
    client.call(&["SET", "before", "1"]);
    assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "yes"]), Value::ok());
    client.call(&["SET", "on", "1"]);
    wait_for_base(&server);
    client.call(&["CONFIG", "SET", "appendonly", "no"]);
    client.call(&["SET", "off", "1"]);
    client.call(&["CONFIG", "SET", "appendonly", "yes"]);
    client.call(&["INCR", "on"]);
    wait_for_base(&server);
    client.call(&["INCR", "off"]);
    drop(server);
    let server = start("yes");
    assert_eq!(server.client().call(&["MGET", "before", "on", "off"]), Value::array(&["1", "2", "2"]));
}

#[test]
fn a_snapshot_is_where_a_first_journal_begins() {
    let dir = Dir::new("snapshot");
    let path = dir.0.to_str().expect("a plain name");
    let server = Server::start(&["--dir", path, "--dbfilename", "dump"]);
    server.client().call(&["SET", "a", "1"]);
    assert_eq!(server.client().call(&["SAVE"]), Value::ok());
    drop(server);
    let server = dir.start(&["--dbfilename", "dump"]);
    wait_for_base(&server);
    assert_eq!(server.client().call(&["INCR", "a"]), Value::Int(2));
    drop(server);
    fs::remove_file(dir.0.join("dump.darter")).expect("the snapshot");
    assert_eq!(dir.start(&[]).client().call(&["GET", "a"]), Value::Text("2".to_owned()));
}

#[test]
fn what_debug_reload_loads_gets_a_base() {
    let dir = Dir::new("reload");
    let server = dir.start(&["--dbfilename", "dump"]);
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    client.call(&["SET", "a", "2"]);
    client.call(&["SET", "b", "2"]);
    assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE"]), Value::ok());
    wait_for_base(&server);
    client.call(&["INCR", "a"]);
    drop(server);
    let server = dir.start(&[]);
    assert_eq!(
        server.client().call(&["MGET", "a", "b"]),
        Value::Array(vec![Value::Text("2".to_owned()), Value::Null])
    );
}

#[test]
fn the_files_of_redis_are_taken_over() {
    let dir = Dir::new("redis");
    fs::create_dir_all(dir.journal()).expect("a folder");
    let lines = |commands: &[&[&str]]| commands.iter().flat_map(|args| encoded(args)).collect::<Vec<u8>>();
    let base = lines(&[&["SELECT", "0"], &["SET", "a", "1"], &["RPUSH", "l", "x", "y"]]);
    let mut more = lines(&[&["SELECT", "2"], &["SET", "b", "2"], &["MULTI"], &["INCR", "b"], &["EXEC"]]);
    let whole = more.len();
    more.extend(lines(&[&["MULTI"], &["SET", "half", "1"]]));
    let files = [("a.1.base.aof", base), ("a.1.incr.aof", more)];
    for (name, bytes) in &files {
        fs::write(dir.journal().join(name), bytes).expect("a file");
    }
    let manifest = "file a.1.base.aof seq 1 type b\nfile a.1.incr.aof seq 1 type i\n";
    fs::write(dir.journal().join("appendonly.aof.manifest"), manifest).expect("a manifest");
    let told = output_of(&dir.0, &["--aof-load-truncated", "no"]);
    assert!(told.contains(&format!("cut off at offset {whole}")), "{told}");
    for _ in 0..2 {
        let server = dir.start(&[]);
        let mut client = server.client();
        assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
        assert_eq!(client.call(&["LLEN", "l"]), Value::Int(2));
        client.call(&["SELECT", "2"]);
        assert_eq!(
            client.call(&["MGET", "b", "half"]),
            Value::Array(vec![Value::Text("3".to_owned()), Value::Null])
        );
        wait_for_base(&server);
    }
    assert!(dir.journal().join("darter.manifest").exists());
}

static ORDER: Mutex<()> = Mutex::new(());

/// The disk is full: writes are refused, reads are answered, and everything goes on when there is room again.
#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let _alone = ORDER.lock();
    let mount = Dir::new("full");
    let is_mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs", mount.0.to_str().expect("a plain name")])
        .status()
        .is_ok_and(|status| status.success());
    if !is_mounted {
        eprintln!("no right to mount a small disk here: not tested");
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _unmount = Unmount(&mount.0);
    for fsync in ["everysec", "always"] {
        let _ = fs::remove_dir_all(mount.journal());
        fs::write(mount.0.join("ballast"), vec![0; 100 << 10]).expect("room");
        let server = mount.start(&["--appendfsync", fsync]);
        let mut client = server.client();
        let value = "v".repeat(8 << 10);
        let mut acknowledged = 0;
        client.stream().set_read_timeout(Some(Duration::from_millis(700))).expect("an option");
        let mut link = Link::new(&server);
        link.0.get_mut().set_read_timeout(Some(Duration::from_millis(700))).expect("an option");
        let mut refused = None;
        for n in 0..60 {
            match link.try_call(&["SET", &format!("k{n}"), &value]) {
                Some(Raw::Line(line)) if line == b"+OK" => acknowledged = n + 1,
                Some(Raw::Line(line)) => {
                    refused = Some(line);
                    break;
                }
                // with `always` the write that did not fit is answered when there is room
                _ => {
                    link = Link::new(&server);
                    link.0.get_mut().set_read_timeout(Some(Duration::from_millis(700))).expect("an option");
                }
            }
        }
        let refused = String::from_utf8(refused.expect("a refusal")).expect("text");
        assert!(refused.starts_with("-MISCONF Errors writing to the AOF file: No space left"), "{refused}");
        assert_eq!(client.call(&["GET", "k0"]), Value::Text(value.clone()), "{fsync}");
        fs::remove_file(mount.0.join("ballast")).expect("it is there");
        let began = Instant::now();
        let mut later = Link::new(&server);
        while later.call(&["SET", "after", "1"]).bytes() != b"+OK" {
            assert!(began.elapsed() < Duration::from_secs(5), "writes are not taken again");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(server);
        let server = mount.start(&["--appendfsync", fsync]);
        let mut client = server.client();
        for n in 0..acknowledged {
            assert_eq!(client.call(&["STRLEN", &format!("k{n}")]), Value::Int(8 << 10), "{fsync}, key {n}");
        }
        assert_eq!(client.call(&["GET", "after"]), Value::Text("1".to_owned()));
    }
}

#[test]
fn without_a_journal_nothing_is_written_for_a_client_that_waited() {
    let server = Server::start(&[]);
    let (mut waiter, mut client) = (server.client(), server.client());
    waiter.send_all(&[&["BLPOP", "l", "0"]]);
    let is_waiting = |client: &mut harness::Client| match client.call(&["INFO", "clients"]) {
        Value::Text(text) => text.contains("blocked_clients:1\r\n"),
        _ => false,
    };
    while !is_waiting(&mut client) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.call(&["RPUSH", "l", "a"]), Value::Int(1));
    assert_eq!(waiter.read(), Value::array(&["l", "a"]));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
}
