use super::*;
use crate::shared::ThreadMessage;
use darter_reactor::{Config, DriverChoice, Reactor};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const KEYS: &[u8] = b"*1\r\n$1\r\nk\r\n";
const MESSAGE: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

/// A direct_push that is open, and its client.
fn open() -> (DirectPush, UnixStream) {
    let (end, client) = UnixStream::pair().expect("a socket pair");
    end.set_nonblocking(true).expect("not blocking");
    let direct_push = DirectPush::default();
    *direct_push.hold() =
        PushWay { end: Some(File::from(std::os::fd::OwnedFd::from(end))), is_open: true, rest: Vec::new() };
    (direct_push, client)
}

/// Runs `look` while the thread behind a handle sleeps.
fn while_asleep(look: impl FnOnce(&ThreadHandle)) {
    let handle = ThreadHandle::new();
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    handle.open(reactor.waker());
    assert!(!handle.is_asleep());
    std::thread::scope(|scope| {
        let sleeper =
            scope.spawn(move || reactor.turn(Some(Duration::from_secs(60)), || true, |_| {}).map(drop));
        let began = Instant::now();
        while !handle.is_asleep() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not fall asleep");
            std::thread::yield_now();
        }
        look(&handle);
        handle.send(ThreadMessage::Durable);
        sleeper.join().expect("no panic").expect("a turn");
    });
}

#[test]
fn a_message_goes_past_a_thread_that_sleeps() {
    let (direct_push, mut client) = open();
    while_asleep(|handle| {
        assert_eq!(direct_push.tell(handle, KEYS), ToldClient::Sent);
        assert_eq!(direct_push.tell(handle, b""), ToldClient::Sent);
        let held = direct_push.hold();
        assert_eq!(direct_push.tell(handle, KEYS), ToldClient::NotNow, "its thread sends");
        drop(held);
        direct_push.close();
        assert_eq!(direct_push.tell(handle, KEYS), ToldClient::NotNow, "something is on its way");
    });
    assert_eq!(direct_push.take_sent(), MESSAGE.len() as u64 + 24);
    assert_eq!(direct_push.take_sent(), 0);
    direct_push.shut();
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the end of it");
    assert_eq!(all, [MESSAGE, b">2\r\n$10\r\ninvalidate\r\n_\r\n"].concat());
}

#[test]
fn nothing_goes_past_messages_that_wait() {
    let (direct_push, _client) = open();
    while_asleep(|handle| {
        handle.send(ThreadMessage::Durable);
        assert!(!handle.is_asleep());
        assert_eq!(direct_push.tell(handle, KEYS), ToldClient::NotNow);
    });
}

#[test]
fn what_the_kernel_does_not_take_is_left_for_its_thread() {
    let (direct_push, mut client) = open();
    let mut messages = 0;
    while_asleep(|handle| {
        let keys = [b"*1\r\n$100000\r\n", "x".repeat(100_000).as_bytes(), b"\r\n"].concat();
        loop {
            messages += 1;
            match direct_push.tell(handle, &keys) {
                ToldClient::Sent => {}
                told => break assert_eq!(told, ToldClient::InPart),
            }
        }
        assert_eq!(direct_push.tell(handle, KEYS), ToldClient::NotNow);
    });
    let rest = direct_push.hold().take_rest();
    assert!(!rest.is_empty() && direct_push.hold().take_rest().is_empty());
    let sent = direct_push.take_sent() as usize;
    let mut all = vec![0; sent];
    client.read_exact(&mut all).expect("what was sent");
    all.extend(rest);
    let one = all.len() / messages;
    assert_eq!(all.len(), one * messages);
    assert!(all.chunks(one).all(|message| message.starts_with(b">2\r\n") && message == &all[..one]));
}
