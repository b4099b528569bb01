//! Append-only files of Redis and Valkey: their manifest, and commands as they stand in an incremental file.

use std::io::{self, BufRead};

use super::Damage;
use super::manifest::is_plain;

/// What a file of a Redis manifest is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The base: an RDB file, or commands.
    Base,
    /// Commands since the base.
    Increment,
    /// No longer needed.
    History,
}

/// A line of a Redis manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// File name.
    pub name: String,
    /// Its number among those of its role.
    pub number: u64,
    /// What it is.
    pub role: Role,
}

/// Reads the text of `appendonly.aof.manifest`; the files come in the order in which they are to be loaded.
///
/// Errors: a line is not what it should be.
pub fn parse_manifest(text: &[u8]) -> Result<Vec<ListedFile>, Damage> {
    let mut files = Vec::new();
    let mut offset = 0_u64;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let damage = Damage { offset, what: "a line of the manifest is not what it should be" };
        offset += line.len() as u64;
        let line = std::str::from_utf8(line).map_err(|_| damage.clone())?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        files.push(parse_line(line).ok_or(damage)?);
    }
    files.retain(|file| file.role != Role::History);
    files.sort_by_key(|file| (file.role != Role::Base, file.number));
    Ok(files)
}

fn parse_line(line: &str) -> Option<ListedFile> {
    let (mut name, mut number, mut role) = (None, None, None);
    let mut words = line.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word {
            "file" => name = Some(value).filter(|name| is_plain(name)),
            "seq" => number = value.parse().ok(),
            "type" => {
                role = match value {
                    "b" => Some(Role::Base),
                    "i" => Some(Role::Increment),
                    "h" => Some(Role::History),
                    _ => None,
                }
            }
            // Later versions add words (startoffset, endoffset).
            _ => {}
        }
    }
    Some(ListedFile { name: name?.to_owned(), number: number?, role: role? })
}

/// Commands of an incremental file, one by one.
pub struct Commands<R> {
    input: R,
    left: u64,
    at: u64,
    // a length said that more follows than there is
    is_short: bool,
}

/// The longest line that says a number.
const LINE_BYTES_MAX: u64 = 32;
/// The longest line of a note (`#TS:...`).
const NOTE_BYTES_MAX: u64 = 1024;

impl<R: BufRead> Commands<R> {
    /// Reads from `input`, which has `len` bytes to its end; the first stands at `offset` of the file.
    pub fn new(input: R, len: u64, offset: u64) -> Commands<R> {
        Commands { input, left: len, at: offset, is_short: false }
    }

    /// Offset of what is read next.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Whether everything has been read, or too little is left to tell what it was.
    pub fn is_at_end(&self) -> bool {
        self.left == 0 || self.is_short
    }

    /// The next command's arguments; `None` at the end.
    ///
    /// Errors: of the input; bytes that are no command are an `Err` inside. Keeps no more than one command, and
    /// allocates no more than there is to read.
    pub fn next_command(&mut self) -> io::Result<Option<Result<Vec<Vec<u8>>, Damage>>> {
        loop {
            let start = self.at;
            let damage = |what| Ok(Some(Err(Damage { offset: start, what })));
            match self.peek()? {
                None => return Ok(None),
                Some(b'#') => {
                    if self.line(NOTE_BYTES_MAX)?.is_none() {
                        return damage("a note is cut off");
                    }
                }
                Some(b'*') => {
                    let Some(args_len) = self.number(b'*')? else {
                        return damage("a command is cut off or damaged");
                    };
                    if args_len == 0 {
                        return damage("a command has no words");
                    }
                    // A number that is too large is found out by what follows: another command, or the end.
                    let mut args = Vec::new();
                    for _ in 0..args_len {
                        let Some(arg) = self.argument()? else {
                            return damage("a command is cut off or damaged");
                        };
                        args.push(arg);
                    }
                    return Ok(Some(Ok(args)));
                }
                Some(_) => return damage("this is no command"),
            }
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.left == 0 {
            return Ok(None);
        }
        Ok(self.input.fill_buf()?.first().copied())
    }

    fn argument(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(len) = self.number(b'$')? else { return Ok(None) };
        if len.saturating_add(2) > self.left {
            self.is_short = true;
            return Ok(None);
        }
        let mut arg = Vec::new();
        let read = io::Read::take(&mut self.input, len + 2);
        let read = io::Read::read_to_end(&mut { read }, &mut arg)? as u64;
        self.left -= read.min(self.left);
        self.at += read;
        let is_whole = read == len + 2 && arg.ends_with(b"\r\n");
        arg.truncate(arg.len().saturating_sub(2));
        Ok(is_whole.then_some(arg))
    }

    /// The number of a line that begins with `mark`.
    fn number(&mut self, mark: u8) -> io::Result<Option<u64>> {
        let Some(line) = self.line(LINE_BYTES_MAX)? else { return Ok(None) };
        let digits = line.strip_prefix(&[mark]).and_then(|rest| rest.strip_suffix(b"\r\n"));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        Ok(digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|d| d.parse().ok()))
    }

    /// A line with its end, of at most `bytes_max` bytes.
    fn line(&mut self, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut limited = io::Read::take(&mut self.input, bytes_max.min(self.left));
        let read = limited.read_until(b'\n', &mut line)? as u64;
        self.left -= read.min(self.left);
        self.at += read;
        Ok(line.ends_with(b"\n").then_some(line))
    }
}
