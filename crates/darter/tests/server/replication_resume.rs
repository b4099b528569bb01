//! Servers that start again: what they lack is enough where their files say where they stand.

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, field, follow};

/// No pings: they would make an old master's history longer than what its replicas have.
const QUIET: [&str; 2] = ["--repl-ping-replica-period", "3600"];

/// One of ours with files in a folder.
fn start(folder: &Folder, flags: &[&str]) -> Node {
    let own = ["--proactor_threads", "2", "--dir", folder.text()];
    Node::Ours(Server::start(&[&own[..], &QUIET, flags].concat()))
}

/// Has a server end, and waits for that.
fn end(node: Node, command: &[&str]) {
    let mut client = node.client();
    let Node::Ours(server) = node else { panic!("it is not ours") };
    client.send_all(&[command]);
    assert!(server.wait_for_end());
}

fn syncs(client: &mut Client) -> (u64, u64) {
    (client.info("stats", "sync_full"), client.info("stats", "sync_partial_ok"))
}

/// Waits until the journal has this number of bases.
fn wait_for_bases(client: &mut Client, count: u64) {
    wait_until("there is a base", || {
        client.info::<u64>("persistence", "aof_rewrites") >= count
            && client.info::<u64>("persistence", "aof_rewrite_in_progress") == 0
    });
}

#[test]
fn a_replica_that_was_killed_goes_on_where_its_journal_ends() {
    let folder = Folder::new("resume-journal");
    let master = Node::ours(&QUIET);
    let place = format!("127.0.0.1:{}", master.port());
    let (mut from, mut writer) = (master.client(), Writer::new(31));
    let flags = ["--appendonly", "yes", "--replicaof", place.as_str()];
    writer.write(&mut from, 300);
    let replica = start(&folder, &flags);
    let mut to = replica.client().loaded();
    catch_up(&mut from, &mut to);
    wait_for_bases(&mut to, 1);
    writer.write(&mut from, 700);
    catch_up(&mut from, &mut to);
    assert_eq!(syncs(&mut from), (1, 0));
    // It is killed.
    drop(replica);
    writer.write(&mut from, 200);
    let replica = start(&folder, &flags);
    let mut to = replica.client().loaded();
    assert_equal(&mut from, &mut to);
    assert_eq!(syncs(&mut from), (1, 1));
    // It keeps no more than it may, though it needed no snapshot since its start.
    to.call(&["CONFIG", "SET", "repl-backlog-size", "64kb"]);
    let value = "x".repeat(1 << 20);
    (0..12).for_each(|_| drop(from.call(&["SET", "large", &value])));
    catch_up(&mut from, &mut to);
    wait_until("old records are forgotten", || {
        field(&mut to, "repl_backlog_histlen").parse::<u64>().is_ok_and(|bytes| bytes < 4 << 20)
    });
    // What was promoted and written to is something else.
    to.call(&["REPLICAOF", "NO", "ONE"]);
    to.call(&["SET", "own", "1"]);
    drop(replica);
    let replica = start(&folder, &flags);
    let mut to = replica.client().loaded();
    assert_equal(&mut from, &mut to);
    assert_eq!(syncs(&mut from), (2, 1));
    assert_eq!(to.call(&["EXISTS", "own"]), Value::Int(0));
}

#[test]
fn a_replica_that_saved_goes_on_where_its_snapshot_ends() {
    let folder = Folder::new("resume-snapshot");
    let master = Node::ours(&QUIET);
    let place = format!("127.0.0.1:{}", master.port());
    let (mut from, mut writer) = (master.client(), Writer::new(32));
    from.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let flags = ["--dbfilename", "dump", "--replicaof", place.as_str()];
    writer.write(&mut from, 300);
    let replica = start(&folder, &flags);
    let mut to = replica.client().loaded();
    catch_up(&mut from, &mut to);
    // Dead by the time it is loaded, and there until the master says so.
    from.call(&["SET", "dies", "1", "PX", "1"]);
    from.call(&["SELECT", "2"]);
    from.call(&["SET", "in-two", "1"]);
    catch_up(&mut from, &mut to);
    end(replica, &["SHUTDOWN", "SAVE"]);
    from.call(&["SET", "in-two", "2"]);
    from.call(&["SELECT", "0"]);
    let replica = start(&folder, &flags);
    let mut to = replica.client().loaded();
    catch_up(&mut from, &mut to);
    assert_eq!(syncs(&mut from), (1, 1));
    assert_eq!(from.call(&["DBSIZE"]), to.call(&["DBSIZE"]));
    assert_equal(&mut from, &mut to);
}

