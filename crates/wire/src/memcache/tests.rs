//! Lines and values: memcached's answers to them, independent of how the bytes are split.

use std::borrow::Cow;

use darter_base::rng::Rng;

use super::*;
use crate::cpu_time;

/// The result of one step, in words; commands as their debug text.
fn feed(bytes: &[u8], cuts: &[usize], limits: &MemcacheLimits) -> Vec<String> {
    let mut decoder = MemcacheDecoder::new();
    let (mut seen, mut start, mut skipped) = (Vec::new(), 0, 0);
    for end in cuts.iter().copied().chain([bytes.len()]) {
        loop {
            match decoder.next(&bytes[start..end], limits) {
                MemcacheStep::Command { command, consumed } => {
                    start += consumed;
                    seen.push(format!("{command:?}"));
                }
                MemcacheStep::Refused { error, noreply, remove, consumed } => {
                    start += consumed;
                    seen.push(format!("{} {noreply} {remove:?}", error.text()));
                }
                MemcacheStep::Skipped { consumed } => {
                    assert!(consumed > 0);
                    start += consumed;
                    skipped += consumed;
                }
                MemcacheStep::More { want } => {
                    assert!(want > 0);
                    break;
                }
                MemcacheStep::Close => {
                    seen.push("close".into());
                    return seen;
                }
            }
        }
    }
    seen.push(format!("skipped {skipped}, left {}", bytes.len() - start));
    seen
}

fn one<'a>(decoder: &mut MemcacheDecoder, bytes: &'a [u8]) -> MemcacheStep<'a> {
    decoder.next(bytes, &MemcacheLimits::default())
}

fn command(bytes: &[u8]) -> MemcacheCommand<'_> {
    match one(&mut MemcacheDecoder::new(), bytes) {
        MemcacheStep::Command { command, consumed } => {
            assert_eq!(consumed, bytes.len());
            command
        }
        other => panic!("{:?} gave {other:?}", bytes.escape_ascii().to_string()),
    }
}

/// The answer to the first line, or `ok` when it is a command.
fn answer(bytes: &str) -> &'static str {
    match one(&mut MemcacheDecoder::new(), bytes.as_bytes()) {
        MemcacheStep::Command { .. } => "ok",
        MemcacheStep::Refused { error, .. } => error.text(),
        MemcacheStep::Close => "close",
        MemcacheStep::More { .. } => "more",
        step => panic!("{bytes:?} gave {step:?}"),
    }
}

#[test]
fn storing() {
    let stored = |bytes: &'static str| match command(bytes.as_bytes()) {
        MemcacheCommand::Store { store, key, flags, exptime, value, noreply } => {
            (store, String::from_utf8_lossy(key), flags, exptime, String::from_utf8_lossy(value), noreply)
        }
        other => panic!("{other:?}"),
    };
    let text = |s: &'static str| Cow::Borrowed(s);
    assert_eq!(stored("set k 5 -1 3\r\nabc\r\n"), (Store::Set, text("k"), 5, -1, text("abc"), false));
    assert_eq!(stored("add k 01 +1 00 noreply\r\n\r\n"), (Store::Add, text("k"), 1, 1, text(""), true));
    assert_eq!(
        stored("replace k 0 0 2 foo\r\n\r\n\r\n"),
        (Store::Replace, text("k"), 0, 0, text("\r\n"), false)
    );
    assert_eq!(stored("append  k 0 0  1 \r\na\r\n").0, Store::Append);
    assert_eq!(stored("prepend k 0 99999999999 1\na\r\n").0, Store::Prepend);
    assert_eq!(stored("cas k 0 0 1 18446744073709551615 noreply\r\na\r\n").0, Store::Cas(u64::MAX));
}

