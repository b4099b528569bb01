//! The rows of commands over several keys, transactions and scripts: processor time of the server for each.
//!
//! Every request is answered with as many bytes each time, so that reading is counting; one is in flight per connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::cores;
use crate::keys::Rng;
use crate::messages::{BOTH, Contest, Row, row};
use crate::usage::Cpu;

/// All rows.
pub fn rows() -> Vec<Row> {
    const OP: &str = "µs of CPU/op";
    vec![
        row("MSET of 10 keys, one at a time", OP, "0.6", BOTH, |c| c.answered(100_000, mset)),
        row("MGET of 10 keys, one at a time", OP, "0.6", BOTH, |c| c.answered(100_000, mget)),
        row("MULTI, 10 SET, EXEC, one at a time", OP, "0.7", BOTH, |c| c.answered(60_000, exec)),
        row("a script that calls GET 1,000 times", "µs of CPU a script", "0.7", BOTH, |c| {
            c.answered(3_000, |rng| eval(rng, LOOP))
        }),
        row("the same loop without GET", "µs of CPU a script", "-", BOTH, |c| {
            c.answered(10_000, |rng| eval(rng, EMPTY))
        }),
        row("a script that takes a lock away", OP, "0.7", BOTH, |c| {
            c.answered(100_000, |rng| eval(rng, UNLOCK))
        }),
        row("cjson.encode of 200 objects, 20 times", "µs of CPU a script", "1", BOTH, |c| {
            c.answered(1_000, |rng| eval(rng, ENCODE))
        }),
        row("table.concat of 1,000 texts, 100 times", "µs of CPU a script", "1", BOTH, |c| {
            c.answered(1_000, |rng| eval(rng, CONCAT))
        }),
    ]
}

const LOOP: &str = "for n = 1, 1000 do redis.call('GET', KEYS[1]) end return 1";
const EMPTY: &str = "for n = 1, 1000 do local key = KEYS[1] end return 1";
const UNLOCK: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 1 end";
const ENCODE: &str =
    "local t = {} for n = 1, 200 do t[n] = {id = n, name = 'user' .. n, tags = {'a', 'b', 'c'},
    at = {x = n, y = n / 2}} end local len for n = 1, 20 do len = #cjson.encode(t) end return len";
const CONCAT: &str = "local t = {} for n = 1, 1000 do t[n] = 'item' .. n end
    local len for n = 1, 100 do len = #table.concat(t, ',') end return len";

const KEYS: u64 = 100_000;
const VALUE: &str = "a value of thirty-two bytes here";
const CONNECTIONS: usize = 20;
/// Requests that are made ahead and sent again.
const REQUESTS: usize = 2000;

fn key(rng: &mut Rng) -> String {
    format!("key:{:012}", rng.below(KEYS))
}

fn request(out: &mut Vec<u8>, words: &[String]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

fn mset(rng: &mut Rng) -> Vec<u8> {
    let mut words = vec!["MSET".to_owned()];
    (0..10).for_each(|_| words.extend([key(rng), VALUE.to_owned()]));
    let mut out = Vec::new();
    request(&mut out, &words);
    out
}

fn mget(rng: &mut Rng) -> Vec<u8> {
    let mut words = vec!["MGET".to_owned()];
    words.extend((0..10).map(|_| key(rng)));
    let mut out = Vec::new();
    request(&mut out, &words);
    out
}

fn exec(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    request(&mut out, &["MULTI".to_owned()]);
    (0..10).for_each(|_| request(&mut out, &["SET".to_owned(), key(rng), VALUE.to_owned()]));
    request(&mut out, &["EXEC".to_owned()]);
    out
}

fn eval(rng: &mut Rng, text: &str) -> Vec<u8> {
    let words = ["EVAL", text, "1", &key(rng), "nobody's"].map(str::to_owned);
    let mut out = Vec::new();
    request(&mut out, &words);
    out
}

impl Contest<'_> {
    /// Microseconds of processor time a request, over keys that are all there.
    fn answered(&self, ops: u64, make: fn(&mut Rng) -> Vec<u8>) -> io::Result<f64> {
        cores::pin_thread(&self.setting.client_cores)?;
        let mut rng = Rng::new(42);
        let mut first = TcpStream::connect(self.server.address())?;
        for batch in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
            let mut words = vec!["MSET".to_owned()];
            batch.iter().for_each(|n| words.extend([format!("key:{n:012}"), VALUE.to_owned()]));
            let mut out = Vec::new();
            request(&mut out, &words);
            first.write_all(&out)?;
            first.read_exact(&mut [0; 5])?;
        }
        let requests: Vec<Vec<u8>> = (0..REQUESTS).map(|_| make(&mut rng)).collect();
        let mut connections: Vec<TcpStream> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(self.server.address())).collect::<io::Result<_>>()?;
        let mut reply = vec![0; 64 << 10];
        // The first one tells how long a reply is, and warms up.
        first.write_all(&requests[0])?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        let len = first.read(&mut reply)?;
        if reply.first() == Some(&b'-') {
            return Err(io::Error::other(String::from_utf8_lossy(&reply[..len]).into_owned()));
        }
        let rounds = (ops as f64 * self.setting.scale / CONNECTIONS as f64).max(10.0) as usize;
        let before = Cpu::of(self.server.pid())?;
        for round in 0..rounds {
            for (at, connection) in connections.iter_mut().enumerate() {
                connection.write_all(&requests[(round * CONNECTIONS + at) % REQUESTS])?;
            }
            for connection in &mut connections {
                connection.read_exact(&mut reply[..len])?;
            }
        }
        let used = Cpu::of(self.server.pid())?.since(&before).total;
        Ok(used.as_secs_f64() * 1e6 / (rounds * CONNECTIONS) as f64)
    }
}
