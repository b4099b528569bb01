//! Caches on the client's side and slow subscribers, against a real server.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Client, PATIENCE, Server, Value};

fn invalidation(keys: &[&str]) -> Value {
    Value::Array(vec![Value::Text("invalidate".to_owned()), Value::array(keys)])
}

fn everything() -> Value {
    Value::Array(vec![Value::Text("invalidate".to_owned()), Value::Null])
}

fn tracking_client(server: &Server) -> Client {
    let mut client = server.client();
    client.call(&["HELLO", "3"]);
    assert_eq!(client.call(&["CLIENT", "TRACKING", "ON"]), Value::ok());
    client
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// What Relay does, as Dragonfly's makers describe it.
#[test]
fn relay_walks_through() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut relay, mut other) = (tracking_client(&server), server.client());
    assert_eq!(relay.call(&["SET", "user_count", "100"]), Value::ok());
    assert_eq!(relay.call(&["GET", "user_count"]), text("100"));
    assert_eq!(other.call(&["INCR", "user_count"]), Value::Int(101));
    assert_eq!(relay.call(&["GET", "user_count"]), invalidation(&["user_count"]));
    assert_eq!(relay.read(), text("101"));
    // A key that has only been set is not tracked, and one is told of once.
    relay.call(&["SET", "unread", "1"]);
    other.call(&["SET", "unread", "2"]);
    other.call(&["INCR", "user_count"]);
    other.call(&["INCR", "user_count"]);
    assert_eq!(relay.read(), invalidation(&["user_count"]));
    relay.call(&["GET", "user_count"]);
    relay.call(&["GET", "unread"]);
    other.call(&["FLUSHALL"]);
    assert_eq!(relay.read(), everything());
    assert_eq!(relay.call(&["PING"]), Value::Status("PONG".to_owned()));
}

/// A client that knows that a write was answered gets the invalidation before the reply to its next request.
#[test]
fn messages_come_before_what_is_asked_after_the_write() {
    for threads in ["--proactor_threads=2", "--proactor_threads=8"] {
        let server = Server::start(&[threads]);
        let mut writer = server.client();
        let mut caches: Vec<Client> = (0..8).map(|_| tracking_client(&server)).collect();
        let mut redirected = Vec::new();
        for _ in 0..8 {
            let mut listener = server.client();
            let Value::Int(id) = listener.call(&["CLIENT", "ID"]) else { panic!("no id") };
            listener.call(&["SUBSCRIBE", "__redis__:invalidate"]);
            let mut reader = server.client();
            reader.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id.to_string()]);
            redirected.push((reader, listener));
        }
        for round in 0..150 {
            for cache in &mut caches {
                cache.call(&["GET", "k"]);
            }
            for (reader, _) in &mut redirected {
                reader.call(&["GET", "k"]);
            }
            writer.call(&["INCR", "k"]);
            for cache in &mut caches {
                assert_eq!(cache.call(&["PING"]), invalidation(&["k"]), "round {round} {threads}");
                assert_eq!(cache.read(), Value::Status("PONG".to_owned()));
            }
            for (_, listener) in &mut redirected {
                let message = [text("message"), text("__redis__:invalidate"), Value::array(&["k"])];
                assert_eq!(listener.call(&["PING"]), Value::Array(message.to_vec()), "round {round}");
                assert_eq!(listener.read(), Value::array(&["pong", ""]));
            }
        }
    }
}

/// Gives a key a deadline by `change` and checks that a cache hears of its end. Returns false if the key died before the
/// cache had read it.
fn is_told_of_the_end(server: &Server, change: &[&str]) -> bool {
    let (mut cache, mut writer) = (tracking_client(server), server.client());
    writer.call(&["SET", "dying", "v"]);
    writer.call(change);
    if cache.call(&["EXISTS", "dying"]) != Value::Int(1) {
        return false;
    }
    assert_eq!(cache.read(), invalidation(&["dying"]), "expiry after {change:?}");
    true
}