#[test]
fn the_other_classic_commands() {
    let keys = |bytes: &'static str| match command(bytes.as_bytes()) {
        MemcacheCommand::Get { keys, cas, touch } => {
            (keys.map(String::from_utf8_lossy).collect::<Vec<_>>(), cas, touch)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(keys("get a  bb \r\n"), (vec!["a".into(), "bb".into()], false, None));
    assert_eq!(keys(" gets a\n"), (vec!["a".into()], true, None));
    assert_eq!(keys("gat -5 a\r\n"), (vec!["a".into()], false, Some(-5)));
    assert!(keys("gats 0 a b\r\n").1);
    assert_eq!(command(b"delete k\r\n"), MemcacheCommand::Delete { key: b"k", noreply: false });
    assert_eq!(command(b"delete k 0 noreply\r\n"), MemcacheCommand::Delete { key: b"k", noreply: true });
    let count = MemcacheCommand::Count { key: b"k", delta: 7, decrement: true, noreply: true };
    assert_eq!(command(b"decr k 7 noreply\r\n"), count);
    assert_eq!(command(b"touch k 60\r\n"), MemcacheCommand::Touch { key: b"k", exptime: 60, noreply: false });
    assert_eq!(command(b"flush_all\r\n"), MemcacheCommand::FlushAll { delay: 0, noreply: false });
    assert_eq!(command(b"flush_all 10 noreply\r\n"), MemcacheCommand::FlushAll { delay: 10, noreply: true });
    assert_eq!(command(b"verbosity 1 noreply\r\n"), MemcacheCommand::Verbosity { noreply: true });
    assert_eq!(
        (command(b"version\r\n"), command(b"quit\n")),
        (MemcacheCommand::Version, MemcacheCommand::Quit)
    );
    let MemcacheCommand::Stats(words) = command(b"stats detail on\r\n") else { panic!() };
    assert_eq!(words.collect::<Vec<_>>(), [&b"detail"[..], b"on"]);
    let MemcacheCommand::Admin { name: b"slabs", words, .. } = command(b"slabs automove 1\r\n") else {
        panic!()
    };
    assert_eq!(words.count(), 2);
}

#[test]
fn meta_commands() {
    let meta = |bytes: &'static str| match command(bytes.as_bytes()) {
        MemcacheCommand::Meta(meta) => meta,
        other => panic!("{other:?}"),
    };
    let mg = meta("mg key v t Oabc N30 R-5 q\r\n");
    assert_eq!((mg.verb, &*mg.key, mg.vivify, mg.recache), (MetaVerb::Get, &b"key"[..], Some(30), Some(-5)));
    assert!(mg.flags().any(|flag| flag == (b'O', &b"abc"[..])));
    assert!(mg.has(b'v') && mg.has(b'q') && mg.has(b'O') && !mg.has(b'k') && !mg.has(0xff));
    assert_eq!(mg.flags().map(|(letter, _)| letter).collect::<Vec<_>>(), b"vtONRq");
    let ms = meta("ms a2V5 2 b T0 F4294967295 C9 E10 Ma I\r\nhi\r\n");
    assert_eq!(
        (ms.verb, &*ms.key, ms.value, ms.mode),
        (MetaVerb::Set, &b"key"[..], &b"hi"[..], MetaMode::Append)
    );
    assert_eq!((ms.ttl, ms.client_flags, ms.cas, ms.new_cas), (Some(0), Some(u32::MAX), Some(9), Some(10)));
    assert_eq!((meta("ms k 0\r\n\r\n").mode, meta("ma k\r\n").mode), (MetaMode::Set, MetaMode::Increment));
    let ma = meta("ma k M- D5 J100 N0\r\n");
    assert_eq!((ma.verb, ma.mode, ma.delta, ma.initial), (MetaVerb::Count, MetaMode::Decrement, 5, 100));
    assert_eq!((meta("ma k\r\n").delta, meta("md k q x\r\n").verb), (1, MetaVerb::Delete));
    assert_eq!(command(b"mn\r\n"), MemcacheCommand::MetaNoop);
    assert_eq!(
        command(b"me a2V5 b\r\n"),
        MemcacheCommand::MetaDebug { key: Cow::Borrowed(b"key"), base64: true }
    );
}

