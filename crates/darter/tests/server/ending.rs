//! How a server begins and ends: what start says, when the end saves, and that it always comes.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::{Client, PATIENCE, Value, free_port};

/// A server whose log is kept, and which saves when it ends.
struct Logged {
    process: Child,
    port: u16,
    log: Folder,
}

impl Logged {
    fn start(name: &str, dir: &str, flags: &[&str]) -> Logged {
        Logged::start_with(name, dir, flags, &[])
    }

    fn start_with(name: &str, dir: &str, flags: &[&str], env: &[(&str, &str)]) -> Logged {
        let log = Folder::new(&format!("ending-log-{name}"));
        let file = std::fs::File::create(log.path().join("log")).expect("a file");
        let port = free_port();
        let process = Command::new(env!("CARGO_BIN_EXE_darter"))
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", dir])
            .args(flags)
            .envs(env.iter().copied())
            .stderr(file)
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        Logged { process, port, log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.log.path().join("log")).expect("the log")
    }

    fn wait_until_it_says(&self, what: &str) {
        let began = Instant::now();
        while !self.said().contains(what) {
            assert!(began.elapsed() < PATIENCE, "it does not say '{what}': {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn client(&self) -> Client {
        self.wait_until_it_says("Ready to accept connections");
        Client::connect(self.port)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn end(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("its state") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder in which nobody may create a file, root neither.
const UNWRITABLE: &str = "/proc";

#[test]
fn an_empty_server_ends_though_its_folder_cannot_be_written() {
    for (signal, name) in [("-TERM", "SIGTERM"), ("-INT", "SIGINT")] {
        let mut server = Logged::start("empty", UNWRITABLE, &[]);
        drop(server.client());
        assert!(server.said().contains("the folder /proc cannot be written"), "{}", server.said());
        server.signal(signal);
        assert!(server.end().success(), "{}", server.said());
        assert!(server.said().contains(&format!("Received {name}")), "{}", server.said());
    }
    let mut server = Logged::start("empty", UNWRITABLE, &[]);
    server.client().send_all(&[&["SHUTDOWN"]]);
    assert!(server.end().success());
}

#[test]
fn a_folder_that_is_needed_and_cannot_be_written_refuses_the_start() {
    for flags in [&["--save", "3600 1"][..], &["--appendonly", "yes"], &["--snapshot_cron", "0 0 * * *"]] {
        let mut server = Logged::start("needed", UNWRITABLE, flags);
        assert_eq!(server.end().code(), Some(1), "{flags:?}");
        assert!(server.said().contains("/proc"), "{flags:?}: {}", server.said());
    }
}

#[test]
fn a_save_that_fails_ends_the_server_where_no_save_points_are_set() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Logged::start("failing", UNWRITABLE, &[]);
        let mut client = server.client();
        client.call(&["SET", "k", "v"]);
        // Who asks by command hears of it.
        let said = client.call(&["SHUTDOWN"]);
        assert_eq!(said, Value::Error("ERR Errors trying to SHUTDOWN. Check logs.".to_owned()));
        server.signal(signal);
        assert_eq!(server.end().code(), Some(1), "{signal}");
        let said = server.said();
        assert!(said.contains("Error trying to save the DB") && said.contains("not saved"), "{said}");
    }
}

#[test]
fn with_save_points_a_failed_save_keeps_the_server_until_somebody_insists() {
    let folder = Folder::new("ending-insists");
    let mut server = Logged::start("insists", folder.text(), &["--save", "3600 1000000"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    std::fs::remove_dir_all(folder.path()).expect("it is there");
    // One after the other: an interrupt while a try is under way would insist already.
    for (tries, signal) in [(1, "-TERM"), (2, "-TERM"), (3, "-INT")] {
        server.signal(signal);
        let began = Instant::now();
        while server.said().matches("can't exit").count() < tries {
            assert!(began.elapsed() < PATIENCE, "{}", server.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(client.call(&["GET", "k"]), Value::Text("v".to_owned()));
    }
    server.signal("-INT");
    assert!(server.end().success(), "{}", server.said());
}

#[test]
fn what_has_not_changed_is_not_saved_again() {
    let folder = Folder::new("ending-unchanged");
    let path = folder.path().join("dump.darter");
    let end = |change: &[&[&str]]| {
        let before = std::fs::metadata(&path).and_then(|file| file.modified()).ok();
        let mut server = Logged::start("unchanged", folder.text(), &[]);
        let mut client = server.client();
        change.iter().for_each(|command| assert!(!matches!(client.call(command), Value::Error(_))));
        server.signal("-TERM");
        assert!(server.end().success());
        let is_new = std::fs::metadata(&path).and_then(|file| file.modified()).ok() != before;
        assert_eq!(!is_new, server.said().contains("nothing has changed"), "{}", server.said());
        is_new
    };
    assert!(!end(&[]), "nothing was ever there");
    assert!(end(&[&["SET", "k", "v"]]));
    assert!(!end(&[&["GET", "k"]]));
    assert!(end(&[&["EXPIRE", "k", "1000"]]));
    assert!(end(&[&[
        "FUNCTION",
        "LOAD",
        "#!lua name=l\nredis.register_function('f', function() return 1 end)"
    ]]));
    assert!(!end(&[&["FCALL", "f", "0"]]));
    assert!(end(&[&["SET", "k", "v"], &["SAVE"], &["DEL", "k"]]));
    // Another file is not the one that the next start loads.
    assert!(end(&[&["SET", "k", "v"], &["SAVE", "RDB", "elsewhere.rdb"]]));
    assert!(end(&[&["FLUSHALL"]]));
    std::fs::remove_file(&path).expect("it is there");
    assert!(end(&[&["SET", "k", "v"]]));
}

/// Every way to change something that a file would hold.
const WRITES: &[&str] = &[
    "SET s v",
    "APPEND s w",
    "SETRANGE s 1 x",
    "MSET a 1 b 2",
    "INCR a",
    "SETBIT bits 7 1",
    "BITFIELD bits SET u8 0 9",
    "EXPIRE s 1000",
    "PERSIST s",
    "GETEX s EX 1000",
    "GETEX s PERSIST",
    "RENAME s t",
    "COPY t u",
    "MOVE u 1",
    "GETDEL t",
    "SWAPDB 0 1",
    "SWAPDB 0 1",
    "RPUSH l a b c d",
    "LSET l 0 z",
    "LTRIM l 0 2",
    "LMOVE l l LEFT RIGHT",
    "LPOP l",
    "HSET h f 1 g 2",
    "HINCRBY h f 1",
    "HEXPIRE h 1000 FIELDS 1 f",
    "HPERSIST h FIELDS 1 f",
    "HDEL h g",
    "SADD x 1 2 3",
    "SMOVE x y 1",
    "SPOP x",
    "SREM x 2 3",
    "SUNIONSTORE z2 y y",
    "ZADD z 1 a 2 b 3 c",
    "ZINCRBY z 1 a",
    "ZPOPMIN z",
    "ZRANGESTORE z3 z 0 -1",
    "GEOADD geo 1 1 a",
    "PFADD p a",
    "XADD st 1-1 f v",
    "XADD st 2-1 f v",
    "XGROUP CREATE st g 0",
    "XREADGROUP GROUP g c STREAMS st >",
    "XACK st g 1-1",
    "XCLAIM st g d 0 2-1",
    "XSETID st 9-1",
    "XTRIM st MAXLEN 1",
    "XGROUP DESTROY st g",
    "SORT y BY nosort STORE sorted",
    "EVAL redis.call('incr','a') 0",
    "DEL a",
    "UNLINK b",
    "FLUSHDB",
];

#[test]
fn every_change_is_counted() {
    let server = crate::harness::Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    let mut before = 0;
    for line in WRITES {
        let words: Vec<&str> = line.split(' ').collect();
        let said = client.call(&words);
        assert!(!matches!(said, Value::Error(_)), "{line}: {said:?}");
        let after = client.info::<u64>("persistence", "rdb_changes_since_last_save");
        assert!(after > before, "{line}");
        before = after;
    }
}

#[test]
fn start_says_what_a_crash_would_lose() {
    let folder = Folder::new("ending-promise");
    for (flags, said) in [
        (&[][..], "no save points, no journal: a crash loses everything; Ctrl-C saves to "),
        (&["--save", "3600 1"], "a crash loses what came after the last snapshot; Ctrl-C saves to "),
        (&["--dbfilename", ""], "a crash loses everything; Ctrl-C saves nothing"),
        (&["--appendonly", "yes"], "a crash of the machine loses about one second"),
    ] {
        let server = Logged::start("promise", folder.text(), flags);
        drop(server.client());
        assert!(server.said().contains(said), "{flags:?}: {}", server.said());
    }
}

#[test]
fn ready_is_said_when_the_data_is_there() {
    let folder = Folder::new("ending-ready");
    let mut server = Logged::start("filled", folder.text(), &[]);
    assert_eq!(server.client().call(&["DEBUG", "POPULATE", "300000", "key", "100"]), Value::ok());
    server.signal("-TERM");
    assert!(server.end().success());
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let socket = socket.display().to_string();
    let mut server = Logged::start_with("ready", folder.text(), &[], &[("NOTIFY_SOCKET", &socket)]);
    let wait_for = |wanted: &str| {
        let mut bytes = [0; 1000];
        loop {
            let len = manager.recv(&mut bytes).expect("a message in time");
            if String::from_utf8_lossy(&bytes[..len]).contains(wanted) {
                return;
            }
        }
    };
    wait_for("READY=1");
    // No LOADING any more.
    assert_eq!(Client::connect(server.port).call(&["DBSIZE"]), Value::Int(300_000));
    server.wait_until_it_says("Ready to accept connections");
    let said = server.said();
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("'{what}' is not in {said}"));
    assert!(at("loading dump.darter") < at("loaded dump.darter"));
    assert!(at("loaded dump.darter") < at("Ready to accept connections"));
    server.signal("-TERM");
    wait_for("STOPPING=1");
    assert!(server.end().success());
}

#[test]
fn sigquit_ends_at_once_as_in_redis() {
    let folder = Folder::new("ending-quit");
    // Whoever runs the tests in the background may have them ignore the signal.
    let prefix = ["env", "--default-signal=QUIT", "prlimit", "--core=0"];
    let mut server = limited("quit", &folder, &prefix, &[]);
    server.client().call(&["SET", "k", "v"]);
    server.signal("-QUIT");
    assert_eq!(server.end().signal(), Some(3));
    assert_eq!(folder.files(), [""; 0], "it saves nothing");
}

/// A server that was started with limits: `prefix` is the program that sets them, and its arguments.
fn limited(name: &str, folder: &Folder, prefix: &[&str], flags: &[&str]) -> Logged {
    let log = Folder::new(&format!("ending-log-{name}"));
    let file = std::fs::File::create(log.path().join("log")).expect("a file");
    let port = free_port();
    let process = Command::new(prefix[0])
        .args(&prefix[1..])
        .arg(env!("CARGO_BIN_EXE_darter"))
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", folder.text()])
        .args(flags)
        .stderr(file)
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    Logged { process, port, log }
}

/// Sets limits that a privileged process could not lift either.
const WITHOUT_RIGHTS: &[&str] = &["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"];

#[test]
fn maxclients_is_lowered_to_what_the_limit_of_files_allows() {
    let folder = Folder::new("ending-files");
    let prefix = [&["prlimit", "--nofile=200:200"][..], WITHOUT_RIGHTS].concat();
    let flags = ["--proactor_threads", "2", "--maxclients", "10000", "--dbfilename", ""];
    let server = limited("files", &folder, &prefix, &flags);
    let mut client = server.client();
    let said = server.said();
    assert!(said.contains("maxclients has been reduced to 120 to compensate for low ulimit"), "{said}");
    assert_eq!(client.call(&["CONFIG", "GET", "maxclients"]), Value::array(&["maxclients", "120"]));
    let refused = client.call(&["CONFIG", "SET", "maxclients", "10000"]);
    assert!(
        matches!(&refused, Value::Error(line) if line.contains("not able to handle the specified number of clients, try with 120")),
        "{refused:?}"
    );
    // The one too many is told; nobody hangs.
    let others: Vec<Client> = (0..119).map(|_| Client::connect(server.port)).collect();
    let began = Instant::now();
    while client.info::<u64>("clients", "connected_clients") < 120 {
        assert!(began.elapsed() < PATIENCE);
    }
    let mut late = Client::connect(server.port);
    assert_eq!(late.read(), Value::Error("ERR max number of clients reached".to_owned()));
    drop(others);
    let prefix = [&["prlimit", "--nofile=70:70"][..], WITHOUT_RIGHTS].concat();
    let mut server = limited("few", &folder, &prefix, &flags);
    assert_eq!(server.end().code(), Some(1));
    assert!(server.said().contains("'ulimit -n' of 70 is not enough"), "{}", server.said());
}

#[test]
fn a_limit_of_address_space_is_kept() {
    let folder = Folder::new("ending-space");
    let flags = ["--proactor_threads", "2", "--dbfilename", ""];
    let server = limited("space", &folder, &["prlimit", "--as=2000000000"], &flags);
    let mut client = server.client();
    assert!(server.said().contains("address space is limited"), "{}", server.said());
    assert_eq!(client.call(&["DEBUG", "POPULATE", "100000", "key", "1000"]), Value::ok());
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(100_000));
    assert_eq!(client.call(&["EVAL", "return redis.call('GET', 'key:1') ~= false", "0"]), Value::Int(1));
}

/// What Debian's /etc/redis/redis.conf says beside the defaults, with folders of the test.
#[test]
fn a_configuration_file_of_redis_starts_as_it_is() {
    let folder = Folder::new("ending-debian");
    let (file, dir) = (folder.path().join("redis.conf"), folder.text());
    let port = free_port();
    let lines = format!(
        "bind 127.0.0.1 -::1\nprotected-mode yes\nport {port}\ntcp-backlog 511\ndaemonize yes\n\
         pidfile {dir}/redis-server.pid\nloglevel notice\nlogfile {dir}/redis-server.log\ndatabases 16\n\
         always-show-logo no\ndbfilename dump.rdb\ndir {dir}\nreplica-serve-stale-data yes\nappendonly no\n"
    );
    std::fs::write(&file, lines).expect("a file");
    let log = folder.path().join("redis-server.log");
    let process = Command::new(env!("CARGO_BIN_EXE_darter"))
        .arg(&file)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut server = Logged { process, port, log: Folder::new("ending-log-debian") };
    let began = Instant::now();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    while !said().contains("Ready to accept connections") {
        assert!(began.elapsed() < PATIENCE, "{}", said());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(
        said().contains("daemonize has no effect") && said().contains("3600 1 300 100 60 10000"),
        "{}",
        said()
    );
    let mut client = Client::connect(port);
    let save = client.call(&["CONFIG", "GET", "save"]);
    assert_eq!(save, Value::array(&["save", "3600 1 300 100 60 10000"]));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    server.signal("-TERM");
    assert!(server.end().success());
    assert!(folder.files().contains(&"dump.rdb".to_owned()));
}

#[test]
fn cache_mode_shows_the_policy_it_has() {
    let server = crate::harness::Server::start(&["--cache_mode", "--maxmemory", "100MiB"]);
    let mut client = server.client();
    let shown = client.call(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(shown, Value::array(&["maxmemory-policy", "allkeys-lfu"]));
    assert_eq!(client.call(&["CONFIG", "GET", "maxmemory"]), Value::array(&["maxmemory", "104857600"]));
    assert_eq!(client.info::<String>("memory", "maxmemory_policy"), "allkeys-lfu");
    // What `redis-cli --hotkeys` asks.
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert!(matches!(client.call(&["OBJECT", "FREQ", "k"]), Value::Int(_)));
    let folder = Folder::new("ending-doubt");
    let small = Logged::start("doubt", folder.text(), &["--maxmemory", "1mb"]);
    drop(small.client());
    assert!(small.said().contains("Are you sure this is what you really want?"), "{}", small.said());
    let minute = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("a time").as_secs() / 60
    };
    let began = minute();
    let often = Logged::start("cron", folder.text(), &["--snapshot_cron", "* * * * *"]);
    let mut client = often.client();
    // The schedule is looked at once a second.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let saved = client.info::<u64>("persistence", "rdb_saves");
    let minutes = minute() - began;
    assert!(saved <= minutes, "{saved} in {minutes} minutes that have begun");
}
