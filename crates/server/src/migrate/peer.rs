//! The other server of a MIGRATE: a connection, what is sent there, and its answers of one line each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::held::HeldItem;
use super::{MigrateOrder, Place};
use crate::tls::{Outgoing, PeerNames};
use darter_config::Tls;

/// A connection to another server.
pub struct Peer {
    stream: BufReader<PeerStream>,
    // its socket, for the time of each step
    socket: TcpStream,
    // the database that is selected there; none: not known
    db: Option<i64>,
    // it does not take the words of RESTORE that only Darter knows
    is_plain: bool,
    /// When it was last used.
    pub used: Instant,
}

/// Plain, or encrypted as `tls-cluster` says.
enum PeerStream {
    Plain(TcpStream),
    Encrypted(Box<Outgoing>),
}

impl Read for PeerStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            PeerStream::Plain(stream) => stream.read(into),
            PeerStream::Encrypted(stream) => stream.read(into),
        }
    }
}

impl Write for PeerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            PeerStream::Plain(stream) => stream.write(bytes),
            PeerStream::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            PeerStream::Plain(stream) => stream.flush(),
            PeerStream::Encrypted(stream) => stream.flush(),
        }
    }
}

/// What came of sending keys.
#[derive(Default)]
pub struct Sent {
    /// Whether the other server has taken each key, as far as it has answered.
    pub is_taken: Vec<bool>,
    /// Its first refusal.
    pub refusal: Option<Vec<u8>>,
    /// The conversation broke off.
    pub broken: Option<BrokenPeer>,
}

/// The end of a conversation before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokenPeer {
    /// `writing` or `reading`.
    pub at: &'static str,
    /// It took too long.
    pub is_late: bool,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Unreached {
    /// The host has no address.
    Unknown(io::Error),
    /// Nobody answers there.
    Silent(io::Error),
}

/// The longest answer that is read.
const LINE_MAX: u64 = 64 << 10;
/// How a server refuses words that it does not know.
const SYNTAX: &[u8] = b"ERR syntax error";

impl Peer {
    /// Connects, encrypted if `tls-cluster` says so.
    ///
    /// Errors: the name is unknown, nobody listens there, one side does not trust the other, or it takes too long.
    pub fn connect(place: &Place, tls: &Tls, patience: Duration) -> Result<Peer, Unreached> {
        // What is no number is port 0, as in Redis.
        let port: u16 = place.1.parse().unwrap_or(0);
        let addresses = (place.0.as_str(), port).to_socket_addrs().map_err(Unreached::Unknown)?;
        let mut last = None;
        for address in addresses {
            let open = || {
                let stream = TcpStream::connect_timeout(&address, patience)?;
                stream.set_nodelay(true)?;
                let socket = stream.try_clone()?;
                if !tls.cluster {
                    return Ok((PeerStream::Plain(stream), socket));
                }
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                let stream = Outgoing::over(stream, &place.0, tls, PeerNames::Ignored, patience)?;
                Ok((PeerStream::Encrypted(Box::new(stream)), socket))
            };
            match open() {
                Ok((stream, socket)) => {
                    return Ok(Peer {
                        stream: BufReader::new(stream),
                        socket,
                        db: None,
                        is_plain: false,
                        used: Instant::now(),
                    });
                }
                Err(error) => last = Some(Unreached::Silent(error)),
            }
        }
        Err(last.unwrap_or_else(|| Unreached::Unknown(io::ErrorKind::NotFound.into())))
    }

    /// Logs in if need be, selects the database and makes the keys there.
    pub fn send(&mut self, order: &MigrateOrder, items: &[HeldItem], replaces: bool) -> Sent {
        let mut sent = Sent::default();
        if let Err(broken) = self.converse(order, items, replaces, &mut sent) {
            sent.broken = Some(broken);
        }
        sent
    }

