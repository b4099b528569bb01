//! Damaged payloads of every type: RESTORE refuses them, or makes a value that every command can handle.

use darter_base::crc::crc64;

use crate::testing::Bed;

/// The commands that make a value of each type and form under `v`, and a command that reads all of it.
const VALUES: &[(&[&str], &str)] = &[
    (&["SET v some-text"], "GET v"),
    (&["SET v 12345"], "GET v"),
    (&["RPUSH v a 1 -70000 text:with:more 9223372036854775807"], "LRANGE v 0 -1"),
    (&["SADD v 1 2 300 70000 -5"], "SMEMBERS v"),
    (&["SADD v a b 17 some:longer:text"], "SMEMBERS v"),
    (&["SADD v keep", "SADDEX v 100 a 5"], "SMEMBERS v"),
    (&["HSET v a 1 b text c -7"], "HGETALL v"),
    (&["HSET v a 1 b text", "HEXPIRE v 100 FIELDS 1 b"], "HGETALL v"),
    (&["ZADD v 1 a 2.5 b -3 17 inf z"], "ZRANGE v 0 -1 WITHSCORES"),
    (&["ZADD v 1 a 2.5 b -3 17", "FIELDEXPIRE v 100 b 17"], "ZRANGE v 0 -1 WITHSCORES"),
    (&["XADD v 1-1 f v", "XADD v 2-1 f w g x", "XADD v 3-5 f v", "XDEL v 2-1"], "XRANGE v - +"),
    (
        &[
            "XADD v 1-1 f v",
            "XADD v 2-1 f v",
            "XGROUP CREATE v g 0",
            "XREADGROUP GROUP g c COUNT 2 STREAMS v >",
            "XGROUP CREATECONSUMER v g idle",
        ],
        "XINFO STREAM v FULL",
    ),
    (
        &[
            "XADD v IDMP p a * f v",
            "XADD v IDMP p b * f v",
            "XGROUP CREATE v g 0",
            "XREADGROUP GROUP g c COUNT 2 STREAMS v >",
            "XNACK v g FAIL IDS 1 1800000000000-0",
        ],
        "XINFO STREAM v FULL",
    ),
    (&["PFADD v a b c d e f g"], "PFCOUNT v"),
    (&["SETBIT v 70 1"], "BITCOUNT v"),
    (
        &["GEOADD v 13.36 38.11 Palermo 15.08 37.50 Catania"],
        "GEOSEARCH v FROMLONLAT 15 37 BYRADIUS 200 km ASC",
    ),
];

/// Version and checksum.
const FOOTER_LEN: usize = 10;

fn dumped(bed: &mut Bed, making: &[&str]) -> Vec<u8> {
    bed.run("DEL v");
    making.iter().for_each(|line| assert!(!bed.run(line).starts_with('-'), "{line}"));
    let reply = bed.run_words(&[b"DUMP", b"v"]);
    let start = reply.iter().position(|&byte| byte == b'\n').expect("a length") + 1;
    reply[start..reply.len() - 2].to_vec()
}

/// The payload with a correct checksum.
fn sealed(mut payload: Vec<u8>) -> Vec<u8> {
    payload.truncate(payload.len() - 8);
    let crc = crc64(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

fn restore(bed: &mut Bed, payload: &[u8]) -> bool {
    let reply = bed.run_words(&[b"RESTORE", b"r", b"0", payload]);
    let is_done = reply == b"+OK\r\n";
    assert!(is_done || reply.starts_with(b"-ERR "), "{}", reply.escape_ascii());
    assert_eq!(bed.run("EXISTS r"), if is_done { ":1" } else { ":0" });
    is_done
}

#[test]
fn a_payload_with_any_bit_changed_or_any_end_missing_is_refused() {
    let mut bed = Bed::new();
    for (making, _) in VALUES {
        let payload = dumped(&mut bed, making);
        assert!(restore(&mut bed, &payload), "{making:?}");
        bed.run("DEL r");
        for len in 0..payload.len() {
            assert!(!restore(&mut bed, &payload[..len]), "{making:?} cut to {len}");
        }
        for bit in 0..payload.len() * 8 {
            let mut changed = payload.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!restore(&mut bed, &changed), "{making:?} with bit {bit} changed");
        }
    }
}

#[test]
fn damage_under_a_right_checksum_ends_in_an_error_or_a_value() {
    let mut bed = Bed::new();
    for (making, reading) in VALUES {
        let payload = dumped(&mut bed, making);
        bed.run("DEL v");
        let body_len = payload.len() - FOOTER_LEN;
        let mut try_out = |changed: Vec<u8>| {
            if !restore(&mut bed, &sealed(changed)) {
                return;
            }
            bed.run("RENAME r v");
            // Perhaps of another type, but harmless to every command.
            for line in
                [*reading, "DUMP v", "OBJECT ENCODING v", "MEMORY USAGE v", "COPY v w REPLACE", "DEL v w"]
            {
                bed.run(line);
            }
        };
        for at in 0..body_len {
            let cut = [&payload[..at], &payload[body_len..]].concat();
            try_out(cut);
            for bit in 0..8 {
                let mut changed = payload.clone();
                changed[at] ^= 1 << bit;
                try_out(changed);
            }
        }
    }
    assert_eq!(bed.run("DBSIZE"), ":0");
}

#[test]
fn damaged_hyperloglogs_are_counted_or_refused() {
    let mut bed = Bed::new();
    bed.run("PFADD sparse a b c d e");
    (0..2000).for_each(|n| drop(bed.run(&format!("PFADD dense {n}"))));
    bed.run("PFADD other x");
    for (key, step) in [("sparse", 1), ("dense", 331)] {
        let reply = bed.run_words(&[b"GET", key.as_bytes()]);
        let start = reply.iter().position(|&byte| byte == b'\n').expect("a length") + 1;
        let good = reply[start..reply.len() - 2].to_vec();
        let bits = (0..good.len() * 8).step_by(step);
        let changed = bits.map(|bit| {
            let mut changed = good.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        });
        let cut = (0..good.len()).step_by(step).map(|len| good[..len].to_vec());
        for value in changed.chain(cut) {
            bed.run_words(&[b"SET", b"v", &value]);
            for line in ["PFCOUNT v", "PFADD v z", "PFMERGE v other", "PFCOUNT v other"] {
                let reply = bed.run(line);
                let is_fine =
                    [":", "+OK", "-INVALIDOBJ ", "-WRONGTYPE "].iter().any(|way| reply.starts_with(way));
                assert!(is_fine, "{line}: {reply}");
            }
        }
    }
}
