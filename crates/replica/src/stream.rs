//! The stream of commands that a master sends.

use std::ops::Range;

use darter_base::number;

/// Bytes that are no command of a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled(pub &'static str);

/// A command at the beginning of some bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCommand {
    /// Where its words are.
    pub words: Vec<Range<usize>>,
    /// Bytes it takes in all.
    pub len: usize,
}

/// The longest line that says a number.
const LINE_BYTES_MAX: usize = 32;
/// No master sends longer words.
const WORD_BYTES_MAX: usize = 1 << 30;
/// No master sends more words at once.
const WORDS_MAX: usize = 64 << 20;

/// Reads the command that `bytes` begin with into `command`; false when more is needed. Empty lines are passed over.
///
/// Errors: the bytes are no command.
pub fn read(bytes: &[u8], command: &mut StreamCommand) -> Result<bool, Garbled> {
    command.words.clear();
    let mut at = bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
    let Some(count) = number_at(bytes, &mut at, b'*')? else { return Ok(false) };
    if count == 0 || count > WORDS_MAX {
        return Err(Garbled("a command has no words, or too many"));
    }
    for _ in 0..count {
        let Some(len) = number_at(bytes, &mut at, b'$')? else { return Ok(false) };
        if len > WORD_BYTES_MAX {
            return Err(Garbled("a word is too long"));
        }
        let Some(end) = bytes.get(at + len..at + len + 2) else { return Ok(false) };
        if end != b"\r\n" {
            return Err(Garbled("a word does not end where it should"));
        }
        command.words.push(at..at + len);
        at += len + 2;
    }
    command.len = at;
    Ok(true)
}

/// The number of a line that begins with `mark`; moves behind it.
fn number_at(bytes: &[u8], at: &mut usize, mark: u8) -> Result<Option<usize>, Garbled> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some(first) = rest.first() else { return Ok(None) };
    if *first != mark {
        return Err(Garbled("the stream holds something else than commands"));
    }
    let window = rest.get(..LINE_BYTES_MAX).unwrap_or(rest);
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if rest.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Garbled("a number is too long")) };
    };
    let digits = window.get(1..end).and_then(|line| line.strip_suffix(b"\r"));
    let number = digits.and_then(number::parse_i64).and_then(|number| usize::try_from(number).ok());
    *at += end + 1;
    number.map(Some).ok_or(Garbled("a length is no number"))
}

/// Appends a command.
pub fn write(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    words.iter().for_each(|word| write_word(out, word));
}

/// Appends the head of a command of so many words, which follow.
#[inline]
pub fn begin(out: &mut Vec<u8>, words: usize) {
    write_number(out, b'*', words);
}

/// Appends a word.
#[inline]
pub fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    write_number(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Bytes that [`write()`] appends.
#[inline]
pub fn len_of(words: &[&[u8]]) -> u64 {
    let line = |n: usize| match n {
        0..10 => 4,
        10..100 => 5,
        100..1000 => 6,
        _ => 4 + u64::from(n.ilog10()),
    };
    line(words.len()) + words.iter().map(|word| line(word.len()) + word.len() as u64 + 2).sum::<u64>()
}

/// Returns true if [`write_filler`] can stand for a message of `bytes` bytes. No message is shorter than a PING, longer than two words
/// of 512 MiB, or of 15 to 19 bytes.
pub fn has_filler(bytes: u64) -> bool {
    matches!(bytes, 0 | 14 | 20..=FILLER_BYTES_MAX)
}

/// More bytes than any message of a server has: two words of 512 MiB.
const FILLER_BYTES_MAX: u64 = (1 << 30) + (1 << 16);

/// Appends a command of `bytes` bytes that changes nothing, in the place of a message that is not kept. Appends nothing unless
/// [`has_filler`].
pub fn write_filler(out: &mut Vec<u8>, bytes: u64) {
    let ping = len_of(&[b"PING"]);
    if bytes > FILLER_BYTES_MAX {
        return;
    }
    if bytes == ping {
        return write(out, &[b"PING"]);
    }
    // A length that one of them cannot have the other has: the digits of a word's length count too.
    for name in [b"PING".as_slice(), b"EXISTS"] {
        let head = ping + name.len() as u64 - b"PING".len() as u64;
        let room = bytes.saturating_sub(head);
        for digits in 1..=20 {
            let Some(len) = room.checked_sub(5 + digits) else { break };
            if len.checked_ilog10().map_or(1, |tens| u64::from(tens) + 1) == digits {
                return write(out, &[name, &vec![b' '; usize::try_from(len).unwrap_or(0)]]);
            }
        }
    }
}

#[inline]
fn write_number(out: &mut Vec<u8>, mark: u8, n: usize) {
    out.push(mark);
    match u8::try_from(n) {
        Ok(n @ ..10) => out.push(b'0' + n),
        _ => number::write_u64(out, n as u64),
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_comes_back_however_it_is_cut() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"SET", b"a\r\nb", b""]);
        let whole = bytes.len();
        assert_eq!(len_of(&[b"SET", b"a\r\nb", b""]), whole as u64);
        write(&mut bytes, &[b"PING"]);
        let mut command = StreamCommand::default();
        for len in 0..whole {
            assert_eq!(read(&bytes[..len], &mut command), Ok(false), "{len} bytes");
        }
        assert_eq!(read(&bytes, &mut command), Ok(true));
        let words: Vec<&[u8]> = command.words.iter().map(|word| &bytes[word.clone()]).collect();
        assert_eq!((words, command.len), (vec![b"SET".as_slice(), b"a\r\nb", b""], whole));
        assert_eq!(read(&bytes[whole..], &mut command), Ok(true));
    }

    #[test]
    fn a_message_that_is_not_kept_has_its_length() {
        for bytes in (20..1_300).chain([0, 14, 10_023, 10_024, 70_000]) {
            let mut out = Vec::new();
            write_filler(&mut out, bytes);
            assert_eq!(out.len() as u64, bytes);
            let (mut at, mut command) = (0, StreamCommand::default());
            while at < out.len() {
                assert_eq!(read(&out[at..], &mut command), Ok(true), "{bytes}");
                at += command.len;
            }
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let mut command = StreamCommand::default();
        for bytes in
            [b"+OK\r\n".as_slice(), b"*0\r\n", b"*-1\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\nabc", b"*x\r\n"]
        {
            assert!(read(bytes, &mut command).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(read(&[b'*'; 40], &mut command).is_err());
        assert!(read(format!("*1\r\n${}\r\n", u64::MAX).as_bytes(), &mut command).is_err());
        assert!(read(format!("*1\r\n${}\r\n", usize::MAX / 2 + 1).as_bytes(), &mut command).is_err());
    }
}
