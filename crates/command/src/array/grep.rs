//! ARGREP key start end <EXACT | MATCH | GLOB | RE> pattern [...] [AND | OR] [LIMIT limit] [WITHVALUES] [NOCASE]

use darter_base::glob;
use darter_store::Array;
use darter_store::array::PLACE_MAX;
use darter_wire::{Args, Reply};
use regex::bytes::{Regex, RegexBuilder};

use super::read::positive;
use super::{place, read, reply_number, spec};
use crate::reader::is;
use crate::{Ctx, DataCommand, Fault, Reader};

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
enum Test<'a> {
    Exact(&'a [u8]),
    Part(&'a [u8]),
    Glob(&'a [u8]),
    Expression(Box<Regex>),
}

/// A call, read.
struct Asked<'a> {
    words: Vec<(&'a [u8], &'a [u8])>,
    needs_all: bool,
    limit: usize,
    with_values: bool,
    no_case: bool,
}

fn parse(args: Args<'_>) -> Result<Asked<'_>, Fault> {
    let mut asked =
        Asked { words: Vec::new(), needs_all: false, limit: usize::MAX, with_values: false, no_case: false };
    let mut reader = Reader::new(args, 4);
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

impl<'a> Test<'a> {
    fn new(word: &[u8], pattern: &'a [u8], no_case: bool) -> Result<Test<'a>, Fault> {
        const BAD: Fault = Fault::text("ERR invalid regular expression");
        Ok(match () {
            () if is(word, "EXACT") => Test::Exact(pattern),
            () if is(word, "MATCH") => Test::Part(pattern),
            () if is(word, "GLOB") => Test::Glob(pattern),
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

fn grep(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, end) = (bound(args.at(2))?, bound(args.at(3))?);
    let asked = parse(args)?;
    let tests = asked.words.iter().map(|(word, pattern)| Test::new(word, pattern, asked.no_case));
    let tests = tests.collect::<Result<Vec<_>, Fault>>()?;
    let key = ctx.read(args.at(1));
    let begun = reply.begin_array();
    let mut found = 0;
    if let Some(view) = key.view::<Array>()? {
        let takes = |text: &[u8]| {
            let mut each = tests.iter().map(|test| test.takes(text, asked.no_case));
            if asked.needs_all { each.all(|is| is) } else { each.any(|is| is) }
        };
        let mut show = |at: u64, text: &[u8]| {
            if takes(text) {
                if asked.with_values {
                    reply.array(2);
                }
                reply_number(reply, at);
                if asked.with_values {
                    reply.bulk(text);
                }
                found += 1;
            }
            found < asked.limit
        };
        match start > end {
            true => view.root.each_reversed(view.arena, end, start, &mut show),
            false => view.root.each(view.arena, start, end, &mut show),
        }
    }
    reply.end_array(begun, found);
    Ok(())
}
