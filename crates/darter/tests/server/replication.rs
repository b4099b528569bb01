//! Masters and replicas, ours and Redis: what one writes, the other has.

use std::time::Duration;

use crate::harness::{Client, Value, wait_until};
use crate::nodes::{Node, Writer, assert_equal, catch_up, field, follow};

/// Random commands before and after the replica comes, then what both hold.
fn a_stream_arrives(master: &Node, replica: &Node, seed: u64) {
    let (mut from, mut to) = (master.client(), replica.client());
    let mut writer = Writer::new(seed);
    writer.write(&mut from, 1500);
    follow(&mut to, master.port());
    assert_equal(&mut from, &mut to);
    writer.write(&mut from, 4000);
    assert_equal(&mut from, &mut to);
}

#[test]
fn what_redis_writes_is_here() {
    let Some(redis) = Node::redis(&[]) else { return };
    a_stream_arrives(&redis, &Node::ours(&[]), 1);
}

#[test]
fn what_is_written_here_is_at_redis() {
    let Some(redis) = Node::redis(&[]) else { return };
    a_stream_arrives(&Node::ours(&[]), &redis, 2);
}

#[test]
fn what_is_written_here_is_at_another_of_ours() {
    a_stream_arrives(&Node::ours(&[]), &Node::ours(&["--num_shards", "4"]), 3);
}

#[test]
fn a_chain_of_both_kinds_has_the_same_and_the_same_offsets() {
    let (Some(first), Some(last)) = (Node::redis(&[]), Node::redis(&[])) else { return };
    let middle = Node::ours(&[]);
    let (mut one, mut two, mut three) = (first.client(), middle.client(), last.client());
    let mut writer = Writer::new(4);
    writer.write(&mut one, 1000);
    follow(&mut two, first.port());
    follow(&mut three, middle.port());
    writer.write(&mut one, 2000);
    assert_equal(&mut one, &mut two);
    assert_equal(&mut two, &mut three);
    assert_eq!(field(&mut one, "master_replid"), field(&mut three, "master_replid"));
}

/// Bytes of both directions of a link are counted on both sides, snapshot and stream, and in the totals too.
fn a_link_is_counted(master: &Node, replica: &Node) {
    const BYTES: u64 = 100_000;
    let (mut from, mut to) = (master.client(), replica.client());
    let number = |client: &mut Client, name: &str| client.info::<u64>("stats", name);
    from.call(&["SET", "before", &"b".repeat(BYTES as usize)]);
    follow(&mut to, master.port());
    from.call(&["SET", "after", &"a".repeat(BYTES as usize)]);
    catch_up(&mut from, &mut to);
    // A snapshot is compressed; the stream is not.
    wait_until("both sides have counted the stream", || {
        number(&mut from, "total_net_repl_output_bytes") > BYTES
            && number(&mut to, "total_net_repl_input_bytes") > BYTES
    });
    let (all, of_link) = ("total_net_input_bytes", "total_net_repl_input_bytes");
    // The master goes on to ping: the part is asked for first.
    let part = number(&mut to, of_link);
    assert!(number(&mut to, all) > part, "{part}");
    let part = number(&mut from, "total_net_repl_output_bytes");
    assert!(number(&mut from, "total_net_output_bytes") > part, "{part}");
    for client in [&mut from, &mut to] {
        assert_eq!(client.call(&["CONFIG", "RESETSTAT"]), Value::ok());
        let left = number(client, "total_net_repl_output_bytes") + number(client, of_link);
        assert!(left < BYTES, "{left}");
    }
}

#[test]
fn a_link_of_ours_is_counted() {
    a_link_is_counted(&Node::ours(&[]), &Node::ours(&[]));
}

#[test]
fn links_with_redis_are_counted() {
    let (Some(master), Some(replica)) = (Node::redis(&[]), Node::redis(&[])) else { return };
    a_link_is_counted(&master, &Node::ours(&[]));
    a_link_is_counted(&Node::ours(&[]), &replica);
}

