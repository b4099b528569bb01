//! The requests that come most, read in one piece: an array of a name and one or two short strings, all of it there.
//!
//! The connection tries this first and leaves everything else to [`crate::Parser`], whose state it neither needs nor
//! changes: what it reads, the parser would read alike. Nothing here can fail, wait or allocate.

use crate::args::Span;

/// A request of two or three arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<'a> {
    /// The first argument after the name.
    pub key: &'a [u8],
    /// The name's 0 to 7 bytes, folded as [`crate::Args::folded_word`] does it.
    pub name: u64,
    /// Places of the arguments in the buffer; the third is empty where there are two.
    pub spans: [Span; 3],
    /// Number of arguments, 2 or 3.
    pub args_len: u32,
    /// Offset of what follows it in the buffer.
    pub end: usize,
}

/// The request at offset `at` of `buf`, which is shorter than 4 GiB; `None` when it is of another form, not all
/// there, or so near the end of `buf` that reading it needs care.
///
/// Shape: name of at most 7 bytes, other arguments of at most 999, which no limit of anybody forbids. Cost: about 45
/// instructions and 15 for a third argument, whatever the lengths.
#[inline(always)]
pub fn short_request(buf: &[u8], at: usize) -> Option<Short<'_>> {
    // `*2\r\n$3\r\n`, a name, the length behind it: one check of the buffer's end for all of them.
    let head: &[u8; 24] = buf.get(at..)?.first_chunk()?;
    // Of the array's length all but the lowest bit must be right: 2 or 3. Of the name's, the low three bits are free: 0
    // to 7, and no command has the name of length 0.
    let word = u64::from_le_bytes(*head.first_chunk()?);
    if word & !(1 << 8 | 7 << 40) != u64::from_le_bytes(*b"*2\r\n$0\r\n") {
        return None;
    }
    let (args_len, name_len) = (2 + (word >> 8 & 1) as usize, (word >> 40 & 7) as usize);
    let name = (u64::from_le_bytes(*head[8..].first_chunk()?) | SMALL) & NAME_MASKS[name_len];
    let (key_len, header) = length_in(u64::from_le_bytes(*head[8 + name_len..].first_chunk()?))?;
    let name_at = at + 8;
    let key_at = name_at + name_len + header;
    let mut spans = [span(name_at, name_len), span(key_at, key_len), span(0, 0)];
    let key_end = key_at + key_len;
    let mut end = key_end;
    if args_len == 3 {
        let (len, header) = length_in(u64::from_le_bytes(*buf.get(end..)?.first_chunk()?))?;
        spans[2] = span(end + header, len);
        end += header + len;
    }
    let (args, rest) = buf.split_at_checked(end)?;
    if rest.first_chunk() != Some(b"\r\n") {
        return None;
    }
    Some(Short { key: args.get(key_at..key_end)?, name, spans, args_len: args_len as u32, end: end + 2 })
}

/// The bytes of a word that a name of 0 to 7 bytes fills.
const NAME_MASKS: [u64; 8] = {
    let mut masks = [0; 8];
    let mut len = 1;
    while len < masks.len() {
        masks[len] = u64::MAX >> (64 - 8 * len);
        len += 1;
    }
    masks
};

/// The bit that makes a letter small, in each byte.
pub(crate) const SMALL: u64 = 0x2020_2020_2020_2020;

#[inline(always)]
fn span(start: usize, len: usize) -> Span {
    Span { start: start as u32, len: len as u32 }
}

