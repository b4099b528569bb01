//! ARGREP key start end <EXACT | MATCH | GLOB | RE> pattern [...] [AND | OR] [LIMIT limit] [WITHVALUES] [NOCASE]

use darter_base::glob;
use darter_store::array::PLACE_MAX;
use darter_wire::{Args, Reply};
use regex::bytes::{Regex, RegexBuilder};

use super::long_read::{self, PlaceSpan, RangeCollector, Took};
use super::read::positive;
use super::{place, read, reply_number, spec};
use crate::reader::is;
use crate::{ArgReader, Ctx, DataCommand, Fault};

/// ARGREP.
pub const ARGREP: DataCommand = DataCommand {
    spec: spec(
        read("argrep", -6),
        "key start end <EXACT | MATCH | GLOB | RE> pattern [<EXACT | MATCH | GLOB | RE> pattern ...] [AND | OR] [LIMIT limit] \
         [WITHVALUES] [NOCASE]",
        "Searches array elements in a range using textual predicates.",
    )
    .cost("O(P * C) where P is the number of existing elements in range and C is the cost of the predicates"),
    run: grep,
};

/// Bytes that a compiled expression may take.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Conditions of one call.
const TESTS_MAX: usize = 1024;

/// A condition on an element.
#[derive(Clone)]
enum Test {
    Exact(Box<[u8]>),
    Part(Box<[u8]>),
    Glob(Box<[u8]>),
    Expression(Box<Regex>),
}

/// A call, read.
struct GrepRequest<'a> {
    words: Vec<(&'a [u8], &'a [u8])>,
    needs_all: bool,
    limit: usize,
    with_values: bool,
    no_case: bool,
}

fn parse(args: Args<'_>) -> Result<GrepRequest<'_>, Fault> {
    let mut asked = GrepRequest {
        words: Vec::new(),
        needs_all: false,
        limit: usize::MAX,
        with_values: false,
        no_case: false,
    };
    let mut reader = ArgReader::new(args, 4);
    while let Some(word) = reader.peek() {
        if ["EXACT", "MATCH", "GLOB", "RE"].iter().any(|test| is(word, test)) {
            reader.skip(1);
            asked.words.push((word, reader.bytes()?));
        } else if reader.take("AND") {
            asked.needs_all = true;
        } else if reader.take("OR") {
            asked.needs_all = false;
        } else if reader.take_with("LIMIT", 1) {
            asked.limit = positive(reader.bytes()?)?;
        } else if reader.take("WITHVALUES") {
            asked.with_values = true;
        } else if reader.take("NOCASE") {
            asked.no_case = true;
        } else {
            return Err(Fault::Syntax);
        }
    }
    if asked.words.is_empty() || asked.words.len() > TESTS_MAX {
        return Err(Fault::Syntax);
    }
    Ok(asked)
}

impl Test {
    fn new(word: &[u8], pattern: &[u8], no_case: bool) -> Result<Test, Fault> {
        const BAD: Fault = Fault::text("ERR invalid regular expression");
        Ok(match () {
            () if is(word, "EXACT") => Test::Exact(pattern.into()),
            () if is(word, "MATCH") => Test::Part(pattern.into()),
            () if is(word, "GLOB") => Test::Glob(pattern.into()),
            () => {
                let pattern = std::str::from_utf8(pattern).map_err(|_| BAD)?;
                let mut builder = RegexBuilder::new(pattern);
                let built = builder.case_insensitive(no_case).size_limit(REGEX_BYTES_MAX).build();
                Test::Expression(Box::new(built.map_err(|_| BAD)?))
            }
        })
    }

    fn takes(&self, text: &[u8], no_case: bool) -> bool {
        let same = |a: &[u8], b: &[u8]| if no_case { a.eq_ignore_ascii_case(b) } else { a == b };
        match self {
            Test::Exact(wanted) => same(text, wanted),
            Test::Part(part) => part.is_empty() || text.windows(part.len()).any(|window| same(window, part)),
            Test::Glob(pattern) => glob::matches(pattern, text, no_case),
            Test::Expression(expression) => expression.is_match(text),
        }
    }
}

/// A bound of the search: a place, `-` for the first and `+` for the last.
fn bound(word: &[u8]) -> Result<u64, Fault> {
    match word {
        b"-" => Ok(0),
        b"+" => Ok(PLACE_MAX),
        word => place(word),
    }
}

/// Answers the elements that pass tests.
#[derive(Clone)]
struct Matches {
    tests: Vec<Test>,
    needs_all: bool,
    limit: usize,
    with_values: bool,
    no_case: bool,
    len: usize,
}

impl RangeCollector for Matches {
    fn take(&mut self, at: u64, text: &[u8], reply: &mut Reply<'_>, _bytes_max: usize) -> Took {
        let mut each = self.tests.iter().map(|test| test.takes(text, self.no_case));
        let is_taken = if self.needs_all { each.all(|is| is) } else { each.any(|is| is) };
        if is_taken {
            if self.with_values {
                reply.array(2);
            }
            reply_number(reply, at);
            if self.with_values {
                reply.bulk(text);
            }
            self.len += 1;
        }
        if self.len < self.limit { Took::On } else { Took::Last }
    }

    fn len(&self) -> Option<usize> {
        Some(self.len)
    }
}

fn grep(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, end) = (bound(args.at(2))?, bound(args.at(3))?);
    let GrepRequest { words, needs_all, limit, with_values, no_case } = parse(args)?;
    let tests = words.iter().map(|(word, pattern)| Test::new(word, pattern, no_case));
    let tests = tests.collect::<Result<Vec<_>, Fault>>()?;
    let matches = Matches { tests, needs_all, limit, with_values, no_case, len: 0 };
    let span = PlaceSpan { low: start.min(end), high: start.max(end), is_reversed: start > end };
    long_read::answer(ctx, args.at(1), vec![span], matches, reply)
}
