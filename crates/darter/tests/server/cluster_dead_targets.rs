//! Migrations whose target dies, for ever or for a while. Their slots are free without the target, and nobody sees what it
//! has got. Migrations whose source starts again send nothing before it has loaded.

use std::net::TcpStream;

use crate::cluster_migrations::{
    BAR, BARS, begin_slowly, end, fill_bar, keys, keys_in, run, shown, shown_by, throttle,
};
use crate::harness::{Value, wait_until};
use crate::stored::{StoredNodes, text};

/// Three nodes that keep what they have. A migration of slot 5061 from node 0 to node 1 is under way, and node 1 is dead.
fn target_is_dead(name: &str, retries: &str) -> Option<StoredNodes> {
    let flags = ["--appendonly", "yes", "--cluster_migration_retries", retries];
    let mut nodes = StoredNodes::create_with(name, 3, &flags)?;
    fill_bar(&nodes);
    begin_slowly(&nodes);
    nodes.servers[1].kill();
    throttle(&nodes, 0, 0);
    Some(nodes)
}

/// The slot goes to node 2. Node 1 comes back while the store is out of its reach, then removes what it had got.
fn goes_elsewhere(nodes: &mut StoredNodes) {
    let again = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {}", nodes.id(2));
    assert_eq!(run(&mut nodes.client(0), &again), Value::ok());
    assert_eq!(end(nodes, 0), ("success".to_owned(), String::new()));
    assert_eq!(keys(nodes, 2), BARS as i64);
    let mut back = nodes.start_apart(1);
    assert!(keys_in(nodes, 1, BAR) > 0, "it has kept some");
    // Before it knows the map and whether it leads, it shows nothing.
    for line in ["DBSIZE", "KEYS *"] {
        let said = text(run(&mut back, line));
        assert!(said.starts_with("MASTERDOWN "), "{line}: {said}");
    }
    nodes.gates[1].open();
    let mut seen = Value::Null;
    wait_until("it has removed them", || {
        seen = run(&mut back, "DBSIZE");
        let is_silent = matches!(&seen, Value::Error(line) if line.starts_with("MASTERDOWN "));
        assert!(is_silent || seen == Value::Int(0), "none is ever shown: {seen:?}");
        keys_in(nodes, 1, BAR) == 0
    });
    assert_eq!(text(run(&mut back, "GET {bar}1")), format!("MOVED {BAR} {}", nodes.address(2)));
    assert_eq!(keys(nodes, 2), BARS as i64);
    // Clean, it may have the slot.
    let mut said = Value::Null;
    let to_it = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {}", nodes.id(1));
    wait_until("the map knows that it is clean", || {
        said = run(&mut nodes.client(2), &to_it);
        said == Value::ok()
    });
    assert_eq!(end(nodes, 2).0, "success", "{said:?}");
    assert_eq!(keys(nodes, 1), BARS as i64);
}

#[test]
fn a_dead_target_uses_up_the_retries_and_its_slots_are_free() {
    let Some(mut nodes) = target_is_dead("dead", "1") else { return };
    let target = nodes.servers[1].port();
    let (state, why) = end(&nodes, 0);
    assert_eq!(state, "failed");
    assert!(why.starts_with(&format!("127.0.0.1:{target} cannot be reached")), "{why}");
    assert_eq!(nodes.client(0).info::<u64>("cluster", "cluster_migrations_failed"), 1);
    let dead = {
        let shown = shown_by(&mut nodes.client(0), "CLUSTER MIGRATION STATUS ALL");
        shown[0]["dest"].clone()
    };
    let said = run(&mut nodes.client(0), &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {dead}"));
    assert!(text(said).contains("are being removed"), "the dead one alone may not have it");
    let mut source = nodes.client(0);
    for line in ["CLUSTER DELSLOTS 5061", "CLUSTER ADDSLOTS 5061", "CLUSTER SETSLOT 5061 STABLE"] {
        assert_eq!(run(&mut source, line), Value::ok(), "{line}");
    }
    goes_elsewhere(&mut nodes);
}

#[test]
fn a_cancelled_migration_needs_no_word_of_its_dead_target() {
    let Some(mut nodes) = target_is_dead("dead-cancel", "1000") else { return };
    assert_eq!(run(&mut nodes.client(0), "CLUSTER CANCELSLOTMIGRATIONS"), Value::ok());
    goes_elsewhere(&mut nodes);
}

#[test]
fn a_target_that_was_dead_from_the_start_has_nothing_and_may_come_late() {
    let flags = ["--cluster_migration_retries", "1"];
    let Some(mut nodes) = StoredNodes::create_with("dead-early", 3, &flags) else { return };
    fill_bar(&nodes);
    let (target, port) = (nodes.id(1), nodes.servers[1].port());
    nodes.servers[1].kill();
    // The kernel may take connections for a moment after the death.
    wait_until("nobody listens", || TcpStream::connect(("127.0.0.1", port)).is_err());
    let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {target}");
    for retries in ["1", "1000"] {
        let set = format!("CONFIG SET cluster_migration_retries {retries}");
        assert_eq!(run(&mut nodes.client(0), &set), Value::ok());
        assert_eq!(run(&mut nodes.client(0), &line), Value::ok(), "nothing was left at the target");
        if retries == "1" {
            let (state, why) = end(&nodes, 0);
            assert_eq!(state, "failed");
            assert!(why.contains("cannot be reached"), "{why}");
        }
    }
    let tried = || {
        let shown = shown_by(&mut nodes.client(0), "CLUSTER MIGRATION STATUS ALL");
        shown[0]["retries"].parse::<u32>().expect("a number")
    };
    wait_until("it was tried again", || tried() >= 1);
    nodes.restart(1);
    assert_eq!(end(&nodes, 0), ("success".to_owned(), String::new()));
    assert_eq!(keys(&nodes, 1), BARS as i64);
}

#[test]
fn a_source_that_still_loads_sends_nothing() {
    let flags = ["--appendonly", "yes", "--cluster_migration_retries", "1000"];
    let Some(mut nodes) = StoredNodes::create_with("loads", 3, &flags) else { return };
    fill_bar(&nodes);
    // It cannot begin, so the source's next process may begin it at once.
    let target = nodes.id(1);
    nodes.servers[1].kill();
    let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {target}");
    assert_eq!(run(&mut nodes.client(0), &line), Value::ok());
    nodes.servers[0].kill();
    nodes.restart(1);
    // Thirty records, 0.4 s each. What a source has not loaded it would leave behind, and remove in the end.
    let mut source = nodes.start_with_more(0, &["--key-load-delay", "400000"]);
    wait_until("the source has loaded", || {
        let state = shown(&mut nodes.client(1)).remove(0)["state"].clone();
        let is_loading = source.info::<u64>("persistence", "loading") == 1;
        assert!(!is_loading || state != "success", "it gives away what it does not have yet");
        !is_loading
    });
    assert_eq!(end(&nodes, 0), ("success".to_owned(), String::new()));
    assert_eq!(keys(&nodes, 1), BARS as i64);
    wait_until("the source has removed its own", || keys_in(&nodes, 0, BAR) == 0);
}
