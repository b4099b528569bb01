//! Conditions on labels: `label=value`, `label!=value`, `label=(a,b)`, `label!=(a,b)`, `label=`, `label!=`

use darter_store::labels::{Matcher, Sort};

use crate::Fault;

const BAD: Fault = Fault::text("ERR TSDB: failed parsing labels");

/// The conditions in `words`, at least one of which names values that a series must have.
pub(super) fn matchers<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Matcher>, Fault> {
    let matchers = words.map(matcher).collect::<Result<Vec<_>, Fault>>()?;
    if !matchers.iter().any(|matcher| matcher.sort == Sort::OneOf) {
        return Err(Fault::text("ERR TSDB: please provide at least one matcher"));
    }
    Ok(matchers)
}

fn matcher(word: &[u8]) -> Result<Matcher, Fault> {
    let at = word.iter().position(|&byte| byte == b'=').ok_or(BAD)?;
    let (label, value) = (word.get(..at).unwrap_or_default(), word.get(at + 1..).unwrap_or_default());
    let (label, is_not) = match label.strip_suffix(b"!") {
        Some(label) => (label, true),
        None => (label, false),
    };
    if label.is_empty() {
        return Err(BAD);
    }
    let values: Vec<Box<[u8]>> = match value {
        [] => {
            let sort = if is_not { Sort::There } else { Sort::Missing };
            return Ok(Matcher { label: label.into(), sort, values: Vec::new() });
        }
        [b'(', list @ .., b')'] => list
            .split(|&byte| byte == b',')
            .filter(|value| !list.is_empty() || !value.is_empty())
            .map(|value| if value.is_empty() { Err(BAD) } else { Ok(value.into()) })
            .collect::<Result<_, Fault>>()?,
        [b'(', ..] => return Err(BAD),
        value => vec![value.into()],
    };
    let sort = if is_not { Sort::NoneOf } else { Sort::OneOf };
    Ok(Matcher { label: label.into(), sort, values })
}
