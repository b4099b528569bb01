use super::*;

fn threads_and_patterns(
    directory: &ChannelDirectory,
    kind: SubscriptionKind,
    channel: &str,
) -> (usize, Vec<u16>, Vec<String>) {
    let mut seen = (Vec::new(), Vec::new());
    let n = directory.find(kind, channel.as_bytes(), |found| {
        seen.0 = found.threads.to_vec();
        seen.1 = found.patterns.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    });
    seen.0.sort_unstable();
    seen.1.sort_unstable();
    (n, seen.0, seen.1)
}

#[test]
fn a_message_goes_once_to_each_thread_with_subscribers() {
    let directory = ChannelDirectory::default();
    directory.add(SubscriptionKind::Channel, b"news", 1);
    directory.add(SubscriptionKind::Channel, b"news", 1);
    directory.add(SubscriptionKind::Channel, b"news", 3);
    directory.add(SubscriptionKind::Pattern, b"n*", 3);
    directory.add(SubscriptionKind::Pattern, b"n*", 0);
    directory.add(SubscriptionKind::Pattern, b"*s", 2);
    directory.add(SubscriptionKind::Pattern, b"old*", 5);
    directory.add(SubscriptionKind::Shard, b"news", 7);
    let patterns = vec!["*s".to_owned(), "n*".to_owned()];
    assert_eq!(
        threads_and_patterns(&directory, SubscriptionKind::Channel, "news"),
        (6, vec![0, 1, 2, 3], patterns)
    );
    assert_eq!(threads_and_patterns(&directory, SubscriptionKind::Shard, "news"), (1, vec![7], vec![]));
    assert_eq!(
        threads_and_patterns(&directory, SubscriptionKind::Channel, "n"),
        (2, vec![0, 3], vec!["n*".to_owned()])
    );
    assert_eq!(threads_and_patterns(&directory, SubscriptionKind::Channel, "x"), (0, vec![], vec![]));
    assert_eq!((directory.patterns_len(), directory.subscribers(SubscriptionKind::Channel, b"news")), (3, 3));
}

#[test]
fn what_is_removed_is_gone() {
    let directory = ChannelDirectory::default();
    for name in [b"a" as &[u8], b"b*", b"b*c", b"", b"*"] {
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            directory.add(kind, name, 1);
            directory.add(kind, name, 2);
        }
    }
    for name in [b"a" as &[u8], b"b*", b"b*c", b"", b"*"] {
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            directory.remove(kind, name, 2);
            assert!(kind == SubscriptionKind::Pattern || directory.subscribers(kind, name) == 1);
            directory.remove(kind, name, 1);
            directory.remove(kind, name, 1);
        }
    }
    assert_eq!(directory.patterns_len(), 0);
    assert_eq!(
        directory.channels_len(SubscriptionKind::Channel) + directory.channels_len(SubscriptionKind::Shard),
        0
    );
    assert_eq!(threads_and_patterns(&directory, SubscriptionKind::Channel, "bxc").0, 0);
}

#[test]
fn hearers_of_keys_are_counted() {
    let directory = ChannelDirectory::default();
    let names: [(SubscriptionKind, &[u8], bool); 9] = [
        (SubscriptionKind::Channel, b"__keyspace@0__:a", true),
        (SubscriptionKind::Channel, b"__other", false),
        (SubscriptionKind::Shard, b"__keyspace@0__:a", false),
        (SubscriptionKind::Pattern, b"*", true),
        (SubscriptionKind::Pattern, b"__[k]ey*", true),
        (SubscriptionKind::Pattern, b"__key*__:*", true),
        (SubscriptionKind::Pattern, b"__keyevent@0__:expired", true),
        (SubscriptionKind::Pattern, b"news*", false),
        (SubscriptionKind::Pattern, b"__kex*", false),
    ];
    for (kind, name, hears) in names {
        directory.add(kind, name, 1);
        assert_eq!(directory.hears_keys(), hears, "{}", name.escape_ascii());
        directory.remove(kind, name, 2);
        assert_eq!(directory.hears_keys(), hears, "of another thread: {}", name.escape_ascii());
        directory.remove(kind, name, 1);
        assert!(!directory.hears_keys());
    }
}

#[test]
fn a_subscriber_gets_no_message_from_before() {
    let directory = ChannelDirectory::default();
    directory.add(SubscriptionKind::Channel, b"c", 0);
    let mut sent = Vec::new();
    let mut publish = || directory.find(SubscriptionKind::Channel, b"c", |found| sent.push(found.seq));
    publish();
    let since = directory.add(SubscriptionKind::Channel, b"c", 1);
    publish();
    assert!(sent[0] < since && sent[1] >= since, "{sent:?} {since}");
}

#[test]
fn frames_are_those_of_redis() {
    let message =
        Message::new(SubscriptionKind::Channel, b"ch", b"pay\r\n", 0, Some(9), vec![b"c*".as_slice().into()]);
    let mut out = Vec::new();
    message.write_to(&mut out, None, false);
    message.write_to(&mut out, Some(b"c*"), true);
    Message::new(SubscriptionKind::Shard, b"s", b"", 0, None, Vec::new()).write_to(&mut out, None, true);
    let wanted = "*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$5\r\npay\r\n\r\n\
                  >4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$5\r\npay\r\n\r\n\
                  >3\r\n$8\r\nsmessage\r\n$1\r\ns\r\n$0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), wanted);
    assert!(message.is_for(8) && !message.is_for(9));
}

#[test]
fn thousands_of_patterns_with_one_beginning_come_and_go() {
    let directory = ChannelDirectory::default();
    let began = std::time::Instant::now();
    let name = |n: u32| format!("a*{n}");
    (0..100_000).for_each(|n| {
        directory.add(SubscriptionKind::Pattern, name(n).as_bytes(), 0);
    });
    assert_eq!(directory.patterns_len(), 100_000);
    (0..100_000).rev().for_each(|n| directory.remove(SubscriptionKind::Pattern, name(n).as_bytes(), 0));
    assert_eq!(directory.patterns_len(), 0);
    // Each with each takes many minutes.
    assert!(began.elapsed().as_secs() < 120);
}
