//! Random memcached commands, as 1.6.18 knows them.

use std::fmt;

use crate::rng::Rng;

/// A command.
#[derive(Clone, Debug)]
pub struct Op {
    /// The key its tokens belong to.
    pub key: Vec<u8>,
    /// Its bytes.
    pub parts: Vec<Part>,
    /// It changes a number, which memcached does in another way while answers with the item wait to be sent.
    pub counts: bool,
    /// Its errors are compared as such only.
    pub has_plain_errors: bool,
}

/// A piece of a command.
#[derive(Clone, Debug)]
pub enum Part {
    /// As they are.
    Bytes(Vec<u8>),
    /// The token that its key had so many tokens ago.
    Token(usize),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Part::Token(back) => write!(f, "<token-{back}>"),
        })
    }
}

/// Draws commands.
pub struct Draw(Rng);

const KEYS: &[&str] = &["a", "b", "c", "n", "m", "a_longer_key:with/signs"];
/// Keys in base64, which are never used otherwise.
const CODED_KEYS: &[&str] = &["Ymlu", "AAEC/w=="];
const TIMES: &[&str] = &["0", "0", "0", "100", "5000", "2592000", "2100000000", "-1", "-100", "1000000000"];
const NUMBERS: &[&str] =
    &["0", "1", "5", "9", "10", "99", "100", "18446744073709551615", "18446744073709551610", "7 ", "007"];
// Without any minus: looking for one, memcached reads past the end of a number of more than 63 bits.
const TEXTS: &[&str] = &["", "x", "hello", "12a", "+3", " 8", "a b c", "4294967296", "1.5"];

impl Draw {
    /// Same seed, same commands.
    pub fn new(seed: u64) -> Draw {
        Draw(Rng::new(seed))
    }

    /// The next command.
    pub fn next(&mut self) -> Op {
        match self.0.below(100) {
            0..12 => self.get(),
            12..30 => self.store(),
            30..36 => self.compare_and_set(),
            36..40 => self.delete(),
            40..47 => self.count(),
            47..50 => self.touch(),
            50..65 => self.meta_get(),
            65..78 => self.meta_set(),
            78..83 => self.meta_delete(),
            83..92 => self.meta_count(),
            92..94 => self.meta_debug(),
            94 => self.rare(),
            _ => self.wrong(),
        }
    }

    fn word(&mut self, words: &[&str]) -> String {
        (*self.0.pick(words)).to_owned()
    }

    fn key(&mut self) -> String {
        self.word(KEYS)
    }

    fn value(&mut self) -> String {
        match self.0.below(10) {
            0..5 => self.word(NUMBERS),
            5..9 => self.word(TEXTS),
            _ => "long ".repeat(self.0.below(400)),
        }
    }

    fn flags(&mut self) -> String {
        self.word(&["0", "0", "1", "7", "4294967295"])
    }