/// Ends the connections of replicas at a master.
fn cut_links(master: &mut Client) {
    master.call(&["CLIENT", "KILL", "TYPE", "replica"]);
    master.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

fn a_cut_link_goes_on(master: &Node, replica: &Node, full: &str) {
    let (mut from, mut to) = (master.client(), replica.client());
    follow(&mut to, master.port());
    let fulls: u64 = from.info("stats", full);
    let mut writer = Writer::new(5);
    for _ in 0..5 {
        writer.write(&mut from, 400);
        to.call(&["CLIENT", "KILL", "TYPE", "master"]);
        cut_links(&mut from);
        writer.write(&mut from, 400);
        catch_up(&mut from, &mut to);
    }
    assert_equal(&mut from, &mut to);
    assert_eq!(from.info::<u64>("stats", full), fulls, "what was lacking was enough");
}

#[test]
fn a_link_that_is_cut_goes_on_where_it_was() {
    let (one, two) = (Node::ours(&[]), Node::ours(&[]));
    a_cut_link_goes_on(&one, &two, "sync_full");
    let Some(redis) = Node::redis(&[]) else { return };
    a_cut_link_goes_on(&redis, &Node::ours(&[]), "sync_full");
    let Some(redis) = Node::redis(&[]) else { return };
    a_cut_link_goes_on(&Node::ours(&[]), &redis, "sync_full");
}

#[test]
fn a_replica_refuses_writes_and_shows_its_role() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--memcached_port", "0"]));
    let (mut from, mut to) = (master.client(), replica.client());
    from.call(&["SET", "a", "1"]);
    follow(&mut to, master.port());
    let refusal = Value::error("READONLY You can't write against a read only replica.");
    assert_eq!(to.call(&["SET", "a", "2"]), refusal);
    assert_eq!(to.call(&["MULTI"]), Value::ok());
    assert_eq!(to.call(&["SET", "a", "2"]), refusal);
    assert!(matches!(to.call(&["EXEC"]), Value::Error(text) if text.starts_with("EXECABORT")));
    let Value::Error(said) = to.call(&["EVAL", "return redis.call('set', 'a', '2')", "0"]) else {
        panic!("it writes")
    };
    assert!(said.starts_with("READONLY "), "{said}");
    assert_eq!(to.call(&["EVAL", "return redis.call('get', 'a')", "0"]), Value::Text("1".to_owned()));
    assert_eq!(to.call(&["GET", "a"]), Value::Text("1".to_owned()));
    let Value::Array(role) = to.call(&["ROLE"]) else { panic!("a role") };
    assert_eq!(role[0], Value::Text("slave".to_owned()));
    assert_eq!(role[3], Value::Text("connected".to_owned()));
    assert!(matches!(to.call(&["WAIT", "1", "10"]), Value::Error(_)));
    wait_until("the master knows the replica", || field(&mut from, "slave0").contains("state=online"));
    let Value::Array(role) = from.call(&["ROLE"]) else { panic!("a role") };
    assert!(matches!(&role[2], Value::Array(replicas) if replicas.len() == 1), "{role:?}");
    assert_eq!(
        to.call(&["CONFIG", "GET", "replicaof"]),
        Value::array(&["replicaof", &format!("127.0.0.1 {}", master.port())])
    );
    let again = to.call(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert_eq!(again, Value::Status("OK Already connected to specified master".to_owned()));
}

#[test]
fn nothing_is_answered_while_the_master_is_away_if_old_data_is_not_wanted() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--replica-serve-stale-data", "no"]));
    let mut to = replica.client();
    master.client().call(&["SET", "a", "1"]);
    follow(&mut to, master.port());
    assert_eq!(to.call(&["GET", "a"]), Value::Text("1".to_owned()));
    drop(master);
    wait_until("the link is down", || field(&mut to, "master_link_status") == "down");
    let down =
        Value::error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    assert_eq!(to.call(&["GET", "a"]), down);
    // A script may run, but none of its commands that reads old data.
    let Value::Error(said) = to.call(&["EVAL", "return redis.call('get', 'a')", "0"]) else {
        panic!("it reads")
    };
    assert!(said.starts_with("ERR Can not execute the command on a stale replica"), "{said}");
    assert_eq!(to.call(&["EVAL", "return 7", "0"]), Value::Int(7));
    let info = "return #redis.call('info', 'replication') > 0 and 1 or 0";
    assert_eq!(to.call(&["EVAL", info, "0"]), Value::Int(1));
    to.call(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(to.call(&["GET", "a"]), Value::Text("1".to_owned()));
}

#[test]
fn a_dead_key_is_hidden_and_stays_until_the_master_removes_it() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    // The master finds it by itself only when somebody asks.
    from.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    follow(&mut to, master.port());
    from.call(&["SET", "k", "v", "PX", "50"]);
    from.call(&["RPUSH", "l", "a"]);
    from.call(&["PEXPIRE", "l", "50"]);
    catch_up(&mut from, &mut to);
    wait_until("both are dead", || to.call(&["EXISTS", "k", "l"]) == Value::Int(0));
    // Time in which housekeeping would remove them.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(to.call(&["GET", "k"]), Value::Null);
    assert_eq!(to.call(&["DBSIZE"]), Value::Int(2), "nothing expires by itself");
    // A write of the master finds what the master has: here both have it still.
    from.call(&["EXISTS", "k", "l"]);
    catch_up(&mut from, &mut to);
    wait_until("both are gone", || to.call(&["DBSIZE"]) == Value::Int(0));
}

