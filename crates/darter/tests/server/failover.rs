//! Groups with a store: who leads, what a kill of the leader costs, and what is refused without members.

use std::time::Duration;

use crate::groups::store::StoreServer;
use crate::groups::{Group, connect};
use crate::harness::{Client, Value, wait_until};
use crate::nodes::field;

/// Nobody loses its place, however busy the machine is: for tests that kill nobody. A new group begins after one lease.
const STEADY: [&str; 4] = ["--ha_lease_ms", "12000", "--replica_ack_timeout_ms", "60000"];

/// Both members are needed, and what waits for them does so for longer than a test looks at it, however busy the machine is.
const HOLDING: [&str; 6] =
    ["--min_replicas_to_ack", "2", "--replica_ack_timeout_ms", "60000", "--ha_lease_ms", "12000"];

fn set_all(client: &mut Client, from: u32, to: u32) {
    for n in from..to {
        assert_eq!(client.call(&["SET", &format!("key-{n}"), &n.to_string()]), Value::ok());
    }
}

/// Whether every value is there. Where others have the cores a leader may stop to serve for a moment: it is asked again.
fn has_all(client: &mut Client, from: u32, to: u32) -> bool {
    (from..to).all(|n| {
        let mut answer = Value::Null;
        wait_until("the leader serves", || {
            answer = client.call(&["GET", &format!("key-{n}")]);
            !matches!(answer, Value::Error(_))
        });
        answer == Value::Text(n.to_string())
    })
}

/// Neither the leader nor a member loses its place because others have the cores.
const PATIENT: [&str; 6] =
    ["--appendonly", "yes", "--ha_lease_ms", "8000", "--replica_ack_timeout_ms", "10000"];

fn kill_and_return(mut group: Group) {
    let first = group.settled(3);
    let mut client = group.client(first).expect("the leader");
    set_all(&mut client, 0, 300);
    // Where nobody waits for members, this promises as much.
    assert_eq!(client.call(&["WAIT", "2", "0"]), Value::Int(2));
    group.kill(first);
    let second = group.writable();
    assert_ne!(first, second);
    let mut client = group.client(second).expect("the new leader");
    assert!(has_all(&mut client, 0, 300), "nothing that was answered is lost");
    set_all(&mut client, 300, 400);
    let fulls: u64 = client.info("stats", "sync_full");
    group.begin(first);
    assert_eq!(group.settled(3), second, "the one that comes back follows");
    let mut old = group.client(first).expect("it is back");
    wait_until("it has everything", || {
        field(&mut old, "master_link_status") == "up"
            && field(&mut old, "master_repl_offset") == field(&mut client, "master_repl_offset")
    });
    assert!(has_all(&mut old, 0, 400));
    assert_eq!(client.info::<u64>("stats", "sync_full"), fulls, "it lacked a part only");
}

#[test]
fn a_member_takes_the_place_of_a_leader_that_is_killed() {
    kill_and_return(Group::start("kill", &[&PATIENT[..], &["--min_replicas_to_ack", "1"]].concat()));
}

#[test]
fn so_it_does_where_nobody_waits_for_members() {
    kill_and_return(Group::start("kill-async", &PATIENT));
}

#[test]
fn a_group_decides_the_role() {
    let group = Group::start("role", &STEADY);
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    for command in [&["REPLICAOF", "NO", "ONE"][..], &["SLAVEOF", "127.0.0.1", "1"], &["REPLTAKEOVER", "1"]] {
        let Value::Error(line) = client.call(command) else { panic!("{command:?} is refused") };
        assert!(line.contains("ha_store"), "{line}");
    }
    let other = (leader + 1) % 3;
    let mut follower = group.client(other).expect("a member");
    let refused = follower.call(&["SET", "a", "1"]);
    assert!(matches!(refused, Value::Error(line) if line.starts_with("READONLY")));
    wait_until("it follows", || field(&mut follower, "master_port") == group.net.port(leader).to_string());
}

