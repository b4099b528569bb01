//! The RESP form of a journal record: a function of the record alone.
//!
//! Its length is what offsets count, so it must come out the same on every node, whatever is there besides the record.
//! The stream stands in database 0 before and after each record.

use std::borrow::Cow;

use darter_persist::entry::{Entries, KeyEntry};
use darter_persist::journal::Damage;
use darter_persist::journal::part::{self, Loss, Parts, RecordPart};
use darter_persist::rdb::Rewriter;

use crate::rewording::{Reworded, Word, reword};
use crate::stream;

/// Stands before marks: what RESTORE has no words for, about the RESTORE that follows.
pub const MARKS: &[u8] = b"darter-marks:";

/// Makes the RESP form of records.
#[derive(Debug, Default)]
pub struct Former {
    rewriter: Rewriter,
    commands: Vec<u8>,
}

/// A command of a record's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formed<'a> {
    /// Its database.
    pub db: u64,
    /// Its words.
    pub words: &'a [&'a [u8]],
    /// It is a DEL of a key that the master has removed by itself, and why.
    pub loss: Option<Loss>,
}

/// Takes the commands of a record, one after the other.
trait Sheet {
    /// Takes a command of a database.
    fn add(&mut self, db: u64, words: &[&[u8]]);

    /// Takes the removal of a key.
    fn add_loss(&mut self, db: u64, key: &[u8], _: Loss) {
        self.add(db, &[b"DEL", key]);
    }

    /// The database of the last one.
    fn db(&self) -> u64;

    /// Counts bytes of a message that is not kept.
    fn skip(&mut self, bytes: u64);

    /// Takes a command whose words are not all borrowed from the record.
    fn add_words(&mut self, db: u64, words: &[Word<'_>]) {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        self.add(db, &words);
    }
}

/// Writes them as a stream.
struct WrittenForm<'a> {
    out: &'a mut Vec<u8>,
    db: u64,
    count: usize,
}

impl WrittenForm<'_> {
    fn select(&mut self, db: u64) {
        if self.db != db {
            self.db = db;
            stream::write(self.out, &[b"SELECT", db.to_string().as_bytes()]);
        }
    }
}

impl Sheet for WrittenForm<'_> {
    fn add(&mut self, db: u64, words: &[&[u8]]) {
        self.select(db);
        self.count += 1;
        stream::write(self.out, words);
    }

    fn db(&self) -> u64 {
        self.db
    }

    fn skip(&mut self, bytes: u64) {
        stream::write_filler(self.out, bytes);
    }
}

/// Counts the bytes of the stream, and shows the commands to somebody.
struct CountedForm<F> {
    each: F,
    len: u64,
    db: u64,
    count: usize,
}

impl<F> CountedForm<F> {
    fn select(&mut self, db: u64) {
        if self.db != db {
            self.db = db;
            self.len += stream::len_of(&[b"SELECT", db.to_string().as_bytes()]);
        }
    }
}

impl<F: FnMut(Formed<'_>)> CountedForm<F> {
    fn take(&mut self, command: Formed<'_>) {
        self.select(command.db);
        self.count += 1;
        self.len += stream::len_of(command.words);
        (self.each)(command);
    }
}

impl<F: FnMut(Formed<'_>)> Sheet for CountedForm<F> {
    fn add(&mut self, db: u64, words: &[&[u8]]) {
        self.take(Formed { db, words, loss: None });
    }

    fn add_loss(&mut self, db: u64, key: &[u8], loss: Loss) {
        self.take(Formed { db, words: &[b"DEL", key], loss: Some(loss) });
    }

    fn db(&self) -> u64 {
        self.db
    }

    fn skip(&mut self, bytes: u64) {
        self.len += bytes;
    }
}

impl Former {
    /// Appends the commands of the record with this body, which ran at `clock_ms`; those of several are one transaction.
    ///
    /// Errors: the body does not hold what it says; nothing is appended then.
    pub fn write(&mut self, body: &[u8], clock_ms: u64, out: &mut Vec<u8>) -> Result<(), Damage> {
        if let Some(words) = part::plain_set(body) {
            stream::write(out, &words);
            return Ok(());
        }
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        let mut sheet = WrittenForm { out: &mut commands, db: 0, count: 0 };
        let done = self.add_all(&mut sheet, body, clock_ms);
        sheet.select(0);
        let count = sheet.count;
        if done.is_ok() {
            if count > 1 {
                stream::write(out, &[b"MULTI"]);
            }
            out.extend_from_slice(&commands);
            if count > 1 {
                stream::write(out, &[b"EXEC"]);
            }
        }
        self.commands = commands;
        done
    }

