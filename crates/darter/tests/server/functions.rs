//! Functions on a real server: their payload, what is told of them while they run, and how they are ended.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value};

/// FUNCTION DUMP of a Redis 7.0.15 with the libraries `lib` and `lib2`; the code of one is compressed.
const PAYLOAD: &str = "f5c3406d40761f23216c7561206e616d653d6c6962320a72656469732e72656769737465725f6607756e6374696f6e7b\
c008005f602a0d2767272c2063616c6c6261636b3dc01b1f286b2c61292072657475726e2027792720656e642c20666c6167733d7b276e6f092d77726974\
6573277d7df5404923216c7561206e616d653d6c69620a72656469732e72656769737465725f66756e6374696f6e282766272c2066756e6374696f6e286b\
2c61292072657475726e2027782720656e64290a0034ede39a94a276c5";

fn payload() -> Vec<u8> {
    let digits = PAYLOAD.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("a byte"))
        .collect()
}

fn restore(client: &mut Client, payload: &[u8], policy: Option<&str>) -> Value {
    let words = 3 + usize::from(policy.is_some());
    let mut request =
        format!("*{words}\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n", payload.len()).into_bytes();
    request.extend_from_slice(payload);
    request.extend_from_slice(b"\r\n");
    if let Some(policy) = policy {
        request.extend_from_slice(format!("${}\r\n{policy}\r\n", policy.len()).as_bytes());
    }
    client.stream().write_all(&request).expect("sent");
    client.read()
}

fn error(line: &str) -> Value {
    Value::Error(line.into())
}

#[test]
fn the_payload_of_redis_is_restored_by_every_policy() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let payload = payload();
    let mut torn = payload.clone();
    torn[20] ^= 1;
    for bad in [&torn[..], &payload[..9], b""] {
        assert_eq!(restore(&mut client, bad, None), error("ERR DUMP payload version or checksum are wrong"));
    }
    let wrong = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
    assert_eq!(restore(&mut client, &payload, Some("over")), error(wrong));
    let more = error("ERR unknown subcommand or wrong number of arguments for 'Flush'. Try FUNCTION HELP.");
    assert_eq!(client.call(&["FUNCTION", "Flush", "sync", "now"]), more);
    let nameless = client.call(&["FUNCTION", "LOAD", "#! name=test\nreturn 1"]);
    assert_eq!(nameless, error("ERR Engine '' not found"));
    assert_eq!(client.call(&["EVAL", "return redis.call('wait', 1, 0)", "0"]), Value::Int(0));
    assert_eq!(restore(&mut client, &payload, Some("append")), Value::ok());
    assert_eq!(client.call(&["FCALL_RO", "g", "0"]), Value::Text("y".into()));
    assert_eq!(restore(&mut client, &payload, None), error("ERR Library lib already exists"));
    let info = client.call(&["INFO", "memory"]);
    let Value::Text(info) = info else { panic!("{info:?}") };
    assert!(info.contains("number_of_functions:2\r\nnumber_of_libraries:2\r\n"), "{info}");
    let Value::Array(figures) = client.call(&["MEMORY", "STATS"]) else { panic!("no figures") };
    for name in ["lua.caches", "functions.caches"] {
        let at = figures.iter().position(|one| *one == Value::Text(name.into())).expect(name);
        assert!(matches!(figures[at + 1], Value::Int(1..)), "{name}: {:?}", figures[at + 1]);
    }
    assert_eq!(restore(&mut client, &payload, Some("REPLACE")), Value::ok());
    let other = "#!lua name=other\nredis.register_function('f2', function() return 2 end)";
    client.call(&["FUNCTION", "LOAD", other]);
    assert_eq!(restore(&mut client, &payload, Some("flush")), Value::ok());
    assert_eq!(client.call(&["FCALL", "f2", "0"]), error("ERR Function not found"));
    // A library of the same name is replaced, one of another name with the same function is in the way: nothing changes.
    client.call(&["FUNCTION", "FLUSH"]);
    let taken = "#!lua name=taken\nredis.register_function('g', function() return 3 end)";
    client.call(&["FUNCTION", "LOAD", taken]);
    assert_eq!(restore(&mut client, &payload, Some("replace")), error("ERR Function g already exists"));
    assert_eq!(client.call(&["FCALL", "f", "0"]), error("ERR Function not found"));
    assert_eq!(client.call(&["FCALL", "g", "0"]), Value::Int(3));
}

#[test]
fn a_long_function_is_told_of_and_ended_by_its_own_command() {
    let server = Server::start(&["--busy-reply-threshold", "50"]);
    let (mut killer, mut runner) = (server.client(), server.client());
    let code = "#!lua name=lib\nredis.register_function('forever', function() while true do end end)";
    assert_eq!(killer.call(&["FUNCTION", "LOAD", code]), Value::Text("lib".into()));
    let idle = error("NOTBUSY No scripts in execution right now.");
    assert_eq!(killer.call(&["FUNCTION", "KILL"]), idle);
    runner.send_all(&[&["FCALL", "forever", "1", "key", "arg"]]);
    wait_until_busy(&mut killer, "FUNCTION KILL");
    let Value::Array(stats) = killer.call(&["FUNCTION", "STATS"]) else { panic!("no statistics") };
    let Value::Array(running) = &stats[1] else { panic!("nothing runs") };
    let command = Value::array(&["FCALL", "forever", "1", "key", "arg"]);
    assert_eq!((&running[1], &running[3]), (&Value::Text("forever".into()), &command));
    assert!(matches!(running[5], Value::Int(50..)), "{running:?}");
    let busy = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
    assert_eq!(killer.call(&["SCRIPT", "KILL"]), error(busy));
    assert_eq!(killer.call(&["SHUTDOWN", "SAVE"]), error(busy));
    assert_eq!(killer.call(&["FUNCTION", "KILL"]), Value::ok());
    let Value::Error(line) = runner.read() else { panic!("it was killed") };
    assert!(line.contains("Script killed by user with FUNCTION KILL"), "{line}");
}

#[test]
fn the_end_without_a_snapshot_does_not_wait_for_a_script_that_has_written() {
    let server = Server::start(&["--busy-reply-threshold", "50"]);
    let (mut other, mut runner) = (server.client(), server.client());
    runner.send_all(&[&["EVAL", "redis.call('set', KEYS[1], 1) while true do end", "1", "key"]]);
    wait_until_busy(&mut other, "SCRIPT KILL");
    let Value::Error(line) = other.call(&["SCRIPT", "KILL"]) else { panic!("it has written") };
    assert!(line.starts_with("UNKILLABLE "), "{line}");
    other.send_all(&[&["SHUTDOWN", "NOSAVE"]]);
    assert!(other.is_closed());
    let began = Instant::now();
    while std::path::Path::new(&format!("/proc/{}/fd/0", server.pid())).exists() {
        assert!(began.elapsed() < crate::harness::PATIENCE, "the server does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

fn wait_until_busy(client: &mut Client, way_out: &str) {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nothing is busy");
        match client.call(&["PING"]) {
            Value::Error(line) => {
                assert!(line.starts_with("BUSY ") && line.contains(way_out), "{line}");
                return;
            }
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}
