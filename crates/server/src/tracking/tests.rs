use super::*;
use darter_reactor::{Config, DriverChoice, Reactor, Socket};

fn trackers() -> (Reactor, Vec<Tracker>) {
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let all = (1..=3).map(|client| {
        let (end, _) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let token = reactor.register(Socket::from_unix(end).expect("a socket")).expect("room");
        Tracker { thread: 0, token, client }
    });
    let all = all.collect();
    (reactor, all)
}

#[test]
fn readers_are_told_once() {
    let (_reactor, all) = trackers();
    let table = Table::default();
    table.add(all[0], &[]);
    assert!(table.is_any());
    table.remember(b"a", all[0], 0);
    table.remember(b"a", all[0], 0);
    table.remember(b"a", all[1], 0);
    table.remember(b"b", all[0], 0);
    assert_eq!(table.totals(), (2, 3, 0));
    assert_eq!(table.forget(b"a"), all[..2]);
    assert_eq!(table.forget(b"a"), []);
    assert_eq!(table.totals(), (1, 1, 0));
    assert_eq!(table.forget_all(), all[..1]);
    assert_eq!(table.totals(), (0, 0, 0));
    table.remove(1, &[]);
    assert!(!table.is_any());
}

#[test]
fn the_table_does_not_outgrow_its_limit() {
    let (_reactor, all) = trackers();
    let table = Table::default();
    let given_up = (0..1000u32).filter(|n| table.remember(&n.to_le_bytes(), all[0], 100).is_some()).count();
    assert_eq!((table.totals().0, given_up), (100, 900));
}

#[test]
fn prefixes_come_and_go_with_their_clients() {
    let (_reactor, all) = trackers();
    let table = Table::default();
    let prefixes: [Box<[u8]>; 2] = [b"a".as_slice().into(), b"".as_slice().into()];
    table.add(all[0], &prefixes);
    table.add(all[1], &prefixes[..1]);
    let seen = |table: &Table| {
        let mut seen = Vec::new();
        table.each_prefix(|prefix, trackers| seen.push((prefix.to_vec(), trackers.len())));
        seen.sort();
        seen
    };
    assert_eq!(seen(&table), [(b"".to_vec(), 1), (b"a".to_vec(), 2)]);
    table.remove(1, &prefixes);
    assert_eq!(seen(&table), [(b"a".to_vec(), 1)]);
    table.remove(2, &prefixes[..1]);
    assert_eq!((seen(&table), table.clients_len()), (Vec::new(), 0));
}
