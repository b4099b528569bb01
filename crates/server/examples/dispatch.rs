//! The way of a command without sockets, for `valgrind --tool=callgrind`: parse, dispatch, run, reply.
//!
//! `dispatch OPS VERB [DEPTH [near|far [RULES]]]`: OPS commands in pipelines of DEPTH (30) over 10,000 keys of 16 bytes with
//! values of 32 bytes; `words_of` lists the verbs, `line_of` those of memcached. MGET and MSET take ten keys each; hashes,
//! sets and sorted sets have five members, lists grow from none or shrink from sixteen. With `far` the server looks ahead
//! as it does when the data is more than the processor's cache holds. With RULES (`+@all,~key:*`) there are a hundred users
//! and the connection is one of them, limited so. A verb that ends in `+journal` is journalled (`everysec`) in a folder
//! for temporary files; one in `+cluster` runs on a node that owns all slots, of one in `+tracked` the client tracks, one in `+unheard` runs with notifications on that nobody
//! hears, one in `+evict` evicts keys by their uses from 2 MB on: with `fresh`, which sets another key of 256 bytes each
//! time, one for each command. Arguments that begin with `!` are commands which are run before all others
//! (`'!CONFIG SET maxmemory-policy allkeys-lru maxmemory 1gb'`). Keys are hashed alike in each run. `measured` is what
//! `cargo xtask instructions` counts: commands about keys that each had one before.

mod in_process;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientInfo;
use darter_server::conn::Conn;
use darter_server::conn::window::ConnWindow;
use darter_server::journal::turn;
use darter_server::protocol::ListenerKind;
use darter_server::session::{Gate, Session};
use darter_server::thread_state::ThreadState;
use in_process::InProcess;

const KEYS: u32 = 10_000;

fn main() {
    let (before, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with('!'));
    let mut args = args.into_iter();
    let ops: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(300_000);
    let verb = args.next().unwrap_or_else(|| "get".into());
    let (verb, how) = verb.split_once('+').map_or((verb.as_str(), ""), |(verb, how)| (verb, how));
    let (verb, is_journalled) = (verb.to_owned(), how == "journal");
    let depth: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(30);

    let server = InProcess::start("dispatch", 1, how);
    let shared = server.shared;
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let (end, _other) = UnixStream::pair().expect("a socket pair");
    let token =
        reactor.register(Socket::from_unix(end).expect("non-blocking")).expect("room for a connection");
    let mut local = ThreadState::new(shared, 0);
    local.looks_ahead = args.next().is_some_and(|distance| distance == "far");
    let is_line = line_of(&verb, 0).is_some();
    let listener = if is_line { ListenerKind::Memcached } else { ListenerKind::Main };
    let info = Arc::new(ClientInfo::new(1, (0, token, 0), String::new(), String::new(), false, 0));
    let mut session = Session::new(1, listener, false, shared.acl.default_user());
    session.gate.set(Gate::CLUSTER, shared.cluster.is_on());
    let mut conn = Conn::new(token, session, info);
    let mut window = ConnWindow::default();
    for command in before {
        conn.receive(&mut local, &mut window, format!("{}\r\n", &command[1..]).as_bytes());
        assert_eq!(conn.output, b"+OK\r\n", "{command}");
        conn.output.clear();
    }
    if let Some(rules) = args.next() {
        for bytes in logins(&rules) {
            conn.receive(&mut local, &mut window, &bytes);
            assert_eq!(conn.output, b"+OK\r\n", "{rules}");
            conn.output.clear();
        }
    }

    let pipelines = |verb: &str| -> Vec<Vec<u8>> {
        let mut key = 0;
        let is_fresh = verb == "fresh";
        let keys = if is_fresh { ops } else { KEYS * rounds_of(verb) };
        (0..keys / depth)
            .map(|_| {
                let mut bytes = Vec::new();
                for _ in 0..depth {
                    key = if is_fresh { key + 1 } else { (key + 7919) % keys };
                    write_command(&mut bytes, verb, key);
                }
                bytes
            })
            .collect()
    };
    let mut run = |pipelines: &[Vec<u8>], ops: u32| {
        let mut replies = 0;
        for n in 0..ops / depth {
            conn.receive(&mut local, &mut window, &pipelines[n as usize % pipelines.len()]);
            if is_journalled {
                turn::commit(&mut local);
            }
            replies += conn.output.len();
            conn.output.clear();
        }
        replies
    };
    let before = if is_line { "mc-set" } else { words_of(&verb, 0).0 };
    run(&pipelines(before), KEYS);
    let setting: &[&str] = match how {
        "tracked" => &["CLIENT", "TRACKING", "ON"],
        "unheard" => &["CONFIG", "SET", "notify-keyspace-events", "KEA"],
        "evict" => &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "2mb"],
        _ => &[],
    };
    if !setting.is_empty() {
        run(&[resp(&setting.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())], depth);
    }
    let pipelines = pipelines(&verb);
    run(&pipelines, KEYS);
    println!("{} bytes of replies", measured(|| run(&pipelines, ops)));
}