fn a_master_starts_again(name: &str, flags: &[&str], command: &[&str]) {
    let folder = Folder::new(name);
    let (master, replica) = (start(&folder, flags), Node::ours(&QUIET));
    let (mut from, mut to, mut writer) = (master.client().loaded(), replica.client(), Writer::new(33));
    writer.write(&mut from, 300);
    follow(&mut to, master.port());
    writer.write(&mut from, 300);
    catch_up(&mut from, &mut to);
    end(master, command);
    let master = start(&folder, flags);
    let mut from = master.client().loaded();
    writer.write(&mut from, 200);
    follow(&mut to, master.port());
    assert_equal(&mut from, &mut to);
    assert_eq!(syncs(&mut from), (0, 1), "what it lacked was enough");
    assert_eq!(field(&mut from, "master_replid"), field(&mut to, "master_replid"));
}

#[test]
fn a_master_that_ended_goes_on_where_its_files_end() {
    a_master_starts_again("resume-saved", &["--dbfilename", "dump"], &["SHUTDOWN", "SAVE"]);
    a_master_starts_again("resume-journalled", &["--appendonly", "yes"], &["SHUTDOWN", "NOSAVE"]);
}

#[test]
fn a_master_that_starts_twice_without_a_change_goes_on_both_times() {
    let folder = Folder::new("resume-twice");
    let flags = ["--dbfilename", "dump", "--save", "3600 1"];
    let (mut master, replica) = (start(&folder, &flags), Node::ours(&QUIET));
    let (mut to, mut writer) = (replica.client(), Writer::new(36));
    for round in 0..3 {
        let mut from = master.client().loaded();
        follow(&mut to, master.port());
        if round == 0 {
            writer.write(&mut from, 100);
        }
        // Each start begins a history of its own, which the file must name though no key has changed.
        assert_equal(&mut from, &mut to);
        assert_eq!(syncs(&mut from), if round == 0 { (1, 0) } else { (0, 1) }, "start {round}");
        end(master, &["SHUTDOWN"]);
        master = start(&folder, &flags);
    }
}

#[test]
fn a_redis_goes_on_from_our_snapshot_and_we_from_its() {
    let (folder, master) = (Folder::new("resume-redis"), Node::ours(&QUIET));
    let place = format!("127.0.0.1 {}", master.port());
    let dir = ["--dir", folder.text(), "--dbfilename", "dump.rdb"];
    let flags = [&dir[..], &["--replicaof", &place]].concat();
    let Some(redis) = Node::redis(&flags) else { return };
    let (mut from, mut writer) = (master.client(), Writer::new(34));
    writer.write(&mut from, 200);
    let mut theirs = redis.client();
    catch_up(&mut from, &mut theirs);
    theirs.send_all(&[&["SHUTDOWN", "SAVE"]]);
    assert!(theirs.is_closed());
    drop(redis);
    writer.write(&mut from, 100);
    let replica = Server::start(&flags);
    let mut ours = replica.client().loaded();
    assert_equal(&mut from, &mut ours);
    assert_eq!(syncs(&mut from), (1, 1));
}

/// Waits until the journal says where the stream stands.
fn wait_for_place(client: &mut Client) {
    wait_until("the journal has a place of the stream", || {
        field(client, "repl_disk_first_byte_offset") != "0"
            && client.info::<u64>("persistence", "aof_rewrite_in_progress") == 0
    });
}

