//! INFO keysizes: what is counted, and that other clients are served meanwhile.

use crate::harness::{Client, Server, Value};

fn sizes(client: &mut Client) -> String {
    match client.call(&["INFO", "keysizes"]) {
        Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn values_are_counted_by_their_lengths() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    assert_eq!(sizes(&mut client), "# Keysizes\r\n");
    client.call(&["MSET", "empty", "", "short", "0123456789abcdef", "number", "12345", "other", "x"]);
    client.call(&["SET", "long", &"plain text ".repeat(1000)]);
    client.call(&["RPUSH", "list", "a", "b", "c"]);
    client.call_for_each(&["SADD", "set"], 5000, |n, words| words.push(format!("member {n}")));
    client.call(&["SADD", "ints", "1", "2", "3", "4"]);
    client.call(&["ZADD", "zset", "1", "a"]);
    client.call(&["HSET", "hash", "a", "1", "b", "2"]);
    client.call(&["XADD", "stream", "*", "a", "1"]);
    client.call(&["SELECT", "3"]);
    client.call(&["HSET", "hash", "a", "1"]);
    let text = "# Keysizes\r\ndb0_distrib_strings_sizes:0=1,1=1,4=1,16=1,8K=1\r\ndb0_distrib_lists_items:2=1\r\n\
                db0_distrib_sets_items:4=1,4K=1\r\ndb0_distrib_zsets_items:1=1\r\ndb0_distrib_hashes_items:2=1\r\n\
                db3_distrib_hashes_items:1=1\r\n";
    assert_eq!(sizes(&mut client), text);
    let Value::Text(two) = client.call(&["INFO", "KEYSIZES", "cpu"]) else { panic!("a text") };
    assert!(two.starts_with("# CPU\r\n") && two.ends_with(&format!("\r\n\r\n{text}")), "{two}");
    // It is shown to those alone who name it, and where it can be waited for.
    let Value::Text(all) = client.call(&["INFO", "everything"]) else { panic!("a text") };
    assert!(!all.contains("Keysizes"));
    client.call(&["MULTI"]);
    client.call(&["INFO", "keysizes"]);
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("replies") };
    assert!(matches!(&replies[..], [Value::Error(line)] if line.contains("cannot run in a transaction")));
    client.call(&["FLUSHALL"]);
    assert_eq!(sizes(&mut client), "# Keysizes\r\n");
}

#[test]
fn the_text_comes_before_what_was_asked_later() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.call(&["DEBUG", "POPULATE", "100000", "k", "100"]);
    client.send_all(&[&["INFO", "keysizes"], &["PING"], &["INFO", "keysizes"]]);
    for n in 0..100 {
        assert_eq!(other.call(&["SET", &format!("k:{n}"), "now short"]), Value::ok());
    }
    let Value::Text(first) = client.read() else { panic!("a text") };
    assert!(first.contains("db0_distrib_strings_sizes:"), "{first}");
    assert_eq!(client.read(), Value::Status("PONG".into()));
    assert!(matches!(client.read(), Value::Text(_)));
    // All of these have been written when it is asked for.
    let second = sizes(&mut client);
    assert!(second.contains("db0_distrib_strings_sizes:8=") && second.contains("64="), "{second}");
}
