//! etcd 3.4 and newer by its gateway of JSON over HTTP: one key, read and changed by transactions.
//!
//! The thread of the store calls it. It asks one server of the cluster after another; a write is never sent twice, because
//! the first may have been made: also one that a server has answered with an error, as one that ends does. Each request says
//! that it needs a server with a leader. Leases and locks of etcd are not used.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

pub use crate::http::Carrier;
use crate::http::{self, HttpAnswer};
use crate::store::{GroupStore, StoreFault, StoreWritten, Versioned};
use crate::watch::EtcdWatch;

/// Where etcd is, and who asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtcdPlace {
    /// Host and port of each of its servers.
    pub servers: Vec<(String, u16)>,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// User and password, if a login is needed.
    pub login: Option<(String, String)>,
}

/// etcd's own port.
const PORT: u16 = 2379;

impl EtcdPlace {
    /// Reads `http://[user:password@]host:port[,host:port...]`; `etcd://` is the same, `https://` is encrypted.
    ///
    /// Errors: what is wrong with the text.
    pub fn parse(text: &str) -> Result<EtcdPlace, String> {
        let (scheme, rest) = text.split_once("://").ok_or("a store is written etcd://host:port")?;
        let is_encrypted = match scheme {
            "etcd" | "http" => false,
            "https" => true,
            _ => return Err(format!("stores of the kind {scheme} are not known")),
        };
        let (login, hosts) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, hosts)) => {
                let (user, password) = login.split_once(':').ok_or("a login is written user:password")?;
                (Some((user.to_owned(), password.to_owned())), hosts)
            }
        };
        let mut servers = Vec::new();
        for host in hosts.trim_end_matches('/').split(',') {
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.ends_with(']') => {
                    (name, port.parse().map_err(|_| format!("{port} is no port"))?)
                }
                _ => (host, PORT),
            };
            let name = name.trim_start_matches('[').trim_end_matches(']');
            if name.is_empty() {
                return Err("a store has a host".to_owned());
            }
            servers.push((name.to_owned(), port));
        }
        Ok(EtcdPlace { servers, is_encrypted, login })
    }
}

/// Opens a connection; its reads fail within a fraction of a second when nothing comes.
pub type Dial = Box<dyn FnMut(&str, u16) -> io::Result<Box<dyn Carrier>> + Send>;

/// See above.
pub struct Etcd {
    place: EtcdPlace,
    key: String,
    dial: Dial,
    patience: Duration,
    // the server that is asked, and the connection to it
    at: usize,
    carrier: Option<Box<dyn Carrier>>,
    token: Option<String>,
}

/// Permission to send a request to another server if the first has not answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

impl Etcd {
    /// The key `key` of a cluster; each request is answered within `patience`.
    pub fn new(place: EtcdPlace, key: &str, patience: Duration, dial: Dial) -> Etcd {
        Etcd { place, key: BASE64.encode(key), dial, patience, at: 0, carrier: None, token: None }
    }

    /// Sends a request; errors carry what etcd says.
    fn call(&mut self, path: &str, body: &Value, again: Again) -> Result<Value, StoreFault> {
        self.log_in()?;
        let answer = self.ask(path, body, again);
        if answer.is_err() {
            // A token ends; the next request has another.
            self.token = None;
        }
        answer
    }

    fn log_in(&mut self) -> Result<(), StoreFault> {
        if self.token.is_none()
            && let Some((name, password)) = self.place.login.clone()
        {
            let body = json!({ "name": name, "password": password });
            let answer = self.ask("/v3/auth/authenticate", &body, Again::Yes)?;
            let token = answer.get("token").and_then(Value::as_str);
            self.token = Some(token.ok_or_else(|| StoreFault("etcd gives no token".to_owned()))?.to_owned());
        }
        Ok(())
    }

    /// Asks to be told of changes of this key and of all that begin with it. The next call asks the next server.
    ///
    /// Errors: the store cannot be asked.
    pub fn watch(&mut self) -> Result<EtcdWatch, StoreFault> {
        self.log_in()?;
        let token = self.token.take();
        self.leave();
        let place = self.place.servers.get(self.at).cloned();
        let (host, port) = place.ok_or_else(|| StoreFault("etcd has no server".to_owned()))?;
        let fault = |error: io::Error| StoreFault(format!("etcd: {error}"));
        let mut carrier = (self.dial)(&host, port).map_err(fault)?;
        let mut end = BASE64.decode(&self.key).unwrap_or_default();
        // The next text after all that begin with the key, whose last byte is no 0xff.
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        let range = json!({ "key": self.key, "range_end": BASE64.encode(end) });
        let body = json!({ "create_request": range }).to_string();
        let name = format!("{host}:{port}");
        http::send(&mut *carrier, (&name, "/v3/watch"), token.as_deref(), body.as_bytes()).map_err(fault)?;
        Ok(EtcdWatch::new(carrier))
    }

    /// The value that a range finds.
    fn range(&mut self, body: &Value) -> Result<Option<Versioned>, StoreFault> {
        let answer = self.call("/v3/kv/range", body, Again::Yes)?;
        let Some(found) = answer.get("kvs").and_then(|all| all.get(0)) else { return Ok(None) };
        let value = found.get("value").and_then(Value::as_str).unwrap_or_default();
        let value = BASE64.decode(value).map_err(|_| StoreFault("etcd answers with no base64".to_owned()))?;
        let revision = number(found.get("mod_revision"));
        let revision = revision.ok_or_else(|| StoreFault("etcd names no revision".to_owned()))?;
        Ok(Some(Versioned { revision, value }))
    }