#[test]
fn waiting_clients_are_served_by_what_arrives_and_let_go_when_the_role_changes() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut to) = (master.client(), replica.client());
    let mut popping = replica.client();
    popping.send_all(&[&["BLPOP", "q", "0"]]);
    wait_until("it waits", || to.info::<u64>("clients", "blocked_clients") == 1);
    follow(&mut to, master.port());
    let text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    assert_eq!(popping.read(), Value::error(text));
    let mut reading = replica.client();
    reading.send_all(&[&["XREAD", "BLOCK", "0", "STREAMS", "x", "$"]]);
    wait_until("it waits", || to.info::<u64>("clients", "blocked_clients") == 1);
    let mut watching = replica.client();
    watching.call(&["WATCH", "w"]);
    from.call(&["XADD", "x", "5-5", "f", "v"]);
    from.call(&["SET", "w", "1"]);
    assert!(matches!(reading.read(), Value::Array(_)));
    catch_up(&mut from, &mut to);
    watching.call(&["MULTI"]);
    watching.call(&["GET", "w"]);
    assert_eq!(watching.call(&["EXEC"]), Value::Null);
}

#[test]
fn wait_counts_those_who_have_it_and_writes_need_some_if_asked_for() {
    let (master, one, two) = (Node::ours(&[]), Node::ours(&["--appendonly", "no"]), Node::ours(&[]));
    let mut from = master.client();
    assert_eq!(from.call(&["WAIT", "1", "20"]), Value::Int(0));
    from.call(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    assert_eq!(from.call(&["SET", "a", "1"]), Value::error("NOREPLICAS Not enough good replicas to write."));
    follow(&mut one.client(), master.port());
    follow(&mut two.client(), master.port());
    wait_until("both count", || from.call(&["SET", "a", "1"]) == Value::ok());
    assert_eq!(from.call(&["WAIT", "2", "0"]), Value::Int(2));
    assert_eq!(from.call(&["WAIT", "3", "30"]), Value::Int(2));
    assert_eq!(from.call(&["WAITAOF", "0", "1", "30"]), Value::array(&[":0", ":0"]), "none has a journal");
    drop(two);
    wait_until("one is not enough", || matches!(from.call(&["SET", "a", "1"]), Value::Error(_)));
}

#[test]
fn functions_and_what_redis_lacks_arrive_as_values() {
    let Some(redis) = Node::redis(&[]) else { return };
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    let (mut from, mut ours, mut theirs) = (master.client(), replica.client(), redis.client());
    follow(&mut ours, master.port());
    follow(&mut theirs, master.port());
    let code = "#!lua name=lib\nredis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";
    from.call(&["FUNCTION", "LOAD", code]);
    from.call(&["HSET", "h", "f", "v", "g", "w"]);
    from.call(&["HPEXPIRE", "h", "100000000", "FIELDS", "1", "f"]);
    from.call(&["HGETDEL", "h", "FIELDS", "1", "g"]);
    from.call(&["RESTORE", "copy", "0", "nonsense"]);
    from.call(&["XADD", "x", "*", "f", "v"]);
    from.call(&["XADD", "x", "MAXLEN", "~", "10", "KEEPREF", "*", "f", "v"]);
    for to in [&mut ours, &mut theirs] {
        catch_up(&mut from, to);
        assert_eq!(to.call(&["FCALL_RO", "f", "0"]), from.call(&["FCALL", "f", "0"]));
        assert_eq!(to.call(&["HGETALL", "h"]), Value::array(&["f", "v"]));
        assert_eq!(to.call(&["XRANGE", "x", "-", "+"]), from.call(&["XRANGE", "x", "-", "+"]));
    }
}

#[test]
fn a_replica_that_logs_in_is_served() {
    let master = Node::ours(&["--requirepass", "secret"]);
    let replica = Node::ours(&["--masterauth", "wrong"]);
    let (mut from, mut to) = (master.client(), replica.client());
    from.call(&["AUTH", "secret"]);
    from.call(&["SET", "a", "1"]);
    to.call(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(field(&mut to, "master_link_status"), "down");
    to.call(&["CONFIG", "SET", "masterauth", "secret"]);
    wait_until("the link is up", || field(&mut to, "master_link_status") == "up");
    assert_eq!(to.call(&["GET", "a"]), Value::Text("1".to_owned()));
}
