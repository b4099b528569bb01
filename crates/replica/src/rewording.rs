//! Commands as a journal holds them, in words that do the same whenever and wherever they run.
//!
//! Times become absolute, options that were met are left out, and a waiting client's command no longer waits.

use std::borrow::Cow;

use darter_base::number;

/// A word of a command.
pub type Word<'a> = Cow<'a, [u8]>;

/// What a command of a journal is in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reworded<'a> {
    /// The same words.
    AsItIs,
    /// Other words.
    As(Vec<Word<'a>>),
    /// Nothing: it changed no data.
    Nothing,
}

/// Rewords a command that ran at `clock_ms`; `served` is the only key it looked at, if there was one.
pub fn reword<'a>(words: &[&'a [u8]], served: Option<&'a [u8]>, clock_ms: u64) -> Reworded<'a> {
    let Some(name) = words.first() else { return Reworded::Nothing };
    if is(name, "set") && words.len() == 3 {
        return Reworded::AsItIs;
    }
    let name = name.to_ascii_lowercase();
    let Some(key) = words.get(1).copied() else { return Reworded::AsItIs };
    let at = |index: usize| words.get(index).copied().unwrap_or_default();
    match name.as_slice() {
        b"set" => set(words, clock_ms),
        b"setnx" | b"getset" => As(&[b"SET", key, at(2)]),
        b"setex" => set_until(key, at(3), after(at(2), 1000, clock_ms), clock_ms),
        b"psetex" => set_until(key, at(3), after(at(2), 1, clock_ms), clock_ms),
        b"getdel" => As(&[b"DEL", key]),
        b"getex" if is(at(2), "persist") => As(&[b"PERSIST", key]),
        b"getex" => expire(key, deadline(at(2), at(3), clock_ms), clock_ms),
        b"expire" => expire(key, after(at(2), 1000, clock_ms), clock_ms),
        b"pexpire" => expire(key, after(at(2), 1, clock_ms), clock_ms),
        b"expireat" => expire(key, after(at(2), 1000, 0), clock_ms),
        b"pexpireat" => expire(key, after(at(2), 1, 0), clock_ms),
        b"blpop" => pop(words, served, "LPOP", "LEFT"),
        b"brpop" => pop(words, served, "RPOP", "RIGHT"),
        b"bzpopmin" => pop(words, served, "ZPOPMIN", "MIN"),
        b"bzpopmax" => pop(words, served, "ZPOPMAX", "MAX"),
        b"brpoplpush" => As(&[b"RPOPLPUSH", key, at(2)]),
        b"blmove" => As(&[b"LMOVE", key, at(2), at(3), at(4)]),
        b"blmpop" => pop_many(words, served, b"LMPOP"),
        b"bzmpop" => pop_many(words, served, b"ZMPOP"),
        b"xreadgroup" => without_waiting(words, served),
        _ => Reworded::AsItIs,
    }
}

/// Whether a command that may say a time that counts from when it runs does so.
pub fn counts_from_now(words: &[&[u8]]) -> bool {
    let Some(name) = words.first() else { return false };
    let options = match name.len() {
        3 => words.get(3..),
        5 if is(name, "getex") => words.get(2..),
        _ => return true,
    };
    options.unwrap_or_default().iter().any(|word| is(word, "ex") || is(word, "px"))
}

#[expect(non_snake_case, reason = "it stands for the variant of that name")]
fn As<'a>(words: &[&'a [u8]]) -> Reworded<'a> {
    Reworded::As(words.iter().map(|word| Cow::Borrowed(*word)).collect())
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// `base_ms` and a number of units of `unit_ms` after it; `None`: no number.
fn after(text: &[u8], unit_ms: i64, base_ms: u64) -> Option<i64> {
    let base = i64::try_from(base_ms).ok()?;
    number::parse_i64(text)?.checked_mul(unit_ms)?.checked_add(base)
}

/// The time that an option such as `EX 10` says.
fn deadline(option: &[u8], text: &[u8], clock_ms: u64) -> Option<i64> {
    match option.to_ascii_lowercase().as_slice() {
        b"ex" => after(text, 1000, clock_ms),
        b"px" => after(text, 1, clock_ms),
        b"exat" => after(text, 1000, 0),
        b"pxat" => after(text, 1, 0),
        _ => None,
    }
}