    fn ask(&mut self, path: &str, body: &Value, again: Again) -> Result<Value, StoreFault> {
        let body = body.to_string().into_bytes();
        let mut last = String::new();
        for _ in 0..self.place.servers.len() {
            let is_sent = match self.exchange(path, &body) {
                Ok(HttpAnswer { status: 200, body }) => {
                    return serde_json::from_slice(&body)
                        .map_err(|error| StoreFault(format!("etcd answers with no JSON: {error}")));
                }
                Ok(HttpAnswer { status, body }) => {
                    last = format!("etcd answers {status}: {}", String::from_utf8_lossy(&body).trim());
                    true
                }
                Err((is_sent, error)) => {
                    last = format!("etcd: {error}");
                    is_sent
                }
            };
            self.leave();
            if is_sent && again == Again::No {
                break;
            }
        }
        Err(StoreFault(last))
    }

    /// Asks the next server from now on.
    fn leave(&mut self) {
        self.carrier = None;
        self.at = (self.at + 1) % self.place.servers.len().max(1);
    }

    /// One request on the connection; an error says whether anything was sent.
    fn exchange(&mut self, path: &str, body: &[u8]) -> Result<HttpAnswer, (bool, io::Error)> {
        let (host, port) =
            self.place.servers.get(self.at).cloned().ok_or((false, io::ErrorKind::NotFound.into()))?;
        let carrier = match &mut self.carrier {
            Some(carrier) => carrier,
            empty => empty.insert((self.dial)(&host, port).map_err(|error| (false, error))?),
        };
        let name = format!("{host}:{port}");
        http::post(&mut **carrier, (&name, path), self.token.as_deref(), body, self.patience)
            .map_err(|error| (true, error))
    }
}

/// A number of 64 bits, which is a text in JSON.
pub fn number(value: Option<&Value>) -> Option<u64> {
    value?.as_str()?.parse().ok()
}

impl GroupStore for Etcd {
    fn read(&mut self) -> Result<Option<Versioned>, StoreFault> {
        let body = json!({ "key": self.key });
        self.range(&body)
    }

    fn read_newer(&mut self, known: u64) -> Result<Option<Versioned>, StoreFault> {
        let after = known.saturating_add(1).to_string();
        let body = json!({ "key": self.key, "min_mod_revision": after });
        self.range(&body)
    }

    fn compare_and_set(&mut self, expected: u64, value: &[u8]) -> Result<StoreWritten, StoreFault> {
        let body = json!({
            "compare": [{
                "key": self.key, "target": "MOD", "result": "EQUAL", "mod_revision": expected.to_string(),
            }],
            "success": [{ "request_put": { "key": self.key, "value": BASE64.encode(value) } }],
        });
        let answer = self.call("/v3/kv/txn", &body, Again::No)?;
        if answer.get("succeeded").and_then(Value::as_bool) != Some(true) {
            return Ok(StoreWritten::Conflict);
        }
        let revision = number(answer.get("header").and_then(|header| header.get("revision")));
        revision.map(StoreWritten::Done).ok_or_else(|| StoreFault("etcd names no revision".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A server that says this to each request.
    struct Says(io::Cursor<Vec<u8>>);

    impl Read for Says {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Says {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A server that ends answers the write that it was sent with an error, and the others make it.
    #[test]
    fn a_write_that_an_error_answers_is_not_sent_to_another_server() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let known = asked.clone();
        let dial: Dial = Box::new(move |host, _| {
            known.lock().expect("a list").push(host.to_owned());
            let (status, body) = match host {
                "ends" => ("503 Service Unavailable", "{\"error\":\"etcdserver: server stopped\"}"),
                _ => ("200 OK", "{\"header\":{\"revision\":\"9\"}}"),
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            Ok(Box::new(Says(io::Cursor::new(answer.into_bytes()))) as Box<dyn Carrier>)
        });
        let place = EtcdPlace::parse("etcd://ends,stays").expect("a place");
        let mut etcd = Etcd::new(place, "/key", Duration::from_secs(1), dial);
        let fault = etcd.compare_and_set(3, b"value").expect_err("nobody knows whether it is made");
        assert!(fault.0.contains("503") && fault.0.contains("server stopped"), "{fault}");
        assert_eq!(*asked.lock().expect("a list"), ["ends"]);
        assert_eq!(etcd.read(), Ok(None), "the next question goes to the next one");
        assert_eq!(*asked.lock().expect("a list"), ["ends", "stays"]);
    }

    #[test]
    fn places_are_read() {
        let place = EtcdPlace::parse("https://me:p@ss@a:1,[::1]:2,c").expect("a place");
        let servers = [("a".to_owned(), 1), ("::1".to_owned(), 2), ("c".to_owned(), PORT)];
        assert_eq!(place.servers, servers);
        assert!(place.is_encrypted && place.login == Some(("me".to_owned(), "p@ss".to_owned())));
        for text in ["a:1", "zk://a", "etcd://", "etcd://a:x", "etcd://me@a"] {
            assert!(EtcdPlace::parse(text).is_err(), "{text}");
        }
    }
}
