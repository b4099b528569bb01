use super::*;
use darter_base::hash::KeyHasher;
use darter_reactor::{Config, DriverChoice, Reactor, Socket};

fn trackers() -> (Reactor, Vec<Tracker>) {
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let all = (1..=3).map(|client| {
        let (end, _) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let token = reactor.register(Socket::from_unix(end).expect("a socket")).expect("room");
        Tracker { thread: 0, token, client, redirect: None, noloop: false, is_broadcast: false }
    });
    let all = all.collect();
    (reactor, all)
}

fn hasher() -> KeyHasher {
    KeyHasher::new(3)
}

fn remember(table: &Table, key: &[u8], reader: Reader, keys_max: u64) -> usize {
    table.remember(Key { bytes: key, hash: hasher().hash(key) }, reader, keys_max).len()
}

#[test]
fn readers_are_told_once() {
    let (_reactor, all) = trackers();
    let table = Table::new(hasher());
    table.add(all[0], &[]);
    assert!(table.is_any());
    remember(&table, b"a", 1, 0);
    remember(&table, b"a", 1, 0);
    remember(&table, b"a", 2, 0);
    remember(&table, b"b", 1, 0);
    assert_eq!(table.totals(), (2, 3, 0));
    assert_eq!(table.forget(b"a"), [1, 2]);
    assert_eq!(table.trackers(&[1, 2]), all[..1]);
    assert!(table.forget(b"a").is_empty());
    assert_eq!(table.totals(), (1, 1, 0));
    assert_eq!(table.forget_all(), all[..1]);
    assert_eq!(table.totals(), (0, 0, 0));
    table.remove(1, &[]);
    assert!(!table.is_any());
}

#[test]
fn the_table_does_not_outgrow_its_limit() {
    let table = Table::new(hasher());
    let given_up = (0..1000u32).map(|n| remember(&table, &n.to_le_bytes(), 1, 100)).sum::<usize>();
    assert_eq!((table.totals().0, given_up), (100, 900));
}

#[test]
fn prefixes_come_and_go_with_their_clients() {
    let (_reactor, all) = trackers();
    let table = Table::new(hasher());
    let prefixes: [Box<[u8]>; 2] = [b"a".as_slice().into(), b"".as_slice().into()];
    table.add(all[0], &prefixes);
    table.add(all[1], &prefixes[..1]);
    let keys: [&[u8]; 4] = [b"ab", b"b", b"ab", b"a"];
    let seen = |table: &Table| {
        let hits = table.prefixed(&keys);
        hits.iter().map(|hit| (hit.keys.concat(), hit.trackers.len())).collect::<Vec<_>>()
    };
    assert_eq!(seen(&table), [(b"aabb".to_vec(), 1), (b"aab".to_vec(), 2)]);
    table.remove(1, &prefixes);
    assert_eq!(seen(&table), [(b"aab".to_vec(), 1)]);
    table.remove(2, &prefixes[..1]);
    assert_eq!((seen(&table), table.clients_len(), table.totals().2), (Vec::new(), 0, 0));
}