#[test]
fn whatever_changes_a_key_is_told() {
    let server = Server::start(&["--proactor_threads=2", "--databases", "4"]);
    let (mut cache, mut writer) = (tracking_client(&server), server.client());
    let changes: &[&[&str]] = &[
        &["SET", "k", "v"],
        &["PEXPIRE", "k", "600000"],
        &["SET", "k", "v"],
        &["RENAME", "k", "other"],
        &["RENAME", "other", "k"],
        &["EVAL", "return redis.call('append', KEYS[1], 'x')", "1", "k"],
        &["DEL", "k"],
        &["RPUSH", "k", "1"],
        &["SORT", "k", "STORE", "k"],
        &["LPOP", "k"],
        &["SET", "k", "v", "PXAT", "1"],
        &["MSET", "a", "1", "k", "2"],
        &["GETEX", "k", "PX", "600000"],
    ];
    for change in changes {
        cache.call(&["EXISTS", "k"]);
        let answer = writer.call(change);
        assert!(!matches!(answer, Value::Error(_)), "{answer:?}");
        assert_eq!(cache.read(), invalidation(&["k"]), "{change:?}");
    }
    for change in [&["PEXPIRE", "dying"][..], &["GETEX", "dying", "PX"]] {
        let is_told = |ms: &&str| is_told_of_the_end(&server, &[change, &[ms]].concat());
        assert!(["50", "1000", "20000"].iter().any(is_told), "{change:?}: each time the test was late");
    }
    for flush in [&["FLUSHDB"][..], &["SWAPDB", "0", "1"], &["FLUSHALL", "ASYNC"]] {
        cache.call(&["GET", "x"]);
        writer.call(flush);
        assert_eq!(cache.read(), everything(), "{flush:?}");
    }
}

#[test]
fn an_evicted_key_is_told_to_who_has_read_it() {
    let server = Server::start(&["--proactor_threads=2", "--maxmemory", "64mb"]);
    let (mut cache, mut writer) = (tracking_client(&server), server.client());
    writer.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let value = "x".repeat(10_000);
    let keys: Vec<String> = (0..200).map(|n| format!("seen:{n}")).collect();
    for key in &keys {
        writer.call(&["SET", key, &value]);
        // A read that does not count as a use, or these would be the last to go.
        assert_eq!(cache.call(&["OBJECT", "ENCODING", key]), text("raw"));
    }
    let commands: Vec<String> = (0..20_000).map(|n| format!("new:{n}")).collect();
    for batch in commands.chunks(100) {
        let sets: Vec<[&str; 3]> = batch.iter().map(|key| ["SET", key, &value]).collect();
        writer.send_all(&sets.iter().map(|set| &set[..]).collect::<Vec<_>>());
        batch.iter().for_each(|_| assert_eq!(writer.read(), Value::ok()));
    }
    let mut count_left = || keys.iter().filter(|key| writer.call(&["EXISTS", key]) == Value::Int(1)).count();
    let (mut left, mut told) = (count_left(), 0);
    assert!(left < keys.len(), "nothing was evicted");
    loop {
        // One message for each key that has gone, before the reply to what is asked now.
        cache.send_all(&[&["PING"]]);
        while cache.read() != Value::Status("PONG".to_owned()) {
            told += 1;
        }
        // Housekeeping may have evicted some more meanwhile.
        if left == std::mem::replace(&mut left, count_left()) {
            break;
        }
    }
    assert_eq!(told, keys.len() - left);
}

/// Counters that only grow, their last values, and whether writers are done.
struct Field {
    keys: usize,
    finals: Mutex<HashMap<String, i64>>,
    is_over: AtomicBool,
    hits: AtomicU64,
    reads: AtomicU64,
}

