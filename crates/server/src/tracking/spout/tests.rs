use super::*;
use crate::shared::Mail;
use darter_reactor::{Config, DriverChoice, Reactor};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const KEYS: &[u8] = b"*1\r\n$1\r\nk\r\n";
const MESSAGE: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

/// A spout that is open, and its client.
fn open() -> (Spout, UnixStream) {
    let (end, client) = UnixStream::pair().expect("a socket pair");
    end.set_nonblocking(true).expect("not blocking");
    let spout = Spout::default();
    *spout.hold() =
        Way { end: Some(File::from(std::os::fd::OwnedFd::from(end))), is_open: true, rest: Vec::new() };
    (spout, client)
}

/// Runs `look` while the thread behind a door sleeps.
fn while_asleep(look: impl FnOnce(&Door)) {
    let door = Door::new();
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    door.open(reactor.waker());
    assert!(!door.is_asleep());
    std::thread::scope(|scope| {
        let sleeper =
            scope.spawn(move || reactor.turn(Some(Duration::from_secs(60)), || true, |_| {}).map(drop));
        let began = Instant::now();
        while !door.is_asleep() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not fall asleep");
            std::thread::yield_now();
        }
        look(&door);
        door.send(Mail::Durable);
        sleeper.join().expect("no panic").expect("a turn");
    });
}

#[test]
fn a_message_goes_past_a_thread_that_sleeps() {
    let (spout, mut client) = open();
    while_asleep(|door| {
        assert_eq!(spout.tell(door, KEYS), Told::Sent);
        assert_eq!(spout.tell(door, b""), Told::Sent);
        let held = spout.hold();
        assert_eq!(spout.tell(door, KEYS), Told::NotNow, "its thread sends");
        drop(held);
        spout.close();
        assert_eq!(spout.tell(door, KEYS), Told::NotNow, "something is on its way");
    });
    assert_eq!(spout.take_sent(), MESSAGE.len() as u64 + 24);
    assert_eq!(spout.take_sent(), 0);
    spout.shut();
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the end of it");
    assert_eq!(all, [MESSAGE, b">2\r\n$10\r\ninvalidate\r\n_\r\n"].concat());
}

#[test]
fn nothing_goes_past_messages_that_wait() {
    let (spout, _client) = open();
    while_asleep(|door| {
        door.send(Mail::Durable);
        assert!(!door.is_asleep());
        assert_eq!(spout.tell(door, KEYS), Told::NotNow);
    });
}

#[test]
fn what_the_kernel_does_not_take_is_left_for_its_thread() {
    let (spout, mut client) = open();
    let mut messages = 0;
    while_asleep(|door| {
        let keys = [b"*1\r\n$100000\r\n", "x".repeat(100_000).as_bytes(), b"\r\n"].concat();
        loop {
            messages += 1;
            match spout.tell(door, &keys) {
                Told::Sent => {}
                told => break assert_eq!(told, Told::InPart),
            }
        }
        assert_eq!(spout.tell(door, KEYS), Told::NotNow);
    });
    let rest = spout.hold().take_rest();
    assert!(!rest.is_empty() && spout.hold().take_rest().is_empty());
    let sent = spout.take_sent() as usize;
    let mut all = vec![0; sent];
    client.read_exact(&mut all).expect("what was sent");
    all.extend(rest);
    let one = all.len() / messages;
    assert_eq!(all.len(), one * messages);
    assert!(all.chunks(one).all(|message| message.starts_with(b">2\r\n") && message == &all[..one]));
}
