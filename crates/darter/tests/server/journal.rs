//! The files of the journal and their way through life: torn ends, new bases, what Redis left, a full disk.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::journal::{Dir, wait_for_base};
use crate::harness::raw::{Link, Raw, encoded};
use crate::harness::{Server, Value, wait_until};

#[test]
fn a_torn_end_is_left_out_and_kept_aside() {
    let dir = Dir::new("torn");
    let server = dir.start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    for n in 0..100 {
        client.call(&["RPUSH", "l", &n.to_string()]);
    }
    client.call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    let segment = dir.lose_tails().remove(0);
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

#[test]
fn zeros_that_were_had_ahead_are_nothing_after_a_kill_and_gone_after_a_clean_stop() {
    let dir = Dir::new("zeros");
    let always = ["--proactor_threads", "1", "--appendfsync", "always"];
    let server = dir.start(&always);
    let mut client = server.client();
    for n in 0..100 {
        client.call(&["RPUSH", "l", &n.to_string()]);
    }
    drop(server);
    let killed = fs::read(dir.segments().remove(0)).expect("a segment");
    let (is_sound, told) = check(&dir.journal());
    assert!(is_sound && told.contains("100 records"), "{told}");
    let server = dir.start(&always);
    let mut client = server.client();
    assert_eq!(client.call(&["RPUSH", "l", "last"]), Value::Int(101));
    // More than is had ahead at once, and more than is had ahead.
    let long = "x".repeat(3 << 20);
    assert_eq!(client.call(&["SET", "long", &long]), Value::ok());
    assert_eq!(client.call(&["RPUSH", "l", "end"]), Value::Int(102));
    assert_eq!(client.try_call(&["SHUTDOWN"]), None);
    assert!(server.wait_for_end());
    let ended = fs::read(dir.segments().remove(1)).expect("a segment");
    assert!(ended.ends_with(b"\x03end"), "zeros are left");
    // Where the file system is one of those that have them.
    if killed.len() >= 128 << 10 {
        assert!(killed.ends_with(&[0; 100 << 10]));
    }
    let names = fs::read_dir(dir.journal()).expect("a folder").flatten().map(|file| file.path());
    assert!(!names.into_iter().any(|path| path.to_string_lossy().contains(".torn")));
    let server = dir.start(&always);
    assert_eq!(server.client().call(&["LLEN", "l"]), Value::Int(102));
    assert_eq!(server.client().call(&["STRLEN", "long"]), Value::Int(3 << 20));
}

#[test]
fn what_is_answered_without_a_sync_any_more_survives_a_kill() {
    let dir = Dir::new("no-more-always");
    for round in 0..4 {
        let server = dir.start(&["--proactor_threads", "1", "--appendfsync", "always"]);
        let mut client = server.client();
        assert_eq!(client.call(&["LLEN", "l"]), Value::Int(round * 101));
        client.call(&["RPUSH", "l", "synced"]);
        assert_eq!(client.call(&["CONFIG", "SET", "appendfsync", "everysec"]), Value::ok());
        for _ in 0..100 {
            client.call(&["RPUSH", "l", "answered"]);
        }
        drop(server);
    }
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
    let server = dir.start(&["--proactor_threads", "1"]);
    server.client().call(&["SET", "k", "v"]);
    server.client().call(&["WAITAOF", "1", "0", "0"]);
    drop(server);
    let segment = dir.lose_tails().remove(0);
    let mut bytes = fs::read(&segment).expect("a segment");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&segment, &bytes).expect("a segment");
    let told = output_of(dir.path(), &["--aof-load-truncated", "no"]);
    assert!(told.contains("journal is damaged") && told.contains("checksum"), "{told}");
    fs::write(dir.journal().join("darter.manifest"), "darter-journal 1\nbase -\n").expect("a manifest");
    let told = output_of(dir.path(), &[]);
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
fn what_is_changed_in_slices_is_read_back() {
    let dir = Dir::new("slices");
    let server = dir.start(&[]);
    let mut client = server.client();
    client.call_for_each(&["SADD", "s"], 3000, |n, words| words.push(format!("m:{n}")));
    for key in ["l", "drained"] {
        client.call_for_each(&["RPUSH", key], 9000, |n, words| words.push(format!("i:{n}")));
    }
    client.call(&["SETBIT", "bits", "4000000", "1"]);
    let before = client.info::<u64>("transaction", "slices_total");
    client.call(&["SPOP", "s", "3000"]);
    client.call(&["LPOP", "drained", "9000"]);
    assert_eq!(client.call(&["LREM", "l", "0", "i:7000"]), Value::Int(1));
    assert_eq!(client.call(&["LINSERT", "l", "AFTER", "i:7999", "new"]), Value::Int(9000));
    assert_eq!(client.call(&["BITOP", "NOT", "not", "bits"]), Value::Int(500_001));
    assert!(client.info::<u64>("transaction", "slices_total") - before > 20);
    drop(server);
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["EXISTS", "s", "drained"]), Value::Int(0));
    assert_eq!(client.call(&["LRANGE", "l", "6999", "7000"]), Value::array(&["i:6999", "i:7001"]));
    assert_eq!(client.call(&["LRANGE", "l", "7998", "8000"]), Value::array(&["i:7999", "new", "i:8000"]));
    assert_eq!(client.call(&["BITCOUNT", "not"]), Value::Int(8 * 500_001 - 1));
}

