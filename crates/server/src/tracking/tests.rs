use super::*;
use darter_reactor::{Config, DriverChoice, Reactor, Socket};

fn trackers() -> (Reactor, Vec<Tracker>) {
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let all = (1..=3).map(|client| {
        let (end, _) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let token = reactor.register(Socket::from_unix(end).expect("a socket")).expect("room");
        Tracker {
            thread: 0,
            token,
            client,
            reader: client as u32 - 1,
            redirect: None,
            noloop: false,
            is_broadcast: false,
            direct_push: Arc::default(),
        }
    });
    let all = all.collect();
    (reactor, all)
}

#[test]
fn only_who_tracks_is_told() {
    let (_reactor, all) = trackers();
    let table = TrackingTable::new(Vec::new());
    table.add(all[0].clone(), &[]);
    table.add(all[1].clone(), &[]);
    assert!(table.is_any());
    assert_eq!(table.trackers(&[0, 2]), all[..1]);
    assert_eq!(table.all_trackers().len(), 2);
    table.remove(0, 2, &[]);
    assert_eq!(table.trackers(&[0]), all[..1], "another client with that number");
    table.remove(0, 1, &[]);
    table.remove(1, 2, &[]);
    assert!(!table.is_any() && !table.is_in_use());
}

#[test]
fn keys_are_counted_up_to_a_limit() {
    let table = TrackingTable::new(Vec::new());
    let over = (0..100).map(|_| table.count_in(60)).filter(|is_over| *is_over).count();
    assert_eq!((over, table.keys_len(), table.count_in(0)), (40, 100, false));
    table.count_out(101);
    assert!(!table.is_in_use());
}

#[test]
fn prefixes_come_and_go_with_their_clients() {
    let (_reactor, all) = trackers();
    let table = TrackingTable::new(Vec::new());
    let prefixes: [Box<[u8]>; 2] = [b"a".as_slice().into(), b"".as_slice().into()];
    table.add(all[0].clone(), &prefixes);
    table.add(all[1].clone(), &prefixes[..1]);
    let keys: [&[u8]; 4] = [b"ab", b"b", b"ab", b"a"];
    let seen = |table: &TrackingTable| {
        let hits = table.prefixed(&keys);
        hits.iter().map(|hit| (hit.keys.concat(), hit.trackers.len())).collect::<Vec<_>>()
    };
    assert_eq!(seen(&table), [(b"aabb".to_vec(), 1), (b"aab".to_vec(), 2)]);
    table.remove(0, 1, &prefixes);
    assert_eq!(seen(&table), [(b"aab".to_vec(), 1)]);
    table.remove(1, 2, &prefixes[..1]);
    assert_eq!((seen(&table), table.clients_len(), table.totals().2), (Vec::new(), 0, 0));
}
