//! Glob patterns as KEYS, SCAN, PSUBSCRIBE, CONFIG GET and ACL rules use them.
//!
//! `*`, `?`, `[abc]`, `[a-z]`, `[^x]`, `\x`; a class that is never closed ends with the pattern. No recursion and at
//! most pattern length times text length steps, whatever the pattern; A pattern with more than `STARS_MAX` separate
//! stars matches nothing, as in Redis.

/// Stars, or runs of them, that a pattern may be tried after.
const STARS_MAX: usize = 1000;

/// Returns true if `pattern` matches all of `text`; `nocase` folds ASCII letters. Source: Redis stringmatchlen,
/// including that an empty text matches only an empty pattern.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if nocase { run::<true>(pattern, text) } else { run::<false>(pattern, text) }
}

/// The bytes before the first special byte of `pattern`: every text that matches begins with them.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|b| matches!(b, b'*' | b'?' | b'[' | b'\\'));
    end.map_or(pattern, |end| &pattern[..end])
}

fn run<const NOCASE: bool>(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to continue after a mismatch: the pattern after the last star, and the text position it was last tried
    // at.
    let mut retry: Option<(usize, usize)> = None;
    let mut stars = 0;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            while p < pattern.len() && pattern[p] == b'*' {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            retry = Some((p, t));
            continue;
        }
        match one::<NOCASE>(&pattern[p..], text[t]) {
            Some(width) => {
                p += width;
                t += 1;
            }
            None => {
                let Some((after_star, tried)) = retry else { return false };
                p = after_star;
                t = tried + 1;
                retry = Some((p, t));
            }
        }
    }
    // Every element but a star takes one byte, so no other start of the last star could do better from here.
    !text.is_empty() && pattern[p..].iter().all(|&b| b == b'*') || pattern.is_empty()
}

/// Length of the first element of `pattern`, which is not a star, when it matches `byte`.
#[inline]
fn one<const NOCASE: bool>(pattern: &[u8], byte: u8) -> Option<usize> {
    let (matched, width) = match *pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', ..] => class::<NOCASE>(pattern, byte),
        [b'\\', escaped, ..] => (same::<NOCASE>(escaped, byte), 2),
        [literal, ..] => (same::<NOCASE>(literal, byte), 1),
    };
    #[cfg(test)]
    tests::STEPS.with(|steps| steps.set(steps.get() + width.max(1) as u64));
    matched.then_some(width)
}

/// Returns whether the class at the start of `pattern` holds `byte`, and the length of the class.
fn class<const NOCASE: bool>(pattern: &[u8], byte: u8) -> (bool, usize) {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut found = false;
    while let Some(&member) = pattern.get(at) {
        match pattern[at..] {
            // Escaped members keep their case even when the rest is folded, as in Redis.
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => break,
            [from, b'-', to, ..] => {
                found |= in_range::<NOCASE>(from, to, byte);
                at += 3;
            }
            _ => {
                found |= same::<NOCASE>(member, byte);
                at += 1;
            }
        }
    }
    (found != negated, (at + 1).min(pattern.len()))
}

fn in_range<const NOCASE: bool>(from: u8, to: u8, byte: u8) -> bool {
    // C's `char` is signed on the platforms Redis is used on, and the ends may be in either order.
    let (low, high) = if (from as i8) <= (to as i8) { (from, to) } else { (to, from) };
    let fold = |b: u8| if NOCASE { b.to_ascii_lowercase() as i8 } else { b as i8 };
    (fold(low)..=fold(high)).contains(&fold(byte))
}