/// The length of 1 to 3 digits in a word of the form `\r\n$16\r\n.`, and how many bytes of the word lead to its data.
#[inline(always)]
pub(crate) fn length_in(word: u64) -> Option<(usize, usize)> {
    // Two digits come first because keys mostly have them. No zero leads other digits.
    if word & 0x00ff_ff00_00ff_ffff == u64::from_le_bytes(*b"\r\n$\0\0\r\n\0") {
        let two = ((word >> 24) as u16).wrapping_sub(u16::from_le_bytes(*b"00"));
        let (tens, units) = (usize::from(two as u8), usize::from(two >> 8));
        // Each is a digit when neither it nor what 10 below 128 adds to it reaches the top bit.
        let is_digits = (two | two.wrapping_add(0x7676)) & 0x8080 == 0;
        return (is_digits && tens != 0).then_some((tens * 10 + units, 7));
    }
    let (a, b, c) = (digit(word, 3), digit(word, 4), digit(word, 5));
    if word & 0x0000_ffff_00ff_ffff == u64::from_le_bytes(*b"\r\n$\0\r\n\0\0") {
        return (a <= 9).then_some((a, 6));
    }
    let three = word & 0xffff_0000_00ff_ffff == u64::from_le_bytes(*b"\r\n$\0\0\0\r\n");
    (three && a.wrapping_sub(1) < 9 && b <= 9 && c <= 9).then_some((a * 100 + b * 10 + c, 8))
}

/// What byte `at` of `word` is as a digit; more than 9 when it is none.
#[inline(always)]
pub(crate) fn digit(word: u64, at: u32) -> usize {
    usize::from(((word >> (8 * at)) as u8).wrapping_sub(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{Limits, Parser, Step};

    /// What the parser makes of the bytes from `at` on.
    fn parsed(buf: &[u8], at: usize) -> (Step, Vec<Span>) {
        let mut spans = Vec::new();
        (Parser::new().next(&buf[at..], at as u32, &Limits::default(), &mut spans), spans)
    }

    fn check(buf: &[u8], at: usize) -> bool {
        let Some(short) = short_request(buf, at) else { return false };
        let (step, spans) = parsed(buf, at);
        assert_eq!(step, Step::Command { consumed: short.end - at }, "{:?}", buf.escape_ascii().to_string());
        assert_eq!(crate::Args::new(buf, &spans).at(1), short.key);
        assert_eq!(spans, short.spans[..short.args_len as usize]);
        assert_eq!(crate::Args::new(buf, &spans).folded_word(0).unwrap_or(0), short.name);
        true
    }

    #[test]
    fn it_reads_what_the_parser_reads() {
        let mut read = 0;
        for name in [&b"GET"[..], b"seT", b"a", b"expireat", b"persistent", b""] {
            for key_len in [0, 1, 9, 10, 16, 99, 100, 999, 1000] {
                for value_len in [None, Some(0), Some(7), Some(32), Some(256), Some(1001)] {
                    let words =
                        [Some(name.to_vec()), Some(vec![b'k'; key_len]), value_len.map(|n| vec![b'v'; n])];
                    let words: Vec<_> = words.into_iter().flatten().collect();
                    let mut buf = b"+x\r\n".to_vec();
                    buf.extend(format!("*{}\r\n", words.len()).bytes());
                    for word in &words {
                        buf.extend(format!("${}\r\n", word.len()).bytes());
                        buf.extend(word);
                        buf.extend(b"\r\n");
                    }
                    buf.extend(b"*1\r\n$4\r\nPING\r\n");
                    read += usize::from(check(&buf, 4));
                    (0..buf.len()).for_each(|cut| _ = check(&buf[..cut], 4.min(cut)));
                    assert!(
                        short_request(&buf, buf.len()).is_none() && short_request(&buf, usize::MAX).is_none()
                    );
                }
            }
        }
        assert_eq!(read, 4 * 8 * 5, "the forms it is for are read here");
    }

    #[test]
    fn no_byte_put_elsewhere_makes_it_read_what_the_parser_does_not() {
        let whole =
            b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$2\r\nkk\r\n";
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut buf = whole.to_vec();
                buf[at] = byte;
                check(&buf, 0);
                buf.remove(at);
                check(&buf, 0);
            }
        }
    }
}