    fn noreply(&mut self) -> &'static str {
        if self.0.percent(10) { " noreply" } else { "" }
    }

    fn get(&mut self) -> Op {
        let verb = self.word(&["get", "gets", "gets", "gat", "gats"]);
        let mut line = verb.clone();
        if verb.starts_with("gat") {
            line = line + " " + &self.word(TIMES);
        }
        let key = self.key();
        line = line + " " + &key;
        for _ in 0..[0, 0, 0, 1, 4][self.0.below(5)] {
            line = line + " " + &self.key();
        }
        plain(&key, line + "\r\n")
    }

    fn store(&mut self) -> Op {
        let verb = self.word(&["set", "set", "add", "replace", "append", "prepend"]);
        let (key, flags, time, value) = (self.key(), self.flags(), self.word(TIMES), self.value());
        let quiet = self.noreply();
        plain(&key, format!("{verb} {key} {flags} {time} {}{quiet}\r\n{value}\r\n", value.len()))
    }

    fn compare_and_set(&mut self) -> Op {
        let (key, flags, time, value) = (self.key(), self.flags(), self.word(TIMES), self.value());
        let mut op = plain(&key, format!("cas {key} {flags} {time} {} ", value.len()));
        op.parts.push(self.token());
        let quiet = self.noreply();
        op.parts.push(bytes(format!("{quiet}\r\n{value}\r\n")));
        op
    }

    fn token(&mut self) -> Part {
        match self.0.below(10) {
            0 => bytes("0".to_owned()),
            1 => bytes("1".to_owned()),
            2 | 3 => Part::Token(1),
            _ => Part::Token(0),
        }
    }

    fn delete(&mut self) -> Op {
        let (key, zero, quiet) = (self.key(), self.word(&["", "", " 0"]), self.noreply());
        plain(&key, format!("delete {key}{zero}{quiet}\r\n"))
    }

    fn count(&mut self) -> Op {
        let (verb, key, quiet) = (self.word(&["incr", "decr"]), self.key(), self.noreply());
        let delta = self.word(&["0", "1", "1", "10", "95", "18446744073709551615", "x", "-1"]);
        Op { counts: true, ..plain(&key, format!("{verb} {key} {delta}{quiet}\r\n")) }
    }

    fn touch(&mut self) -> Op {
        let (key, time, quiet) = (self.key(), self.word(TIMES), self.noreply());
        plain(&key, format!("touch {key} {time}{quiet}\r\n"))
    }

    /// A key for a meta command, and the flag that goes with it.
    fn meta_key(&mut self) -> (String, Vec<String>) {
        if self.0.percent(15) {
            (self.word(CODED_KEYS), vec!["b".to_owned()])
        } else {
            (self.key(), Vec::new())
        }
    }

    /// A meta command: flags in any order, one of them perhaps `C`.
    fn meta(
        &mut self,
        start: String,
        key: &str,
        mut flags: Vec<String>,
        compares: bool,
        value: Option<&str>,
    ) -> Op {
        for at in (1..flags.len()).rev() {
            flags.swap(at, self.0.below(at + 1));
        }
        let mut op = plain(key, start);
        for flag in &flags {
            op.parts.push(bytes(format!(" {flag}")));
        }
        if compares {
            op.parts.push(bytes(" C".to_owned()));
            op.parts.push(self.token());
        }
        op.parts.push(bytes(value.map_or("\r\n".to_owned(), |value| format!("\r\n{value}\r\n"))));
        op
    }

    fn some_of(&mut self, percent: usize, letters: &[&str], flags: &mut Vec<String>) {
        for letter in letters {
            if self.0.percent(percent) {
                flags.push((*letter).to_owned());
            }
        }
    }

    fn meta_get(&mut self) -> Op {
        let (key, mut flags) = self.meta_key();
        // The server remembers how a key was sent when it was stored; 1.6.18 forgets it when it makes one itself.
        if flags.is_empty() {
            self.some_of(20, &["k"], &mut flags);
        }
        self.some_of(30, &["v", "s", "t", "f", "c", "h"], &mut flags);
        self.some_of(10, &["q", "u", "l", "Oab1", "P", "Lx"], &mut flags);
        for letter in ["T", "N", "R"] {
            if self.0.percent(10) {
                flags.push(letter.to_owned() + &self.word(TIMES));
            }
        }
        self.meta(format!("mg {key}"), &key, flags, false, None)
    }

    fn meta_set(&mut self) -> Op {
        let ((key, mut flags), value) = (self.meta_key(), self.value());
        self.some_of(25, &["c"], &mut flags);
        self.some_of(10, &["k", "q", "I", "Ozz"], &mut flags);
        self.some_of(7, &["ME", "MA", "MP", "MR", "MS"], &mut flags);
        if self.0.percent(30) {
            flags.push("T".to_owned() + &self.word(TIMES));
        }
        if self.0.percent(30) {
            flags.push("F".to_owned() + &self.flags());
        }
        let compares = self.0.percent(30);
        self.meta(format!("ms {key} {}", value.len()), &key, flags, compares, Some(&value))
    }

    fn meta_delete(&mut self) -> Op {
        let (key, mut flags) = self.meta_key();
        self.some_of(40, &["I"], &mut flags);
        self.some_of(15, &["k", "q", "Od"], &mut flags);
        if self.0.percent(30) {
            flags.push("T".to_owned() + &self.word(TIMES));
        }
        let compares = self.0.percent(30);
        let mut op = self.meta(format!("md {key}"), &key, flags, compares, None);
        op.has_plain_errors = true;
        op
    }

    fn meta_count(&mut self) -> Op {
        let (key, mut flags) = self.meta_key();
        self.some_of(40, &["v"], &mut flags);
        self.some_of(20, &["t", "c"], &mut flags);
        self.some_of(10, &["k", "Oe", "MI", "MD", "M+", "M-", "MX"], &mut flags);
        self.some_of(15, &["J13", "D1000", "Dx"], &mut flags);
        // No `T`: where the number gets longer, memcached gives the time to the item it has just replaced.
        // 1.6.18 answers to `q` when it makes the number.
        if self.0.percent(30) {
            flags.push("N".to_owned() + &self.word(TIMES));
        } else {
            self.some_of(10, &["q"], &mut flags);
        }
        let compares = self.0.percent(15);
        let op = self.meta(format!("ma {key}"), &key, flags, compares, None);
        Op { counts: true, has_plain_errors: true, ..op }
    }

    fn meta_debug(&mut self) -> Op {
        let key = self.key();
        plain(&key, format!("me {key}\r\n"))
    }

    fn rare(&mut self) -> Op {
        let text = self.word(&["flush_all", "flush_all noreply", "verbosity 1", "flush_all 0"]);
        plain("", text + "\r\n")
    }

    fn wrong(&mut self) -> Op {
        let text = self.word(&[
            "get",
            "gets",
            "gat x a",
            "set a 0 0",
            "set a 0 0 x",
            "set a 0 0 -1",
            // later versions drop the value of a refused line, 1.6.18 reads it as a command
            "set a 0 0 3\r\nabcde",
            "incr a",
            "touch a",
            "touch a x",
            "delete",
            "delete a 1",
            "delete a b c",
            "flush_all x",
            "verbosity",
            "verbosity x",
            "verbosity noreply",
            "verbosity 1 2 3",
            "mg",
            "mg a v v",
            "mg a !",
            "mg a Tx",
            "mg nokey O12345678901234567890123456789012",
            "mg not64 b",
            "ms a",
            "ms a x",
            "ms a 1 T\r\n1",
            "ms a 1 MX\r\n1",
            "ms a 1 MSS\r\n1",
            "ms a 1\r\n123",
            "me",
            "me nokey",
            "nosuch a b",
            "GET a",
            "stats nosuch",
            "lru_crawler nosuch",
            "lru tune 10 80 1 2",
            "slabs automove 5",
            "slabs nosuch",
            "shutdown",
            "   get a",
            "get  a   b",
        ]);
        plain("a", text + "\r\n")
    }
}

fn plain(key: &str, text: String) -> Op {
    Op { key: key.as_bytes().to_vec(), parts: vec![bytes(text)], counts: false, has_plain_errors: false }
}

fn bytes(text: String) -> Part {
    Part::Bytes(text.into_bytes())
}