fn expire<'a>(key: &'a [u8], at_ms: Option<i64>, clock_ms: u64) -> Reworded<'a> {
    match at_ms {
        None => Reworded::Nothing,
        Some(ms) if is_past(ms, clock_ms) => As(&[b"DEL", key]),
        Some(ms) => Reworded::As(vec![b"PEXPIREAT".into(), key.into(), ms.to_string().into_bytes().into()]),
    }
}

fn is_past(ms: i64, clock_ms: u64) -> bool {
    u64::try_from(ms).unwrap_or(0) <= clock_ms
}

fn set_until<'a>(key: &'a [u8], value: &'a [u8], at_ms: Option<i64>, clock_ms: u64) -> Reworded<'a> {
    match at_ms {
        None => Reworded::Nothing,
        Some(ms) if is_past(ms, clock_ms) => As(&[b"DEL", key]),
        Some(ms) => Reworded::As(vec![
            b"SET".into(),
            key.into(),
            value.into(),
            b"PXAT".into(),
            ms.to_string().into_bytes().into(),
        ]),
    }
}

fn set<'a>(words: &[&'a [u8]], clock_ms: u64) -> Reworded<'a> {
    let at = |index: usize| words.get(index).copied().unwrap_or_default();
    let (key, value, mut index) = (at(1), at(2), 3);
    while index < words.len() {
        let option = at(index);
        if let Some(ms) = deadline(option, at(index + 1), clock_ms) {
            return set_until(key, value, Some(ms), clock_ms);
        }
        if is(option, "keepttl") {
            return As(&[b"SET", key, value, b"KEEPTTL"]);
        }
        let has_value = ["ifeq", "ifne", "ifdeq", "ifdne"].iter().any(|name| is(option, name));
        index += if has_value { 2 } else { 1 };
    }
    As(&[b"SET", key, value])
}

/// A pop that waited: of the key it was served by, or of the first of its keys that is not empty.
fn pop<'a>(
    words: &[&'a [u8]],
    served: Option<&'a [u8]>,
    one: &'static str,
    side: &'static str,
) -> Reworded<'a> {
    let keys = words.get(1..words.len().saturating_sub(1)).unwrap_or_default();
    match (served, keys) {
        (Some(key), _) => As(&[one.as_bytes(), key]),
        (None, [key]) => As(&[one.as_bytes(), key]),
        _ => {
            let name: &[u8] = if one.starts_with('Z') { b"ZMPOP" } else { b"LMPOP" };
            let mut out: Vec<Word<'a>> = vec![name.into(), keys.len().to_string().into_bytes().into()];
            out.extend(keys.iter().map(|key| Cow::Borrowed(*key)));
            out.push(side.as_bytes().into());
            Reworded::As(out)
        }
    }
}

/// BLMPOP and BZMPOP: `timeout numkeys key... side [COUNT n]`.
fn pop_many<'a>(words: &[&'a [u8]], served: Option<&'a [u8]>, name: &'static [u8]) -> Reworded<'a> {
    let count = words.get(2).and_then(|text| number::parse_i64(text)).and_then(|n| usize::try_from(n).ok());
    let rest = count.and_then(|count| words.get(count.checked_add(3)?..)).unwrap_or_default();
    match served {
        Some(key) => {
            let mut out: Vec<Word<'a>> = vec![name.into(), b"1".into(), key.into()];
            out.extend(rest.iter().map(|word| Cow::Borrowed(*word)));
            Reworded::As(out)
        }
        None => {
            let mut out: Vec<Word<'a>> = vec![name.into()];
            out.extend(words.iter().skip(2).map(|word| Cow::Borrowed(*word)));
            Reworded::As(out)
        }
    }
}

