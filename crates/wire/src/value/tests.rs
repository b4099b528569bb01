//! Replies read back: every type, every cut, every lie about a length.

use darter_base::rng::Rng;

use super::*;

fn one(bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
    decode(bytes, &DecodeLimits::default()).map(|found| {
        found.map(|(value, len)| {
            assert_eq!(len, bytes.len());
            value
        })
    })
}

#[test]
fn every_type_is_read() {
    let bulk = |text: &str| Value::Bulk(text.into());
    for (bytes, value) in [
        ("+OK\r\n", Value::Status(b"OK".to_vec())),
        ("-ERR x\r\n", Value::Error(b"ERR x".to_vec())),
        ("!5\r\nERR x\r\n", Value::Error(b"ERR x".to_vec())),
        (":-5\r\n", Value::Int(-5)),
        (":+5\r\n", Value::Int(5)),
        ("$3\r\na\r\n\r\n", bulk("a\r\n")),
        ("$0\r\n\r\n", bulk("")),
        ("$-1\r\n", Value::Null),
        ("_\r\n", Value::Null),
        ("*-1\r\n", Value::NullArray),
        ("*0\r\n", Value::Array(vec![])),
        ("*2\r\n:1\r\n*1\r\n$1\r\na\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![bulk("a")])])),
        ("%1\r\n+k\r\n:1\r\n", Value::Map(vec![(Value::Status(b"k".to_vec()), Value::Int(1))])),
        ("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)])),
        (">1\r\n:1\r\n", Value::Push(vec![Value::Int(1)])),
        (
            "|1\r\n:1\r\n:2\r\n#t\r\n",
            Value::Attributed(vec![(Value::Int(1), Value::Int(2))], Box::new(Value::Boolean(true))),
        ),
        (",1.5e3\r\n", Value::Double(1500.0)),
        (",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (
            "(-123456789012345678901234567890\r\n",
            Value::BigNumber(b"-123456789012345678901234567890".to_vec()),
        ),
        ("#f\r\n", Value::Boolean(false)),
        ("=6\r\ntxt:hi\r\n", Value::Verbatim(*b"txt", b"hi".to_vec())),
    ] {
        assert_eq!(one(bytes.as_bytes()), Ok(Some(value)), "{bytes:?}");
        for cut in 0..bytes.len() {
            assert_eq!(one(&bytes.as_bytes()[..cut]), Ok(None), "{bytes:?} cut at {cut}");
        }
    }
    assert!(matches!(one(b",nan\r\n"), Ok(Some(Value::Double(d))) if d.is_nan()));
}

#[test]
fn what_is_no_reply_is_refused() {
    for bytes in [
        "$-2\r\n",
        "$x\r\n",
        "$1\r\nabc",
        "$01\r\na\r\n",
        ":\r\n",
        ":1.5\r\n",
        ":+-5\r\n",
        "*-2\r\n",
        "~-1\r\n",
        "%-1\r\n",
        "_x\r\n",
        "#x\r\n",
        ",x\r\n",
        "(x\r\n",
        "(\r\n",
        "=2\r\nab\r\n",
        "!-1\r\n",
        "+a\rb",
    ] {
        assert_eq!(one(bytes.as_bytes()), Err(DecodeError::Malformed), "{bytes:?}");
    }
    assert_eq!(one(b"hello"), Err(DecodeError::UnknownType(b'h')));
    assert_eq!(one(b"*18446744073709551615\r\n"), Err(DecodeError::TooLong));
    assert_eq!(one(b"%9223372036854775808\r\n"), Err(DecodeError::TooLong));
    assert_eq!(one(b"$18446744073709551615\r\n"), Err(DecodeError::TooLong));
}

#[test]
fn depth_and_counts_are_bounded() {
    assert_eq!(one(&b"*1\r\n".repeat(100_000)), Err(DecodeError::TooDeep));
    assert_eq!(one(&b"|0\r\n".repeat(100_000)), Err(DecodeError::TooDeep));
    let limits = DecodeLimits { depth_max: usize::MAX, elements_max: 100, ..DecodeLimits::default() };
    assert_eq!(decode(&b"*1\r\n".repeat(100_000), &limits), Err(DecodeError::TooLong));
    let limits = DecodeLimits { depth_max: usize::MAX, ..limits };
    assert_eq!(decode(b"*101\r\n", &limits), Err(DecodeError::TooLong));
    // Counts add up over the whole reply.
    assert_eq!(decode(b"*2\r\n*50\r\n", &limits), Ok(None));
    let limits = DecodeLimits { elements_max: 51, ..limits };
    assert_eq!(decode(b"*2\r\n*50\r\n", &limits), Err(DecodeError::TooLong));
    // An array of many announced elements without any is only incomplete.
    assert_eq!(one(b"*60000000\r\n"), Ok(None));
}

fn random(rng: &mut Rng, depth: u64) -> Value {
    let text = |rng: &mut Rng| -> Vec<u8> {
        (0..rng.below(20)).map(|_| b"ab \xc3\xa9"[rng.below(3) as usize]).collect()
    };
    let items = |rng: &mut Rng| -> Vec<Value> { (0..rng.below(5)).map(|_| random(rng, depth - 1)).collect() };
    match rng.below(if depth == 0 { 9 } else { 13 }) {
        0 => Value::Status(text(rng)),
        1 => Value::Error(text(rng)),
        2 => Value::Int((rng.next_u64() >> rng.below(64)) as i64),
        3 => Value::Bulk((0..rng.below(200)).map(|_| rng.next_u64() as u8).collect()),
        4 => Value::Null,
        5 => Value::Double(rng.below(1_000_000) as f64 / 64.0),
        6 => Value::BigNumber(b"12345678901234567890123".to_vec()),
        7 => Value::Boolean(rng.below(2) == 0),
        8 => Value::Verbatim(*b"mkd", text(rng)),
        9 => Value::Array(items(rng)),
        10 => Value::Set(items(rng)),
        11 => Value::Push(items(rng)),
        _ => {
            let pairs: Vec<_> =
                (0..rng.below(4)).map(|_| (random(rng, depth - 1), random(rng, depth - 1))).collect();
            if rng.below(2) == 0 {
                Value::Map(pairs)
            } else {
                Value::Attributed(pairs, Box::new(random(rng, depth - 1)))
            }
        }
    }
}

#[test]
fn what_is_written_is_read_back_and_no_cut_completes_it() {
    let mut rng = Rng::new(21);
    for round in 0..20_000 {
        let value = random(&mut rng, 3);
        let mut out = Vec::new();
        value.write(&mut Reply::new(&mut out, true));
        assert_eq!(one(&out), Ok(Some(value.clone())));
        if round % 20 == 0 {
            for cut in 0..out.len() {
                assert_eq!(one(&out[..cut]), Ok(None));
            }
        }
        // In RESP2 too it is one whole reply.
        out.clear();
        value.write(&mut Reply::new(&mut out, false));
        assert!(matches!(one(&out), Ok(Some(_))), "{value:?}");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(22);
    let alphabet = b"\r\n\r\n\r\n0011239-+:$*%~>|#,(_=!tf.x";
    let mut whole = 0;
    for _ in 0..300_000 {
        let len = rng.below(24);
        let bytes: Vec<u8> = (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect();
        if let Ok(Some((_, used))) = decode(&bytes, &DecodeLimits::default()) {
            assert!(used <= bytes.len());
            whole += 1;
        }
    }
    assert!(whole > 100);
}
