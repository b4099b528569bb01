//! The gateway of an etcd around the fake store of the crate `quorum`: a door for each member, which can be shut.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use darter_quorum::fake::FakeStore;
use darter_quorum::store::{GroupStore, StoreWritten};
use serde_json::{Value, json};

/// See above.
pub struct StoreServer {
    doors: Vec<(u16, Arc<AtomicBool>)>,
}

impl StoreServer {
    /// A store with a number of doors.
    pub fn start(doors: usize) -> StoreServer {
        let store = FakeStore::default();
        let door = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let is_shut = Arc::new(AtomicBool::new(false));
            let (store, known) = (store.clone(), is_shut.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (store, known) = (store.clone(), known.clone());
                    std::thread::spawn(move || serve(stream, store, &known));
                }
            });
            (port, is_shut)
        };
        StoreServer { doors: (0..doors).map(door).collect() }
    }

    /// The port of a door.
    pub fn port(&self, door: usize) -> u16 {
        self.doors[door].0
    }

    /// Shuts a door, or opens it: requests that have come are not answered, and some of them are carried out.
    pub fn shut(&self, door: usize, is_shut: bool) {
        self.doors[door].1.store(is_shut, Relaxed);
    }
}

fn serve(stream: TcpStream, mut store: FakeStore, is_shut: &AtomicBool) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut path) = (String::new(), 0, String::new());
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
            if path.is_empty() {
                path = line.split(' ').nth(1)?.to_owned();
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request: Value = serde_json::from_slice(&body).ok()?;
        let was_shut = is_shut.load(Relaxed);
        // Every second request comes through a door that is shut; no answer does.
        if was_shut && length.is_multiple_of(2) {
            return wait_in_vain();
        }
        let answer = answer(&mut store, &path, &request)?.to_string();
        if was_shut || is_shut.load(Relaxed) {
            return wait_in_vain();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
        reader.get_mut().write_all((head + &answer).as_bytes()).ok()?;
    }
}

fn wait_in_vain() -> Option<()> {
    std::thread::sleep(Duration::from_secs(2));
    None
}

fn answer(store: &mut FakeStore, path: &str, request: &Value) -> Option<Value> {
    match path {
        "/v3/kv/range" => Some(match store.read().ok()? {
            None => json!({ "header": {} }),
            Some(found) => json!({ "kvs": [{
                "value": BASE64.encode(found.value), "mod_revision": found.revision.to_string(),
            }] }),
        }),
        "/v3/kv/txn" => {
            let expected = request["compare"][0]["mod_revision"].as_str()?.parse().ok()?;
            let value = request["success"][0]["request_put"]["value"].as_str()?;
            Some(match store.compare_and_set(expected, &BASE64.decode(value).ok()?).ok()? {
                StoreWritten::Done(revision) => {
                    json!({ "succeeded": true, "header": { "revision": revision.to_string() } })
                }
                StoreWritten::Conflict => json!({ "header": {} }),
            })
        }
        _ => None,
    }
}
