//! etcd's word of changed keys (watch), by its gateway: JSON objects in one answer that does not end.
//!
//! A thread that only listens calls it ([`crate::etcd::Etcd::watch`]). What it says decides nothing: whoever is told reads the store.

use std::io::ErrorKind;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::etcd::number;
use crate::http::{self, Carrier};
use crate::store::StoreFault;

/// See above.
pub struct EtcdWatch {
    carrier: Box<dyn Carrier>,
    // what has arrived and is not understood yet: of the answer, and of its body
    bytes: Vec<u8>,
    body: Vec<u8>,
    has_head: bool,
}

/// What was heard in a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchNews {
    /// From now on changes are told; what was before is not.
    pub has_begun: bool,
    /// Keys that have changed.
    pub keys: Vec<Vec<u8>>,
    /// Every change of the keys up to this revision has been told now, or was before it began; 0: nothing was heard.
    pub revision: u64,
}

impl WatchNews {
    fn hear(&mut self, revision: Option<&Value>) {
        self.revision = self.revision.max(number(revision).unwrap_or(0));
    }
}

/// Whether a watch tells of what a server finds by reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchHearing {
    heard: u64,
    // since when more is known than was told
    lacks_ms: Option<u64>,
}

impl WatchHearing {
    /// Takes news, and the revision of the latest change that the server has read or made. Returns true if a watch that has begun
    /// has not told of it within `patience_ms`.
    pub fn is_deaf(&mut self, now_ms: u64, news: &WatchNews, known: u64, patience_ms: u64) -> bool {
        self.heard = self.heard.max(news.revision);
        if self.heard == 0 || known <= self.heard {
            self.lacks_ms = None;
            return false;
        }
        now_ms > *self.lacks_ms.get_or_insert(now_ms) + patience_ms
    }
}

/// The longest message: a value, and what is around it.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

impl EtcdWatch {
    /// On a connection on which the request was sent.
    pub fn new(carrier: Box<dyn Carrier>) -> EtcdWatch {
        EtcdWatch { carrier, bytes: Vec::new(), body: Vec::new(), has_head: false }
    }

