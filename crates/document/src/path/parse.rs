//! The grammar of paths that begin with `$`.

use super::expression::{Arithmetic, Expression, Sign};
use super::filter::{Filter, Operator};
use super::function::Function;
use super::pattern::{MatchExtent, PathPattern};
use super::{BadPath, PathStep};
use crate::parse::parse_into;

/// Longest path in bytes.
pub const LEN_MAX: usize = 64 << 10;
/// Most steps of a path, those in its filters included.
pub const STEPS_MAX: usize = 4096;
/// Longer paths are parsed.
const PLAIN_BYTES_MAX: usize = 256;
/// Levels of brackets in filters and expressions; a filter takes two.
const NESTING_MAX: usize = 256;
/// Steps that an operator or a method counts as, because its evaluation is a recursion.
const OPERATOR_STEPS: usize = 16;

const SEGMENT: &str = "one of the following: '.', '..', '[' or the end";
const BRACKET: &str =
    "one of the following: '<string>[,<string>,...]', '<number>', ['start:end:steps'], '*', '?'";
const OPERAND: &str = "one of the following: a number, a text in quotes, true, false, null, '@' or '$'";

/// A path from the root, or an expression.
///
/// Errors: invalid.
pub(super) fn query(text: &[u8]) -> Result<Expression, BadPath> {
    let mut reader = PathReader { text, at: 0, steps: 0, nesting: 0 };
    if text.len() > LEN_MAX {
        return Err(BadPath { text: format!("ERR a path is longer than {LEN_MAX} bytes") });
    }
    let expression = reader.expression()?;
    reader.blanks();
    if reader.at < text.len() { Err(reader.wrong(SEGMENT)) } else { Ok(expression) }
}

/// The steps of a path of names and nothing else, which most are: each behind a dot, the first perhaps without. `None`: the
/// grammar below reads it.
pub(super) fn names_only(text: &[u8]) -> Option<Vec<PathStep>> {
    let mut rest = text.strip_prefix(b".").unwrap_or(text);
    let mut steps = Vec::with_capacity(2);
    loop {
        let len = rest.iter().take_while(|byte| is_literal(**byte)).count();
        let (name, after) = rest.split_at(len);
        if name.is_empty() || steps.len() == STEPS_MAX {
            return None;
        }
        steps.push(PathStep::Name(name.into()));
        match after {
            [] if text.len() < LEN_MAX => return Some(steps),
            [b'.', after @ ..] => rest = after,
            _ => return None,
        }
    }
}

/// Returns true if `names` are such, with dots between them, that [`names_only`] takes.
pub(super) fn are_plain(names: &[u8]) -> bool {
    let mut len = 0;
    names.len() <= PLAIN_BYTES_MAX
        && names.iter().all(|byte| {
            len = if *byte == b'.' && len > 0 { 0 } else { len + 1 };
            len == 0 || is_literal(*byte)
        })
        && len > 0
}

/// Returns true if a path is not a legacy one: it begins at the root, or it can only be an expression.
pub(super) fn is_rooted(text: &[u8]) -> bool {
    let after_blanks = |text: &[u8]| text.iter().position(|byte| *byte != b' ').map_or(0, |at| at);
    let is_operand = |text: &[u8]| matches!(text, [b'$'] | [b'$', b'.' | b'[' | b'~', ..] | [b'(', ..]);
    match text {
        [b'-' | b'+', rest @ ..] => is_operand(rest.get(after_blanks(rest)..).unwrap_or_default()),
        [first, ..] if first.is_ascii_alphabetic() || *first == b'_' => {
            let name = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
            let rest = text.get(name..).unwrap_or_default();
            rest.get(after_blanks(rest)) == Some(&b'(')
        }
        _ => is_operand(text),
    }
}