#[test]
fn without_members_writes_are_refused_and_reads_are_not() {
    // Members are dropped before the leader, which hears nobody, stops to serve.
    let flags = ["--min_replicas_to_ack", "1", "--ha_lease_ms", "8000", "--replica_ack_timeout_ms", "6000"];
    let mut group = Group::start("refused", &flags);
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    assert_eq!(client.call(&["SET", "a", "1"]), Value::ok());
    (0..3).filter(|at| *at != leader).for_each(|at| group.kill(at));
    wait_until("a write is refused", || {
        let mut client = group.client(leader).expect("the leader");
        matches!(client.try_call(&["SET", "b", "2"]), Some(Value::Error(line)) if line.starts_with("NOREPLICAS"))
    });
    let mut client = group.client(leader).expect("the leader");
    let mut found = Value::Null;
    wait_until("a read is answered", || {
        found = client.call(&["GET", "a"]);
        !matches!(found, Value::Error(_))
    });
    assert_eq!(found, Value::Text("1".to_owned()));
    group.begin((leader + 1) % 3);
    assert_eq!(group.writable(), leader);
}

#[test]
fn a_replica_shows_nothing_that_is_not_committed() {
    let group = Group::start("committed", &HOLDING);
    let leader = group.settled(3);
    let (stopped, shown) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut client = group.client(leader).expect("the leader");
    assert_eq!(client.call(&["SET", "a", "1"]), Value::ok());
    group.signal(stopped, "STOP");
    client.send_all(&[&["SET", "a", "2"]]);
    // The other member has it, and shows it to nobody; nor does the leader.
    let mut other = group.client(shown).expect("a member");
    // A read that came before the write is answered what was there; those behind it wait too.
    let mut reader = None;
    wait_until("a read waits too", || {
        let client = connect(group.members[leader].port, Duration::from_millis(300)).expect("the leader");
        let said = reader.insert(client).try_call(&["GET", "a"]);
        said.is_none_or(|said| {
            assert_eq!(said, Value::Text("1".to_owned()));
            false
        })
    });
    let mut reader = reader.expect("a client");
    // It hears a moment later than the leader what is committed.
    wait_until("the first is shown", || other.call(&["GET", "a"]) != Value::Null);
    assert_eq!(other.call(&["GET", "a"]), Value::Text("1".to_owned()));
    assert!(reader.try_call(&["PING"]).is_none(), "behind what it waits for");
    let mut fresh = group.client(leader).expect("the leader");
    assert_eq!(fresh.call(&["PING"]), Value::Status("PONG".to_owned()), "who asks for no data is answered");
    group.signal(stopped, "CONT");
    assert_eq!(client.read(), Value::ok());
    wait_until("it is shown", || other.call(&["GET", "a"]) == Value::Text("2".to_owned()));
}

#[test]
fn all_come_back_after_all_were_killed() {
    let mut group = Group::start("all", &[&PATIENT[..], &["--min_replicas_to_ack", "1"]].concat());
    let leader = group.settled(3);
    set_all(&mut group.client(leader).expect("the leader"), 0, 200);
    (0..3).for_each(|at| group.kill(at));
    (0..3).for_each(|at| group.begin(at));
    let leader = group.writable();
    assert!(has_all(&mut group.client(leader).expect("the leader"), 0, 200));
}

#[test]
fn a_person_has_a_group_go_on_without_what_is_lost() {
    let flags = ["--min_replicas_to_ack", "1", "--ha_lease_ms", "6000", "--replica_ack_timeout_ms", "6000"];
    let mut group = Group::start("unclean", &flags);
    let leader = group.settled(3);
    set_all(&mut group.client(leader).expect("the leader"), 0, 10);
    // Without a journal a start has nothing of the one before.
    (0..3).for_each(|at| group.kill(at));
    (0..3).for_each(|at| group.begin(at));
    (0..3).for_each(|at| wait_until("it is back", || group.field(at, "role").is_some()));
    // Longer than members wait for a leader.
    std::thread::sleep(Duration::from_secs(13));
    assert_eq!(group.leader(), None, "nobody leads by itself");
    let mut client = group.client(1).expect("a member");
    let refused = client.call(&["GET", "key-1"]);
    assert!(
        matches!(refused, Value::Error(line) if line.starts_with("MASTERDOWN")),
        "nobody sees what may be old"
    );
    assert_eq!(client.call(&["DARTER", "PROMOTE", "UNCLEAN"]), Value::ok());
    assert_eq!(group.writable(), 1);
}