/// 16 writers and 16 caching readers: no reader sees less than it was told is gone, and in the end no cache is wrong.
/// `DARTER_STALENESS_OPS` sets the number of operations; docs/benchmarks.md has a run with a million.
#[test]
fn no_cache_is_stale() {
    let ops = std::env::var("DARTER_STALENESS_OPS").ok().and_then(|text| text.parse().ok()).unwrap_or(24_000);
    for threads in ["--proactor_threads=2", "--proactor_threads=8"] {
        let server = Server::start(&[threads]);
        let field = Field {
            keys: 48,
            finals: Mutex::default(),
            is_over: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..16)
                .map(|n| {
                    scope.spawn({
                        let (field, server) = (&field, &server);
                        move || read_all(field, tracking_client(server), n, ops / 32)
                    })
                })
                .collect();
            let writers: Vec<_> = (0..16)
                .map(|n| {
                    scope.spawn({
                        let (field, server) = (&field, &server);
                        move || write_all(field, server.client(), n, ops / 32)
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
            field.is_over.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().expect("a reader ends"));
        });
        let (hits, reads) = (field.hits.into_inner(), field.reads.into_inner());
        assert!(hits > 0 && reads > 0, "{hits} hits, {reads} reads");
        println!("{threads}: {ops} operations, {reads} reads, {hits} hits");
    }
}

fn write_all(field: &Field, mut client: Client, seed: u64, count: usize) {
    let mut rng = Rng(seed * 2 + 1);
    for _ in 0..count {
        let key = format!("n{}", rng.below(field.keys));
        // Some by a transaction or a script, which take other ways.
        let value = match rng.below(10) {
            0 => {
                client.send_all(&[&["MULTI"], &["INCR", &key], &["INCR", "other"], &["EXEC"]]);
                (0..3).for_each(|_| drop(client.read()));
                match client.read() {
                    Value::Array(results) => results[0].clone(),
                    other => other,
                }
            }
            1 => client.call(&["EVAL", "return redis.call('incr', KEYS[1])", "1", &key]),
            _ => client.call(&["INCR", &key]),
        };
        let Value::Int(value) = value else { panic!("{value:?}") };
        let mut finals = field.finals.lock().expect("no writer panics");
        let last = finals.entry(key).or_default();
        *last = value.max(*last);
    }
}

fn read_all(field: &Field, mut client: Client, seed: u64, count: usize) {
    let mut rng = Rng(seed * 2 + 1001);
    let mut cache = Cache::default();
    let mut done = 0;
    while done < count || !field.is_over.load(Ordering::Acquire) {
        done += 1;
        let key = format!("n{}", rng.below(field.keys));
        if cache.values.contains_key(&key) {
            field.hits.fetch_add(1, Ordering::Relaxed);
            // A real cache looks for messages before it answers.
            cache.ask(&mut client, &["PING"]);
            continue;
        }
        field.reads.fetch_add(1, Ordering::Relaxed);
        let command: &[&str] = if rng.below(4) == 0 { &["MGET", &key, "other"] } else { &["GET", &key] };
        let value = match cache.ask(&mut client, command) {
            Value::Array(items) => items[0].clone(),
            value => value,
        };
        let value = match value {
            Value::Text(digits) => digits.parse().expect("a counter"),
            Value::Null => 0,
            other => panic!("{other:?}"),
        };
        let floor = cache.floors.get(&key).copied().unwrap_or(0);
        assert!(value >= floor, "{key}: {value} after being told that {} is gone", floor - 1);
        cache.values.insert(key, value);
    }
    // Writers have their replies; what they changed has been told before the reply to this.
    cache.ask(&mut client, &["PING"]);
    let finals = field.finals.lock().expect("no writer panics");
    for (key, value) in &cache.values {
        assert_eq!(*value, finals.get(key).copied().unwrap_or(0), "{key} is stale for ever");
    }
}

#[derive(Default)]
struct Cache {
    values: HashMap<String, i64>,
    /// The least that may be read of a key: one more than what was told to be gone.
    floors: HashMap<String, i64>,
}

impl Cache {
    /// Sends a command and returns its reply; messages that come before it empty the cache.
    fn ask(&mut self, client: &mut Client, command: &[&str]) -> Value {
        client.send_all(&[command]);
        loop {
            let value = client.read();
            let Value::Array(items) = &value else { return value };
            if items.first() != Some(&text("invalidate")) {
                return value;
            }
            let Some(Value::Array(keys)) = items.get(1) else { panic!("{value:?}") };
            for key in keys {
                let Value::Text(key) = key else { panic!("{value:?}") };
                if let Some(gone) = self.values.remove(key) {
                    self.floors.insert(key.clone(), gone + 1);
                }
            }
        }
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Keys of all lengths, read in one pipeline by more clients than a place of the table has bits for.
#[test]
fn each_of_many_readers_is_told_once_of_each_key() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut writer = server.client();
    let keys: Vec<String> = (1..=40).map(|len| "k".repeat(len)).collect();
    let gets: Vec<[&str; 2]> = keys.iter().map(|key| ["GET", key]).collect();
    let gets: Vec<&[&str]> = gets.iter().map(|get| &get[..]).collect();
    let mut caches: Vec<Client> = (0..70).map(|_| tracking_client(&server)).collect();
    for (n, cache) in caches.iter_mut().enumerate() {
        // Some keys have few readers, some of those large numbers.
        let from = if n % 3 == 0 { 0 } else { 35 };
        for _ in 0..2 {
            cache.send_all(&gets[from..]);
            gets[from..].iter().for_each(|_| assert_eq!(cache.read(), Value::Null));
        }
    }
    // Of a shard that housekeeping has, the numbers before are told.
    wait_for("all are counted", || {
        writer.info::<u64>("stats", "tracking_total_keys") == 40
            && writer.info::<u64>("stats", "tracking_total_items") == 24 * 40 + 46 * 5
    });
    for key in &keys {
        writer.call(&["SET", key, "v"]);
        writer.call(&["SET", key, "w"]);
    }
    for (n, cache) in caches.iter_mut().enumerate() {
        cache.send_all(&[&["PING"]]);
        for key in &keys[if n % 3 == 0 { 0 } else { 35 }..] {
            assert_eq!(cache.read(), invalidation(&[key]), "cache {n}");
        }
        assert_eq!(cache.read(), Value::Status("PONG".to_owned()));
    }
    wait_for("none is counted", || writer.info::<u64>("stats", "tracking_total_items") == 0);
}

/// Writers send to a client whose thread sleeps; what its socket does not take is left to that thread.
#[test]
fn a_client_that_reads_slowly_gets_each_message_whole() {
    let server = Server::start(&["--proactor_threads=2"]);
    // Connections go to the threads in turn.
    let mut caches: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = server.client();
            client.call(&["HELLO", "3"]);
            assert_eq!(client.call(&["CLIENT", "TRACKING", "ON", "BCAST"]), Value::ok());
            client
        })
        .collect();
    let mut writer = server.client();
    let name = |n: usize| format!("{n}:{}", "x".repeat(40_000));
    let (rounds, each) = (3, 300);
    for round in 0..rounds {
        for n in 0..each {
            assert_eq!(writer.call(&["SET", &name(round * each + n), "v"]), Value::ok());
        }
        for cache in &mut caches {
            (0..each).for_each(|n| assert!(cache.read() == invalidation(&[&name(round * each + n)])));
            assert_eq!(cache.call(&["PING"]), Value::Status("PONG".to_owned()));
        }
    }
}

