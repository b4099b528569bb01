//! Common parts of HSCAN and SSCAN: reading the cursor and options, writing the cursor and members.

use darter_base::{glob, number};
use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_wire::{Args, Reply};

use crate::reader::ArgReader;
use crate::{Env, Fault};

/// The cursor, as a client sent it; a negative one wraps around, as in C.
pub(crate) fn cursor(arg: &[u8]) -> Result<u64, Fault> {
    let (is_negative, digits) = match arg {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let cursor = number::parse_u64_digits(digits).ok_or(Fault::text("ERR invalid cursor"))?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}

/// Writes the end of a scan that found nothing.
pub(crate) fn reply_nothing(reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk(b"0");
    reply.array(0);
}

/// Writes a cursor and begins its members.
pub(crate) fn reply_cursor(reply: &mut Reply<'_>, cursor: u64) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
}

/// Most members that one call examines, whatever number was requested: the shard is held meanwhile.
pub(crate) const COUNT_MAX: usize = 1000;

/// The parts to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    /// Members to look at, about.
    pub count: usize,
    /// Fields without their values.
    pub no_values: bool,
}

impl<'a> MemberScanOptions<'a> {
    /// Reads the options, which start at argument 3.
    pub fn parse(args: Args<'a>, is_hash: bool) -> Result<MemberScanOptions<'a>, Fault> {
        let mut options = MemberScanOptions { pattern: None, count: 10, no_values: false };
        let mut reader = ArgReader::new(args, 3);
        while !reader.is_done() {
            if reader.take_with("COUNT", 1) {
                let count = usize::try_from(reader.int()?).ok().filter(|&n| n > 0);
                options.count = count.ok_or(Fault::Syntax)?.min(COUNT_MAX);
            } else if reader.take_with("MATCH", 1) {
                options.pattern = Some(reader.bytes()?).filter(|&pattern| pattern != b"*");
            } else if reader.take("NOVALUES") {
                if !is_hash {
                    return Err(Fault::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    /// Returns true if the pattern, if any, matches.
    pub fn accepts(&self, member: Item<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, member.text(&mut Digits::new()), false))
    }
}

/// Fails a reply that counts from a client have made larger than any string may be.
pub(crate) fn check_budget(reply: &Reply<'_>, mark: usize, env: &Env) -> Result<(), Fault> {
    let bytes = reply.len().saturating_sub(mark) as u64;
    if bytes > env.proto_max_bulk_len { Err(Fault::OutOfRange) } else { Ok(()) }
}

/// Like [`check_budget`], before anything is written: each element takes at least five bytes.
pub(crate) fn check_count(count: u64, env: &Env) -> Result<(), Fault> {
    if count > env.proto_max_bulk_len / 5 { Err(Fault::OutOfRange) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::testing::Bed;

    /// Scans a key whole, `count` at a time; returns the number of elements of each answer, and all elements.
    fn scan(bed: &mut Bed, command: &str, key: &str, count: usize) -> (Vec<usize>, HashSet<String>) {
        let (mut cursor, mut lens, mut seen) = ("0".to_owned(), Vec::new(), HashSet::new());
        loop {
            let said = bed.run(&format!("{command} {key} {cursor} COUNT {count}"));
            let parts: Vec<&str> = said.split('|').collect();
            lens.push(parts[3][1..].parse().expect("a length"));
            seen.extend(parts[4..].iter().skip(1).step_by(2).map(|part| (*part).to_owned()));
            parts[2].clone_into(&mut cursor);
            if cursor == "0" {
                return (lens, seen);
            }
        }
    }

    #[test]
    fn a_count_is_kept_where_the_encoding_is_no_listpack() {
        let mut bed = Bed::new();
        let long = "v".repeat(100);
        for n in 0..72 {
            bed.run(&format!("HSET h f{n} {long}"));
            bed.run(&format!("SADD s m{n}{long}"));
            bed.run(&format!("ZADD z {n} m{n}{long}"));
            bed.run(&format!("HSET small f{n} v"));
            bed.run(&format!("SADD few m{n}"));
            bed.run(&format!("ZADD flat {n} m{n}"));
        }
        for (command, key, of_one) in [("HSCAN", "h", 2), ("SSCAN", "s", 1), ("ZSCAN", "z", 2)] {
            let (lens, seen) = scan(&mut bed, command, key, 50);
            assert_eq!(lens, [50 * of_one, 22 * of_one], "{command}");
            let (lens, all) = scan(&mut bed, command, key, 1);
            assert_eq!(lens.len(), 72, "{command}: {lens:?}");
            assert_eq!(seen, all, "{command}");
        }
        for (command, key, of_one) in [("HSCAN", "small", 2), ("SSCAN", "few", 1), ("ZSCAN", "flat", 2)] {
            assert_eq!(
                scan(&mut bed, command, key, 10).0,
                [72 * of_one],
                "{command}: a listpack is shown whole"
            );
        }
        for n in 72..5000 {
            bed.run(&format!("ZADD z {n} m{n}"));
            bed.run(&format!("SADD s m{n} {n}"));
        }
        for (command, key, of_one, len) in [("SSCAN", "s", 1, 5000 + 4928), ("ZSCAN", "z", 2, 5000)] {
            let (lens, _) = scan(&mut bed, command, key, 100);
            let all: usize = lens.iter().sum();
            assert_eq!(all, len * of_one, "{command}: each once");
            assert!(lens.iter().all(|&len| len <= 102 * of_one), "{command}: {lens:?}");
        }
    }
}