#[test]
fn what_memcached_clients_write_is_read_back() {
    let dir = Dir::new("memcached");
    let port = crate::harness::free_port().to_string();
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
    assert_eq!(client.call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]));
    client.call(&["SET", "k", "w"]);
    // Whether the sync of each second has come in between is chance; no replica is there to sync.
    let Value::Array(synced) = client.call(&["WAITAOF", "0", "1", "50"]) else { panic!("two counts") };
    assert_eq!(synced.last(), Some(&Value::Int(0)));
    let Value::Error(text) = client.call(&["WAITAOF", "2", "0", "0"]) else { panic!("an error") };
    assert!(text.contains("out of range"), "{text}");
    let info = client.call(&["INFO", "persistence"]);
    let Value::Text(info) = info else { panic!("a text") };
    assert!(info.contains("aof_enabled:1") && info.contains("aof_last_write_status:ok"), "{info}");
    let plain = Server::start(&[]);
    let Value::Error(text) = plain.client().call(&["WAITAOF", "1", "0", "0"]) else { panic!("an error") };
    assert!(text.contains("appendonly is disabled"), "{text}");
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
    let (began, lives) = (Instant::now(), Duration::from_secs(15));
    client.call(&["SET", "late", "v", "EX", "15"]);
    client.call(&["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)"]);
    let started = client.call(&["BGREWRITEAOF"]);
    assert_eq!(started, Value::Status("Background append only file rewriting started".to_owned()));
    assert_eq!(client.call(&["PERSIST", "late"]), Value::Int(1), "it lives fifteen seconds");
    client.call(&["DEL", "k0"]);
    wait_for_base(&server);
    let names: Vec<PathBuf> = dir.segments();
    assert!(names.iter().all(|path| path.to_string_lossy().contains("journal.2.")), "{names:?}");
    drop(server);
    std::thread::sleep((lives + Duration::from_millis(500)).saturating_sub(began.elapsed()));
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(200));
    assert_eq!(client.call(&["GET", "late"]), Value::Text("v".to_owned()));
    assert_eq!(client.call(&["FCALL", "f", "0"]), Value::Int(1));
}

#[test]
fn appendonly_is_switched_while_the_server_runs() {
    let dir = Dir::new("switched");
    let start = |mode: &str| Server::start(&["--dir", dir.text(), "--appendonly", mode, "--dbfilename", ""]);
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
    assert_eq!(
        server.client().loaded().call(&["MGET", "before", "on", "off"]),
        Value::array(&["1", "2", "2"])
    );
}

#[test]
fn a_snapshot_is_where_a_first_journal_begins() {
    let dir = Dir::new("snapshot");
    let path = dir.text();
    let server = Server::start(&["--dir", path, "--dbfilename", "dump"]);
    server.client().call(&["SET", "a", "1"]);
    assert_eq!(server.client().call(&["SAVE"]), Value::ok());
    drop(server);
    let server = dir.start(&["--dbfilename", "dump"]);
    wait_for_base(&server);
    assert_eq!(server.client().call(&["INCR", "a"]), Value::Int(2));
    drop(server);
    fs::remove_file(dir.path().join("dump.darter")).expect("the snapshot");
    assert_eq!(dir.start(&[]).client().call(&["GET", "a"]), Value::Text("2".to_owned()));
}