    /// Shows `each` the commands of a record; returns the number of bytes that [`Former::write`] would
    /// append.
    ///
    /// Errors: the body does not hold what it says; `each` may have seen some of it.
    #[inline]
    pub fn commands(
        &mut self,
        body: &[u8],
        clock_ms: u64,
        mut each: impl FnMut(Formed<'_>),
    ) -> Result<u64, Damage> {
        if let Some(words) = part::plain_set(body) {
            each(Formed { db: 0, words: &words, loss: None });
            return Ok(stream::len_of(&words));
        }
        self.commands_of_parts(body, clock_ms, each)
    }

    #[inline(never)]
    fn commands_of_parts(
        &mut self,
        body: &[u8],
        clock_ms: u64,
        each: impl FnMut(Formed<'_>),
    ) -> Result<u64, Damage> {
        let mut sheet = CountedForm { each, len: 0, db: 0, count: 0 };
        self.add_all(&mut sheet, body, clock_ms)?;
        sheet.select(0);
        let around =
            if sheet.count > 1 { stream::len_of(&[b"MULTI"]) + stream::len_of(&[b"EXEC"]) } else { 0 };
        Ok(sheet.len + around)
    }

    fn add_all(&mut self, sheet: &mut impl Sheet, body: &[u8], clock_ms: u64) -> Result<(), Damage> {
        let mut parts = Parts::new(body);
        while let Some(part) = parts.try_next()? {
            self.add(sheet, part, clock_ms)?;
        }
        Ok(())
    }

    fn add(&mut self, sheet: &mut impl Sheet, part: RecordPart<'_>, clock_ms: u64) -> Result<(), Damage> {
        match part {
            RecordPart::Command { db, only_key, args } => {
                let words: Vec<&[u8]> = args.iter().collect();
                match reword(&words, only_key, clock_ms) {
                    Reworded::AsItIs => sheet.add(db, &words),
                    Reworded::As(words) => sheet.add_words(db, &words),
                    Reworded::Nothing => {}
                }
            }
            RecordPart::Gone { db, key, loss } => sheet.add_loss(db, key, loss),
            RecordPart::Value { db, entry } => {
                let damage = Damage { offset: 0, what: "a value in a record is damaged" };
                let entry = Entries::new(entry).next().and_then(Result::ok).ok_or(damage.clone())?;
                self.value(sheet, db, &entry).ok_or(damage)?;
            }
            // While somebody follows, the whole value is noted in its place.
            RecordPart::Members { .. } => {}
            // Its words were not kept. They count, or offsets would differ between nodes.
            RecordPart::Message { args, bytes } if args.is_empty() => {
                if !stream::has_filler(bytes) {
                    return Err(Damage { offset: 0, what: "a message in a record has an impossible length" });
                }
                sheet.skip(bytes);
            }
            RecordPart::Message { args, .. } => sheet.add(sheet.db(), &args.iter().collect::<Vec<_>>()),
            // Of another stream.
            RecordPart::Position { .. } | RecordPart::Stream(_) | RecordPart::Uncommitted(_) => {}
        }
        Ok(())
    }

    fn value(&mut self, sheet: &mut impl Sheet, db: u64, entry: &KeyEntry<'_>) -> Option<()> {
        let deadline = entry.deadline_ms.unwrap_or(0).to_string();
        if let Some(text) = entry.text().filter(|_| entry.is_plain()) {
            let mut words: Vec<Word<'_>> = vec![b"SET".into(), Cow::Borrowed(&*entry.key), text];
            if entry.deadline_ms.is_some() {
                words.push(b"PXAT".into());
                words.push(deadline.as_bytes().into());
            }
            sheet.add_words(db, &words);
            return Some(());
        }
        let mut payload = Vec::new();
        let marks = self.rewriter.append_payload(entry, &mut payload).ok()?;
        if !marks.is_empty() {
            // Redis passes over capabilities that it does not know.
            sheet.add(db, &[b"REPLCONF", b"capa", &[MARKS, &marks].concat()]);
        }
        sheet.add(db, &[b"RESTORE", &entry.key, deadline.as_bytes(), &payload, b"REPLACE", b"ABSTTL"]);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        write(&mut body);
        let mut former = Former::default();
        former.write(&body, 1_000, &mut out).expect("a whole body");
        let again = out.clone();
        out.clear();
        former.write(&body, 1_000, &mut out).expect("a whole body");
        assert_eq!(out, again, "it depends on the record alone");
        let (mut seen, mut db) = (Vec::new(), 0);
        let counted = former.commands(&body, 1_000, |formed| {
            if formed.db != db {
                db = formed.db;
                seen.push(format!("SELECT {db}"));
            }
            let words = formed.words.iter().map(|word| word.escape_ascii().to_string());
            seen.push(words.collect::<Vec<_>>().join(" "));
        });
        assert_eq!(counted, Ok(out.len() as u64), "the length is known without the bytes");
        let (mut command, mut at, mut lines) = (stream::StreamCommand::default(), 0, Vec::new());
        while stream::read(&out[at..], &mut command).expect("commands") {
            let words = command.words.iter().map(|word| out[at..][word.clone()].escape_ascii().to_string());
            lines.push(words.collect::<Vec<_>>().join(" "));
            at += command.len;
        }
        assert_eq!(at, out.len());
        let said = lines.join("; ");
        let inner =
            said.strip_prefix("MULTI; ").and_then(|rest| rest.strip_suffix("; EXEC")).unwrap_or(&said);
        assert_eq!(
            inner.strip_suffix("; SELECT 0").unwrap_or(inner),
            seen.join("; ").trim_end_matches("; SELECT 0")
        );
        said
    }

    fn command(out: &mut Vec<u8>, db: usize, words: &[&[u8]]) {
        part::write_command(out, db, words.len(), words.iter().copied());
    }

    #[test]
    fn a_record_of_one_command_is_one() {
        assert_eq!(form(|out| part::write_set(out, 0, b"k", b"v")), "set k v");
        assert_eq!(form(|out| command(out, 3, &[b"incr", b"n"])), "SELECT 3; incr n; SELECT 0");
        assert_eq!(form(|out| part::write_gone(out, 0, b"k", Loss::Expired)), "DEL k");
        assert_eq!(form(|out| command(out, 0, &[b"pexpire", b"k", b"5"])), "PEXPIREAT k 1005");
        assert_eq!(form(|out| part::write_members(out, 0, b"k")), "");
    }

    #[test]
    fn a_record_of_several_commands_is_a_transaction() {
        let said = form(|out| {
            part::write_set(out, 1, b"k", b"v");
            part::write_gone(out, 0, b"x", Loss::Removed);
        });
        assert_eq!(said, "MULTI; SELECT 1; set k v; SELECT 0; DEL x; EXEC");
    }

    #[test]
    fn a_text_as_value_is_set_and_others_are_restored() {
        // A deadline, the type of a text, the key, the text.
        let text = [&[0xfc][..], &5000_u64.to_le_bytes(), b"\0\x01k\x03abc"].concat();
        assert_eq!(form(|out| part::write_value(out, 0, &text)), "SET k abc PXAT 5000");
        let list = b"\x02\x01s\x01\x01a";
        let said = form(|out| part::write_value(out, 2, list));
        assert!(said.starts_with("SELECT 2; RESTORE s 0 \\x02\\x01\\x01a\\n\\x00"), "{said}");
        assert!(said.ends_with("REPLACE ABSTTL; SELECT 0"), "{said}");
    }

    #[test]
    fn what_restore_has_no_words_for_stands_before_it() {
        // Flags of memcached: 7.
        let flagged = b"\xd0\x02\x07\0\0\0\0\x01k\x03abc";
        let said = form(|out| part::write_value(out, 0, flagged));
        let marks = "REPLCONF capa darter-marks:\\xd0\\x02\\x07\\x00\\x00\\x00; RESTORE k 0 \\x00\\x03abc";
        assert!(said.starts_with(&format!("MULTI; {marks}")) && said.ends_with("; EXEC"), "{said}");
    }

    #[test]
    fn messages_are_sent_where_they_stand() {
        let said = form(|out| {
            part::write_set(out, 1, b"k", b"v");
            part::write_message(out, &[b"PUBLISH", b"c", b"m"]);
            part::write_message(out, &[]);
            part::write_position(out, b"id", 7, 0);
        });
        assert_eq!(said, "MULTI; SELECT 1; set k v; PUBLISH c m; SELECT 0; EXEC");
    }

    #[test]
    fn a_message_of_an_impossible_length_is_damage() {
        let body = |bytes| {
            let mut body = Vec::new();
            part::write_message_len(&mut body, bytes);
            body
        };
        for bytes in [1, 8, 13, 15, 19, (1 << 30) + (1 << 16) + 1, u64::MAX] {
            let (mut former, mut out) = (Former::default(), Vec::new());
            assert!(former.write(&body(bytes), 0, &mut out).is_err() && out.is_empty(), "{bytes}");
            assert!(former.commands(&body(bytes), 0, |_| {}).is_err(), "{bytes}");
        }
        for bytes in (20..2_000).chain([14, 65_536, 100_000, 1_000_006]) {
            let (mut former, mut out) = (Former::default(), Vec::new());
            assert_eq!(former.write(&body(bytes), 0, &mut out), Ok(()));
            assert_eq!(former.commands(&body(bytes), 0, |_| {}), Ok(out.len() as u64));
            assert_eq!(out.len() as u64, bytes);
        }
    }

    #[test]
    fn damage_appends_nothing() {
        let mut out = Vec::new();
        assert!(Former::default().write(&[1, 0, 9], 0, &mut out).is_err());
        assert!(Former::default().write(&[5, 0, 3, 1, 2, 3], 0, &mut out).is_err());
        assert!(out.is_empty());
    }
}
