//! The handshake of a replica with its master, line by line.

use darter_base::number;

use crate::history::ReplId;
use crate::stream;

/// What a replica tells its master.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Card {
    /// User and password, or the password alone, or nothing.
    pub login: Vec<Vec<u8>>,
    /// The port it listens on.
    pub port: u16,
    /// The address it is to be found by, if that is not where it calls from.
    pub address: Option<String>,
    /// The version of Redis it is like.
    pub version: String,
    /// The history it has, and the number of the first byte it lacks.
    pub has: Option<(ReplId, u64)>,
    /// The master is a replica of this server still, and is to take over.
    pub takes_over: bool,
    /// This server and this start of it, if it asks for flows.
    pub node: Option<(ReplId, ReplId)>,
}

/// How a master of ours answers: flows follow, one connection each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSession {
    /// What names the session on the connections of its flows.
    pub id: String,
    /// Number of flows.
    pub flows: u16,
    /// The history of the master.
    pub history: ReplId,
    /// The sequence that the replica lacks first; `None`: it gets everything.
    pub next: Option<u64>,
    /// The term of the master.
    pub term: u64,
}

/// Lines of the answer to DARTER HELLO: version, node, id, term, sequence, flows.
const HELLO_LINES: usize = 9;

/// What was said last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Ping,
    Login,
    Port,
    Address,
    Capabilities,
    Version,
    Hello,
    Session,
    Sync,
}

/// A handshake under way.
#[derive(Clone, Debug)]
pub struct Handshake {
    card: Card,
    said: Said,
    // lines of an answer that is not all there
    lines: Vec<Vec<u8>>,
}

/// The next action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// These bytes are to be sent.
    Send(Vec<u8>),
    /// Another line is to come.
    Wait,
    /// A snapshot follows; the stream goes on behind it at this offset of this history.
    Full {
        /// Which history.
        id: ReplId,
        /// Bytes of the stream before it.
        offset: u64,
    },
    /// The stream goes on where it ended, perhaps under a new id.
    Continue {
        /// The new id.
        id: Option<ReplId>,
    },
    /// A master of ours serves this replica by flows.
    Flows(FlowSession),
}

/// Why the master does not serve this replica, in its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeRefusal(pub String);

impl Handshake {
    /// Begins a handshake; returns the first bytes to send.
    pub fn begin(card: Card) -> (Handshake, Vec<u8>) {
        (Handshake { card, said: Said::Ping, lines: Vec::new() }, command(&[b"PING"]))
    }

    /// Takes a line that the master has sent, without its end.
    ///
    /// Errors: the master refuses, for now or for ever.
    pub fn take(&mut self, line: &[u8]) -> Result<NextStep, HandshakeRefusal> {
        let refusal = || {
            Err(HandshakeRefusal(
                String::from_utf8_lossy(line.strip_prefix(b"-").unwrap_or(line)).into_owned(),
            ))
        };
        if line.is_empty() {
            // A sign of life.
            return Ok(NextStep::Wait);
        }
        let is_error = line.starts_with(b"-");
        match self.said {
            Said::Ping => {
                let needs_login = [b"-NOAUTH".as_slice(), b"-NOPERM", b"-ERR operation not permitted"];
                let is_fine = line.starts_with(b"+") || needs_login.iter().any(|text| line.starts_with(text));
                if is_fine { Ok(self.say_from(Said::Login)) } else { refusal() }
            }
            Said::Login if is_error => refusal(),
            Said::Login => Ok(self.say_from(Said::Port)),
            // What it does not know it need not know.
            Said::Port => Ok(self.say_from(Said::Address)),
            Said::Address => Ok(self.say_from(Said::Capabilities)),
            Said::Capabilities => Ok(self.say_from(Said::Version)),
            Said::Version if self.card.node.is_some() => Ok(self.say_from(Said::Hello)),
            // Of another kind, or it cannot now.
            Said::Version | Said::Hello | Said::Session if is_error => Ok(self.say_from(Said::Sync)),
            Said::Version => Ok(self.say_from(Said::Sync)),
            Said::Hello => {
                self.lines.push(line.to_vec());
                let is_whole = self.lines.len() == HELLO_LINES || !line_is_of_hello(&self.lines);
                Ok(if is_whole { self.say_from(Said::Session) } else { NextStep::Wait })
            }
            Said::Session => match session(line, self.term()) {
                Some(session) => Ok(NextStep::Flows(session)),
                None => refusal(),
            },
            Said::Sync => match answer(line) {
                Some(next) => Ok(next),
                None => refusal(),
            },
        }
    }