#[inline]
fn same<const NOCASE: bool>(a: u8, b: u8) -> bool {
    if NOCASE { a.eq_ignore_ascii_case(&b) } else { a == b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "a", true),
            ("*", "", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("a**", "a", true),
            ("*a", "bba", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("a\\", "a\\", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("[", "a", false),
            ("[^", "a", true),
            ("[^]", "a", true),
            ("[]", "]", false),
            ("[a-]", "-", false),
            ("[a-]", "a", true),
            ("[a-]", "]", true),
            ("[a\\-z]", "-", true),
            ("[a\\-z]", "b", false),
            ("[\\]]", "]", true),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("*?", "", false),
            ("*??", "abc", true),
            ("???*", "ab", false),
            ("foo*[0-9]", "foobar7", true),
            ("x*", "yx", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "{pattern:?} on {text:?}"
            );
        }
    }

    #[test]
    fn case_is_folded_on_request() {
        assert!(!matches(b"HeL*", b"hello", false));
        assert!(matches(b"HeL*", b"hello", true));
        assert!(matches(b"[A-C]x", b"bX", true));
        assert!(!matches(b"[\\A]", b"a", true));
        assert!(matches(b"\\A", b"a", true));
    }

    #[test]
    fn bytes_above_127_compare_signed_in_ranges() {
        assert!(matches(b"[\x80-\x01]", b"\xff", false));
        assert!(!matches(b"[\x80-\x01]", b"\x7f", false));
        assert!(matches(b"[\x80-\xff]", b"\x90", false));
    }

    #[test]
    fn hostile_patterns_take_bounded_time() {
        let text = vec![b'a'; 20_000];
        let start = std::time::Instant::now();
        let mut pattern = b"a*".repeat(500);
        pattern.push(b'b');
        assert!(!matches(&pattern, &text, false));
        assert!(!matches(&b"*?".repeat(50_000), &text, false));
        assert!(matches(&b"*?".repeat(STARS_MAX), &text, false));
        assert!(!matches(&b"*?".repeat(STARS_MAX + 1), &text, false), "as in Redis");
        assert!(matches(&b"a*".repeat(STARS_MAX + 1), &text, false), "the last one is followed by nothing");
        // Work that grows with a power of the stars would take hours.
        assert!(start.elapsed().as_secs() < 300);
    }

    #[test]
    fn random_patterns_agree_with_a_plain_recursive_matcher() {
        // Small alphabet without classes, so that a three-line oracle says all there is to say.
        fn oracle(p: &[u8], t: &[u8]) -> bool {
            match (p, t) {
                ([], _) => t.is_empty(),
                ([b'*', rest @ ..], _) => (0..=t.len()).any(|n| oracle(rest, &t[n..])),
                ([b'?', rest @ ..], [_, tail @ ..]) => oracle(rest, tail),
                ([c, rest @ ..], [d, tail @ ..]) => c == d && oracle(rest, tail),
                _ => false,
            }
        }
        let mut rng = Rng::new(4);
        let mut hits = 0;
        for _ in 0..100_000 {
            let pattern: Vec<u8> = (0..rng.below(8)).map(|_| b"ab*?"[rng.below(4) as usize]).collect();
            let text: Vec<u8> = (0..1 + rng.below(8)).map(|_| b"ab"[rng.below(2) as usize]).collect();
            let expected = oracle(&pattern, &text);
            hits += usize::from(expected);
            assert_eq!(matches(&pattern, &text, false), expected, "{pattern:?} on {text:?}");
        }
        assert!(hits > 1000);
    }

    #[test]
    fn random_bytes_never_reach_outside() {
        let mut rng = Rng::new(5);
        for _ in 0..200_000 {
            let special = b"[]^-\\*?ab";
            let pattern: Vec<u8> =
                (0..rng.below(12)).map(|_| special[rng.below(special.len() as u64) as usize]).collect();
            let text: Vec<u8> = (0..rng.below(6)).map(|_| special[rng.below(9) as usize]).collect();
            let sensitive = matches(&pattern, &text, false);
            // Folding can only add matches when nothing is negated.
            assert!(!sensitive || matches(&pattern, &text, true) || pattern.contains(&b'^'));
        }
    }

    #[test]
    fn the_prefix_ends_at_the_first_special_byte() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"user"), b"user");
        assert_eq!(literal_prefix(b"[a]"), b"");
    }

    thread_local! {
        /// Bytes of patterns looked at.
        pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn no_pattern_takes_more_than_its_length_times_that_of_the_text() {
        let text = [&[b'a'; 2_000][..], b"b"].concat();
        let class = [&b"*["[..], &[b'b'; 200], b"]", b"*c"].concat();
        let patterns = [
            b"*a*a*a*a*a*a*a*a*a*a*a*c".to_vec(),
            [b"*[a]".repeat(60), b"x".to_vec()].concat(),
            class,
            b"a?".repeat(90),
        ];
        let nested = [b"*".repeat(300), b"a".repeat(300), b"*".repeat(300), b"c".to_vec()].concat();
        for pattern in
            patterns.into_iter().chain([nested, [b"*".to_vec(), b"?".repeat(400), b"c".to_vec()].concat()])
        {
            STEPS.with(|steps| steps.set(0));
            assert!(!matches(&pattern, &text, true));
            let steps = STEPS.with(std::cell::Cell::get);
            let bound = (pattern.len() * text.len()) as u64;
            assert!(steps <= bound, "{} takes {steps} steps, over {bound}", pattern.escape_ascii());
        }
    }
}
