//! Commands in a pipeline answer what they answer alone, however the bytes are cut: the short ways of reading requests,
//! running GET and SET and putting replies together, against the long ones.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use darter_base::rng::Rng;
use darter_config::{Settings, Startup};
use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientInfo;
use darter_server::conn::Conn;
use darter_server::conn::window::ConnWindow;
use darter_server::protocol::ListenerKind;
use darter_server::session::Session;
use darter_server::start;
use darter_server::thread_state::ThreadState;

/// A server without sockets, and one connection to it.
struct Peer {
    local: ThreadState,
    conn: Conn,
    window: ConnWindow,
    _kept: (Reactor, UnixStream),
}

impl Peer {
    fn new() -> Peer {
        let flags = ["pipelines", "--proactor_threads=1"].map(OsString::from);
        let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
            panic!("the settings are valid")
        };
        let live = settings.live();
        let shared = start::build(Arc::new(*settings), &live, 1).expect("address space");
        let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
        let (end, other) = UnixStream::pair().expect("a socket pair");
        let token = reactor.register(Socket::from_unix(end).expect("non-blocking")).expect("room");
        let info = Arc::new(ClientInfo::new(1, (0, token, 0), String::new(), String::new(), false, 0));
        let session = Session::new(1, ListenerKind::Main, false, shared.acl.default_user());
        Peer {
            local: ThreadState::new(shared, 0),
            conn: Conn::new(token, session, info),
            window: ConnWindow::default(),
            _kept: (reactor, other),
        }
    }

    /// What it answers to one piece of bytes.
    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.conn.receive(&mut self.local, &mut self.window, bytes);
        std::mem::take(&mut self.conn.output)
    }
}

/// Lengths around every bound on the way: of copies, of staged replies, of header digits, of packing.
const LENGTHS: &[usize] =
    &[0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 99, 100, 127, 128, 200, 511, 600, 999, 1000, 20_000];

fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let text = |len: usize, byte: u64| vec![b'a' + (byte % 20) as u8; len];
    // Keys of few lengths, and enough of them that some stand away from their home lines.
    let number = rng.below(3000);
    let key = match rng.below(8) {
        0 => format!("k{}", number % 50),
        1 => format!("key:{number:0>40}"),
        _ => format!("key:{number:012}"),
    }
    .into_bytes();
    let value = text(LENGTHS[rng.below(LENGTHS.len() as u64) as usize], number);
    let set = if rng.below(4) == 0 { &b"set"[..] } else { b"SET" }.to_vec();
    let field = || text(LENGTHS[number as usize % 5], number);
    let list = || format!("list:{}", number % 20).into_bytes();
    let hash = || format!("hash:{}", number % 20).into_bytes();
    let zset = || format!("zset:{}", number % 20).into_bytes();
    let count = || format!("count:{}", number % 20).into_bytes();
    match rng.below(60) {
        40..=43 => vec![b"HSET".to_vec(), hash(), field(), value],
        44 => vec![b"HGET".to_vec(), hash(), field()],
        45..=46 => vec![b"ZADD".to_vec(), zset(), number.to_string().into_bytes(), field()],
        47 => vec![b"ZSCORE".to_vec(), zset(), field()],
        48..=49 => vec![b"INCRBY".to_vec(), count(), (number * number).to_string().into_bytes()],
        50..=51 => vec![b"DECR".to_vec(), count()],
        52 => vec![b"INCR".to_vec(), key],
        53 => vec![b"EXISTS".to_vec(), key],
        54 => vec![b"MGET".to_vec(), key],
        55 => vec![b"UNLINK".to_vec(), if number.is_multiple_of(2) { key } else { count() }],
        56 => vec![b"LPUSH".to_vec(), list(), value, field()],
        57 => vec![b"LPOP".to_vec(), list()],
        58 => vec![b"MSET".to_vec(), key, value],
        59 => vec![b"DEL".to_vec(), key, count()],
        0..=13 => vec![b"GET".to_vec(), key],
        14..=22 => vec![set, key, text(32, number)],
        23..=26 => vec![set, key, value],
        27 => vec![set, key, value, b"EX".to_vec(), b"1000".to_vec()],
        28 => vec![set, key, value, b"NX".to_vec()],
        29 => vec![b"DEL".to_vec(), key],
        30 => vec![b"LPUSH".to_vec(), key, value],
        31 => vec![b"APPEND".to_vec(), key, value],
        32 => vec![b"STRLEN".to_vec(), key],
        33 => vec![b"GET".to_vec(), key.clone(), key],
        34 => vec![b"SET".to_vec(), key],
        35 => vec![b"GETS".to_vec(), key],
        36 => vec![b"MGET".to_vec(), key, b"k1".to_vec()],
        37 => vec![b"HELLO".to_vec(), if number.is_multiple_of(2) { b"2".to_vec() } else { b"3".to_vec() }],
        38 => vec![b"SELECT".to_vec(), if number.is_multiple_of(3) { b"1".to_vec() } else { b"0".to_vec() }],
        _ => vec![b"SET".to_vec(), b"n".to_vec(), b"12".to_vec()],
    }
}

fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn commands_in_a_pipeline_answer_what_they_answer_alone() {
    compare(21, Peer::new(), Peer::new());
}

#[test]
fn those_of_limited_users_do_too() {
    let [one_by_one, piped] = [(); 2].map(|()| {
        let mut peer = Peer::new();
        let rules = [
            "on nopass +@all -hget -lpush ~k? ~key:00000000000* %R~key:0000000001* %W~key:0000000002* ~count:1* ~hash:*",
            "on nopass +@read +select +hello +dbsize ~* (+set %W~key:*) (+set +incrby ~count:1* ~key:*)",
        ];
        for (name, rules) in ["limited", "pieces"].into_iter().zip(rules) {
            assert_eq!(peer.send(format!("ACL SETUSER {name} {rules}\r\n").as_bytes()), b"+OK\r\n");
        }
        assert_eq!(peer.send(b"AUTH limited x\r\n"), b"+OK\r\n");
        peer
    });
    let [one_by_one, piped] = compare(22, one_by_one, piped).map(|mut peer| {
        assert_eq!(peer.send(b"AUTH pieces x\r\n"), b"+OK\r\n");
        peer
    });
    compare(23, one_by_one, piped);
}

#[test]
fn those_of_tracking_clients_do_too() {
    let [one_by_one, piped] = [(); 2].map(|()| {
        let mut peer = Peer::new();
        assert!(peer.send(b"HELLO 3\r\n").starts_with(b"%"));
        assert_eq!(peer.send(b"CLIENT TRACKING ON NOLOOP\r\n"), b"+OK\r\n");
        peer
    });
    let [one, many] = compare(24, one_by_one, piped).map(|peer| peer.local.shared.tracking.totals());
    assert!(one == many && one.0 > 1000, "{one:?} {many:?}");
}

/// Sends both the same commands, one by one and in pipelines cut anywhere; returns them.
fn compare(seed: u64, mut one_by_one: Peer, mut piped: Peer) -> [Peer; 2] {
    let mut rng = Rng::new(seed);
    let mut replies = 0;
    for round in 0..200 {
        piped.local.looks_ahead = round % 2 == 0;
        let (mut bytes, mut wanted, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(120) {
            let words = command(&mut rng);
            // Runs of one kind are what the shortest way is for.
            for _ in 0..1 + rng.below(3) * rng.below(12) {
                let words = if words[0] == b"GET" && words.len() == 2 {
                    vec![words[0].clone(), format!("key:{:012}", rng.below(3000)).into_bytes()]
                } else {
                    words.clone()
                };
                let request = request(&words);
                let reply = one_by_one.send(&request);
                assert!(!reply.is_empty());
                // HELLO tells the connection's number, which is the same here; everything else is plain.
                wanted.extend_from_slice(&reply);
                bytes.extend_from_slice(&request);
                all.push(words);
            }
        }
        let mut answered = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let cut = if round % 3 == 0 { 1 + rng.below(400) as usize } else { rest.len() };
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            answered.extend(piped.send(piece));
            rest = behind;
        }
        // What paused for a large output goes on.
        while answered.len() < wanted.len() {
            let before = answered.len();
            piped.conn.resume(&mut piped.local, &mut piped.window);
            answered.append(&mut piped.conn.output);
            assert!(answered.len() > before, "round {round}: it stops after {before} of {}", wanted.len());
        }
        if answered != wanted {
            let at = answered.iter().zip(&wanted).position(|(a, b)| a != b).unwrap_or(wanted.len());
            let show = |bytes: &[u8]| {
                bytes[at.saturating_sub(40)..bytes.len().min(at + 40)].escape_ascii().to_string()
            };
            panic!("round {round}, byte {at}: {} for {}", show(&answered), show(&wanted));
        }
        replies += all.len();
    }
    assert!(replies > 10_000, "{replies}");
    assert_eq!(one_by_one.send(b"DBSIZE\r\n"), piped.send(b"DBSIZE\r\n"));
    [one_by_one, piped]
}