struct PathReader<'t> {
    text: &'t [u8],
    at: usize,
    steps: usize,
    nesting: usize,
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_`+#%$^/:".contains(&byte) || byte >= 0x80
}

impl<'t> PathReader<'t> {
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

    fn push(&mut self, out: &mut Vec<PathStep>, step: PathStep) -> Result<(), BadPath> {
        out.push(step);
        self.count_steps(1)
    }

    fn count_steps(&mut self, steps: usize) -> Result<(), BadPath> {
        self.steps += steps;
        if self.steps > STEPS_MAX {
            return Err(BadPath { text: format!("ERR a path has more than {STEPS_MAX} steps") });
        }
        Ok(())
    }

    /// Steps up to what begins none.
    fn steps(&mut self) -> Result<Vec<PathStep>, BadPath> {
        let mut out = Vec::new();
        loop {
            let begun = self.at;
            if self.pass(b"..") {
                self.push(&mut out, PathStep::Deep)?;
                let step = self.after_dots()?;
                self.push(&mut out, step)?;
            } else if !self.is_method_next() && self.pass(b".") {
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

    fn after_dots(&mut self) -> Result<PathStep, BadPath> {
        if self.pass(b"[") {
            return self.bracket();
        }
        if self.pass(b"*") {
            return Ok(PathStep::All);
        }
        let len = self.rest().iter().take_while(|byte| is_literal(**byte)).count();
        let name = self.rest().get(..len).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.wrong("one of the following: a name, '*', '['"))?;
        self.at += len;
        Ok(PathStep::Name(name.into()))
    }

    fn bracket(&mut self) -> Result<PathStep, BadPath> {
        self.blanks();
        let step = match self.peek() {
            Some(b'\'' | b'"') => {
                let first = self.quoted()?;
                let mut others = Vec::new();
                while self.pass(b",") {
                    self.blanks();
                    others.push(self.quoted()?);
                }
                if others.is_empty() {
                    PathStep::Name(first)
                } else {
                    PathStep::Names([vec![first], others].concat())
                }
            }
            Some(b'*') => {
                self.at += 1;
                PathStep::All
            }
            Some(b'?') => {
                self.at += 1;
                PathStep::Filter(self.filter()?)
            }
            _ => self.indexes()?,
        };
        if self.pass(b"]") { Ok(step) } else { Err(self.wrong(BRACKET)) }
    }

    fn indexes(&mut self) -> Result<PathStep, BadPath> {
        let first = self.integer();
        if self.pass(b":") {
            let end = self.integer();
            let step = if self.pass(b":") { self.integer() } else { None };
            let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0);
            return Ok(PathStep::Slice {
                start: first,
                end,
                step: step.ok_or_else(|| self.wrong("a step above 0"))?,
            });
        }
        let mut indexes = vec![first.ok_or_else(|| self.wrong(BRACKET))?];
        while self.pass(b",") {
            indexes.push(self.integer().ok_or_else(|| self.wrong("a number"))?);
        }
        Ok(PathStep::Indexes(indexes))
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

    fn deeper(&mut self) -> Result<(), BadPath> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX { Err(self.wrong("fewer brackets")) } else { Ok(()) }
    }

    fn condition(&mut self) -> Result<Filter, BadPath> {
        self.deeper()?;
        self.blanks();
        let condition = if self.rest().starts_with(b"!") && !self.rest().starts_with(b"!=") {
            self.at += 1;
            Filter::Not(Box::new(self.condition()?))
        } else if self.peek() == Some(b'(') && !self.is_operand_group() {
            self.at += 1;
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

    /// Returns true if an operator or a method follows the bracket that is closed: it is around an operand.
    fn is_operand_group(&self) -> bool {
        let (mut depth, mut quote, mut is_escaped) = (0usize, None, false);
        for (at, &byte) in self.rest().iter().enumerate() {
            match (quote, byte) {
                _ if is_escaped => is_escaped = false,
                (Some(_), b'\\') => is_escaped = true,
                (Some(open), byte) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'\'' | b'"') => quote = Some(byte),
                (None, b'(') => depth += 1,
                (None, b')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let after = PathReader { at: self.at + at + 1, ..*self };
                return after.is_operator_next();
            }
        }
        false
    }

    fn is_operator_next(&self) -> bool {
        let mut ahead = PathReader { ..*self };
        ahead.blanks();
        ahead.is_method_next()
            || matches!(ahead.peek(), Some(b'+' | b'-' | b'*' | b'/' | b'%' | b'~'))
            || Operator::SIGNS.iter().any(|(sign, _)| ahead.rest().starts_with(sign))
            || ahead.word_operator().is_some()
    }

    /// The operator that is a word and comes next, and its length.
    fn word_operator(&self) -> Option<(usize, Operator)> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let fits = |word: &[u8]| {
            self.rest()
                .strip_prefix(word)
                .is_some_and(|rest| !rest.first().is_some_and(|byte| is_part(*byte)))
        };
        Operator::WORDS.iter().find(|(word, _)| fits(word)).map(|(word, operator)| (word.len(), *operator))
    }

    fn comparison(&mut self) -> Result<Filter, BadPath> {
        let left = self.expression()?;
        self.blanks();
        let operator = match Operator::SIGNS.into_iter().find(|(word, _)| self.pass(word)) {
            Some((_, operator)) => operator,
            None => match self.word_operator() {
                Some((len, operator)) => {
                    self.at += len;
                    operator
                }
                None => return Ok(Filter::Exists(left)),
            },
        };
        let right = self.expression()?;
        if operator == Operator::Matches {
            return Ok(Filter::Matches(left, PathPattern::new(right, MatchExtent::Part)));
        }
        Ok(Filter::Compare(left, operator, right))
    }

    /// Sums of products.
    fn expression(&mut self) -> Result<Expression, BadPath> {
        self.deeper()?;
        let mut left = self.product()?;
        loop {
            let operation = match () {
                () if self.pass(b"+") => Arithmetic::Add,
                () if self.pass(b"-") => Arithmetic::Subtract,
                () => break,
            };
            left = Expression::Arithmetic(Box::new(left), operation, Box::new(self.product()?));
            self.count_steps(OPERATOR_STEPS)?;
        }
        self.nesting -= 1;
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, BadPath> {
        let mut left = self.factor()?;
        loop {
            let operation = match () {
                () if self.pass(b"*") => Arithmetic::Multiply,
                () if self.pass(b"/") => Arithmetic::Divide,
                () if self.pass(b"%") => Arithmetic::Remainder,
                () => return Ok(left),
            };
            left = Expression::Arithmetic(Box::new(left), operation, Box::new(self.factor()?));
            self.count_steps(OPERATOR_STEPS)?;
        }
    }

    /// An operand with its sign.
    fn factor(&mut self) -> Result<Expression, BadPath> {
        let sign = match () {
            () if self.pass(b"-") => Some(Sign::Minus),
            () if self.pass(b"+") => Some(Sign::Plus),
            () => None,
        };
        let operand = self.operand()?;
        Ok(match sign {
            Some(sign) => Expression::Signed(sign, Box::new(operand)),
            None => operand,
        })
    }

    fn operand(&mut self) -> Result<Expression, BadPath> {
        if self.pass(b"(") {
            let inner = self.expression()?;
            return if self.pass(b")") { Ok(inner) } else { Err(self.wrong("')'")) };
        }
        let mut operand = self.term()?;
        if self.pass(b"~") {
            return Ok(Expression::Call(Some(Function::Keys), vec![operand]));
        }
        while self.is_method_next() {
            self.pass(b".");
            operand = self.call(Some(operand))?;
            self.count_steps(OPERATOR_STEPS)?;
        }
        Ok(operand)
    }

    /// Returns true if a dot, a name and an opening bracket come next.
    fn is_method_next(&self) -> bool {
        let mut ahead = PathReader { ..*self };
        ahead.pass(b".") && ahead.is_call_next()
    }

    /// Returns true if a name and an opening bracket come next.
    fn is_call_next(&self) -> bool {
        let mut ahead = PathReader { ..*self };
        ahead.blanks();
        let len = ahead.function_len();
        ahead.at += len;
        len > 0 && ahead.pass(b"(")
    }

    fn function_len(&self) -> usize {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        match self.peek() {
            Some(first) if first.is_ascii_alphabetic() => self.rest().iter().take_while(is_part).count(),
            _ => 0,
        }
    }

    /// A call of a function, with `receiver` before its words.
    fn call(&mut self, receiver: Option<Expression>) -> Result<Expression, BadPath> {
        self.blanks();
        let name = self.rest().get(..self.function_len()).unwrap_or_default();
        self.at += name.len();
        self.pass(b"(");
        let mut words: Vec<Expression> = receiver.into_iter().collect();
        if !self.pass(b")") {
            loop {
                words.push(self.expression()?);
                if self.pass(b")") {
                    break;
                }
                if !self.pass(b",") {
                    return Err(self.wrong("',' or ')'"));
                }
            }
        }
        let extent = match name {
            b"match" => MatchExtent::Whole,
            b"search" => MatchExtent::Part,
            _ => return Ok(Expression::Call(Function::named(name), words)),
        };
        let mut words = words.into_iter();
        Ok(match (words.next(), words.next()) {
            (Some(text), Some(pattern)) => {
                Expression::Matches(Box::new(text), PathPattern::new(pattern, extent))
            }
            _ => Expression::Literal(vec![crate::form::FALSE]),
        })
    }

    fn term(&mut self) -> Result<Expression, BadPath> {
        self.blanks();
        match self.peek() {
            Some(start @ (b'@' | b'$')) => {
                self.at += 1;
                let steps = self.term_steps()?;
                Ok(if start == b'@' { Expression::Current(steps) } else { Expression::Root(steps) })
            }
            Some(b'\'' | b'"') => {
                let text = self.quoted()?;
                let mut node = Vec::new();
                crate::form::write_text(&mut node, &text);
                Ok(Expression::Literal(node))
            }
            Some(b'[' | b'{') => self.structure(),
            _ if self.is_call_next() => self.call(None),
            _ => self.scalar(),
        }
    }

    /// Steps behind `@` or `$`, of which the first may be a bare name.
    fn term_steps(&mut self) -> Result<Vec<PathStep>, BadPath> {
        let mut steps = Vec::new();
        let is_bare = self.peek().is_some_and(is_literal) && self.word_operator().is_none();
        if is_bare || self.peek() == Some(b'*') {
            let first = self.after_dots()?;
            self.push(&mut steps, first)?;
        }
        steps.append(&mut self.steps()?);
        Ok(steps)
    }

    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<Expression, BadPath> {
        let len = self.scalar_len();
        let mut node = Vec::new();
        if parse_into(self.rest().get(..len).unwrap_or_default(), Default::default(), &mut node).is_err() {
            return Err(self.wrong(OPERAND));
        }
        self.at += len;
        Ok(Expression::Literal(node))
    }

    /// Bytes of the number without a sign, or of the word, that comes next.
    fn scalar_len(&self) -> usize {
        let rest = self.rest();
        let digits = |from: usize| {
            rest.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let mut len = digits(0);
        if len == 0 {
            return rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        }
        if rest.get(len) == Some(&b'.') && digits(len + 1) > 0 {
            len += 1 + digits(len + 1);
        }
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            let signed = len + 1 + usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
            len = if digits(signed) > 0 { signed + digits(signed) } else { len };
        }
        len
    }

    /// An array or an object.
    fn structure(&mut self) -> Result<Expression, BadPath> {
        let mut node = Vec::new();
        self.value(&mut node)?;
        Ok(Expression::Literal(node))
    }

    /// Appends a JSON value, whose texts may be in quotes of either kind.
    fn value(&mut self, out: &mut Vec<u8>) -> Result<(), BadPath> {
        self.blanks();
        let (start, mut count) = (out.len(), 0);
        match self.peek() {
            Some(b'\'' | b'"') => crate::form::write_text(out, &self.quoted()?),
            Some(open @ (b'[' | b'{')) => {
                self.deeper()?;
                self.at += 1;
                let close: &[u8] = if open == b'[' { b"]" } else { b"}" };
                while !self.pass(close) {
                    if count > 0 && !self.pass(b",") {
                        return Err(self.wrong("',' or the closing bracket"));
                    }
                    if open == b'{' {
                        self.blanks();
                        crate::form::write_name(out, crate::form::MemberName::Own(&self.quoted()?));
                        if !self.pass(b":") {
                            return Err(self.wrong("':'"));
                        }
                    }
                    self.value(out)?;
                    count += 1;
                }
                let tag = if open == b'[' { crate::form::ARRAY } else { crate::form::OBJECT };
                crate::form::close(out, start, tag, count);
                self.nesting -= 1;
            }
            _ => {
                let sign = usize::from(self.peek() == Some(b'-'));
                let begun = self.at;
                self.at += sign;
                let end = self.at + self.scalar_len();
                let text = self.text.get(begun..end).unwrap_or_default();
                if parse_into(text, Default::default(), out).is_err() {
                    return Err(self.wrong(OPERAND));
                }
                self.at = end;
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;

    use super::*;

    #[test]
    fn paths_of_names_are_what_the_grammar_makes_of_them() {
        const PARTS: [&str; 20] = [
            "$", ".", ".", "a", "b1", "-", "+", "_x", "é", " ", "..", "*", "[0]", "['n']", "(", "length",
            "$", "^/", "true", "~",
        ];
        let mut rng = Rng::new(5);
        let mut taken = 0;
        for _ in 0..200_000 {
            let len = 1 + rng.below(6);
            let text: String = (0..len).map(|_| PARTS[rng.below(PARTS.len() as u64) as usize]).collect();
            let (rooted, names) = match text.as_bytes() {
                bytes @ [b'$', rest @ ..] if is_rooted(bytes) => (text.clone(), names_only(rest)),
                bytes if is_rooted(bytes) => continue,
                bytes @ [b'.', ..] => (format!("${text}"), names_only(bytes)),
                bytes => (format!("$.{text}"), names_only(bytes)),
            };
            let Some(steps) = names else { continue };
            taken += 1;
            let Ok(Expression::Root(read)) = query(rooted.as_bytes()) else {
                panic!("{text:?} is another thing")
            };
            assert_eq!(format!("{steps:?}"), format!("{read:?}"), "{text:?}");
        }
        assert!(taken > 5000, "{taken}");
    }
}