#[test]
fn what_is_written_after_a_snapshot_is_answered_when_it_has_a_base() {
    let dir = Dir::new("snapshot-killed");
    let server = Server::start(&["--dir", dir.text(), "--dbfilename", "dump"]);
    let mut client = server.client();
    client.call_for_each(&["MSET"], 2000, |n, args| args.extend([format!("key:{n}"), "value".to_owned()]));
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    drop(server);
    // The first base takes a second.
    let slowly = ["--dbfilename", "dump", "--appendfsync", "always", "--rdb-key-save-delay", "500"];
    let server = dir.start(&slowly);
    let mut client = server.client();
    assert_eq!(client.call(&["GET", "key:7"]), Value::Text("value".to_owned()));
    assert_eq!(client.call(&["SET", "new", "1"]), Value::ok());
    drop(server);
    assert_eq!(dir.start(&slowly).client().call(&["GET", "new"]), Value::Text("1".to_owned()));
}

#[test]
fn without_its_first_base_a_journal_refuses_writes() {
    let dir = Dir::new("snapshot-baseless");
    let server = Server::start(&["--dir", dir.text(), "--dbfilename", "dump"]);
    assert_eq!(server.client().call(&["SET", "a", "1"]), Value::ok());
    assert_eq!(server.client().call(&["SAVE"]), Value::ok());
    drop(server);
    // For more attempts than there are seconds in a test.
    let in_the_way = (1..200).map(|n| dir.journal().join(format!("base.{n}.darter/x"))).collect::<Vec<_>>();
    in_the_way.iter().for_each(|path| fs::create_dir_all(path).expect("a folder"));
    let server = dir.start(&["--dbfilename", "dump"]);
    let mut client = server.client();
    let refusal = client.call(&["INCR", "a"]);
    assert!(matches!(&refusal, Value::Error(line) if line.starts_with("MISCONF")), "{refusal:?}");
    assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
    for path in &in_the_way {
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }
    wait_for_base(&server);
    assert_eq!(client.call(&["INCR", "a"]), Value::Int(2));
    drop(server);
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
    let told = output_of(dir.path(), &["--aof-load-truncated", "no"]);
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

/// A server that took over the files of Redis is killed before it has a base of its own.
#[test]
fn what_is_written_after_the_files_of_redis_is_kept_without_a_base() {
    let dir = Dir::new("redis-killed");
    fs::create_dir_all(dir.journal()).expect("a folder");
    fs::write(dir.journal().join("a.1.incr.aof"), encoded(&["SET", "n", "5"])).expect("a file");
    let manifest = "file a.1.incr.aof seq 1 type i\n";
    fs::write(dir.journal().join("appendonly.aof.manifest"), manifest).expect("a manifest");
    let in_the_way = (1..200).map(|n| dir.journal().join(format!("base.{n}.darter/x"))).collect::<Vec<_>>();
    in_the_way.iter().for_each(|path| fs::create_dir_all(path).expect("a folder"));
    for n in 6..9 {
        let server = dir.start(&["--appendfsync", "always"]);
        assert_eq!(server.client().call(&["INCR", "n"]), Value::Int(n));
        drop(server);
        let (is_sound, told) = check(&dir.journal());
        assert!(is_sound && told.contains("base redis"), "{told}");
    }
    for path in &in_the_way {
        fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    }
    let server = dir.start(&[]);
    wait_for_base(&server);
    drop(server);
    assert_eq!(dir.start(&[]).client().call(&["GET", "n"]), Value::Text("8".to_owned()));
    assert!(check(&dir.journal()).1.contains("base base."));
}

/// A small disk; gone with the test.
pub struct Mount(Dir);

impl Mount {
    /// Mounts `what`; `None` without the right to.
    pub fn new(dir: Dir, what: &[&str]) -> Option<Mount> {
        let mount = std::process::Command::new("mount").args(what).arg(dir.text()).status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Mount(dir));
        }
        eprintln!("no right to mount a small disk here: not tested");
        None
    }

    /// Its folder.
    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    /// Mounts it again with another option.
    pub fn again(&self, option: &str) {
        let options = format!("remount,{option}");
        let done = std::process::Command::new("mount").args(["-o", &options]).arg(self.0.text()).status();
        assert!(done.is_ok_and(|status| status.success()), "mount -o {options}");
    }

    /// Fills it with values of so many bytes until writes are refused, makes room, and finds all that was answered.
    fn fill_and_recover(&self, fsync: &str, ballast: usize, value_bytes: usize) {
        let mount = &self.0;
        let _ = fs::remove_dir_all(mount.journal());
        fs::write(mount.path().join("ballast"), vec![0; ballast]).expect("room");
        let server = mount.start(&["--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"]);
        let mut client = server.client();
        let value = "v".repeat(value_bytes);
        let mut acknowledged = 0;
        let connect = || {
            let mut link = Link::new(&server);
            link.0.get_mut().set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
            link
        };
        let (mut link, mut refused) = (connect(), None);
        for n in 0..200 {
            match link.try_call(&["SET", &format!("k{n}"), &value]) {
                Some(Raw::Line(line)) if line == b"+OK" => acknowledged = n + 1,
                Some(Raw::Line(line)) => {
                    refused = Some(line);
                    break;
                }
                // with `always` the write that did not fit is answered when there is room
                _ => link = connect(),
            }
        }
        let refused = String::from_utf8(refused.expect("a refusal")).expect("text");
        assert!(refused.starts_with("-MISCONF Errors writing to the AOF file: No space left"), "{refused}");
        assert_eq!(client.call(&["GET", "k0"]), Value::Text(value.clone()), "{fsync}");
        fs::remove_file(mount.path().join("ballast")).expect("it is there");
        let began = Instant::now();
        let mut later = Link::new(&server);
        while later.call(&["SET", "after", "1"]).bytes() != b"+OK" {
            assert!(began.elapsed() < crate::harness::PATIENCE, "writes are not taken again");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(server);
        let server = mount.start(&["--appendfsync", fsync]);
        let mut client = server.client();
        for n in 0..acknowledged {
            let len = client.call(&["STRLEN", &format!("k{n}")]);
            assert_eq!(len, Value::Int(value_bytes as i64), "{fsync}, key {n}");
        }
        assert_eq!(client.call(&["GET", "after"]), Value::Text("1".to_owned()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let what = ["-t", "tmpfs", "-o", "size=256k", "tmpfs"];
    let Some(mount) = Mount::new(Dir::new("full"), &what) else { return };
    for fsync in ["everysec", "always"] {
        mount.fill_and_recover(fsync, 100 << 10, 8 << 10);
    }
}

#[test]
fn a_full_disk_with_blocks_had_ahead_refuses_writes_until_there_is_room() {
    let image = Dir::new("full-image");
    let file = image.path().join("disk");
    fs::File::create(&file).and_then(|disk| disk.set_len(48 << 20)).expect("a file");
    let made = std::process::Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("no mkfs.ext4 here: not tested");
        return;
    }
    let what = ["-o", "loop", file.to_str().expect("a plain name")];
    let Some(mount) = Mount::new(Dir::new("full-mapped"), &what) else { return };
    // Room for the blocks that are had at first, and none for the next.
    for fsync in ["everysec", "always"] {
        mount.fill_and_recover(fsync, 14 << 20, 256 << 10);
    }
}

#[test]
fn without_a_journal_nothing_is_written_for_a_client_that_waited() {
    let server = Server::start(&[]);
    let (mut waiter, mut client) = (server.client(), server.client());
    waiter.send_all(&[&["BLPOP", "l", "0"]]);
    let is_waiting = |client: &mut crate::harness::Client| match client.call(&["INFO", "clients"]) {
        Value::Text(text) => text.contains("blocked_clients:1\r\n"),
        _ => false,
    };
    wait_until("it waits", || is_waiting(&mut client));
    assert_eq!(client.call(&["RPUSH", "l", "a"]), Value::Int(1));
    assert_eq!(waiter.read(), Value::array(&["l", "a"]));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
}

/// Clients are told to wait while the journal is read, and how far that is; then everything is there at once.
#[test]
fn clients_are_told_that_the_journal_is_read() {
    let dir = Dir::new("loading");
    let server = dir.start(&["--appendfsync", "no"]);
    let script = "for i = 1, 4000 do redis.call('set', 'k' .. i % 1000, i) end";
    assert_eq!(server.client().call(&["EVAL", script, "0"]), Value::Null);
    assert_eq!(server.client().call(&["SET", "k1", "4001"]), Value::ok());
    let code = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    server.client().call(&["FUNCTION", "LOAD", code]);
    drop(server);
    // A minute for each command, until the setting says otherwise.
    let server = dir.start_loading(&["--proactor_threads", "4", "--key-load-delay", "60000000"]);
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    let loading = Value::Error("LOADING Redis is loading the dataset in memory".to_owned());
    assert_eq!(clients[0].call(&["GET", "k1"]), loading);
    let Value::Text(info) = clients[1].call(&["INFO", "persistence"]) else { panic!("a text") };
    assert!(info.contains("loading:1") && info.contains("loading_total_bytes:"), "{info}");
    assert_eq!(clients[2].call(&["CONFIG", "SET", "key-load-delay", "0"]), Value::ok());
    for client in clients {
        let mut client = client.loaded();
        assert_eq!(client.call(&["FCALL", "f", "0"]), Value::Int(1));
        assert_eq!(client.call(&["DBSIZE"]), Value::Int(1000));
    }
}
