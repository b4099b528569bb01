//! Properties for any bytes: no panic, no access outside the buffer, and the same result however they are split.
//!
//! Called by the corpus test beside it and by the fuzz targets in `fuzz/`.

use darter_wire::args::Args;
use darter_wire::memcache;
use darter_wire::parser::{Parser, ParserLimits, ParserStep};
use darter_wire::reply::Reply;
use darter_wire::value::{DecodeLimits, Value, decode};

/// The request parser on `bytes`, whole and in pieces of length `piece`.
pub fn parser(bytes: &[u8], piece: u8) {
    let small =
        ParserLimits { bulk_bytes_max: 20_000, args_max: 100, inline_bytes_max: 300, authenticated: true };
    for limits in [ParserLimits::default(), small, ParserLimits { authenticated: false, ..small }] {
        let whole = requests(bytes, bytes.len(), &limits);
        assert_eq!(requests(bytes, usize::from(piece) + 1, &limits), whole);
    }
}

/// The reply decoder on `bytes`: a decoded reply, written again, decodes to the same.
pub fn decoder(bytes: &[u8]) {
    let limits = DecodeLimits {
        depth_max: 32,
        elements_max: 10_000,
        bulk_bytes_max: 1 << 16,
        line_bytes_max: 1 << 12,
    };
    let Ok(Some((value, len))) = decode(bytes, &limits) else { return };
    for cut in (0..len).rev().take(64) {
        assert_eq!(decode(&bytes[..cut], &limits), Ok(None));
    }
    // A written reply is one whole reply, and decoding and writing it again gives the same bytes. The first writing
    // may differ from `bytes`: line ends within an error become spaces, and RESP3 has one null.
    let write = |value: &Value| {
        let mut out = Vec::new();
        value.write(&mut Reply::new(&mut out, true));
        out
    };
    let out = write(&value);
    let (again, len) = decode(&out, &limits).expect("it is a reply").expect("it is whole");
    assert_eq!((len, write(&again)), (out.len(), out));
}

/// The memcached decoder on `bytes`, whole and in pieces of length `piece`.
pub fn memcache(bytes: &[u8], piece: u8) {
    let limits =
        memcache::MemcacheLimits { item_bytes_max: 160, line_bytes_max: 300, get_line_bytes_max: 1000 };
    let whole = lines(bytes, bytes.len(), &limits);
    assert_eq!(lines(bytes, usize::from(piece) + 1, &limits), whole);
}

fn requests(bytes: &[u8], piece: usize, limits: &ParserLimits) -> Vec<String> {
    let (mut parser, mut seen, mut start, mut end) = (Parser::new(), Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        let buf = &bytes[start..end];
        let (mut at, mut spans) = (0, Vec::new());
        loop {
            spans.clear();
            match parser.next(&buf[at..], at as u32, limits, &mut spans) {
                ParserStep::Command { consumed } => {
                    at += consumed;
                    let args = Args::new(buf, &spans);
                    let inside =
                        (0..args.len()).map(|i| args.get(i).expect("an argument lies in the buffer"));
                    seen.push(format!("{:?}", inside.collect::<Vec<_>>()));
                }
                ParserStep::Quoted { consumed, args } => {
                    at += consumed;
                    seen.push(format!("{:?}", args.args().iter().collect::<Vec<_>>()));
                }
                ParserStep::Empty { consumed } => at += consumed,
                ParserStep::More { .. } => break,
                ParserStep::Fail(error) => {
                    seen.push(format!("{error:?}"));
                    return seen;
                }
            }
        }
        start += at;
    }
    seen.push(format!("{} bytes left", bytes.len() - start));
    seen
}

fn lines(bytes: &[u8], piece: usize, limits: &memcache::MemcacheLimits) -> Vec<String> {
    let (mut decoder, mut seen, mut start, mut end) = (memcache::MemcacheDecoder::new(), Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        loop {
            match decoder.next(&bytes[start..end], limits) {
                memcache::MemcacheStep::Command { command, consumed } => {
                    start += consumed;
                    seen.push(format!("{command:?}"));
                }
                memcache::MemcacheStep::Refused { error, noreply, remove, consumed } => {
                    start += consumed;
                    seen.push(format!("{error:?} {noreply} {remove:?}"));
                }
                memcache::MemcacheStep::Skipped { consumed } => start += consumed,
                memcache::MemcacheStep::More { .. } => break,
                memcache::MemcacheStep::Close => {
                    seen.push("close".into());
                    return seen;
                }
            }
        }
    }
    seen.push(format!("{} bytes left", bytes.len() - start));
    seen
}
