//! Commands out of bytes: the table of bad inputs, and independence of how the bytes are split.

use darter_base::rng::Rng;

use super::*;
use crate::args::Args;
use crate::cpu_time;
use crate::request;

type Command = Vec<Vec<u8>>;

/// A connection's view: the commands, the number of empty ones, the error that ended it, the bytes left over.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    commands: Vec<Command>,
    empty: usize,
    error: Option<ProtocolError>,
    left: usize,
}

/// Feeds `bytes` in pieces that end at `cuts`, as a server would, in a window of several commands.
fn feed(bytes: &[u8], cuts: &[usize], limits: &ParserLimits) -> Seen {
    let mut parser = Parser::new();
    let mut seen = Seen::default();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        // The buffer holds the bytes not consumed yet; spans in it are based on their offset.
        let buf = &bytes[start..end];
        let (mut offset, mut spans) = (0, Vec::new());
        loop {
            let mark = spans.len();
            match parser.next(&buf[offset..], offset as u32, limits, &mut spans) {
                ParserStep::Command { consumed } => {
                    offset += consumed;
                    let args = Args::new(buf, &spans[mark..]);
                    seen.commands.push((0..args.len()).map(|i| args.get(i).unwrap().to_vec()).collect());
                    assert!(spans.len() > mark && parser.is_idle());
                }
                ParserStep::Quoted { consumed, args } => {
                    offset += consumed;
                    assert_eq!(spans.len(), mark);
                    seen.commands.push(args.args().iter().map(<[u8]>::to_vec).collect());
                }
                ParserStep::Empty { consumed } => {
                    offset += consumed;
                    seen.empty += 1;
                    assert!(consumed > 0 && spans.len() == mark);
                }
                ParserStep::More { want } => {
                    assert!(want > 0 && spans.len() == mark);
                    break;
                }
                ParserStep::Fail(error) => {
                    seen.error = Some(error);
                    break;
                }
            }
        }
        start += offset;
        if seen.error.is_some() {
            break;
        }
    }
    seen.left = bytes.len() - start;
    seen
}

fn whole(bytes: &[u8]) -> Seen {
    feed(bytes, &[], &ParserLimits::default())
}

fn error_of(bytes: &[u8]) -> Option<String> {
    whole(bytes).error.map(|e| String::from_utf8_lossy(&e.text()).replace("ERR Protocol error: ", ""))
}