#[test]
fn what_clients_that_have_gone_had_read_is_forgotten() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut writer, mut stays) = (server.client(), tracking_client(&server));
    let mut caches: Vec<Client> = (0..39).map(|_| tracking_client(&server)).collect();
    let keys: Vec<String> = (0..50).map(|n| format!("key:{n}")).collect();
    for (n, cache) in caches.iter_mut().enumerate() {
        keys.iter().for_each(|key| assert_eq!(cache.call(&["GET", key]), Value::Null));
        cache.call(&["GET", &format!("of:{n}")]);
    }
    keys[..20].iter().for_each(|key| assert_eq!(stays.call(&["GET", key]), Value::Null));
    wait_for("all are counted", || writer.info::<u64>("stats", "tracking_total_items") == 39 * 51 + 20);
    drop(caches);
    // Reads are forgotten when 16 more clients have gone: of these 39 the last few may wait for others.
    wait_for("what they had read stays", || {
        drop((0..16).map(|_| tracking_client(&server)).collect::<Vec<_>>());
        writer.info::<u64>("stats", "tracking_total_items") == 20
            && writer.info::<u64>("stats", "tracking_total_keys") == 20
    });
    // Who comes after them hears of nothing that they have read.
    let mut fresh: Vec<Client> = (0..39).map(|_| tracking_client(&server)).collect();
    keys.iter().for_each(|key| assert_eq!(writer.call(&["SET", key, "v"]), Value::ok()));
    for cache in &mut fresh {
        assert_eq!(cache.call(&["PING"]), Value::Status("PONG".to_owned()));
    }
    keys[..20].iter().for_each(|key| assert_eq!(stays.read(), invalidation(&[key])));
    // The last one takes everything along.
    fresh.iter_mut().for_each(|cache| assert_eq!(cache.call(&["GET", "other"]), Value::Null));
    drop((fresh, stays));
    wait_for("keys stay that nobody has read", || writer.info::<u64>("stats", "tracking_total_keys") == 0);
}

#[test]
fn keys_beyond_the_limit_are_given_up_and_told_once() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut cache, mut other) = (tracking_client(&server), server.client());
    for n in 0..300 {
        cache.call(&["GET", &format!("key:{n}")]);
    }
    other.call(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
    wait_for("the table is too large", || other.info::<u64>("stats", "tracking_total_keys") <= 10);
    // The last ones may be given up meanwhile.
    let mut told = std::collections::BTreeSet::new();
    wait_for("one message for each", || {
        cache.send_all(&[&["PING"]]);
        loop {
            let message = cache.read();
            if message == Value::Status("PONG".to_owned()) {
                break;
            }
            assert!(told.insert(format!("{message:?}")), "{message:?} comes twice");
        }
        told.len() as u64 + other.info::<u64>("stats", "tracking_total_keys") == 300
    });
}