#[test]
fn service_goes_on_without_the_store() {
    let group = Group::start("store", &AWAY);
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    (0..3).for_each(|door| group.store.shut(door, true));
    let began = std::time::Instant::now();
    let mut n = 0;
    while began.elapsed() < away() {
        set_all(&mut client, n, n + 20);
        n += 20;
        std::thread::sleep(Duration::from_millis(5));
    }
    (0..3).for_each(|door| group.store.shut(door, false));
    assert!(has_all(&mut client, 0, n));
}

#[test]
fn an_etcd_serves_as_the_store() {
    let Some(etcd) = crate::groups::etcd::Etcd::start() else {
        eprintln!("SKIPPED: no etcd is installed");
        return;
    };
    let stores = (0..3).map(|_| format!("etcd://127.0.0.1:{}", etcd.port)).collect();
    let flags = [&PATIENT[..], &["--min_replicas_to_ack", "1"]].concat();
    kill_and_return(Group::on("etcd", &flags, StoreServer::start(0), stores));
}

/// A lease that outlasts what others take of the cores. A member that has no time on a busy machine cannot be dropped while the
/// store is away, so writers would wait for it; it is not what is asked.
const AWAY: [&str; 6] =
    ["--min_replicas_to_ack", "1", "--ha_lease_ms", "7000", "--replica_ack_timeout_ms", "20000"];

