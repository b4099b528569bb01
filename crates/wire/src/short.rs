//! The most frequent requests, read by one function: an array of a name and one to four short strings, completely
//! received.
//!
//! The connection tries this first and leaves everything else to [`crate::Parser`], whose state it neither needs nor
//! changes. The parser would give the same result. Nothing here can fail, wait or allocate.

use crate::args::{Span, narrow};

/// A request of two to five arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<'a> {
    /// The first argument after the name.
    pub key: &'a [u8],
    /// The name's 0 to 7 bytes, folded as [`crate::Args::folded_word`] does it.
    pub name: u64,
    /// Places of the arguments in the buffer; missing ones are empty.
    pub spans: [Span; ARGS_MAX],
    /// Number of arguments, 2 to [`ARGS_MAX`].
    pub args_len: u32,
    /// Offset of the byte after it in the buffer.
    pub end: usize,
}

/// The most arguments of a request that is read here, its name included.
pub const ARGS_MAX: usize = 5;

/// The request at offset `at` of `buf`, which is shorter than 4 GiB; `None` if it has another form, is incomplete, or
/// lies too close to the end of `buf` for reads of whole words.
///
/// Shape: name of at most 7 bytes, other arguments of at most 999, which every client's limits allow. Cost: about 45
/// instructions and 15 for each argument after the second, whatever the lengths.
#[inline(always)]
pub fn short_request(buf: &[u8], at: usize) -> Option<Short<'_>> {
    // `*2\r\n$3\r\n`, a name, the length behind it: one check of the buffer's end for all of them.
    let head: &[u8; HEAD_LEN] = buf.get(at..)?.first_chunk()?;
    // The low three bits of both lengths may vary: 0 to 7. No command has a name of length 0.
    let word = u64::from_le_bytes(*head.first_chunk()?);
    if word & !(7 << 8 | 7 << 40) != u64::from_le_bytes(*b"*0\r\n$0\r\n") {
        return None;
    }
    let (args_len, name_len) = (word >> 8 & 7, (word >> 40 & 7) as usize);
    let name = (u64::from_le_bytes(*head.get(8..)?.first_chunk()?) | SMALL) & LOW_BYTES.get(name_len)?;
    let (key_len, header) = length_in(u64::from_le_bytes(*head.get(8 + name_len..)?.first_chunk()?))?;
    let form = ShortForm { name, name_len, key_from: 8 + name_len + header, key_len };
    let rest = buf.get(at..)?;
    let read = match args_len {
        2 => form.request::<0>(rest, at, |_, word| length_in(word)),
        3 => form.request::<1>(rest, at, |_, word| length_in(word)),
        4 => form.request::<2>(rest, at, |_, word| length_in(word)),
        5 => form.request::<3>(rest, at, |_, word| length_in(word)),
        _ => None,
    };
    read.map(|(short, _)| short)
}

/// The part before the key.
#[derive(Clone, Copy, Debug)]
struct ShortForm {
    name: u64,
    name_len: usize,
    // Start of the key, from the request's first byte on; at most HEAD_LEN - 1.
    key_from: usize,
    key_len: usize,
}

impl ShortForm {
    /// The request of this form at the front of `rest`, which begins at offset `at` of the buffer, and the bytes
    /// after it, if the request is complete. `length` reads the line before each of its values.
    #[inline(always)]
    fn request<'a, const VALUES: usize>(
        &self,
        rest: &'a [u8],
        at: usize,
        length: impl Fn(usize, u64) -> Option<(usize, usize)>,
    ) -> Option<(Short<'a>, &'a [u8])> {
        const { assert!(2 + VALUES <= ARGS_MAX) };
        // The masks change nothing; they bound the sums below, which removes bounds checks.
        let (from, key_len) = (self.key_from & 31, self.key_len & 1023);
        let key_end = from + key_len;
        let mut spans = [Span::new(0, 0); ARGS_MAX];
        (spans[0], spans[1]) = (Span::new(at + 8, self.name_len), Span::new(at + from, key_len));
        let mut end = key_end;
        for (nth, place) in spans.iter_mut().skip(2).take(VALUES).enumerate() {
            let (len, header) = length(nth, u64::from_le_bytes(*rest.get(end..)?.first_chunk()?))?;
            *place = Span::new(at + end + (header & 15), len & 1023);
            end += (header & 15) + (len & 1023);
        }
        let (request, next) = rest.split_at_checked(end + 2)?;
        if request.last_chunk() != Some(b"\r\n") {
            return None;
        }
        let key = request.get(from..key_end)?;
        let args_len = narrow(2 + VALUES);
        Some((Short { key, name: self.name, spans, args_len, end: at + end + 2 }, next))
    }
}

