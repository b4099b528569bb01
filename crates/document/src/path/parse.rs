//! The grammar of paths that begin with `$`.

use super::filter::{Filter, Operator, Pattern, Term};
use super::{BadPath, Step};
use crate::parse::parse_into;

/// Longest path in bytes.
pub const LEN_MAX: usize = 64 << 10;
/// Most steps of a path, those in its filters included.
pub const STEPS_MAX: usize = 4096;
/// Levels of brackets in filters.
const NESTING_MAX: usize = 32;

const SEGMENT: &str = "one of the following: '.', '..', '[' or the end";
const BRACKET: &str =
    "one of the following: '<string>[,<string>,...]', '<number>', ['start:end:steps'], '*', '?'";
const OPERAND: &str = "one of the following: a number, a text in quotes, true, false, null, '@' or '$'";

/// The steps of a path.
///
/// Errors: invalid.
pub(super) fn steps(text: &[u8]) -> Result<Vec<Step>, BadPath> {
    let mut reader = Reader { text, at: 0, steps: 0, nesting: 0 };
    if text.len() > LEN_MAX {
        return Err(BadPath { text: format!("ERR a path is longer than {LEN_MAX} bytes") });
    }
    reader.pass(b"$");
    let steps = reader.steps()?;
    reader.blanks();
    if reader.at < text.len() { Err(reader.wrong(SEGMENT)) } else { Ok(steps) }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    steps: usize,
    nesting: usize,
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_`+#%$^/:".contains(&byte) || byte >= 0x80
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Passes over blanks, and over `word` if that is next.
    fn pass(&mut self, word: &[u8]) -> bool {
        self.blanks();
        let is_next = self.rest().starts_with(word);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn wrong(&self, expected: &str) -> BadPath {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (before, after) = self.text.split_at(self.at.min(self.text.len()));
        let (before, after) = (shown(before), shown(after));
        BadPath {
            text: format!(
                "Error occurred on position {}, \"{before} ---->>>> {after}\", expected {expected}.",
                self.at
            ),
        }
    }

    fn push(&mut self, out: &mut Vec<Step>, step: Step) -> Result<(), BadPath> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(BadPath { text: format!("ERR a path has more than {STEPS_MAX} steps") });
        }
        out.push(step);
        Ok(())
    }

    /// Steps up to what begins none.
    fn steps(&mut self) -> Result<Vec<Step>, BadPath> {
        let mut out = Vec::new();
        loop {
            let begun = self.at;
            if self.pass(b"..") {
                self.push(&mut out, Step::Deep)?;
                let step = self.after_dots()?;
                self.push(&mut out, step)?;
            } else if self.pass(b".") {
                let step = self.after_dots()?;
                self.push(&mut out, step)?;
            } else if self.pass(b"[") {
                let step = self.bracket()?;
                self.push(&mut out, step)?;
            } else {
                self.at = begun;
                return Ok(out);
            }
        }
    }

    fn after_dots(&mut self) -> Result<Step, BadPath> {
        if self.pass(b"[") {
            return self.bracket();
        }
        if self.pass(b"*") {
            return Ok(Step::All);
        }
        let len = self.rest().iter().take_while(|byte| is_literal(**byte)).count();
        let name = self.rest().get(..len).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.wrong("one of the following: a name, '*', '['"))?;
        self.at += len;
        Ok(Step::Names(vec![name.into()]))
    }

    fn bracket(&mut self) -> Result<Step, BadPath> {
        self.blanks();
        let step = match self.peek() {
            Some(b'\'' | b'"') => {
                let mut names = vec![self.quoted()?];
                while self.pass(b",") {
                    self.blanks();
                    names.push(self.quoted()?);
                }
                Step::Names(names)
            }
            Some(b'*') => {
                self.at += 1;
                Step::All
            }
            Some(b'?') => {
                self.at += 1;
                Step::Filter(self.filter()?)
            }
            _ => self.indexes()?,
        };
        if self.pass(b"]") { Ok(step) } else { Err(self.wrong(BRACKET)) }
    }

    fn indexes(&mut self) -> Result<Step, BadPath> {
        let first = self.integer();
        if self.pass(b":") {
            let end = self.integer();
            let step = if self.pass(b":") { self.integer() } else { None };
            let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0);
            return Ok(Step::Slice {
                start: first,
                end,
                step: step.ok_or_else(|| self.wrong("a step above 0"))?,
            });
        }
        let mut indexes = vec![first.ok_or_else(|| self.wrong(BRACKET))?];
        while self.pass(b",") {
            indexes.push(self.integer().ok_or_else(|| self.wrong("a number"))?);
        }
        Ok(Step::Indexes(indexes))
    }

    /// An integer; one out of range becomes the nearest.
    fn integer(&mut self) -> Option<i64> {
        self.blanks();
        let rest = self.rest();
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest.get(sign..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = rest.get(..sign + digits).filter(|_| digits > 0)?;
        self.at += text.len();
        let nearest = if sign == 1 { i64::MIN } else { i64::MAX };
        Some(std::str::from_utf8(text).ok()?.parse().unwrap_or(nearest))
    }

    /// A text in quotes of either kind. A backslash escapes that quote and itself.
    fn quoted(&mut self) -> Result<Box<[u8]>, BadPath> {
        let quote =
            self.peek().filter(|byte| b"'\"".contains(byte)).ok_or_else(|| self.wrong("a text in quotes"))?;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.wrong("the closing quote"))?;
            self.at += 1;
            match byte {
                b'\\' => {
                    let escaped = self.peek().filter(|next| *next == quote || *next == b'\\');
                    text.push(escaped.ok_or_else(|| self.wrong("a quote or a backslash"))?);
                    self.at += 1;
                }
                _ if byte == quote => return Ok(text.into()),
                _ => text.push(byte),
            }
        }
    }

    /// Alternatives, each of which is one condition or several that hold together.
    fn filter(&mut self) -> Result<Filter, BadPath> {
        let mut alternatives = Vec::new();
        loop {
            let mut together = vec![self.condition()?];
            while self.pass(b"&&") {
                together.push(self.condition()?);
            }
            alternatives.push(one_or(together, Filter::All));
            if !self.pass(b"||") {
                return Ok(one_or(alternatives, Filter::Any));
            }
        }
    }

    fn condition(&mut self) -> Result<Filter, BadPath> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(self.wrong("fewer brackets"));
        }
        self.blanks();
        let condition = if self.rest().starts_with(b"!") && !self.rest().starts_with(b"!=") {
            self.at += 1;
            Filter::Not(Box::new(self.condition()?))
        } else if self.pass(b"(") {
            let inner = self.filter()?;
            if !self.pass(b")") {
                return Err(self.wrong("')'"));
            }
            inner
        } else {
            self.comparison()?
        };
        self.nesting -= 1;
        Ok(condition)
    }

    fn comparison(&mut self) -> Result<Filter, BadPath> {
        let left = self.term()?;
        let operators: [(&[u8], Operator); 7] = [
            (b"==", Operator::Equal),
            (b"!=", Operator::Unequal),
            (b">=", Operator::AtLeast),
            (b"<=", Operator::AtMost),
            (b"=~", Operator::Matches),
            (b">", Operator::Above),
            (b"<", Operator::Below),
        ];
        let Some((_, operator)) = operators.into_iter().find(|(word, _)| self.pass(word)) else {
            return Ok(Filter::Exists(left));
        };
        let right = self.term()?;
        if operator == Operator::Matches {
            return Ok(Filter::Matches(left, Pattern::new(right)));
        }
        Ok(Filter::Compare(left, operator, right))
    }

    fn term(&mut self) -> Result<Term, BadPath> {
        self.blanks();
        match self.peek() {
            Some(start @ (b'@' | b'$')) => {
                self.at += 1;
                let steps = self.term_steps()?;
                Ok(if start == b'@' { Term::Current(steps) } else { Term::Root(steps) })
            }
            Some(b'\'' | b'"') => {
                let text = self.quoted()?;
                let mut node = Vec::new();
                crate::form::write_text(&mut node, &text);
                Ok(Term::Literal(node))
            }
            Some(b'[' | b'{') => self.structure(),
            _ => self.scalar(),
        }
    }

    /// Steps behind `@` or `$`, of which the first may be a bare name.
    fn term_steps(&mut self) -> Result<Vec<Step>, BadPath> {
        let mut steps = Vec::new();
        if self.peek().is_some_and(is_literal) || self.peek() == Some(b'*') {
            let first = self.after_dots()?;
            self.push(&mut steps, first)?;
        }
        steps.append(&mut self.steps()?);
        Ok(steps)
    }

    fn scalar(&mut self) -> Result<Term, BadPath> {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let len = self.rest().iter().take_while(|byte| is_part(byte)).count();
        let mut node = Vec::new();
        let text = self.rest().get(..len).unwrap_or_default();
        if parse_into(text, Default::default(), &mut node).is_err() {
            return Err(self.wrong(OPERAND));
        }
        self.at += len;
        Ok(Term::Literal(node))
    }

    /// An array or an object, up to its closing bracket.
    fn structure(&mut self) -> Result<Term, BadPath> {
        let (mut depth, mut is_quoted, mut is_escaped, mut len) = (0usize, false, false, 0);
        for &byte in self.rest() {
            len += 1;
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_quoted => is_escaped = true,
                b'"' => is_quoted = !is_quoted,
                b'[' | b'{' if !is_quoted => depth += 1,
                b']' | b'}' if !is_quoted => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        let mut node = Vec::new();
        let text = self.rest().get(..len).unwrap_or_default();
        if parse_into(text, Default::default(), &mut node).is_err() {
            return Err(self.wrong(OPERAND));
        }
        self.at += len;
        Ok(Term::Literal(node))
    }
}

fn one_or(mut filters: Vec<Filter>, join: fn(Vec<Filter>) -> Filter) -> Filter {
    if filters.len() == 1
        && let Some(only) = filters.pop()
    {
        return only;
    }
    join(filters)
}