#[test]
fn refusals_have_the_words_of_memcached() {
    let long = "k".repeat(251);
    let (set_long, mg_long) = (format!("set {long} 0 0 1\r\na\r\n"), format!("mg {long} v\r\n"));
    let (get_long, opaque) = (format!("get a {long}\r\n"), format!("mg k O{}\r\n", "o".repeat(32)));
    for (line, expected) in [
        ("get\r\n", "ERROR"),
        ("get \r\n", "ERROR"),
        ("GET k\r\n", "ERROR"),
        ("\r\n", "ERROR"),
        ("foo\r\n", "ERROR"),
        ("gat 10\r\n", "ERROR"),
        ("gat\r\n", "ERROR"),
        ("gat x k\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("set k 0 0\r\n", "ERROR"),
        ("set k 0 0 x\r\n", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 -1\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 4294967295\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 2147483646\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 2147483645\r\n", "SERVER_ERROR object too large for cache"),
        // 48 + 8 for the head, 3 for line end and zero, the key, and 4 for flags: as memcached 1.6 answers.
        ("set a 0 0 1048517\r\n", "SERVER_ERROR object too large for cache"),
        ("set a 5 0 1048513\r\n", "SERVER_ERROR object too large for cache"),
        ("ms a 1048517\r\n", "SERVER_ERROR object too large for cache"),
        ("ms a 1048513 F5\r\n", "SERVER_ERROR object too large for cache"),
        ("set a 0 0 1048516\r\n", "more"),
        ("set a 5 0 1048512\r\n", "more"),
        ("set k x 0 1\r\na\r\n", "CLIENT_ERROR bad command line format"),
        ("set k -1 0 1\r\na\r\n", "CLIENT_ERROR bad command line format"),
        ("set k 0 0x 1\r\na\r\n", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 1\r\nab\r\n", "CLIENT_ERROR bad data chunk"),
        ("cas k 0 0 1\r\n", "CLIENT_ERROR bad command line format"),
        ("cas k 0 0\r\n", "ERROR"),
        (" \n", "ERROR"),
        ("cas k 0 0 1 x\r\na\r\n", "CLIENT_ERROR bad command line format"),
        (&set_long, "CLIENT_ERROR bad command line format"),
        (&get_long, "CLIENT_ERROR bad command line format"),
        ("delete\r\n", "ERROR"),
        ("delete k 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("incr k\r\n", "ERROR"),
        ("incr k x\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr k -1\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr k 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch k\r\n", "ERROR"),
        ("touch k x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all -1\r\n", "ok"),
        ("verbosity\r\n", "ERROR"),
        ("mg\r\n", "ERROR"),
        ("mg k v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg k ?\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k 1\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k S\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k \u{ff}\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k Tx\r\n", "CLIENT_ERROR bad token in command line format"),
        ("mg k T\r\n", "CLIENT_ERROR bad token in command line format"),
        (&opaque, "CLIENT_ERROR opaque token too long"),
        (&mg_long, "CLIENT_ERROR bad command line format"),
        ("mg !!! b\r\n", "CLIENT_ERROR error decoding key"),
        ("ms k\r\n", "CLIENT_ERROR bad command line format"),
        ("ms k x\r\n", "CLIENT_ERROR bad command line format"),
        ("ms k 3 Mx\r\nabc\r\n", "CLIENT_ERROR invalid mode for ms M token"),
        ("ms k 3 Mset\r\nabc\r\n", "CLIENT_ERROR incorrect length for M token"),
        ("ms k 3 Fx\r\nabc\r\n", "CLIENT_ERROR bad command line format"),
        ("ms k 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk"),
        ("ma k Mx\r\n", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma k Jx\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k D-1\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k v v\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k S1\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma !!! b\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        (&opaque.replacen("mg", "ma", 1), "CLIENT_ERROR opaque token too long"),
        ("me\r\n", "CLIENT_ERROR bad command line format"),
        ("GET / HTTP/1.1\r\n", "close"),
    ] {
        assert_eq!(answer(line), expected, "{line:?}");
    }
}

#[test]
fn a_refused_value_is_never_read_as_commands() {
    let limits =
        MemcacheLimits { item_bytes_max: ITEM_HEAD_BYTES as u32 + 1 + 10, ..MemcacheLimits::default() };
    for (bytes, first) in [
        (
            "set k 0 0 13\r\nflush_all\r\n\r\n\r\nversion\r\n",
            "SERVER_ERROR object too large for cache false Some([107])",
        ),
        (
            "add k 0 0 13 noreply\r\nflush_all\r\n\r\n\r\nversion\r\n",
            "SERVER_ERROR object too large for cache true None",
        ),
        (
            "ms aw== 13 b q\r\nflush_all\r\n\r\n\r\nversion\r\n",
            "SERVER_ERROR object too large for cache false Some([107])",
        ),
        ("set k x 0 9\r\nflush_all\r\nversion\r\n", "CLIENT_ERROR bad command line format false None"),
        ("ms k 9 ?\r\nflush_all\r\nversion\r\n", "CLIENT_ERROR invalid flag false None"),
        ("cas k 0 0 9\r\nflush_all\r\nversion\r\n", "CLIENT_ERROR bad command line format false None"),
        ("set k 0 0 10\r\nflush_all\r\nxversion\r\n", "CLIENT_ERROR bad data chunk false None"),
    ] {
        let seen = feed(bytes.as_bytes(), &[], &limits);
        assert_eq!((seen[0].as_str(), seen[1].as_str(), seen.len()), (first, "Version", 3), "{bytes:?}");
    }
}

#[test]
fn lines_without_an_end_close() {
    assert_eq!(one(&mut MemcacheDecoder::new(), &b"set k 0 0 1 ".repeat(171)), MemcacheStep::Close);
    assert_eq!(one(&mut MemcacheDecoder::new(), &b"x".repeat(2048)), MemcacheStep::More { want: 1 });
    let many = format!("get{}a\r\n", " ".repeat(8000));
    assert!(matches!(command(many.as_bytes()), MemcacheCommand::Get { .. }));
    let many = format!("{}get a\r\n", " ".repeat(3000));
    assert_eq!(one(&mut MemcacheDecoder::new(), many.as_bytes()), MemcacheStep::Close);
    assert_eq!(one(&mut MemcacheDecoder::new(), &b"get a ".repeat(1 << 18)), MemcacheStep::Close);
}

#[test]
fn more_says_what_a_value_lacks() {
    let mut decoder = MemcacheDecoder::new();
    assert_eq!(one(&mut decoder, b"set k 0 0 1000\r\nabc"), MemcacheStep::More { want: 999 });
    assert_eq!(one(&mut decoder, b""), MemcacheStep::More { want: 1 });
    assert!(size_of::<MemcacheDecoder>() <= 16);
}

#[test]
fn a_long_line_byte_by_byte_is_read_once() {
    let bytes = b"get ".iter().copied().chain(std::iter::repeat_n(b'a', 200_000)).collect::<Vec<_>>();
    let (mut decoder, before) = (MemcacheDecoder::new(), cpu_time::of_thread());
    for end in 1..bytes.len() {
        assert_eq!(one(&mut decoder, &bytes[..end]), MemcacheStep::More { want: 1 });
    }
    // Quadratic work would examine twenty thousand million bytes.
    let spent = cpu_time::of_thread() - before;
    assert!(spent.as_millis() < 1000, "{spent:?}");
}

#[test]
fn no_cut_changes_what_the_bytes_say() {
    let mut rng = Rng::new(41);
    let limits = MemcacheLimits {
        item_bytes_max: ITEM_HEAD_BYTES as u32 + 1 + 20,
        line_bytes_max: 60,
        get_line_bytes_max: 100,
    };
    let parts: [&[u8]; 16] = [
        b"set k 0 0 3\r\nabc\r\n",
        b"set k 0 0 30\r\n012345678901234567890123456789\r\n",
        b"cas key 1 2 3 4 noreply\r\n\r\n\n\r\n",
        b"get a b c\r\n",
        b"mg a2V5 b v k\r\n",
        b"ms k 5 T9\r\nhello\r\n",
        b"ms k 5 ?\r\nhello\r\n",
        b"incr k 1\n",
        b"\r\n",
        b"ma k N9 J5\r\n",
        b"md k q\r\n",
        b"gat 5 k\r\n",
        b"delete k 0\r\n",
        b"stats a b\r\n",
        b"touch k -1 noreply\r\n",
        b"garbage \0\xff\r\n",
    ];
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..1 + rng.below(5) {
            bytes.extend_from_slice(parts[rng.below(16) as usize]);
        }
        if rng.below(2) == 0 {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = b"\r\n 0 9k-xb"[rng.below(10) as usize];
        }
        let expected = feed(&bytes, &[], &limits);
        refused += expected.iter().filter(|s| s.contains("ERROR")).count();
        let mut cuts: Vec<usize> =
            (0..rng.below(8)).map(|_| rng.below(bytes.len() as u64 + 1) as usize).collect();
        cuts.sort_unstable();
        assert_eq!(feed(&bytes, &cuts, &limits), expected, "{} cut at {cuts:?}", bytes.escape_ascii());
        let all: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(feed(&bytes, &all, &limits), expected, "{}", bytes.escape_ascii());
    }
    assert!(refused > 1000);
}

#[test]
fn replies() {
    let mut out = Vec::new();
    write_value(&mut out, b"k", 7, None, b"abc");
    write_value(&mut out, b"k", 0, Some(9), b"");
    write_stat(&mut out, "pid", "1");
    write_key(&mut out, b"key", true);
    write_key(&mut out, b" key", false);
    assert_eq!(out, b"VALUE k 7 3\r\nabc\r\nVALUE k 0 0 9\r\n\r\nSTAT pid 1\r\na2V5 key");
}