/// The common part of a request and the next one. In a pipeline most requests begin alike, so that they can be read
/// by comparing words.
#[derive(Clone, Copy, Debug)]
pub struct Like {
    form: ShortForm,
    // The bytes before the key, and the first bytes of the key if these count too, in words whose masks select the
    // bytes compared. The first word is compared whole.
    head: [u64; 3],
    masks: [u64; 2],
    // The bytes before each value, likewise, and the lengths that they give.
    lengths: [ShortLength; ARGS_MAX - 2],
    /// First bytes of their keys that they have in common, too.
    pub key_head_len: usize,
}

/// The line before a value: its word, the bytes of it that count, and the value's length with the line's own.
#[derive(Clone, Copy, Debug)]
struct ShortLength {
    word: u64,
    mask: u64,
    len: (usize, usize),
}

impl Like {
    /// The common part of requests like `short`, which was read at offset `at` of `buf`. Includes the first
    /// `key_head_len` bytes of the key if the key is that long and they need no further comparison.
    #[inline]
    pub fn of(buf: &[u8], at: usize, short: &Short<'_>, key_head_len: usize) -> Option<Like> {
        let [name, key, values @ ..] = short.spans;
        let form = ShortForm {
            name: short.name,
            name_len: name.len as usize,
            key_from: (key.start as usize).checked_sub(at)?,
            key_len: short.key.len(),
        };
        let mut lengths = [ShortLength { word: 0, mask: 0, len: (0, 0) }; ARGS_MAX - 2];
        let mut end = (key.start + key.len) as usize;
        let values = values.iter().take((short.args_len as usize).saturating_sub(2));
        for (length, value) in lengths.iter_mut().zip(values) {
            let header = (value.start as usize).checked_sub(end)?;
            let word = u64::from_le_bytes(*buf.get(end..)?.first_chunk()?);
            *length = ShortLength { word, mask: low_bytes(header), len: (value.len as usize, header) };
            end = (value.start + value.len) as usize;
        }
        let is_near = key_head_len <= form.key_len && form.key_from + key_head_len <= HEAD_LEN;
        let key_head_len = if is_near { key_head_len } else { 0 };
        let compared = form.key_from + key_head_len;
        Some(Like {
            form,
            head: words(buf.get(at..)?.first_chunk()?),
            masks: [low_bytes(compared.saturating_sub(8)), low_bytes(compared.saturating_sub(16))],
            lengths,
            key_head_len,
        })
    }

    /// The request at the front of `rest`, which begins at offset `at` of the buffer, and the bytes after it, if it
    /// begins alike: the same result as [`short_request`]. `None` means only that it differs.
    ///
    /// Shape: the requests have `VALUES` arguments after the key. Cost: about 25 instructions, and 10 for each of
    /// those.
    #[inline(always)]
    pub fn request<'a, const VALUES: usize>(
        &self,
        rest: &'a [u8],
        at: usize,
    ) -> Option<(Short<'a>, &'a [u8])> {
        let [a, b, c] = words(rest.first_chunk()?);
        let differs =
            (a ^ self.head[0]) | ((b ^ self.head[1]) & self.masks[0]) | ((c ^ self.head[2]) & self.masks[1]);
        if differs != 0 {
            return None;
        }
        self.form.request::<VALUES>(rest, at, |nth, word| {
            let like = self.lengths.get(nth)?;
            if (word ^ like.word) & like.mask == 0 { Some(like.len) } else { length_in(word) }
        })
    }
}

/// Bytes that the head of a request of this form never fills.
const HEAD_LEN: usize = 24;

