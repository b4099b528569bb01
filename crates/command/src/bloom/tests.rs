use crate::testing::Bed;

#[test]
fn a_filter_is_reserved_filled_and_asked() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("BF.RESERVE f 0.01 1000"), "+OK");
    assert_eq!(bed.run("BF.RESERVE f 0.01 1000"), "-ERR item exists");
    assert_eq!(bed.run("BF.ADD f a"), ":1");
    assert_eq!(bed.run("BF.ADD f a"), ":0");
    assert_eq!(bed.run("BF.MADD f a b c"), "*3|:0|:1|:1");
    assert_eq!(bed.run("BF.EXISTS f b"), ":1");
    assert_eq!(bed.run("BF.MEXISTS f b x"), "*2|:1|:0");
    assert_eq!(bed.run("BF.MEXISTS none b x"), "*2|:0|:0");
    assert_eq!(bed.run("BF.CARD f"), ":3");
    assert_eq!(bed.run("BF.CARD none"), ":0");
    assert_eq!(bed.run("BF.INFO f ITEMS"), "*1|:3");
    let size = 32 + 64 + 1384;
    let info = format!(
        "*10|+Capacity|:1000|+Size|:{size}|+Number of filters|:1|+Number of items inserted|:3|+Expansion rate|:2"
    );
    assert_eq!(bed.run("BF.INFO f"), info);
    assert_eq!(bed.run("BF.INFO f x"), "-Invalid information value");
    assert_eq!(bed.run("BF.INFO none"), "-ERR not found");
    assert_eq!(bed.run("TYPE f"), "+MBbloom--");
    bed.resp3 = true;
    assert_eq!(bed.run("BF.EXISTS f b"), "#t");
    assert_eq!(bed.run("BF.INFO f items"), "%1|+Number of items inserted|:3");
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    for (line, error) in [
        ("BF.RESERVE f x 10", "ERR bad error rate"),
        ("BF.RESERVE f nan 10", "ERR bad error rate"),
        ("BF.RESERVE f 1 10", "ERR error rate must be in the range (0.000000, 1.000000)"),
        ("BF.RESERVE f 0.1 x", "ERR bad capacity"),
        ("BF.RESERVE f 0.1 0", "ERR capacity must be in the range [1, 1073741824]"),
        ("BF.RESERVE f 0.1 9223372036854775807", "ERR capacity must be in the range [1, 1073741824]"),
        ("BF.RESERVE f 0.1 10 EXPANSION", "ERR no expansion"),
        ("BF.RESERVE f 0.1 10 EXPANSION x", "ERR bad expansion"),
        ("BF.RESERVE f 0.1 10 EXPANSION 32769", "ERR expansion must be in the range [0, 32768]"),
        ("BF.RESERVE f 0.1 10 NONSCALING EXPANSION 2", "Nonscaling filters cannot expand"),
        ("BF.RESERVE f 0.1 10 a b c d", "ERR wrong number of arguments for 'bf.reserve' command"),
        ("BF.INSERT f NOCREATE ITEMS a", "ERR not found"),
        ("BF.INSERT f ITEMS", "ERR wrong number of arguments for 'bf.insert' command"),
        ("BF.INSERT f ERROR 2 ITEMS a", "Bad error rate"),
        ("BF.INSERT f CAPACITY 0 ITEMS a", "Bad capacity"),
        ("BF.INSERT f EXPANSION -1 ITEMS a", "Bad expansion"),
        ("BF.INSERT f what ITEMS a", "Unknown argument received"),
        ("BF.LOADCHUNK f x y", "ERR Second argument must be numeric"),
        ("BF.LOADCHUNK f 1 y", "ERR received bad data"),
        ("BF.LOADCHUNK f 2 y", "ERR not found"),
        ("BF.SCANDUMP f 0", "ERR not found"),
    ] {
        if line == "BF.INSERT f ITEMS" {
            assert_eq!(bed.run("BF.INSERT f CAPACITY 10 ITEMS"), format!("-{error}"));
        } else {
            assert_eq!(bed.run(line), format!("-{error}"), "{line}");
        }
        assert_eq!(bed.run("EXISTS f"), ":0", "{line}");
    }
    bed.run("SET s x");
    assert!(bed.run("BF.ADD s a").starts_with("-WRONGTYPE"));
    assert_eq!(bed.run("BF.EXISTS s a"), ":0");
}

#[test]
fn a_fixed_filter_says_when_it_is_full() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("BF.RESERVE f 0.01 2 NONSCALING"), "+OK");
    assert_eq!(bed.run("BF.MADD f a b c d"), "*3|:1|:1|-ERR non scaling filter is full");
    assert_eq!(bed.run("BF.ADD f c"), "-ERR non scaling filter is full");
    assert_eq!(bed.run("BF.INFO f EXPANSION"), "*1|$-1");
}

#[test]
fn a_dump_in_chunks_and_one_in_one_piece_restore_the_filter() {
    let mut bed = Bed::new();
    bed.run("BF.INSERT f CAPACITY 10 EXPANSION 3 ITEMS a b c d e f g h i j k l m");
    let mut iterator = 0;
    loop {
        let reply = bed.run_words(&[b"BF.SCANDUMP", b"f", iterator.to_string().as_bytes()]);
        let (next, data) = parse(&reply);
        if next == 0 {
            break;
        }
        iterator = next;
        assert_eq!(bed.run_words(&[b"BF.LOADCHUNK", b"g", next.to_string().as_bytes(), &data]), b"+OK\r\n");
    }
    let dump = bed.run_words(&[b"DUMP", b"f"]);
    assert_eq!(dump, bed.run_words(&[b"DUMP", b"g"]));
    let at = dump.windows(2).position(|pair| pair == b"\r\n").expect("a bulk") + 2;
    let payload = &dump[at..dump.len() - 2];
    assert_eq!(bed.run_words(&[b"RESTORE", b"h", b"0", payload]), b"+OK\r\n");
    assert_eq!(bed.run("BF.MEXISTS h a m z"), "*3|:1|:1|:0");
    assert_eq!(bed.run("COPY h k"), ":1");
    assert_eq!(bed.run("BF.CARD k"), ":13");
}

fn parse(reply: &[u8]) -> (i64, Vec<u8>) {
    let mut parts = reply.splitn(4, |&byte| byte == b'\n');
    let mut line = || String::from_utf8_lossy(parts.next().unwrap_or_default()).trim().to_owned();
    assert_eq!(line(), "*2");
    let next = line()[1..].parse().expect("an iterator");
    let len: usize = line()[1..].parse().expect("a length");
    (next, parts.next().unwrap_or_default()[..len].to_vec())
}
