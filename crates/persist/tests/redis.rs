//! Files of a real Redis and ours, loaded by each other. Skipped with a message if redis-server is missing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use darter_base::hash::KeyHasher;
use darter_persist::RdbItem;
use darter_persist::check::check;
use darter_persist::convert::convert;
use darter_persist::entry::{self, Entries, LoadedEntry};
use darter_persist::file::{FileOptions, FileSource, FileWriter};
use darter_persist::storage::name::NameFormat;
use darter_store::Shard;
use darter_store::rdb::{write_length, write_text};

/// A port on which nobody listens, another one each time, below those that the kernel gives to whoever connects.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(611);
    (0..22_000)
        .map(|_| (10_000 + begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % 22_000) as u16)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a port")
}

/// A server in its own directory, which is removed with it.
struct Redis {
    process: Child,
    client: BufReader<TcpStream>,
    directory: PathBuf,
}

impl Redis {
    /// Starts a server that loads `rdb`; `None` if there is no redis-server.
    fn start(name: &str, rdb: Option<&[u8]>) -> Option<Redis> {
        let directory = std::env::temp_dir().join(format!("darter-persist-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        if let Some(bytes) = rdb {
            fs::write(directory.join("dump.rdb"), bytes).expect("a file");
        }
        let version = Command::new("redis-server").arg("--version").output();
        let text = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        if !text.starts_with("Redis server v=") {
            eprintln!("SKIPPED: redis-server is not installed, or is none of Redis: {text}");
            return None;
        }
        let port = free_port();
        let log = fs::File::create(directory.join("log")).expect("a file");
        let mut process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"])
            .args(["--port", &port.to_string(), "--dir"])
            .arg(&directory)
            .stdout(Stdio::from(log))
            .spawn()
            .expect("it starts");
        let began = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
                let mut redis = Redis { process, client: BufReader::new(stream), directory };
                while redis.call(&["PING"]).starts_with("-LOADING") {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return Some(redis);
            }
            let ended = process.try_wait().expect("its state").is_some();
            if ended || began.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
                panic!("redis-server did not start:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn send(&mut self, args: &[&str]) {
        let mut bytes = format!("*{}\r\n", args.len());
        for arg in args {
            bytes.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        self.client.get_mut().write_all(bytes.as_bytes()).expect("sent");
    }

    /// The reply as one text.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.client.read_line(&mut line).expect("a reply");
        let line = line.trim_end().to_owned();
        let count = |line: &str| line[1..].parse::<i64>().expect("a number");
        match line.as_bytes()[0] {
            b'$' if count(&line) >= 0 => {
                let mut bytes = vec![0; count(&line) as usize + 2];
                self.client.read_exact(&mut bytes).expect("a reply");
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            b'*' if count(&line) >= 0 => {
                (0..count(&line)).map(|_| self.reply()).collect::<Vec<_>>().join(" ")
            }
            _ => line,
        }
    }

    fn call(&mut self, args: &[&str]) -> String {
        self.send(args);
        self.reply()
    }

    /// A call that must not fail.
    fn must(&mut self, args: &[&str]) -> String {
        let reply = self.call(args);
        assert!(!reply.starts_with('-'), "{args:?}: {reply}");
        reply
    }

    /// The file that it would load at its next start.
    fn saved(&mut self) -> Vec<u8> {
        self.must(&["SAVE"]);
        fs::read(self.directory.join("dump.rdb")).expect("its file")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn options(format: NameFormat, packs: bool) -> FileOptions {
    FileOptions { format, packs, has_checksum: packs, now_ms: 1_800_000_000_000, id: 99 }
}

/// Members of several forms: integers, short and long texts.
fn member(style: u64, n: u64) -> String {
    match style {
        0 => (n * 7919).to_string(),
        1 => format!("member:{n}"),
        _ if n.is_multiple_of(100) => format!("{n}:{}", "long and repetitive ".repeat(1 + n as usize % 200)),
        _ => format!("{n:x}-{}", n * n),
    }
}

/// Keys of every type with `len` members, in the styles above.
fn fill(redis: &mut Redis, len: u64, styles: std::ops::Range<u64>) {
    let far = "4102444800000";
    for style in styles {
        let key = |kind: &str| format!("{kind}:{style}:{len}");
        redis.must(&["SET", &key("string"), &member(style, len)]);
        redis.must(&["SET", &key("string:ttl"), &member(style, len), "PXAT", far]);
        let steps = (0..len).collect::<Vec<_>>();
        for batch in steps.chunks(500) {
            let mut commands: Vec<Vec<String>> =
                ["RPUSH", "SADD", "HSET", "ZADD"].map(|name| vec![name.to_owned(), key(name)]).to_vec();
            for &n in batch {
                let text = member(style, n);
                commands[0].push(text.clone());
                commands[1].push(text.clone());
                commands[2].extend([text.clone(), member((style + 1) % 3, n)]);
                commands[3].extend([(n as f64 * 0.37).to_string(), text]);
            }
            for command in &commands {
                redis.send(&command.iter().map(String::as_str).collect::<Vec<_>>());
            }
            for &n in batch {
                redis.send(&[
                    "XADD",
                    &key("stream"),
                    &format!("{}-{}", n / 3 + 1, n % 3),
                    "f",
                    &member(style, n),
                ]);
            }
            for _ in 0..commands.len() + batch.len() {
                let reply = redis.reply();
                assert!(!reply.starts_with('-'), "{reply}");
            }
        }
        redis.must(&["PEXPIREAT", &key("HSET"), far]);
        redis.must(&["XGROUP", "CREATE", &key("stream"), "workers", "0"]);
        redis.must(&["XREADGROUP", "GROUP", "workers", "ann", "COUNT", "20", "STREAMS", &key("stream"), ">"]);
        redis.must(&["XDEL", &key("stream"), "1-0"]);
    }
}

/// Every key, its type, encoding-independent value and deadline, as the server sums them up.
fn digest(redis: &mut Redis) -> String {
    let digest = redis.must(&["DEBUG", "DIGEST"]);
    let info = redis.must(&["INFO", "keyspace"]);
    let databases = info.lines().filter_map(|line| line.split_once(",avg_ttl")).map(|(counts, _)| counts);
    format!("{digest} {:?}", databases.collect::<Vec<_>>())
}

/// The file with every value built in a shard of ours and written anew as an RDB file.
fn through_a_shard(theirs: &[u8]) -> Vec<u8> {
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(16, 1, hasher).expect("address space");
    let mut writer = FileWriter::new(Vec::new(), options(NameFormat::Rdb, true)).expect("memory");
    let mut reader = FileSource::open(theirs).expect("a good file");
    let loading = reader.each(|item| {
        match item {
            RdbItem::Function(code) => writer.function(&code)?,
            RdbItem::Entries(chunk) => {
                for entry in chunk.iter() {
                    let entry = entry.expect("a good entry");
                    let loaded = entry.load(&mut shard, chunk.db as usize, hasher.hash(&entry.key), 1);
                    assert_eq!(loaded, Ok(LoadedEntry::Key));
                }
            }
            _ => {}
        }
        Ok(())
    });
    loading.expect("a good file");
    for db in 0..shard.dbs_len() {
        let mut bytes = Vec::new();
        shard.each(db, |record| entry::write(&shard, record, &mut bytes));
        writer.entries(db as u32, 0, shard.db(db).len() as u32, &bytes).expect("good entries");
    }
    writer.finish().expect("memory").0
}

fn redis_check(directory: &Path, bytes: &[u8]) {
    let path = directory.join("checked.rdb");
    fs::write(&path, bytes).expect("a file");
    let Ok(out) = Command::new("redis-check-rdb").arg(&path).output() else {
        eprintln!("SKIPPED: redis-check-rdb is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("RDB looks OK"), "{text}");
}

#[test]
fn what_redis_saves_comes_back_to_it_through_us() {
    let Some(mut first) = Redis::start("first", None) else { return };
    for len in [1, 10, 1000] {
        fill(&mut first, len, 0..3);
    }
    fill(&mut first, 100_000, 1..2);
    first.must(&["SELECT", "3"]);
    first.must(&["SET", "elsewhere", "value"]);
    first.must(&["SETBIT", "bits", "1000000", "1"]);
    first.must(&["PFADD", "hll", "a", "b", "c"]);
    first.must(&["GEOADD", "geo", "13.361389", "38.115556", "Palermo"]);
    let library =
        "#!lua name=lib\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)";
    first.must(&["FUNCTION", "LOAD", library]);
    let (theirs, before) = (first.saved(), digest(&mut first));
    drop(first);

    let report = check(&&theirs[..]);
    assert!(report.is_good() && report.is_checked, "{report}");
    // to our format and back, and through a shard
    let (native, done) =
        convert(&theirs[..], Vec::new(), options(NameFormat::Native, true)).expect("a good file");
    assert!(done.skipped.is_empty());
    assert!(native.len() < theirs.len(), "{} and {} bytes", native.len(), theirs.len());
    let (back, _) = convert(&native[..], Vec::new(), options(NameFormat::Rdb, false)).expect("a good file");
    for ours in [back, through_a_shard(&native)] {
        let mut second = Redis::start("second", Some(&ours)).expect("a server, as before");
        redis_check(&second.directory, &ours);
        assert_eq!(digest(&mut second), before);
        assert_eq!(second.must(&["PEXPIRETIME", "string:ttl:1:10"]), ":4102444800000");
        assert_eq!(second.must(&["PEXPIRETIME", "HSET:2:1000"]), ":4102444800000");
        assert_eq!(second.must(&["FCALL", "twice", "0", "21"]), ":42");
        for (len, pending) in [(10, 10), (1000, 20)] {
            let info = second.must(&["XINFO", "GROUPS", &format!("stream:1:{len}")]);
            assert!(info.contains(&format!("pending :{pending}")), "{info}");
        }
    }
}

/// Entries that only we write: deadlines of fields and members, a sticky key, memcached's part.
fn entries_of_ours() -> Vec<u8> {
    let far = 4_102_444_800_000u64;
    let mut out = vec![24];
    write_text(&mut out, b"hash");
    out.extend_from_slice(&far.to_le_bytes());
    write_length(&mut out, 2);
    for (ttl, field) in [(1, "timed"), (0, "plain")] {
        write_length(&mut out, ttl);
        write_text(&mut out, field.as_bytes());
        write_text(&mut out, b"value");
    }
    out.push(0xfc);
    out.extend_from_slice(&far.to_le_bytes());
    out.push(32);
    write_text(&mut out, b"set");
    write_length(&mut out, 2);
    for (deadline, member) in [(far, "timed"), (0, "plain")] {
        write_text(&mut out, member.as_bytes());
        write_length(&mut out, deadline);
    }
    // memcached's flags 7; sticky
    out.extend_from_slice(&[0xd0, 2, 7, 0, 0, 0, 0xd1, 0]);
    write_text(&mut out, b"item");
    write_text(&mut out, b"text");
    out
}

#[test]
fn redis_passes_over_what_it_has_no_form_for_and_we_read_it_back() {
    let mut writer = FileWriter::new(Vec::new(), options(NameFormat::Rdb, true)).expect("memory");
    writer.entries(0, 0, 3, &entries_of_ours()).expect("good entries");
    let ours = writer.finish().expect("memory").0;
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(1, 1, hasher).expect("address space");
    let mut reader = FileSource::open(&ours[..]).expect("a good file");
    let loading = reader.each(|item| {
        let RdbItem::Entries(chunk) = item else { return Ok(()) };
        for entry in chunk.iter() {
            let entry = entry.expect("a good entry");
            assert_eq!(entry.load(&mut shard, 0, hasher.hash(&entry.key), 1), Ok(LoadedEntry::Key));
        }
        Ok(())
    });
    loading.expect("a good file");
    let sorted = |bytes: &[u8]| {
        let mut all: Vec<String> =
            Entries::new(bytes).map(|entry| format!("{:?}", entry.expect("a good entry"))).collect();
        all.sort();
        all
    };
    let mut again = Vec::new();
    shard.each(0, |record| entry::write(&shard, record, &mut again));
    let (before, after) = (sorted(&entries_of_ours()), sorted(&again));
    // members come in each server's own order
    let lens = |all: &[String]| all.iter().map(String::len).collect::<Vec<_>>();
    assert_eq!(lens(&after), lens(&before));
    assert_eq!(after[1], before[1]);

    let Some(mut redis) = Redis::start("ours", Some(&ours)) else { return };
    redis_check(&redis.directory, &ours);
    assert_eq!(redis.must(&["HGET", "hash", "timed"]), "value");
    assert_eq!(redis.must(&["HLEN", "hash"]), ":2");
    assert_eq!(redis.must(&["PEXPIRETIME", "hash"]), ":-1");
    assert_eq!(redis.must(&["SCARD", "set"]), ":2");
    assert_eq!(redis.must(&["PEXPIRETIME", "set"]), ":4102444800000");
    assert_eq!(redis.must(&["GET", "item"]), "text");
}