#[test]
fn commands_come_out_as_they_went_in() {
    let seen = whole(b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\nPING\r\n*1\r\n$0\r\n\r\n");
    assert_eq!(
        seen.commands,
        [vec![b"GET".to_vec(), b"key:000000000001".to_vec()], vec![b"PING".to_vec()], vec![vec![]]]
    );
    assert_eq!((seen.error, seen.left), (None, 0));
}

#[test]
fn bad_frames_fail_in_redis_words() {
    let invalid = Some("invalid multibulk length".to_string());
    for (bytes, error) in [
        ("*3000000000\r\n", invalid.clone()),
        ("*1048577\r\n", invalid.clone()),
        ("*18446744073709551616\r\n", invalid.clone()),
        ("*\r\n", invalid.clone()),
        ("*x\r\n", invalid.clone()),
        ("*01\r\n", invalid.clone()),
        ("* 1\r\n", invalid.clone()),
        ("*1x\n", None),
        ("*1x\r\n", invalid),
        ("*1\rX", Some("invalid CRLF in request".into())),
        ("*-1\r\n", None),
        ("*0\r\n", None),
        ("*1\r\n$18446744073709551615\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$536870913\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$536870912\r\n", None),
        ("*1\r\n$-10\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$-1\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$blabla\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$03\r\nabc\r\n", Some("invalid bulk length".into())),
        ("*1\r\n$3\rXabc\r\n", Some("invalid CRLF in request".into())),
        ("*1\r\nfoo\r\n", Some("expected '$', got 'f'".into())),
        ("*1\r\n\r\n", Some("expected '$', got '\r'".into())),
        ("*1\r\n*1\r\n", Some("expected '$', got '*'".into())),
        ("*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", Some("expected '$', got 'f'".into())),
        ("*1\r\n$4\r\nPINGXX", Some("invalid CRLF in request".into())),
        ("*1\r\n$4\r\nPING\rX", Some("invalid CRLF in request".into())),
        ("*1\r\n$4\r\nPING\nX", Some("invalid CRLF in request".into())),
        ("set a \"b\r\n", Some("unbalanced quotes in request".into())),
        ("\u{0}\r\n", None),
    ] {
        assert_eq!(error_of(bytes.as_bytes()), error, "{bytes:?}");
    }
}

#[test]
fn lines_without_an_end_fail_at_the_limit_and_not_before() {
    for (start, error) in [
        ("", "too big inline request"),
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
        ("\0", "too big inline request"),
        ("*\0", "too big mbulk count string"),
    ] {
        let header = start.len() - start.rfind('\n').map_or(0, |at| at + 1);
        let mut bytes = start.as_bytes().to_vec();
        bytes.resize(bytes.len() + (64 << 10) - header, b'A');
        assert_eq!(error_of(&bytes), None, "{start:?} at the limit");
        bytes.push(b'A');
        assert_eq!(error_of(&bytes).as_deref(), Some(error), "{start:?}");
        // With its end, but past the limit: the same, whether or not the end came in the same read.
        bytes.extend_from_slice(b"\r\n");
        assert_eq!(error_of(&bytes).as_deref(), Some(error), "{start:?}");
    }
}

#[test]
fn nothing_is_said_of_a_length_before_it_has_ended() {
    for length in ["*abc\r", "*1048577\r", "*1\r\n4\r", "*1\r\n$-1\r", "*1\r\n$x\r"] {
        assert_eq!(error_of(length.as_bytes()), None, "{length:?}");
        assert!(error_of(format!("{length}\n").as_bytes()).is_some(), "{length:?}");
    }
}

#[test]
fn strangers_send_little() {
    let limits = ParserLimits { authenticated: false, ..ParserLimits::default() };
    let fail = |bytes: &[u8]| feed(bytes, &[], &limits).error;
    assert_eq!(fail(b"*11\r\n"), Some(ProtocolError::UnauthenticatedMultibulkLength));
    assert_eq!(fail(b"*10\r\n"), None);
    assert_eq!(fail(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"), Some(ProtocolError::UnauthenticatedBulkLength));
    assert_eq!(fail(b"*2\r\n$4\r\nAUTH\r\n$16384\r\n"), None);
    assert_eq!(feed(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n", &[], &limits).commands.len(), 1);
}

#[test]
fn a_bulk_limit_holds_from_ten_thousand_on() {
    let limits = ParserLimits { bulk_bytes_max: 20_000, ..ParserLimits::default() };
    assert_eq!(feed(b"*1\r\n$20001\r\n", &[], &limits).error, Some(ProtocolError::BulkLength));
    assert_eq!(feed(b"*1\r\n$20000\r\n", &[], &limits).error, None);
    // A lower one has no meaning, in either way of reading the length.
    let limits = ParserLimits { bulk_bytes_max: 100, ..limits };
    assert_eq!(feed(b"*1\r\n$9999\r\n", &[], &limits).error, None);
    assert_eq!(feed(b"*1\r\n$9999\r\nabc", &[], &limits).error, None);
    assert_eq!(feed(b"*1\r\n$10000\r\n", &[], &limits).error, Some(ProtocolError::BulkLength));
}

#[test]
fn empty_requests_leave_no_trace() {
    let seen = whole(b"\r\n*0\r\n*-1\r\n\r\nPING\r\n");
    assert_eq!((seen.empty, seen.commands.len(), seen.error), (4, 1, None));
}

#[test]
fn nested_arrays_fail_at_once() {
    assert_eq!(error_of(&b"*1\r\n".repeat(100_000)).as_deref(), Some("expected '$', got '*'"));
}

#[test]
fn more_says_what_a_bulk_lacks() {
    let (mut parser, mut spans, limits) = (Parser::new(), Vec::new(), ParserLimits::default());
    let head = b"*2\r\n$3\r\nGET\r\n$1000000\r\nabc";
    assert_eq!(parser.next(head, 0, &limits, &mut spans), ParserStep::More { want: 999_999 });
    assert!(!parser.is_idle() && spans.is_empty());
    let mut bytes = head.to_vec();
    bytes.resize(bytes.len() + 999_997, b'x');
    assert_eq!(parser.next(&bytes, 0, &limits, &mut spans), ParserStep::More { want: 2 });
    bytes.push(b'\r');
    assert_eq!(parser.next(&bytes, 0, &limits, &mut spans), ParserStep::More { want: 1 });
    bytes.push(b'\n');
    assert_eq!(parser.next(&bytes, 0, &limits, &mut spans), ParserStep::Command { consumed: bytes.len() });
    assert_eq!(spans, [Span { start: 8, len: 3 }, Span { start: 23, len: 1_000_000 }]);
    assert!(parser.is_idle());
}

#[test]
fn a_promise_of_many_arguments_holds_no_memory() {
    let (mut parser, mut spans) = (Parser::new(), Vec::new());
    assert_eq!(
        parser.next(b"*1048576\r\n", 0, &ParserLimits::default(), &mut spans),
        ParserStep::More { want: 1 }
    );
    assert_eq!((parser.partial.capacity(), spans.capacity()), (0, 0));
    assert!(size_of::<Parser>() <= 64);
}

#[test]
fn a_request_past_4_gib_is_refused() {
    let mut spans = Vec::new();
    let step = Parser::new().next(b"PING\r\n", u32::MAX - 3, &ParserLimits::default(), &mut spans);
    assert_eq!(step, ParserStep::Fail(ProtocolError::RequestTooLong));
}

#[test]
fn a_million_arguments_in_small_pieces_are_read_once() {
    let mut bytes = b"*1000000\r\n".to_vec();
    bytes.extend_from_slice(&b"$3\r\nabc\r\n".repeat(1_000_000));
    let (mut parser, mut spans, limits) = (Parser::new(), Vec::new(), ParserLimits::default());
    let before = cpu_time::of_thread();
    let mut end = 0;
    loop {
        end = (end + 1000).min(bytes.len());
        match parser.next(&bytes[..end], 0, &limits, &mut spans) {
            ParserStep::More { .. } => assert!(end < bytes.len()),
            step => break assert_eq!(step, ParserStep::Command { consumed: bytes.len() }),
        }
    }
    assert_eq!(spans.len(), 1_000_000);
    assert_eq!(spans.last(), Some(&Span { start: bytes.len() as u32 - 5, len: 3 }));
    assert!(parser.partial.capacity() <= SPANS_KEPT);
    // Quadratic work would be 9,000 walks over half a million arguments.
    let spent = cpu_time::of_thread() - before;
    assert!(spent.as_secs() < 5, "{spent:?}");
}

#[test]
fn a_long_line_byte_by_byte_is_read_once() {
    for start in ["", "*", "*1\r\n$"] {
        let mut bytes = start.as_bytes().to_vec();
        bytes.resize(60_000, b'A');
        let (mut parser, mut spans, limits) = (Parser::new(), Vec::new(), ParserLimits::default());
        let before = cpu_time::of_thread();
        for end in 1..bytes.len() {
            assert!(matches!(parser.next(&bytes[..end], 0, &limits, &mut spans), ParserStep::More { .. }));
        }
        // Quadratic work would examine 1.8 thousand million bytes.
        let spent = cpu_time::of_thread() - before;
        assert!(spent.as_millis() < 500, "{start:?}: {spent:?}");
    }
}

#[test]
fn no_cut_changes_what_the_bytes_say() {
    let mut rng = Rng::new(11);
    let limits =
        ParserLimits { bulk_bytes_max: 5000, args_max: 40, inline_bytes_max: 64, authenticated: true };
    let mut errors = 0;
    for round in 0..20_000u64 {
        let bytes = stream(&mut rng, round % 3 == 0);
        let expected = feed(&bytes, &[], &limits);
        errors += usize::from(expected.error.is_some());
        let mut cuts: Vec<usize> =
            (0..rng.below(12)).map(|_| rng.below(bytes.len() as u64 + 1) as usize).collect();
        if round % 5 == 0 {
            cuts = (0..bytes.len()).collect();
        }
        cuts.sort_unstable();
        let got = feed(&bytes, &cuts, &limits);
        assert_eq!(
            (&got.commands, got.empty, got.error),
            (&expected.commands, expected.empty, expected.error)
        );
        assert_eq!(got.left, expected.left);
    }
    assert!(errors > 1000, "the spoiled streams must spoil: {errors}");
}

/// A few commands of all forms; with `spoiled`, one byte of them changed.
fn stream(rng: &mut Rng, spoiled: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + rng.below(5) {
        match rng.below(8) {
            0 => bytes.extend_from_slice(
                [&b"PING\r\n"[..], b"\r\n", b"*0\r\n", b"SET a b\n"][rng.below(4) as usize],
            ),
            1 => bytes.extend_from_slice(b"SET 'a b' \"c\\x00\\r\\nd\" e\r\n"),
            _ => {
                let args_max = if rng.below(9) == 0 { 39 } else { 6 };
                let args: Vec<Vec<u8>> = (0..1 + rng.below(args_max))
                    .map(|_| {
                        let len_max = [10, 120, 2000][rng.below(30) as usize / 14];
                        (0..rng.below(len_max)).map(|_| b"a\r\n$*1"[rng.below(6) as usize]).collect()
                    })
                    .collect();
                request::write(&mut bytes, args.iter().map(Vec::as_slice));
            }
        }
    }
    if spoiled {
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = b"\r\n$*-0919 \"'x\0\xff"[rng.below(15) as usize];
    }
    bytes
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(12);
    let limits =
        ParserLimits { bulk_bytes_max: 500, args_max: 100, inline_bytes_max: 40, authenticated: false };
    for _ in 0..100_000 {
        let alphabet = b"\r\n\r\n$$*19023\"\\'x ";
        let mut pick = || alphabet[rng.below(alphabet.len() as u64) as usize];
        let bytes: Vec<u8> = (0..40).map(|_| pick()).collect();
        let cut = rng.below(bytes.len() as u64 + 1) as usize;
        assert_eq!(
            feed(&bytes, &[], &limits).error,
            feed(&bytes, &[cut], &limits).error,
            "{bytes:?} cut at {cut}"
        );
    }
}