/// Messages of one pipeline are written together: nobody may see them in another order, twice or not at all.
#[test]
fn a_pipeline_of_messages_reaches_every_kind_of_subscriber_in_order() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut two, mut three, mut both) = (server.client(), server.client(), server.client());
    let mut publisher = server.client();
    three.call(&["HELLO", "3"]);
    for client in [&mut two, &mut three, &mut both] {
        client.call(&["SUBSCRIBE", "a", "b"]);
        client.read();
    }
    let large = "x".repeat(40 << 10);
    let texts: Vec<String> =
        (0..200).map(|n| format!("{n}{}", if n % 50 == 7 { &large } else { "" })).collect();
    for with_pattern in [false, true] {
        if with_pattern {
            both.call(&["PSUBSCRIBE", "a*"]);
        }
        let channel = |n: usize| if n % 10 < 7 { "a" } else { "b" };
        let messages = texts.iter().enumerate().map(|(n, text)| ["PUBLISH", channel(n), text]);
        let messages: Vec<[&str; 3]> = messages.collect();
        publisher.send_all(&messages.iter().map(|message| &message[..]).collect::<Vec<_>>());
        for (n, text) in texts.iter().enumerate() {
            let receivers = if with_pattern && channel(n) == "a" { 4 } else { 3 };
            assert_eq!(publisher.read(), Value::Int(receivers));
            for client in [&mut two, &mut three, &mut both] {
                assert_eq!(client.read(), Value::array(&["message", channel(n), text]));
            }
            if receivers == 4 {
                assert_eq!(both.read(), Value::array(&["pmessage", "a*", "a", text]));
            }
        }
    }
}

/// Outputs of so many connections go to the kernel together: one that is larger, or whose client has left, concerns no other.
#[test]
fn each_of_many_subscribers_hears_everything_in_order() {
    let server = Server::start(&["--proactor_threads=1"]);
    let (mut all, mut publisher) = (Vec::new(), server.client());
    for n in 0..200 {
        let mut client = server.client();
        client.call(&["SUBSCRIBE", "news"]);
        if n % 10 == 0 {
            client.call(&["SUBSCRIBE", "more"]);
        }
        all.push(client);
    }
    let more = "x".repeat(30 << 10);
    let texts: Vec<String> = (0..40).map(|n| format!("message {n}")).collect();
    for (n, text) in texts.iter().enumerate() {
        if n == 20 {
            all.truncate(150);
        }
        publisher.send_all(&[&["PUBLISH", "more", &more], &["PUBLISH", "news", text]]);
        assert!(matches!([publisher.read(), publisher.read()], [Value::Int(15..=20), Value::Int(150..=200)]));
    }
    for (n, client) in all.iter_mut().enumerate() {
        for text in &texts {
            if n % 10 == 0 {
                assert_eq!(client.read(), Value::array(&["message", "more", &more]));
            }
            assert_eq!(client.read(), Value::array(&["message", "news", text]));
        }
    }
    wait_for("who has left is forgotten", || {
        publisher.call(&["PUBSUB", "NUMSUB", "news"]) == Value::array(&["news", ":150"])
    });
}

/// A subscriber that takes nothing is closed at its limit; those who publish and the other subscribers go on meanwhile.
#[test]
fn slow_subscribers_are_closed_and_nobody_waits_for_them() {
    let server = Server::start(&["--proactor_threads=2", "--client-output-buffer-limit", "pubsub 8mb 2mb 1"]);
    let subscriber = |name: &str| {
        let mut client = server.client();
        client.call(&["CLIENT", "SETNAME", name]);
        client.call(&["SUBSCRIBE", "ch"]);
        client
    };
    let (mut slow, mut fast) =
        ([subscriber("slow"), subscriber("slow")], [subscriber("fast"), subscriber("fast")]);
    let mut publisher = server.client();
    let payload = "x".repeat(64 << 10);
    let (mut slowest, mut closed_at) = (Duration::ZERO, None);
    for n in 0..600 {
        let began = Instant::now();
        let Value::Int(receivers) = publisher.call(&["PUBLISH", "ch", &payload]) else { panic!("no number") };
        slowest = slowest.max(began.elapsed());
        for client in &mut fast {
            assert_eq!(client.read(), Value::array(&["message", "ch", &payload]));
        }
        if receivers == 2 {
            closed_at = Some(n);
            break;
        }
    }
    assert!(closed_at.is_some(), "slow subscribers stay");
    assert!(slowest < PATIENCE / 2, "a publisher waited for {slowest:?}");
    wait_for("the slow ones are gone", || {
        let Value::Text(list) = publisher.call(&["CLIENT", "LIST"]) else { panic!("no list") };
        (list.matches("name=slow").count(), list.matches("name=fast").count()) == (0, 2)
    });
    assert_eq!(publisher.info::<u64>("stats", "client_output_buffer_limit_disconnections"), 2);
    // What had been sent to them ends in the middle.
    for client in &mut slow {
        client.stream().set_read_timeout(Some(crate::harness::PATIENCE)).expect("an option");
        assert!(!client.is_closed(), "it had taken some messages");
    }
}