    /// Listens until something comes, or for as long as the connection waits for that.
    ///
    /// Errors: the connection is broken, or etcd has ended the watch.
    pub fn listen(&mut self) -> Result<WatchNews, StoreFault> {
        let mut room = [0; 16 << 10];
        match self.carrier.read(&mut room) {
            Ok(0) => return Err(ended()),
            Ok(len) => self.bytes.extend_from_slice(room.get(..len).unwrap_or_default()),
            Err(error) if is_for_now(error.kind()) => return Ok(WatchNews::default()),
            Err(error) => return Err(StoreFault(format!("etcd: {error}"))),
        }
        if !self.has_head {
            let head =
                http::stream_head(&self.bytes).map_err(|error| StoreFault(format!("etcd: {error}")))?;
            let Some((len, status)) = head else { return Ok(WatchNews::default()) };
            if status != 200 {
                return Err(StoreFault(format!("etcd answers {status} to a watch")));
            }
            self.bytes.drain(..len);
            self.has_head = true;
        }
        self.take_chunks()?;
        let mut news = WatchNews::default();
        while let Some(end) = self.body.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.body.drain(..=end).collect();
            read_message(&line, &mut news)?;
        }
        if self.bytes.len().max(self.body.len()) > MESSAGE_BYTES_MAX {
            return Err(StoreFault("etcd's message is too long".to_owned()));
        }
        Ok(news)
    }

    /// Moves whole chunks to the body.
    fn take_chunks(&mut self) -> Result<(), StoreFault> {
        loop {
            let broken = || StoreFault("etcd answers with a broken chunk".to_owned());
            let size = httparse::parse_chunk_size(&self.bytes).map_err(|_| broken())?;
            let httparse::Status::Complete((begin, len)) = size else { return Ok(()) };
            let len = usize::try_from(len).ok().filter(|len| *len <= MESSAGE_BYTES_MAX).ok_or_else(broken)?;
            // Each ends with an empty line.
            let Some(chunk) =
                self.bytes.get(begin..begin + len).filter(|_| self.bytes.len() >= begin + len + 2)
            else {
                return Ok(());
            };
            if len == 0 {
                return Err(ended());
            }
            self.body.extend_from_slice(chunk);
            self.bytes.drain(..begin + len + 2);
        }
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn ended() -> StoreFault {
    StoreFault("etcd has ended the watch".to_owned())
}

/// Adds what one object says.
fn read_message(line: &[u8], news: &mut WatchNews) -> Result<(), StoreFault> {
    let message: Value = serde_json::from_slice(line)
        .map_err(|error| StoreFault(format!("etcd answers a watch with no JSON: {error}")))?;
    let Some(result) = message.get("result") else {
        return Err(StoreFault(format!("etcd refuses a watch: {}", String::from_utf8_lossy(line).trim())));
    };
    if result.get("canceled").and_then(Value::as_bool) == Some(true) {
        return Err(ended());
    }
    if result.get("created").and_then(Value::as_bool) == Some(true) {
        news.has_begun = true;
        news.hear(result.get("header").and_then(|header| header.get("revision")));
    }
    let events = result.get("events").and_then(Value::as_array);
    for kv in events.into_iter().flatten().filter_map(|event| event.get("kv")) {
        let key = kv.get("key").and_then(Value::as_str);
        news.keys.extend(key.and_then(|key| BASE64.decode(key).ok()));
        news.hear(kv.get("mod_revision"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::*;

    /// Brings some bytes at a time.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let piece = self.0.remove(0);
            into[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn heard(text: &str, piece: usize) -> Result<WatchNews, StoreFault> {
        let pieces: Vec<Vec<u8>> = text.as_bytes().chunks(piece).map(<[u8]>::to_vec).collect();
        let (len, mut all) = (pieces.len(), WatchNews::default());
        let mut watch = EtcdWatch::new(Box::new(Pieces(pieces)));
        for _ in 0..len {
            let news = watch.listen()?;
            all.has_begun |= news.has_begun;
            all.keys.extend(news.keys);
            all.revision = all.revision.max(news.revision);
        }
        assert_eq!(watch.listen(), Ok(WatchNews::default()), "nothing is left");
        Ok(all)
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn chunk(text: &str) -> String {
        format!("{:x}\r\n{text}\r\n", text.len())
    }

    #[test]
    fn changes_are_heard_however_they_arrive() {
        let begun = "{\"result\":{\"header\":{\"revision\":\"4\"},\"created\":true}}\n";
        let [front, back] = [
            "{\"result\":{\"events\":[{\"kv\":{\"key\":\"L21hcA==\",\"mod_revision\":\"5\"}},",
            "{\"kv\":{\"key\":\"Yg==\",\"mod_revision\":\"7\"}}]}}\n",
        ];
        let text = [HEAD, &chunk(begun), &chunk(front), &chunk(back)].concat();
        for piece in [1, 2, 7, 1000] {
            let news = heard(&text, piece).expect("no fault");
            assert_eq!(
                news,
                WatchNews { has_begun: true, keys: vec![b"/map".to_vec(), b"b".to_vec()], revision: 7 }
            );
        }
    }

    #[test]
    fn a_watch_that_does_not_tell_what_is_read_is_deaf() {
        let mut hearing = WatchHearing::default();
        let mut after = |now_ms, revision, known| {
            hearing.is_deaf(now_ms, &WatchNews { revision, ..WatchNews::default() }, known, 1000)
        };
        assert!(!after(0, 0, 7) && !after(2000, 0, 7), "it has not begun");
        assert!(!after(2000, 5, 7), "it may tell of it yet");
        assert!(!after(3000, 0, 7) && after(3001, 0, 7));
        assert!(!after(3002, 8, 7), "it has told of more");
        assert!(!after(9000, 0, 8));
        assert!(!after(9001, 0, 9) && !after(10_001, 0, 9) && after(10_002, 0, 10));
    }

    #[test]
    fn a_watch_that_has_ended_is_a_fault() {
        for (text, why) in [
            ("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "404"),
            (HEAD.to_owned() + "0\r\n\r\n", "has ended"),
            (HEAD.to_owned() + "zz\r\n", "broken chunk"),
            (HEAD.to_owned() + &chunk("{\"result\":{\"canceled\":true}}\n"), "has ended"),
            (HEAD.to_owned() + &chunk("{\"error\":{\"message\":\"no right\"}}\n"), "no right"),
            (HEAD.to_owned() + &chunk("text\n"), "no JSON"),
        ] {
            let fault = heard(&text, 1000).expect_err(why);
            assert!(fault.0.contains(why), "{fault}");
        }
    }
}