/// Seconds for which a store is away: more than two leases.
fn away() -> Duration {
    let seconds = std::env::var("DARTER_STORE_AWAY_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(16))
}

#[test]
fn an_etcd_that_stands_still_costs_no_request() {
    let Some(etcd) = crate::groups::etcd::Etcd::start() else {
        eprintln!("SKIPPED: no etcd is installed");
        return;
    };
    let stores = (0..3).map(|_| format!("etcd://127.0.0.1:{}", etcd.port)).collect();
    let mut group = Group::on("etcd-stopped", &AWAY, StoreServer::start(0), stores);
    let leader = group.settled(3);
    etcd.signal("STOP");
    let (began, requests) = (std::time::Instant::now(), std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (group, requests) = (&group, &requests);
            scope.spawn(move || {
                let (mut client, key) = (group.client(leader).expect("the leader"), format!("counter-{n}"));
                let mut count = 0;
                while began.elapsed() < away() {
                    count += 1;
                    assert_eq!(client.call(&["INCR", &key]), Value::Int(count));
                    assert_eq!(client.call(&["GET", &key]), Value::Text(count.to_string()));
                    std::thread::sleep(Duration::from_millis(1));
                }
                requests.fetch_add(2 * count as u32, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    println!("{requests:?} requests in {:?}, none of them failed", began.elapsed());
    assert_ne!(group.field(leader, "store"), Some(text("ok")), "the store was away");
    etcd.signal("CONT");
    group.kill(leader);
    assert_ne!(group.writable(), leader, "members change again");
}

/// Milliseconds between the last write that the old leader answers and the first one of the new.
fn take_over(group: &Group) -> u128 {
    let old = group.settled(3);
    let mut client = group.client(old).expect("the leader");
    set_all(&mut client, 0, 50);
    let fulls: Vec<u64> = all_fulls(group);
    assert_eq!(client.call(&["FAILOVER"]), Value::ok());
    let began = std::time::Instant::now();
    let mut new = None;
    wait_until("another leads", || {
        new = (0..3).filter(|at| *at != old).find(|at| group.takes(*at, "after"));
        new.is_some()
    });
    let took = began.elapsed().as_millis();
    let mut client = group.client(new.expect("a leader")).expect("the leader");
    assert!(has_all(&mut client, 0, 50));
    assert_eq!(group.settled(3), new.expect("a leader"));
    assert_eq!(all_fulls(group), fulls, "nobody needs a full sync");
    took
}

fn all_fulls(group: &Group) -> Vec<u64> {
    (0..3).map(|at| group.client(at).expect("a member").info("stats", "sync_full")).collect()
}

#[test]
fn the_lead_is_given_away_without_a_loss() {
    // A lease, a beat that is not answered (half a lease) and a member that is dropped all take longer than the test lets,
    // which lets more than the busiest machine took (4 s where 30 to 46 ms are usual).
    let flags = ["--min_replicas_to_ack", "1", "--ha_lease_ms", "24000", "--replica_ack_timeout_ms", "60000"];
    let group = Group::start("takeover", &flags);
    let took: Vec<u128> = (0..5).map(|_| take_over(&group)).collect();
    println!("writes stopped for {took:?} ms");
    assert!(took.iter().all(|ms| *ms < 12_000), "neither a lease nor a member was waited for: {took:?}");
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    let refused = client.call(&["FAILOVER", "TO", "127.0.0.1", "1"]);
    assert!(matches!(refused, Value::Error(line) if line.contains("no member")));
}

#[test]
fn who_has_asked_for_no_data_is_answered_by_a_new_leader_too() {
    let group = Group::start("harmless", &HOLDING);
    group.settled(3);
    let pong = || Value::Status("PONG".to_owned());
    let mut idle: Vec<Client> = (0..3).map(|at| group.client(at).expect("a member")).collect();
    for _ in 0..3 {
        idle.iter_mut().for_each(|client| assert_eq!(client.call(&["PING"]), pong()));
    }
    take_over(&group);
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    group.signal((leader + 1) % 3, "STOP");
    client.send_all(&[&["SET", "a", "1"]]);
    assert!(is_silent(&mut client), "it waits for the member that is stopped");
    // So are the beats of members, without which it may not serve.
    assert_eq!(idle[leader].call(&["PING"]), pong());
    group.signal((leader + 1) % 3, "CONT");
    assert_eq!(client.read(), Value::ok());
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

#[test]
fn clients_of_sentinel_find_the_leader_and_hear_of_a_new_one() {
    let flags = ["--min_replicas_to_ack", "1", "--ha_group", "mymaster"];
    let mut group = Group::start("sentinel", &[&PATIENT[2..], &flags].concat());
    let leader = group.settled(3);
    let port = group.net.port(leader).to_string();
    let other = (leader + 1) % 3;
    let mut client = group.client(other).expect("a member");
    let place = Value::Array(vec![text("127.0.0.1"), text(&port)]);
    wait_until("it has heard who leads", || {
        client.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]) == place
    });
    assert_eq!(client.call(&["SENTINEL", "get-master-addr-by-name", "other"]), Value::Null);
    let Value::Array(masters) = client.call(&["SENTINEL", "masters"]) else { panic!("a list") };
    let [Value::Array(master)] = &masters[..] else { panic!("{masters:?}") };
    assert!(master.chunks(2).any(|pair| pair == [text("flags"), text("master")]), "{master:?}");
    wait_until("it has heard of both", || match client.call(&["SENTINEL", "replicas", "mymaster"]) {
        Value::Array(replicas) => replicas.len() == 2,
        other => panic!("{other:?}"),
    });
    assert!(
        matches!(client.call(&["SENTINEL", "master", "other"]), Value::Error(line) if line.contains("No such master"))
    );
    client.call(&["SUBSCRIBE", "+switch-master"]);
    group.kill(leader);
    let heard = client.read();
    let Value::Array(words) = &heard else { panic!("{heard:?}") };
    let Value::Text(line) = &words[2] else { panic!("{heard:?}") };
    assert!(line.starts_with(&format!("mymaster 127.0.0.1 {port} 127.0.0.1 ")), "{line}");
    // Without a group the command is not known, as to Redis.
    let alone = crate::harness::Server::start(&[]);
    let unknown = alone.client().call(&["SENTINEL", "masters"]);
    assert!(matches!(unknown, Value::Error(line) if line.starts_with("ERR unknown command 'SENTINEL'")));
}

#[test]
fn clients_of_a_leader_that_gives_its_lead_away_are_sent_away() {
    let group = Group::start("astray", &STEADY);
    let old = group.settled(3);
    let client = || group.client(old).expect("the old leader");
    let (mut writer, mut listener, mut waiter, mut idle) = (client(), client(), client(), client());
    let mut watcher =
        connect(group.members[old].sentinel_port, crate::harness::PATIENCE).expect("its Sentinel");
    assert_eq!(writer.call(&["SET", "a", "1"]), Value::ok());
    assert!(matches!(listener.call(&["SUBSCRIBE", "news"]), Value::Array(_)));
    waiter.send_all(&[&["BLPOP", "list", "0"]]);
    assert!(matches!(watcher.call(&["SUBSCRIBE", "+switch-master"]), Value::Array(_)));
    assert_eq!(idle.call(&["FAILOVER"]), Value::ok());
    let Value::Array(heard) = watcher.read() else { panic!("a message") };
    assert_eq!(heard[1], text("+switch-master"));
    for (who, client) in [("writer", &mut writer), ("listener", &mut listener), ("waiter", &mut waiter)] {
        // One that waits may be told before that this is a replica now.
        while client.try_read().is_some() {}
        assert!(client.is_closed(), "the {who} stays");
    }
    // One that asked a member which had not heard of the change comes back: it is sent away one lease after the change.
    let mut back = client();
    assert_eq!(back.call(&["GET", "a"]), text("1"));
    assert!(back.is_closed());
    assert_eq!(idle.call(&["PING"]), Value::Status("PONG".to_owned()), "it has asked for no data");
    assert_eq!(watcher.call(&["UNSUBSCRIBE"]), Value::array(&["unsubscribe", "+switch-master", ":0"]));
    let mut reader = client();
    assert_eq!(reader.call(&["GET", "a"]), text("1"), "who comes later reads at a replica");
}

fn status(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).expect("a status").to_owned()
}

#[test]
fn a_load_balancer_finds_the_leader_and_the_others() {
    let group = Group::start("balancer", &STEADY);
    let leader = group.settled(3);
    for at in 0..3 {
        let port = group.members[at].port;
        let (primary, replica) = if at == leader { ("200", "503") } else { ("503", "200") };
        assert_eq!(status(port, "/primary"), primary);
        wait_until("a replica says so", || status(port, "/replica") == replica);
        assert!(status(port, "/metrics") == "200");
    }
    let mut client = group.client(leader).expect("the leader");
    assert_eq!(client.info::<u64>("replication", "term"), 1);
    assert_eq!(client.info::<u64>("replication", "sync_members"), 3);
}

/// Returns true if nothing comes for a while.
fn is_silent(client: &mut Client) -> bool {
    let stream = client.stream();
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let is_silent = stream.peek(&mut [0]).is_err();
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    is_silent
}

#[test]
fn messages_wait_for_members_too() {
    let group = Group::start("messages", &HOLDING);
    let leader = group.settled(3);
    let mut client = group.client(leader).expect("the leader");
    let (mut listener, mut tracker) = (group.client(leader).expect("it"), group.client(leader).expect("it"));
    listener.call(&["SUBSCRIBE", "news"]);
    tracker.call(&["HELLO", "3"]);
    tracker.call(&["CLIENT", "TRACKING", "ON"]);
    client.call(&["SET", "a", "1"]);
    assert_eq!(tracker.call(&["GET", "a"]), text("1"));
    group.signal((leader + 1) % 3, "STOP");
    client.send_all(&[&["SET", "a", "2"], &["PUBLISH", "news", "b"]]);
    for (who, waits) in [("tracker", &mut tracker), ("listener", &mut listener), ("client", &mut client)] {
        assert!(is_silent(waits), "the {who} was told: {:?}", waits.try_read());
    }
    group.signal((leader + 1) % 3, "CONT");
    let invalidated = Value::Array(vec![text("invalidate"), Value::Array(vec![text("a")])]);
    assert_eq!(tracker.read(), invalidated);
    assert_eq!(listener.read(), Value::array(&["message", "news", "b"]));
    assert_eq!(client.read(), Value::ok());
}
