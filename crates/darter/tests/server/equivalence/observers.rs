//! Effects of commands beside their replies: keyspace events, invalidations of caching clients, results of WATCH,
//! statistics, the stream of a replica, and the data that is left.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::connection::Connection;
use crate::events::Events;
use crate::harness::PATIENCE;
use crate::reply::Reply;
use crate::way;

use super::draw::{KEYS, key};

/// Sends words and reads the reply.
pub fn ask(connection: &mut Connection, words: &[&str]) -> Reply {
    connection.ask(words).expect("a reply")
}

/// Clients that look at one server.
pub struct Observers {
    events: Events,
    /// Caches what it reads.
    cache: Connection,
    /// Is told of every key.
    broadcast: Connection,
    /// One for each key.
    watchers: Vec<Connection>,
    replica: Replica,
    admin: Connection,
}

impl Observers {
    /// Opens them.
    pub fn new(address: SocketAddr) -> Observers {
        let open = || Connection::open(address).expect("a connection");
        let tracking = |words: &[&str]| {
            let mut connection = open();
            ask(&mut connection, &["HELLO", "3"]);
            assert_eq!(ask(&mut connection, words).to_string(), "+OK");
            connection
        };
        Observers {
            events: Events::open(address, "KEAmn").expect("events"),
            cache: tracking(&["CLIENT", "TRACKING", "ON"]),
            broadcast: tracking(&["CLIENT", "TRACKING", "ON", "BCAST"]),
            watchers: (0..KEYS).map(|_| open()).collect(),
            replica: Replica::new(address),
            admin: open(),
        }
    }

    /// Removes all keys and sets the counters to zero.
    pub fn begin(&mut self) {
        for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["CONFIG", "RESETSTAT"]] {
            ask(&mut self.admin, words);
        }
        self.replica.take();
        self.seen();
    }

    /// From here on changes are seen.
    pub fn look(&mut self) {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let exists = [vec![b"EXISTS".to_vec()], keys.clone()].concat();
        self.cache.send([exists.as_slice()].into_iter()).expect("sent");
        for (watcher, key) in self.watchers.iter_mut().zip(&keys) {
            watcher.send([[b"WATCH".to_vec(), key.clone()].as_slice()].into_iter()).expect("sent");
        }
        self.watchers.iter_mut().for_each(|watcher| drop(watcher.next().expect("a reply")));
        while self.cache.next().expect("a reply").kind() == b'>' {}
    }

    /// What has been seen since [`Observers::look`], a line for each of them.
    pub fn seen(&mut self) -> Vec<String> {
        let multi: [&[Vec<u8>]; 2] = [&[b"MULTI".to_vec()], &[b"EXEC".to_vec()]];
        self.watchers.iter_mut().for_each(|watcher| watcher.send(multi.into_iter()).expect("sent"));
        let is_dirty = |watcher: &mut Connection| {
            watcher.next().expect("a reply");
            watcher.next().expect("a reply").items().is_none()
        };
        let dirty: Vec<bool> = self.watchers.iter_mut().map(is_dirty).collect();
        let dirty = dirty.iter().enumerate().filter(|(_, is_dirty)| **is_dirty);
        // Misses have no order: slices look for keys shard by shard.
        let events = self.events.take().expect("events").into_iter();
        let (mut misses, events): (Vec<String>, Vec<String>) =
            events.partition(|event| event.contains("keymiss"));
        misses.sort();
        vec![
            self.info(&["keyspace_hits", "keyspace_misses"]).join(" "),
            format!("misses: {}", misses.join(", ")),
            format!("watched: {}", dirty.map(|(at, _)| format!("k{at}")).collect::<Vec<_>>().join(" ")),
            format!("events: {}", events.join(", ")),
            format!("cache: {}", invalidated(&mut self.cache)),
            format!("broadcast: {}", invalidated(&mut self.broadcast)),
        ]
    }

    /// The facts that are seen when all commands have run, a line for each.
    pub fn end(&mut self) -> Vec<String> {
        let mut lines: Vec<String> = way::counts(&mut self.admin)
            .expect("statistics")
            .into_iter()
            .map(|(name, (calls, rejected, failed))| {
                format!("{name}: {calls} calls, {rejected} rejected, {failed} failed")
            })
            .collect();
        lines.extend(self.info(&["keyspace_hits", "keyspace_misses", "expired_keys", "evicted_keys"]));
        lines.extend(self.replica.take().into_iter().map(|line| format!("replica: {line}")));
        lines.extend(self.contents().into_iter().map(|(key, value)| format!("{key} = {value}")));
        lines
    }

    /// The lines of INFO stats with these names. KEYS has the transaction hold all shards: of one that another thread holds
    /// INFO tells what housekeeping saw last.
    fn info(&mut self, names: &[&str]) -> Vec<String> {
        for words in [&["MULTI"][..], &["KEYS", ""], &["INFO", "stats"]] {
            ask(&mut self.admin, words);
        }
        let answers = ask(&mut self.admin, &["EXEC"]);
        let info = &answers.items().expect("two answers")[1];
        let text = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
        let is_wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
        text.lines().filter(is_wanted).map(str::to_owned).collect()
    }

    /// The contents of the server, by database and key.
    pub fn contents(&mut self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for db in 0..3 {
            ask(&mut self.admin, &["SELECT", &db.to_string()]);
            for key in ask(&mut self.admin, &["KEYS", "*"]).items().unwrap_or_default() {
                let name = String::from_utf8_lossy(key.bytes().expect("a key")).into_owned();
                let kind = ask(&mut self.admin, &["TYPE", &name]).to_string();
                let time = ask(&mut self.admin, &["PEXPIRETIME", &name]).to_string();
                // The digest of a stream covers when consumers were last seen.
                let value = match kind.as_str() {
                    "+stream" => without_times(ask(&mut self.admin, &["XINFO", "STREAM", &name, "FULL"])),
                    _ => ask(&mut self.admin, &["DEBUG", "DIGEST-VALUE", &name]).to_string(),
                };
                found.insert(format!("{db} {name}"), format!("{kind} {} {value}", relative(time.as_bytes())));
            }
        }
        ask(&mut self.admin, &["SELECT", "0"]);
        found
    }

    /// Replaces the data by what the journal holds. A replica needs a full sync after it.
    pub fn reload(&mut self, address: SocketAddr) {
        // Where others have the cores, threads may be too late to let the reload begin.
        const TRIES: usize = 4;
        let mut reload = || ask(&mut self.admin, &["DEBUG", "LOADAOF"]).to_string() == "+OK";
        assert!((0..TRIES).any(|_| reload()), "the journal is not read back; the log says why");
        self.replica = Replica::new(address);
    }
}