/// XREADGROUP without BLOCK, of the stream it was served by.
fn without_waiting<'a>(words: &[&'a [u8]], served: Option<&'a [u8]>) -> Reworded<'a> {
    let mut out: Vec<Word<'a>> = Vec::with_capacity(words.len());
    let mut index = 0;
    while let Some(word) = words.get(index) {
        // Behind GROUP come two names.
        if index >= 4 && is(word, "block") {
            index += 2;
            continue;
        }
        out.push(Cow::Borrowed(*word));
        index += 1;
        if index > 4 && is(word, "streams") {
            break;
        }
    }
    let streams = words.get(index..).unwrap_or_default();
    let (keys, ids) = streams.split_at(streams.len() / 2);
    let only = |key: &[u8]| served.is_none_or(|served| served == key);
    let mut chosen = (0..keys.len()).filter(|at| keys.get(*at).is_some_and(|key| only(key)));
    let places: Vec<usize> = match served {
        Some(_) => chosen.next().into_iter().collect(),
        None => chosen.collect(),
    };
    for list in [keys, ids] {
        out.extend(places.iter().filter_map(|at| list.get(*at)).map(|word| Cow::Borrowed(*word)));
    }
    Reworded::As(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str, served: Option<&str>) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match reword(&words, served.map(str::as_bytes), 1_000_000) {
            Reworded::AsItIs => "=".to_owned(),
            Reworded::Nothing => String::new(),
            Reworded::As(words) => {
                let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                words.join(" ")
            }
        }
    }

    #[test]
    fn times_are_absolute_and_met_conditions_are_left_out() {
        for (line, expected) in [
            ("set k v", "="),
            ("set k v NX GET", "SET k v"),
            ("set k v XX EX 10", "SET k v PXAT 1010000"),
            ("set k v IFEQ pxat PXAT 2000000", "SET k v PXAT 2000000"),
            ("set k v EXAT 1", "DEL k"),
            ("set k v KEEPTTL GET", "SET k v KEEPTTL"),
            ("setnx k v", "SET k v"),
            ("getset k v", "SET k v"),
            ("setex k 2 v", "SET k v PXAT 1002000"),
            ("psetex k 2 v", "SET k v PXAT 1000002"),
            ("getdel k", "DEL k"),
            ("getex k PX 5", "PEXPIREAT k 1000005"),
            ("getex k PERSIST", "PERSIST k"),
            ("expire k 10 GT", "PEXPIREAT k 1010000"),
            ("expire k -1", "DEL k"),
            ("pexpireat k 999", "DEL k"),
            ("expireat k 5000", "PEXPIREAT k 5000000"),
            ("hset k f v", "="),
            ("flushall", "="),
        ] {
            assert_eq!(said(line, None), expected, "{line}");
        }
    }

    #[test]
    fn only_times_that_count_from_now_are_found() {
        for (line, expected) in [
            ("SET k v", false),
            ("SET k v PXAT 5", false),
            ("set k v NX px 5", true),
            ("setex k 5 v", true),
            ("GETEX k PERSIST", false),
            ("GETEX k EX 1", true),
            ("expire k 5", true),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(counts_from_now(&words), expected, "{line}");
        }
    }

    #[test]
    fn commands_that_waited_do_not_wait_again() {
        for (line, served, expected) in [
            ("blpop a b 0", Some("b"), "LPOP b"),
            ("blpop a 0", None, "LPOP a"),
            ("brpop a b 0", None, "LMPOP 2 a b RIGHT"),
            ("bzpopmin a b 1.5", Some("a"), "ZPOPMIN a"),
            ("bzpopmax a b 0", None, "ZMPOP 2 a b MAX"),
            ("brpoplpush a b 0", Some("a"), "RPOPLPUSH a b"),
            ("blmove a b LEFT RIGHT 0", Some("a"), "LMOVE a b LEFT RIGHT"),
            ("blmpop 0 2 a b LEFT COUNT 3", Some("b"), "LMPOP 1 b LEFT COUNT 3"),
            ("bzmpop 0 2 a b MIN", None, "ZMPOP 2 a b MIN"),
            (
                "xreadgroup GROUP block c COUNT 2 BLOCK 0 STREAMS s t > >",
                Some("t"),
                "xreadgroup GROUP block c COUNT 2 STREAMS t >",
            ),
            ("xreadgroup GROUP g c STREAMS s t > 0", None, "xreadgroup GROUP g c STREAMS s t > 0"),
        ] {
            assert_eq!(said(line, served), expected, "{line}");
        }
    }
}
