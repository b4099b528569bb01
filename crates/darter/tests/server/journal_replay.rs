//! The journal reads back the same data: every family of commands, one thread or several.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::form::Form;
use crate::grammar::{FAMILIES, Mode};
use crate::harness::journal::{Dir, setting};
use crate::harness::raw::{Link, encoded};
use crate::harness::{Server, Value};
use crate::rng::Rng;
use crate::stream::Stream;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The time before which a key dies that is not compared: within two minutes.
fn soon_ms() -> u64 {
    now_ms() + 120_000
}

/// Everything that is there, by database and key, but for keys that die before `soon_ms`.
fn contents(server: &Server, soon_ms: u64) -> BTreeMap<(usize, Vec<u8>), String> {
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
                if dies_at == -2 || dies_at > 0 && (dies_at as u64) < soon_ms {
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
    "ZADD <key> <score> <member>",
    "FIELDEXPIRE <key> 1 <member> <member>",
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

    /// Leaves when all that was sent has run, and is with the kernel.
    fn leave(self, server: &Server) {
        let mut link = Link::new(server);
        let (streams, drains): (Vec<_>, Vec<_>) = self.links.into_iter().unzip();
        // A connection is closed from the other side when what came before its end has run.
        streams.iter().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Write)));
        let began = Instant::now();
        while !drains.iter().all(|drain| drain.is_finished()) {
            assert!(began.elapsed() < crate::harness::PATIENCE, "a connection is not closed");
            link.call(&["CLIENT", "UNPAUSE"]);
            std::thread::sleep(Duration::from_millis(10));
        }
        // Other threads may have run some of it, and note it at the end of their turn.
        link.call(&["SET", "left", "1"]);
        assert_eq!(link.call(&["WAITAOF", "1", "0", "0"]).items()[0].text(), ":1");
    }
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
        let soon_ms = soon_ms();
        let before = contents(&server, soon_ms);
        drop(server);
        server = dir.start(&flags);
        assert_same(
            &before,
            &contents(&server, soon_ms),
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
        let soon_ms = soon_ms();
        let before = contents(&server, soon_ms);
        drop(server);
        server = dir.start(&flags);
        assert_same(&before, &contents(&server, soon_ms), &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn the_memory_of_dead_members_does_not_come_back() {
    let dir = Dir::new("members");
    let server = dir.start(&[]);
    let mut client = server.client();
    client.call(&["HSETEX", "h", "1", "f", "v"]);
    client.call(&["SADDEX", "s", "1", "m"]);
    client.call(&["ZADD", "z", "1", "m"]);
    client.call(&["FIELDEXPIRE", "z", "1", "m"]);
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!(client.call(&["EXISTS", "h", "s", "z"]), Value::Int(0));
    assert_eq!(client.call(&["SET", "h", "1", "NX"]), Value::ok());
    assert_eq!(client.call(&["RPUSH", "s", "a"]), Value::Int(1));
    assert_eq!(client.call(&["RPUSH", "z", "b"]), Value::Int(1));
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["GET", "h"]), Value::Text("1".to_owned()));
    assert_eq!(client.call(&["LRANGE", "s", "0", "-1"]), Value::array(&["a"]));
    assert_eq!(client.call(&["LRANGE", "z", "0", "-1"]), Value::array(&["b"]));
}

#[test]
fn hashes_made_from_values_come_back_though_their_names_were_told_before() {
    let dir = Dir::new("himport");
    let server = dir.start(&[]);
    let mut client = server.client();
    client.call(&["HIMPORT", "PREPARE", "f", "a", "b"]);
    assert_eq!(client.call(&["HIMPORT", "SET", "h", "f", "1", "2"]), Value::ok());
    client.call(&["MULTI"]);
    client.call(&["HIMPORT", "SET", "i", "f", "3", "4"]);
    client.call(&["EXEC"]);
    client.call(&["XADD", "s", "IDMP", "p", "a", "*", "f", "v"]);
    let sent = client.call(&["XADD", "s", "IDMP", "p", "a", "*", "f", "v"]);
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["HMGET", "h", "a", "b"]), Value::array(&["1", "2"]));
    assert_eq!(client.call(&["HMGET", "i", "a", "b"]), Value::array(&["3", "4"]));
    assert_eq!(client.call(&["XADD", "s", "IDMP", "p", "a", "*", "f", "v"]), sent);
}

/// Pairs of clients change a library each, one of them in a transaction that takes its time: what is read back is what was
/// there in the end.
#[test]
fn libraries_that_two_clients_change_are_read_back_as_they_were() {
    const PAIRS: usize = 4;
    let dir = Dir::new("libraries");
    let server = dir.start(&["--proactor_threads", "2", "--appendfsync", "always"]);
    let code = |pair: usize, who: &str| {
        format!("#!lua name=l{pair}\nredis.register_function('f{pair}', function() return '{who}' end)")
    };
    let mut first = server.client();
    for pair in 0..PAIRS {
        // One after the other they are on either thread.
        let mut second = server.client();
        let (one, two) = (code(pair, "transaction"), code(pair, "other"));
        let load = ["FUNCTION", "LOAD", "REPLACE", &one];
        first.send_all(&[&["MULTI"], &load, &["DEBUG", "SLEEP", "0.3"], &["EXEC"]]);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(second.call(&["FUNCTION", "LOAD", "REPLACE", &two]), Value::Text(format!("l{pair}")));
        (0..4).for_each(|_| drop(first.read()));
    }
    let all = |server: &Server| {
        let mut client = server.client();
        (0..PAIRS).map(|pair| client.call(&["FCALL", &format!("f{pair}"), "0"])).collect::<Vec<_>>()
    };
    let before = all(&server);
    drop(server);
    assert_eq!(all(&dir.start(&[])), before);
}

/// What a reload reads was noted again for the replica alone: no file had its sequence, and a start took what followed for
/// damage.
#[test]
fn functions_that_are_read_again_beside_a_replica_leave_no_gap() {
    let dir = Dir::new("reload-functions");
    let server = dir.start(&["--proactor_threads", "2", "--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&[]);
    let mut client = server.client();
    let code = "#!lua name=l\nredis.register_function('f', function() return 7 end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", code]), Value::Text("l".to_owned()));
    crate::nodes::follow(&mut replica.client(), server.port());
    assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
    client.call(&["SET", "after", "1"]);
    assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
    assert_eq!(client.call(&["GET", "after"]), Value::Text("1".to_owned()));
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["GET", "after"]), Value::Text("1".to_owned()));
    assert_eq!(client.call(&["FCALL", "f", "0"]), Value::Int(7));
}