/// The keys that a caching client has been told of, sorted: how many messages that takes depends on turns.
fn invalidated(client: &mut Connection) -> String {
    client.send([[b"PING".to_vec()].as_slice()].into_iter()).expect("sent");
    let mut keys = Vec::new();
    loop {
        let message = client.next().expect("a message");
        match message.items() {
            Some([_, Reply::List(_, names)]) => keys.extend(names.iter().map(Reply::to_string)),
            Some(_) => keys.push("everything".to_owned()),
            None => break,
        }
    }
    keys.sort();
    keys.dedup();
    keys.join(" ")
}

/// A description of a stream without when its consumers were seen, when entries were delivered, and how it lies in memory.
fn without_times(reply: Reply) -> String {
    const TIMES: [&[u8]; 4] = [b"seen-time", b"active-time", b"radix-tree-keys", b"radix-tree-nodes"];
    match reply {
        Reply::List(kind, items) => {
            let mut shown = Vec::new();
            let mut is_time = false;
            for item in items {
                let name = TIMES.iter().any(|name| item.bytes() == Some(name));
                shown.push(if is_time { "<time>".to_owned() } else { without_times(item) });
                is_time = name;
            }
            format!("{}[{}]", char::from(kind), shown.join(", "))
        }
        line => relative(line.to_string().as_bytes()),
    }
}

/// A word, or `<time>` for a moment within a year of now, which two runs do not share.
fn relative(word: &[u8]) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    let text = word.escape_ascii().to_string();
    let number: Option<u64> = text.trim_start_matches(':').parse().ok();
    let is_near =
        |number: u64| number.abs_diff(now) < 31_000_000 || (number / 1000).abs_diff(now) < 31_000_000;
    if number.is_some_and(is_near) { "<time>".to_owned() } else { text }
}

/// A replica that writes down the commands it gets.
struct Replica {
    stream: BufReader<TcpStream>,
    ends: u64,
    admin: Connection,
}

impl Replica {
    fn new(address: SocketAddr) -> Replica {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = BufReader::new(socket);
        stream.get_mut().write_all(b"REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n").expect("sent");
        let mut line = String::new();
        while !line.starts_with("+FULLRESYNC") {
            line.clear();
            stream.read_line(&mut line).expect("an answer");
        }
        // Empty lines keep the link alive while the snapshot is made.
        while !line.starts_with('$') {
            line.clear();
            stream.read_line(&mut line).expect("the length of the snapshot");
        }
        let length = line.trim_end().trim_start_matches('$');
        match length.strip_prefix("EOF:") {
            Some(mark) => {
                let mut tail = Vec::new();
                while !tail.ends_with(mark.as_bytes()) {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("the snapshot");
                    tail.push(byte[0]);
                }
            }
            None => {
                let mut snapshot = vec![0; length.parse().expect("a length")];
                stream.read_exact(&mut snapshot).expect("the snapshot");
            }
        }
        let admin = Connection::open(address).expect("a connection");
        Replica { stream, ends: 0, admin }
    }

    /// The commands since the last call, each with its database.
    fn take(&mut self) -> Vec<String> {
        self.ends += 1;
        let end = self.ends.to_string();
        ask(&mut self.admin, &["PUBLISH", "end-of-sequence", &end]);
        let mut commands = Vec::new();
        let mut db = String::new();
        loop {
            let command = Reply::read(&mut self.stream).expect("a command");
            let words: Vec<&[u8]> =
                command.items().unwrap_or_default().iter().filter_map(Reply::bytes).collect();
            match words.first().map(|name| name.to_ascii_uppercase()).as_deref() {
                Some(b"PING" | b"MULTI" | b"EXEC" | b"REPLCONF") => {}
                Some(b"SELECT") => db = String::from_utf8_lossy(words[1]).into_owned(),
                Some(b"PUBLISH") if words[1] == b"end-of-sequence" => {
                    if words[2] == end.as_bytes() {
                        return commands;
                    }
                }
                Some(_) => {
                    // A payload may hold when a consumer was last seen; the contents are compared by themselves.
                    let is_payload = words[0].eq_ignore_ascii_case(b"RESTORE");
                    let words = &words[..if is_payload { 2 } else { words.len() }];
                    let words: Vec<String> = words.iter().map(|word| relative(word)).collect();
                    commands.push(format!("{db}: {}", words.join(" ")));
                }
                None => panic!("no command: {command}"),
            }
        }
    }
}