/// The measured function; callgrind knows it by this name.
#[inline(never)]
fn measured(run: impl FnOnce() -> usize) -> usize {
    run()
}

/// The commands that make a hundred users with `rules`, commas between them, and log in as one of them.
fn logins(rules: &str) -> Vec<Vec<u8>> {
    let name = |n: u32| format!("user{n}");
    let made = (0..100).map(|n| {
        let words = ["ACL".into(), "SETUSER".into(), name(n), "on".into(), ">secret".into()];
        words.into_iter().chain(rules.split(',').map(str::to_owned)).collect::<Vec<String>>()
    });
    let login = vec!["AUTH".into(), name(50), "secret".into()];
    made.chain([login]).map(|words| resp(&words)).collect()
}

/// Appends one command of the verb's kind about `key`.
fn write_command(bytes: &mut Vec<u8>, verb: &str, key: u32) {
    match line_of(verb, key) {
        Some(line) => bytes.extend_from_slice(line.as_bytes()),
        None => bytes.extend_from_slice(&resp(&words_of(verb, key).1)),
    }
}

/// A command of memcached about `key`.
fn line_of(verb: &str, key: u32) -> Option<String> {
    let name = format!("key:{:012}", key % KEYS);
    let value = format!("{key:032}");
    Some(match verb {
        "mc-get" => format!("get {name}\r\n"),
        "mc-set" => format!("set {name} 0 0 {}\r\n{value}\r\n", value.len()),
        "mc-mg" => format!("mg {name} v\r\n"),
        "mc-ms" => format!("ms {name} {}\r\n{value}\r\n", value.len()),
        _ => return None,
    })
}

