//! Huge values: the end of one costs its caller little, and gives the memory back.

use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value};

/// Microseconds the last command of this name took in the server.
fn slowlog_usec(client: &mut Client, name: &str) -> i64 {
    let Value::Array(entries) = client.call(&["SLOWLOG", "GET", "-1"]) else { panic!("no entries") };
    let usec = entries.iter().find_map(|entry| {
        let Value::Array(parts) = entry else { return None };
        let (Value::Int(usec), Value::Array(words)) = (parts.get(2)?, parts.get(3)?) else { return None };
        (words.first() == Some(&Value::Text(name.to_owned()))).then_some(*usec)
    });
    usec.unwrap_or_else(|| panic!("{name} is not in the log"))
}

/// Makes a huge value, ends it and waits until its memory is back. Returns what the end took in the server, in microseconds.
fn end_one(client: &mut Client, (kind, elements, command): (&str, u64, &str)) -> i64 {
    let before = client.info::<u64>("memory", "used_memory_rss");
    let elements = elements.to_string();
    let populate = ["DEBUG", "POPULATE", "1", "huge", "8", "RAND", "TYPE", kind, "ELEMENTS", &elements];
    assert_eq!(client.call(&populate), Value::ok());
    // The figure is of the last look of housekeeping, and pages of the value before may serve again.
    let began = Instant::now();
    let mut grown = 0;
    while grown <= 1 << 20 {
        grown = client.info::<u64>("memory", "used_memory_rss").saturating_sub(before);
        assert!(began.elapsed() < crate::harness::PATIENCE, "{kind}: {grown} bytes");
    }
    client.call(&["SLOWLOG", "RESET"]);
    match command {
        "FLUSHALL" | "FLUSHDB" => assert_eq!(client.call(&[command]), Value::ok()),
        _ => assert_eq!(client.call(&[command, "huge:0"]), Value::Int(1)),
    }
    let usec = slowlog_usec(client, command);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(0));
    let began = Instant::now();
    loop {
        let left = client.info::<u64>("memory", "used_memory_rss").saturating_sub(before);
        let objects = client.info::<u64>("memory", "object_used_memory");
        if left <= grown / 4 && objects == 0 {
            return usec;
        }
        assert!(
            began.elapsed() < crate::harness::PATIENCE,
            "{command} of a {kind}: {left} of {grown} bytes stay, {objects} of objects"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_end_of_a_huge_value_is_cheap_and_gives_its_memory_back() {
    let server = Server::start(&["--proactor_threads", "2", "--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    for case in [
        ("set", 2_000_000, "DEL"),
        ("zset", 500_000, "UNLINK"),
        ("hash", 500_000, "DEL"),
        ("list", 1_000_000, "FLUSHALL"),
        ("hash", 500_000, "FLUSHALL"),
        ("set", 500_000, "FLUSHDB"),
    ] {
        // Some ten on a quiet machine; freeing all of it would take a hundred milliseconds in a build for tests. Of
        // three times one is not interrupted by another process.
        let usecs: Vec<i64> =
            (0..3).map(|_| end_one(&mut client, case)).take_while(|usec| *usec >= 10_000).collect();
        assert!(usecs.len() < 3, "{case:?} took {usecs:?} us");
    }
}
