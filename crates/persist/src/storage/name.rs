//! Names of snapshot files: `dbfilename` with its macros, and the newest file of a directory with such a name.
//!
//! `{timestamp}` is the time of the save as 2026-11-21T14:05:09, `{Y}`, `{m}` and `{d}` are its parts, all UTC.

use super::StorageFacts;
use crate::native;

/// The format of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameFormat {
    /// One RDB file, which Redis reads.
    Rdb,
    /// Our own.
    Native,
}

impl NameFormat {
    /// The end of its files' names.
    pub fn suffix(self) -> &'static str {
        match self {
            NameFormat::Rdb => ".rdb",
            NameFormat::Native => native::SUFFIX,
        }
    }

    /// The format that a name ends in.
    pub fn of_name(name: &str) -> Option<NameFormat> {
        [NameFormat::Rdb, NameFormat::Native].into_iter().find(|format| name.ends_with(format.suffix()))
    }
}

/// The pattern of snapshot names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern {
    // without the suffix
    stem: Vec<NamePiece>,
    // what `dbfilename` ends in
    format: Option<NameFormat>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum NamePiece {
    Text(String),
    Macro(&'static Macro),
}

#[derive(PartialEq, Eq, Debug)]
struct Macro {
    name: &'static str,
    /// `0` for a digit.
    shape: &'static str,
    range: std::ops::Range<usize>,
}

const TIME_SHAPE: &str = "0000-00-00T00:00:00";
static MACROS: [Macro; 4] = [
    Macro { name: "{timestamp}", shape: TIME_SHAPE, range: 0..TIME_SHAPE.len() },
    Macro { name: "{Y}", shape: "0000", range: 0..4 },
    Macro { name: "{m}", shape: "00", range: 5..7 },
    Macro { name: "{d}", shape: "00", range: 8..10 },
];

impl NamePattern {
    /// The pattern of `dbfilename`; `None` if it is empty, so that there are no snapshots.
    pub fn new(dbfilename: &str) -> Option<NamePattern> {
        if dbfilename.is_empty() {
            return None;
        }
        let format = NameFormat::of_name(dbfilename);
        let mut rest = format
            .and_then(|format| dbfilename.strip_suffix(format.suffix()))
            .filter(|stem| !stem.is_empty())
            .unwrap_or(dbfilename);
        let mut stem = Vec::new();
        while !rest.is_empty() {
            let next = MACROS.iter().filter_map(|one| Some((rest.find(one.name)?, one)));
            let (at, found) = match next.min_by_key(|(at, _)| *at) {
                Some((at, one)) => (at, Some(one)),
                None => (rest.len(), None),
            };
            let (text, after) = rest.split_at(at);
            if !text.is_empty() {
                stem.push(NamePiece::Text(text.to_owned()));
            }
            rest = after;
            if let Some(one) = found {
                stem.push(NamePiece::Macro(one));
                rest = rest.strip_prefix(one.name).unwrap_or_default();
            }
        }
        Some(NamePattern { stem, format })
    }

    /// The format given by the end of the name; `None` if it leaves the choice.
    pub fn format(&self) -> Option<NameFormat> {
        self.format
    }

    /// The name of a snapshot made at `now_ms` in `format`, unless the pattern's own end gives another.
    pub fn file_name(&self, format: NameFormat, now_ms: u64) -> String {
        let time = timestamp(now_ms);
        let mut name = String::new();
        for piece in &self.stem {
            name.push_str(match piece {
                NamePiece::Text(text) => text,
                NamePiece::Macro(one) => time.get(one.range.clone()).unwrap_or_default(),
            });
        }
        name.push_str(format.suffix());
        name
    }

    /// The format of the file `name` if it is a snapshot of this pattern.
    pub fn matches(&self, name: &str) -> Option<NameFormat> {
        let format =
            NameFormat::of_name(name).filter(|&format| self.format.is_none_or(|own| own == format))?;
        let mut rest = name.strip_suffix(format.suffix())?;
        for piece in &self.stem {
            match piece {
                NamePiece::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                NamePiece::Macro(one) => {
                    let (value, after) = rest.split_at_checked(one.shape.len())?;
                    let fits = value.bytes().zip(one.shape.bytes()).all(|(byte, shape)| {
                        if shape == b'0' { byte.is_ascii_digit() } else { byte == shape }
                    });
                    if !fits {
                        return None;
                    }
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(format)
    }

    /// The file written last among those that match; of two with the same time, the one with the later name.
    pub fn newest<'a>(&self, files: &'a [StorageFacts]) -> Option<(&'a StorageFacts, NameFormat)> {
        let matching = files.iter().filter_map(|file| Some((file, self.matches(&file.name)?)));
        matching.max_by_key(|(file, _)| (file.modified_ms, &file.name))
    }
}

/// A moment as 2026-11-21T14:05:09, UTC.
pub fn timestamp(unix_ms: u64) -> String {
    let secs = unix_ms / 1000;
    let (days, rest) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day given in days since 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    // Whole cycles of 400 years first, so that the steps below are few.
    const CYCLE_DAYS: u64 = 146_097;
    let mut year = 1970 + 400 * (days / CYCLE_DAYS);
    days %= CYCLE_DAYS;
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    loop {
        let len = if is_leap(year) { 366 } else { 365 };
        if days < len {
            break;
        }
        days -= len;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for len in months {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (1_767_225_599, "2025-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(timestamp(secs * 1000), text);
        }
    }

    #[test]
    fn names_are_made_and_recognised() {
        let now_ms = 1_709_251_199_000;
        for (dbfilename, format, name) in [
            ("dump", NameFormat::Native, "dump.darter"),
            ("dump.rdb", NameFormat::Rdb, "dump.rdb"),
            ("dump-{timestamp}", NameFormat::Rdb, "dump-2024-02-29T23:59:59.rdb"),
            ("{Y}/{m}", NameFormat::Native, "2024/02.darter"),
            ("a{d}{m}{Y}{x}", NameFormat::Native, "a29022024{x}.darter"),
            (".rdb", NameFormat::Rdb, ".rdb.rdb"),
        ] {
            let pattern = NamePattern::new(dbfilename).expect("a name");
            assert_eq!(pattern.file_name(format, now_ms), name);
            assert_eq!(pattern.matches(name), Some(format), "{name}");
        }
        assert_eq!(NamePattern::new(""), None);
    }

    #[test]
    fn other_files_do_not_match() {
        let pattern = NamePattern::new("dump-{timestamp}").expect("a name");
        for name in
            ["dump.rdb", "dump-.rdb", "dump-2024-02-29T23:59:5x.rdb", "dump-2024-02-29T23:59:59.rdb.bak"]
        {
            assert_eq!(pattern.matches(name), None, "{name}");
        }
        let rdb = NamePattern::new("dump.rdb").expect("a name");
        assert_eq!((rdb.matches("dump.darter"), rdb.format()), (None, Some(NameFormat::Rdb)));
        let any = NamePattern::new("dump").expect("a name");
        assert_eq!((any.matches("dump.rdb"), any.format()), (Some(NameFormat::Rdb), None));
    }

    #[test]
    fn the_newest_is_the_one_written_last() {
        let file = |name: &str, modified_ms| StorageFacts { name: name.to_owned(), len: 1, modified_ms };
        let files = [
            file("dump-2024-01-01T00:00:00.darter", 50),
            file("dump-2024-01-02T00:00:00.darter", 40),
            file("other.darter", 90),
            file("dump-2024-01-01T00:00:01.rdb", 50),
        ];
        let pattern = NamePattern::new("dump-{timestamp}").expect("a name");
        let newest = pattern.newest(&files).map(|(file, format)| (file.name.as_str(), format));
        assert_eq!(newest, Some(("dump-2024-01-01T00:00:01.rdb", NameFormat::Rdb)));
        assert_eq!(pattern.newest(&[]), None);
    }
}