    /// Says the first of what is left that is to be said.
    fn say_from(&mut self, said: Said) -> NextStep {
        let card = &self.card;
        let port = card.port.to_string();
        let (said, bytes) = match said {
            Said::Ping | Said::Login if !card.login.is_empty() => {
                let mut words: Vec<&[u8]> = vec![b"AUTH"];
                words.extend(card.login.iter().map(Vec::as_slice));
                (Said::Login, command(&words))
            }
            Said::Ping | Said::Login | Said::Port => {
                (Said::Port, command(&[b"REPLCONF", b"listening-port", port.as_bytes()]))
            }
            Said::Address | Said::Capabilities => match &card.address {
                Some(address) if said == Said::Address => {
                    (Said::Address, command(&[b"REPLCONF", b"ip-address", address.as_bytes()]))
                }
                _ => (Said::Capabilities, command(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])),
            },
            Said::Version => (Said::Version, command(&[b"REPLCONF", b"version", card.version.as_bytes()])),
            Said::Hello => {
                let (node, boot) = self.card.node.unwrap_or((ReplId::NONE, ReplId::NONE));
                let words: [&[u8]; 5] =
                    [b"DARTER", b"HELLO", b"1", node.as_str().as_bytes(), boot.as_str().as_bytes()];
                (Said::Hello, command(&words))
            }
            Said::Session => (Said::Session, self.ask_for_session()),
            Said::Sync => (Said::Sync, self.ask()),
        };
        self.said = said;
        NextStep::Send(bytes)
    }

    /// What the master has said of its term.
    fn term(&self) -> u64 {
        let term = self.lines.get(6).and_then(|line| line.strip_prefix(b":")).and_then(number::parse_i64);
        term.and_then(|term| u64::try_from(term).ok()).unwrap_or(0)
    }

    fn ask_for_session(&self) -> Vec<u8> {
        let Some((id, next)) = &self.card.has else { return command(&[b"DARTER", b"SYNC", b"?", b"-1"]) };
        let next = next.to_string();
        let mut words: Vec<&[u8]> = vec![b"DARTER", b"SYNC", id.as_str().as_bytes(), next.as_bytes()];
        if self.card.takes_over {
            words.push(b"FAILOVER");
        }
        command(&words)
    }

    fn ask(&self) -> Vec<u8> {
        match &self.card.has {
            Some((id, next)) if self.card.takes_over => {
                command(&[b"PSYNC", id.as_str().as_bytes(), next.to_string().as_bytes(), b"FAILOVER"])
            }
            Some((id, next)) => command(&[b"PSYNC", id.as_str().as_bytes(), next.to_string().as_bytes()]),
            None => command(&[b"PSYNC", b"?", b"-1"]),
        }
    }
}

/// What the answer to PSYNC says; `None`: a refusal, or no such answer.
fn answer(line: &[u8]) -> Option<NextStep> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    match words.next()? {
        b"+FULLRESYNC" => {
            let id = ReplId::parse(words.next()?)?;
            let offset = u64::try_from(number::parse_i64(words.next()?)?).ok()?;
            Some(NextStep::Full { id, offset })
        }
        b"+CONTINUE" => Some(NextStep::Continue { id: words.next().and_then(ReplId::parse) }),
        _ => None,
    }
}

/// Whether lines so far may be the answer to DARTER HELLO.
fn line_is_of_hello(lines: &[Vec<u8>]) -> bool {
    lines.first().is_some_and(|line| line == b"*6") && lines.len() < HELLO_LINES
}