#[test]
fn a_master_that_was_killed_goes_on_where_its_journal_ends() {
    let folder = Folder::new("resume-killed");
    let flags = ["--appendonly", "yes", "--repl-backlog-size", "16kb"];
    let (mut master, replica) = (start(&folder, &flags), Node::ours(&QUIET));
    let (mut to, mut writer) = (replica.client(), Writer::new(34));
    writer.write(&mut master.client(), 300);
    follow(&mut to, master.port());
    for round in 1..=4 {
        let mut from = master.client().loaded();
        writer.write(&mut from, 300);
        from.call(&["PUBLISH", "channel", &"word ".repeat(round)]);
        wait_for_place(&mut from);
        if round == 2 {
            // What a base has made superfluous counts no more.
            from.call(&["BGREWRITEAOF"]);
            wait_for_bases(&mut from, 1);
            writer.write(&mut from, 100);
            wait_for_place(&mut from);
        }
        // The end of a key would make the history longer behind the look at it.
        assert_eq!(from.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
        catch_up(&mut from, &mut to);
        let (offset, id) = (field(&mut from, "master_repl_offset"), field(&mut from, "master_replid"));
        // It is killed.
        drop(from);
        drop(master);
        master = start(&folder, &flags);
        let mut from = master.client().loaded();
        assert_eq!(field(&mut from, "master_replid2"), id, "round {round}");
        assert_eq!(
            field(&mut from, "second_repl_offset"),
            (offset.parse::<u64>().expect("a number") + 1).to_string()
        );
        writer.write(&mut from, 50);
        follow(&mut to, master.port());
        assert_equal(&mut from, &mut to);
        assert_eq!(syncs(&mut from), (0, 1), "what it lacked was enough, round {round}");
    }
}

#[test]
fn what_memory_has_no_more_comes_from_the_journals_files() {
    let (own, others) = (Folder::new("resume-disk"), Folder::new("resume-disk-replica"));
    let flags = ["--appendonly", "yes", "--repl-backlog-size", "16kb"];
    let mut master = start(&own, &flags);
    let place = format!("127.0.0.1:{}", master.port());
    let mut writer = Writer::new(35);
    writer.write(&mut master.client(), 300);
    let mut replica = start(&others, &["--appendonly", "yes", "--replicaof", &place]);
    let mut to = replica.client().loaded();
    catch_up(&mut master.client(), &mut to);
    wait_for_bases(&mut to, 1);
    let value = "v".repeat(3000);
    for round in 1..=3 {
        let mut from = master.client();
        writer.write(&mut from, 100);
        wait_for_place(&mut from);
        catch_up(&mut from, &mut to);
        // The replica is killed, and lacks far more than memory keeps when it is back.
        drop(to);
        drop(replica);
        for n in 0..1_000 {
            from.call(&["SET", &format!("large-{}", n % 100), &value]);
            if n == 500 && round == 2 {
                // What it lacks is older than a base.
                from.call(&["BGREWRITEAOF"]);
                wait_for_bases(&mut from, 1);
            }
        }
        writer.write(&mut from, 300);
        wait_until("memory keeps little", || {
            field(&mut from, "repl_backlog_histlen").parse::<u64>().is_ok_and(|bytes| bytes < 1 << 20)
        });
        let mut before = (1, round - 1);
        if round == 3 {
            // The master is killed too.
            wait_for_place(&mut from);
            drop(from);
            drop(master);
            master = start(&own, &flags);
            from = master.client().loaded();
            before = (0, 0);
        }
        let place = format!("127.0.0.1:{}", master.port());
        replica = start(&others, &["--appendonly", "yes", "--replicaof", &place]);
        to = replica.client().loaded();
        assert_equal(&mut from, &mut to);
        assert_eq!(syncs(&mut from), (before.0, before.1 + 1), "round {round}");
        let from_disk: u64 = from.info("stats", "sync_partial_from_disk");
        assert_eq!(from_disk, before.1 + 1, "round {round}");
        wait_until("memory has the rest", || field(&mut from, "slave0").contains("from=memory"));
        let replica_id = field(&mut to, "master_replid");
        assert_eq!(field(&mut from, "master_replid"), replica_id);
    }
}

/// The dead are kept for replicas that go on from the file; they were counted as loaded.
#[test]
fn keys_that_are_dead_when_a_master_loads_count_as_expired() {
    let folder = Folder::new("resume-dead-keys");
    let (master, replica) = (start(&folder, &["--dbfilename", "dump"]), Node::ours(&[]));
    let mut client = master.client();
    follow(&mut replica.client(), master.port());
    for n in 0..10 {
        client.call(&["SET", &format!("k{n}"), "v"]);
    }
    // Longer than it takes to save, on a machine that is busy.
    let deadline = std::time::Duration::from_secs(3);
    let began = std::time::Instant::now();
    let ms = deadline.as_millis().to_string();
    for n in 0..1024 {
        client.call(&["SET", &format!("dead{n}"), "v", "PX", &ms]);
    }
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    assert!(began.elapsed() < deadline, "they were alive in the snapshot");
    let Node::Ours(mut server) = master else { panic!("it is ours") };
    server.kill();
    std::thread::sleep(deadline);
    let master = start(&folder, &["--dbfilename", "dump"]);
    let mut client = master.client();
    let counted = ["rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"];
    assert_eq!(counted.map(|name| client.info::<u64>("persistence", name)), [1024, 10]);
}