#[inline(always)]
fn words(head: &[u8; HEAD_LEN]) -> [u64; 3] {
    let word =
        |at: usize| head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word));
    [word(0), word(8), word(16)]
}

/// A word whose first `len` bytes in memory are set.
#[inline]
fn low_bytes(len: usize) -> u64 {
    LOW_BYTES.get(len).copied().unwrap_or(u64::MAX)
}

/// Masks of the bytes of a word that a name of 0 to 7 bytes fills.
#[expect(clippy::indexing_slicing, reason = "a table the compiler makes")]
const LOW_BYTES: [u64; 8] = {
    let mut masks = [0; 8];
    let mut len = 1;
    while len < masks.len() {
        masks[len] = u64::MAX >> (64 - 8 * len);
        len += 1;
    }
    masks
};

/// The bit for lower case, in each byte.
pub(crate) const SMALL: u64 = 0x2020_2020_2020_2020;

/// The length of 1 to 3 digits in a word of the form `\r\n$16\r\n.`, and the number of bytes of the word before its
/// data.
#[inline(always)]
pub(crate) fn length_in(word: u64) -> Option<(usize, usize)> {
    // Two digits come first because keys mostly have them. No zero leads other digits.
    if word & 0x00ff_ff00_00ff_ffff == u64::from_le_bytes(*b"\r\n$\0\0\r\n\0") {
        let two = ((word >> 24 & 0xffff) as u16).wrapping_sub(u16::from_le_bytes(*b"00"));
        let (tens, units) = (usize::from(two & 0xff), usize::from(two >> 8));
        // A byte is a digit if neither it nor its sum with 0x76 reaches the top bit.
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

/// Byte `at` of `word` as a digit; more than 9 if it is not a digit.
#[inline(always)]
pub(crate) fn digit(word: u64, at: u32) -> usize {
    usize::from(((word >> (8 * at) & 0xff) as u8).wrapping_sub(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{Parser, ParserLimits, ParserStep};

    /// The parser's result for the bytes from `at` on.
    fn parsed(buf: &[u8], at: usize) -> (ParserStep, Vec<Span>) {
        let mut spans = Vec::new();
        (Parser::new().next(&buf[at..], at as u32, &ParserLimits::default(), &mut spans), spans)
    }

    /// The result of comparing the bytes from `at` on with a request like `short`.
    fn alike<'a>(like: &Like, short: &Short<'_>, buf: &'a [u8], at: usize) -> Option<Short<'a>> {
        let rest = &buf[at..];
        let read = match short.args_len {
            2 => like.request::<0>(rest, at),
            3 => like.request::<1>(rest, at),
            4 => like.request::<2>(rest, at),
            _ => like.request::<3>(rest, at),
        };
        let (next, behind) = read?;
        assert_eq!(behind, &buf[next.end..]);
        Some(next)
    }

    fn check(buf: &[u8], at: usize) -> bool {
        let Some(short) = short_request(buf, at) else { return false };
        let (step, spans) = parsed(buf, at);
        assert_eq!(
            step,
            ParserStep::Command { consumed: short.end - at },
            "{:?}",
            buf.escape_ascii().to_string()
        );
        assert_eq!(crate::Args::new(buf, &spans).at(1), short.key);
        assert_eq!(spans, short.spans[..short.args_len as usize]);
        assert_eq!(crate::Args::new(buf, &spans).folded_word(0).unwrap_or(0), short.name);
        let like = Like::of(buf, at, &short, 0).expect("it was read");
        assert_eq!(alike(&like, &short, buf, at), Some(short));
        true
    }

    #[test]
    fn it_reads_what_the_parser_reads() {
        let mut read = 0;
        for name in [&b"GET"[..], b"seT", b"a", b"expireat", b"persistent", b""] {
            for key_len in [0, 1, 9, 10, 16, 99, 100, 999, 1000] {
                for values in [
                    &[][..],
                    &[0],
                    &[7],
                    &[32],
                    &[256],
                    &[1001],
                    &[0, 0],
                    &[5, 99],
                    &[7, 1001],
                    &[1; 3],
                    &[1; 4],
                ] {
                    let first = [name.to_vec(), vec![b'k'; key_len]];
                    let words: Vec<_> =
                        first.into_iter().chain(values.iter().map(|&n| vec![b'v'; n])).collect();
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
        assert_eq!(read, 4 * 8 * 8, "the forms it is for are read here");
    }

    #[test]
    fn no_byte_put_elsewhere_makes_it_read_what_the_parser_does_not() {
        let next = b"*2\r\n$3\r\nGET\r\n$2\r\nkk\r\n";
        for whole in [
            &b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$5\r\nvalue\r\n"[..],
            b"*4\r\n$4\r\nHSET\r\n$3\r\nkey\r\n$5\r\nfield\r\n$11\r\nvalue:value\r\n",
        ] {
            for at in 0..whole.len() {
                for byte in 0..=255 {
                    let mut buf = [whole, next].concat();
                    buf[at] = byte;
                    check(&buf, 0);
                    buf.remove(at);
                    check(&buf, 0);
                }
            }
        }
    }

    #[test]
    fn heads_of_keys_are_compared_where_asked_and_near() {
        let get = |key: &str| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes();
        let mut compared = 0;
        for first in ["key:", "key:0001", "key:000000000001", "k", ""] {
            for head_len in 0..12 {
                for changed in 0..first.len() {
                    let mut second = first.as_bytes().to_vec();
                    second[changed] ^= 1;
                    let second = String::from_utf8(second).expect("ASCII");
                    let buf = [get(first), get(&second), get("next")].concat();
                    let short = short_request(&buf, 0).expect("a short one");
                    let like = Like::of(&buf, 0, &short, head_len).expect("it was read");
                    assert!([0, head_len].contains(&like.key_head_len) && like.key_head_len <= first.len());
                    let is_read = alike(&like, &short, &buf, short.end).is_some();
                    assert_eq!(is_read, changed >= like.key_head_len, "{first} {head_len} {changed}");
                    compared += usize::from(!is_read);
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }

    #[test]
    fn what_begins_alike_is_read_alike() {
        let request = |name: &str, key: usize, values: &[usize]| {
            let first = [name.to_owned(), "k".repeat(key)];
            let words: Vec<_> = first.into_iter().chain(values.iter().map(|&len| "v".repeat(len))).collect();
            let mut text = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
            text.into_bytes()
        };
        let forms: Vec<Vec<u8>> = ["G", "GET", "get", "GETSET", "PERSIST"]
            .iter()
            .flat_map(|name| [0, 1, 8, 16, 17, 100].map(|key| (name, key)))
            .flat_map(|(name, key)| {
                [&[][..], &[0], &[5], &[32], &[33], &[200], &[5, 32], &[5, 200]].map(|v| (name, key, v))
            })
            .map(|(name, key, values)| request(name, key, values))
            .collect();
        let (mut equal, mut read) = (0, 0);
        for first in &forms {
            for second in &forms {
                let mut buf = [first.as_slice(), second, b"*1\r\n$4\r\nPING\r\n"].concat();
                let Some(short) = short_request(&buf, 0) else { continue };
                let like = Like::of(&buf, 0, &short, 0).expect("it was read");
                let (at, form) = (short.end, Short { key: b"", ..short });
                let request = |buf: &[u8]| alike(&like, &form, buf, at).map(|next| (next.spans, next.end));
                let wanted = |buf: &[u8]| short_request(buf, at).map(|next| (next.spans, next.end));
                read += 1;
                if let Some(next) = request(&buf) {
                    equal += 1;
                    assert_eq!(Some(next), wanted(&buf));
                }
                // Cut anywhere, or with any byte of its head or of its value's length changed.
                assert!((at..buf.len() - 14).all(|cut| request(&buf[..cut]).is_none()) || second.len() < 24);
                for changed in at..buf.len().min(at + 60) {
                    buf[changed] ^= 1;
                    if let Some(next) = request(&buf) {
                        assert_eq!(Some(next), wanted(&buf));
                    }
                    buf[changed] ^= 1;
                }
            }
        }
        // Each form and itself, and those that differ in the value's length alone.
        assert!(equal > read / 80 && equal < read / 10, "{equal} of {read}");
    }
}