/// What the answer to DARTER SYNC says: `+PARTIAL session flows id next`, or `+FULL session flows id`.
fn session(line: &[u8], term: u64) -> Option<FlowSession> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let is_partial = match words.next()? {
        b"+PARTIAL" => true,
        b"+FULL" => false,
        _ => return None,
    };
    let id = ReplId::parse(words.next()?)?.as_str().to_owned();
    let flows = u16::try_from(number::parse_i64(words.next()?)?).ok().filter(|flows| *flows > 0)?;
    let history = ReplId::parse(words.next()?)?;
    let next = match is_partial {
        true => Some(u64::try_from(number::parse_i64(words.next()?)?).ok()?),
        false => None,
    };
    Some(FlowSession { id, flows, history, next, term })
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    stream::write(&mut out, words);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(next: NextStep) -> String {
        match next {
            NextStep::Send(bytes) => String::from_utf8(bytes).expect("text").replace("\r\n", " "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_master_that_asks_for_a_login_gets_one() {
        let card = Card {
            login: vec![b"sync".to_vec(), b"secret".to_vec()],
            port: 7000,
            address: Some("replica.example".to_owned()),
            version: "8.1.0".to_owned(),
            has: None,
            takes_over: false,
            node: None,
        };
        let (mut handshake, first) = Handshake::begin(card);
        assert_eq!(first, b"*1\r\n$4\r\nPING\r\n");
        let mut take = |line: &[u8]| handshake.take(line);
        assert!(said(take(b"-NOAUTH Authentication required.").unwrap()).contains("AUTH $4 sync $6 secret"));
        assert!(said(take(b"+OK").unwrap()).contains("listening-port $4 7000"));
        assert!(said(take(b"+OK").unwrap()).contains("ip-address $15 replica.example"));
        assert!(said(take(b"-ERR unknown").unwrap()).contains("psync2"));
        assert!(said(take(b"+OK").unwrap()).contains("version"));
        assert!(
            said(take(b"-ERR Unrecognized REPLCONF option: version").unwrap()).contains("PSYNC $1 ? $2 -1")
        );
        assert_eq!(take(b""), Ok(NextStep::Wait));
        let id = "b".repeat(40);
        let full = format!("+FULLRESYNC {id} 42");
        let id = ReplId::parse(id.as_bytes()).unwrap();
        assert_eq!(take(full.as_bytes()), Ok(NextStep::Full { id, offset: 42 }));
    }

    #[test]
    fn a_replica_that_has_a_history_asks_for_what_follows() {
        let id = ReplId::parse(&[b'c'; 40]).unwrap();
        let (mut handshake, _) = Handshake::begin(Card { has: Some((id, 101)), ..Card::default() });
        for _ in 0..3 {
            handshake.take(b"+OK").unwrap();
        }
        assert!(said(handshake.take(b"+OK").unwrap()).contains(&format!("PSYNC $40 {id} $3 101")));
        assert_eq!(handshake.take(b"+CONTINUE"), Ok(NextStep::Continue { id: None }));
        let mut again = handshake.clone();
        assert_eq!(again.take(format!("+CONTINUE {id}").as_bytes()), Ok(NextStep::Continue { id: Some(id) }));
        for line in
            [b"-NOMASTERLINK Can't SYNC while not connected".as_slice(), b"-LOADING", b"+FULLRESYNC x", b"x"]
        {
            assert!(handshake.take(line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_master_of_ours_is_asked_for_flows_and_another_one_is_not() {
        let (id, node) = (ReplId::parse(&[b'c'; 40]).unwrap(), ReplId::parse(&[b'd'; 40]).unwrap());
        let card = Card { has: Some((id, 101)), node: Some((node, id)), ..Card::default() };
        let (mut handshake, _) = Handshake::begin(card);
        for _ in 0..3 {
            handshake.take(b"+OK").unwrap();
        }
        assert!(said(handshake.take(b"+OK").unwrap()).contains("DARTER $5 HELLO $1 1 $40 dddd"));
        let mut foreign = handshake.clone();
        assert!(said(foreign.take(b"-ERR unknown command").unwrap()).contains("PSYNC $40 cccc"));
        let node = node.to_string();
        for line in ["*6", ":1", "$40", &node, "$40", &node, ":9", ":77"] {
            assert_eq!(handshake.take(line.as_bytes()), Ok(NextStep::Wait), "{line}");
        }
        assert!(said(handshake.take(b":3").unwrap()).contains("DARTER $4 SYNC $40 cccc"));
        let mut again = handshake.clone();
        let session = FlowSession { id: node.clone(), flows: 3, history: id, next: Some(78), term: 9 };
        assert_eq!(
            handshake.take(format!("+PARTIAL {node} 3 {id} 78").as_bytes()),
            Ok(NextStep::Flows(session))
        );
        let full = again.take(format!("+FULL {node} 3 {id}").as_bytes());
        assert!(matches!(full, Ok(NextStep::Flows(FlowSession { next: None, .. }))));
        let (mut odd, _) = (again.clone(), ());
        assert!(odd.take(b"+FULL x 0 y").is_err());
        // It has said why not: PSYNC says it again, or helps.
        assert!(said(again.take(b"-NOMASTERLINK no").unwrap()).contains("PSYNC"));
    }

    #[test]
    fn a_wrong_password_ends_it() {
        let (mut handshake, _) = Handshake::begin(Card { login: vec![b"x".to_vec()], ..Card::default() });
        handshake.take(b"-NOAUTH").unwrap();
        let refusal = handshake.take(b"-WRONGPASS invalid username-password pair");
        assert_eq!(refusal, Err(HandshakeRefusal("WRONGPASS invalid username-password pair".to_owned())));
        let (mut handshake, _) = Handshake::begin(Card::default());
        assert!(handshake.take(b"-MASTERDOWN Link with MASTER is down").is_err());
    }
}