fn resp(words: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// A document of 800 bytes like a tweet; what its short paths lead to stands behind ten other members.
fn tweet(key: u32) -> String {
    let count = |n: u32| key.wrapping_mul(n) % 100_000;
    format!(
        "{{\"created_at\":\"Sat Nov 28 12:20:30 +0000 2026\",\"id\":18000000{key:08},\"id_str\":\"18000000{key:08}\",\
         \"text\":\"{}\",\"source\":\"web\",\"truncated\":false,\"in_reply_to_status_id\":null,\"lang\":\"en\",\
         \"retweet_count\":{},\"favorite_count\":{},\"a\":{{\"b\":{}}},\"user\":{{\"id\":{},\"name\":\"a name\",\
         \"screen_name\":\"name_{key}\",\"followers_count\":{},\"friends_count\":{},\"listed_count\":{},\"verified\":false,\
         \"statuses_count\":{},\"profile_image_url\":\"https://img.example.com/{key}.jpeg\"}},\"entities\":{{\"hashtags\":[\"one\",\
         \"two\"],\"urls\":[\"https://t.example/{key}\"],\"user_mentions\":[{}]}},\"possibly_sensitive\":false}}",
        "some words ".repeat(12),
        count(7),
        count(11),
        1000 + key % 20_000,
        count(13),
        count(17),
        count(19),
        count(23),
        count(29),
        count(31),
    )
}

/// How often each key's command is another one.
fn rounds_of(verb: &str) -> u32 {
    if matches!(verb, "zmove" | "hgrow" | "sgrow" | "zgrow" | "setex") { 11 } else { 1 }
}

/// The command run once for each key before a verb's commands, and the words of the verb's command about `key`.
fn words_of(verb: &str, key: u32) -> (&'static str, Vec<String>) {
    let name = |n: u32| format!("key:{:012}", n % KEYS);
    let value = format!("{key:032}");
    let ten = || (0..10).map(|n| name(key + 997 * n));
    let member = |n: u32| format!("member:{}", n % 5);
    let five = |with: &dyn Fn(u32) -> Vec<String>| (0..5).flat_map(with).collect::<Vec<_>>();
    let words = |verb: &str, rest: Vec<String>| [vec![verb.to_uppercase(), name(key)], rest].concat();
    match verb {
        "zero" => ("set", words("set", vec!["1000000".into()])),
        "fresh" => ("set", vec!["SET".into(), format!("fresh:{key:010}"), format!("{key:0256}")]),
        // Another deadline each time, none of them by the clock: how many milliseconds a run takes must not count.
        "setex" => ("set", words("set", vec![value, "PXAT".into(), format!("4102444{key:06}")])),
        "incr" => ("zero", words(verb, vec![])),
        "expire" => ("set", words(verb, vec!["100".into()])),
        "append" => ("set", words(verb, vec!["x".into()])),
        "mget" => ("set", std::iter::once("MGET".into()).chain(ten()).collect()),
        "mset" => {
            ("set", std::iter::once("MSET".into()).chain(ten().flat_map(|n| [n, value.clone()])).collect())
        }
        "hset" => ("hash5", words(verb, vec![member(key), value])),
        "hget" => ("hash5", words(verb, vec![member(key)])),
        "sadd" | "sismember" => ("set5", words(verb, vec![member(key)])),
        "zadd" => ("zset5", words(verb, vec![(key % 97).to_string(), member(key)])),
        // To another place among the five; a member more.
        "zmove" => ("zset5", words("zadd", vec![((key / KEYS * 7 + key) % 6).to_string(), member(key)])),
        "zgrow" => ("zset5", words("zadd", vec![(key % 97).to_string(), format!("new:{}", key / KEYS)])),
        "hgrow" => ("hash5", words("hset", vec![format!("new:{}", key / KEYS), value])),
        "sgrow" => ("set5", words("sadd", vec![format!("new:{}", key / KEYS)])),
        "zincrby" => ("zset5", words(verb, vec!["3".into(), member(key)])),
        "hincrby" => ("none", words(verb, vec![member(key), "3".into()])),
        "xadd" => ("none", words(verb, vec!["*".into(), "field".into(), value])),
        "zscore" => ("zset5", words(verb, vec![member(key)])),
        "hash5" => ("none", words("hset", five(&|n| vec![member(n), value.clone()]))),
        "set5" => ("none", words("sadd", five(&|n| vec![member(n)]))),
        "zset5" => ("none", words("zadd", five(&|n| vec![n.to_string(), member(n)]))),
        "lpush" | "rpush" => ("none", words(verb, vec![value])),
        "lpop" | "rpop" => ("list16", words(verb, vec![])),
        "list16" => ("none", words("lpush", (0..16).map(|_| value.clone()).collect())),
        "none" | "del" => ("set", words("del", vec![])),
        "set" => ("set", words(verb, vec![value])),
        "json.set" => ("none", words(verb, vec!["$".into(), tweet(key)])),
        "json.get" => ("json.set", words(verb, vec![])),
        "json.field" => ("json.set", words("json.get", vec!["$.a.b".into()])),
        "json.numincrby" => ("json.set", words(verb, vec!["$.a.b".into(), "1".into()])),
        "get" | "ttl" | "exists" | "strlen" | "type" => ("set", words(verb, vec![])),
        _ => panic!("no such verb: {verb}"),
    }
}