    fn converse(
        &mut self,
        order: &MigrateOrder,
        items: &[HeldItem],
        replaces: bool,
        sent: &mut Sent,
    ) -> Result<(), BrokenPeer> {
        sent.refusal = self.begin(order)?;
        if sent.refusal.is_some() {
            return Ok(());
        }
        let words: &[&[u8]] = if replaces { &[b"REPLACE"] } else { &[] };
        self.push_items(order, items, words)?;
        let mut not_understood = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let mut refusal = self.read_refusal()?;
            sent.is_taken.push(refusal.is_none());
            if !self.is_plain && !item.marks.is_empty() && refusal.as_deref() == Some(SYNTAX) {
                not_understood.push(at);
                refusal = None;
            }
            sent.refusal = sent.refusal.take().or(refusal);
        }
        if not_understood.is_empty() {
            return Ok(());
        }
        // A Redis, which has refused these before it looked at the key: the values alone.
        self.is_plain = true;
        self.push_items(order, not_understood.iter().filter_map(|at| items.get(*at)), words)?;
        for at in not_understood {
            let refusal = self.read_refusal()?;
            if let Some(is_taken) = sent.is_taken.get_mut(at) {
                *is_taken = refusal.is_none();
            }
            sent.refusal = sent.refusal.take().or(refusal);
        }
        Ok(())
    }

    fn push_items<'a>(
        &mut self,
        order: &MigrateOrder,
        items: impl IntoIterator<Item = &'a HeldItem>,
        more: &[&[u8]],
    ) -> Result<(), BrokenPeer> {
        let mut out = Vec::new();
        for item in items {
            let ttl = item.ttl_ms.to_string();
            let verb: &[u8] = if order.is_node { b"RESTORE-ASKING" } else { b"RESTORE" };
            let mut words: Vec<&[u8]> = vec![verb, &item.name, ttl.as_bytes(), &item.payload];
            words.extend(more);
            if !self.is_plain {
                words.extend(item.marks.iter().map(Vec::as_slice));
            }
            push_command(&mut out, &words);
        }
        self.write(order.patience, &out)
    }

    /// Deletes keys there that were sent and have gone here meanwhile; whether it had them does not matter.
    pub fn delete(&mut self, order: &MigrateOrder, names: &[Box<[u8]>]) -> Result<(), BrokenPeer> {
        self.begin(order)?;
        if order.is_node {
            return self.delete_arriving(order, names);
        }
        let mut out = Vec::new();
        let mut words: Vec<&[u8]> = vec![b"DEL"];
        words.extend(names.iter().map(|name| &**name));
        push_command(&mut out, &words);
        self.write(order.patience, &out)?;
        self.read_refusal().map(drop)
    }

    /// Deletes keys of a slot that is arriving there, each by itself. A refusal breaks the conversation off.
    fn delete_arriving(&mut self, order: &MigrateOrder, names: &[Box<[u8]>]) -> Result<(), BrokenPeer> {
        let mut out = Vec::new();
        for name in names {
            push_command(&mut out, &[b"ASKING"]);
            push_command(&mut out, &[b"DEL", name]);
        }
        self.write(order.patience, &out)?;
        for _ in 0..names.len() * 2 {
            if self.read_refusal()?.is_some() {
                return Err(BrokenPeer { at: "reading", is_late: false });
            }
        }
        Ok(())
    }

    /// Logs in and selects the database, as far as that is still to be done; returns why not.
    fn begin(&mut self, order: &MigrateOrder) -> Result<Option<Vec<u8>>, BrokenPeer> {
        let mut out = Vec::new();
        let mut answers = 0;
        if !order.login.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(order.login.iter().map(Vec::as_slice));
            push_command(&mut out, &words);
            answers += 1;
        }
        if self.db != Some(order.to_db) {
            push_command(&mut out, &[b"SELECT", order.to_db.to_string().as_bytes()]);
            answers += 1;
        }
        if answers == 0 {
            return Ok(None);
        }
        self.db = None;
        self.write(order.patience, &out)?;
        let mut refusal = None;
        for _ in 0..answers {
            let answer = self.read_refusal()?;
            refusal = refusal.or(answer);
        }
        if refusal.is_none() {
            self.db = Some(order.to_db);
        }
        Ok(refusal)
    }

    fn write(&mut self, patience: Duration, bytes: &[u8]) -> Result<(), BrokenPeer> {
        let socket = &self.socket;
        let set = socket.set_read_timeout(Some(patience)).and(socket.set_write_timeout(Some(patience)));
        let stream = self.stream.get_mut();
        set.and_then(|()| stream.write_all(bytes))
            .and_then(|()| stream.flush())
            .map_err(|error| BrokenPeer::of("writing", &error))
    }

    /// One answer; the words of a refusal, without its dash. What is neither that nor a status comes from something else
    /// than a server of this protocol, and the key stays (Redis 7.0 would delete it).
    fn read_refusal(&mut self) -> Result<Option<Vec<u8>>, BrokenPeer> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| BrokenPeer::of("reading", &error))?;
        match line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) {
            Some((b'-', words)) => Ok(Some(words.to_vec())),
            Some((b'+' | b':', _)) => Ok(None),
            _ => Err(BrokenPeer { at: "reading", is_late: false }),
        }
    }
}

impl BrokenPeer {
    fn of(at: &'static str, error: &io::Error) -> BrokenPeer {
        let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        BrokenPeer { at, is_late }
    }
}

fn push_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
