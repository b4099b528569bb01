//! Whether a script can only touch the keys its caller names, told from its source alone.
//!
//! A script of which this is shown runs with the shards of those keys; of any other all shards are held. So a doubt
//! must always end in "no": every form not known here is one.

use darter_command::{Keys, Rarity, Reach};

use crate::registry::{Registry, RunKind};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LuaToken<'a> {
    Name(&'a [u8]),
    /// A string without escapes.
    Text(&'a [u8]),
    Number,
    Sign(u8),
    /// `==`, `~=`, `..` and the like.
    Operator,
    /// `...`, as many values as there are.
    Rest,
}

/// Whether every command that `code` can call has only keys that are elements of `KEYS`.
pub fn is_contained(registry: &Registry, code: &[u8]) -> bool {
    let Some(tokens) = tokens_of(code) else { return false };
    let source = KeySource { registry, tokens: &tokens, depths: depths_of(&tokens) };
    source.is_contained()
}

/// Splits the source; `None` for what is not looked through: long strings, long comments, escapes.
fn tokens_of(code: &[u8]) -> Option<Vec<LuaToken<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(&first) = rest.first() {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = match first {
            b' ' | b'\t' | b'\r' | b'\n' => 1,
            b'-' if rest.starts_with(b"--[") => return None,
            b'-' if rest.starts_with(b"--") => rest.iter().take_while(|byte| **byte != b'\n').count(),
            b'[' if rest.starts_with(b"[[") || rest.starts_with(b"[=") => return None,
            b'"' | b'\'' => {
                let len =
                    rest[1..].iter().position(|&byte| matches!(byte, b'\\' | b'\n') || byte == first)?;
                if rest[1 + len] != first {
                    return None;
                }
                tokens.push(LuaToken::Text(&rest[1..=len]));
                len + 2
            }
            _ if first.is_ascii_digit() => {
                tokens.push(LuaToken::Number);
                rest.iter().take_while(|byte| is_word(byte) || **byte == b'.').count()
            }
            _ if is_word(&first) => {
                let len = rest.iter().take_while(|byte| is_word(byte)).count();
                tokens.push(LuaToken::Name(&rest[..len]));
                len
            }
            _ if rest.starts_with(b"...") => {
                tokens.push(LuaToken::Rest);
                3
            }
            _ if [&b"=="[..], b"~=", b"<=", b">=", b".."].iter().any(|two| rest.starts_with(two)) => {
                tokens.push(LuaToken::Operator);
                2
            }
            _ if first.is_ascii_graphic() => {
                tokens.push(LuaToken::Sign(first));
                1
            }
            _ => return None,
        };
        rest = &rest[len..];
    }
    Some(tokens)
}

/// How many brackets of any kind are open before each token.
fn depths_of(tokens: &[LuaToken<'_>]) -> Vec<usize> {
    let mut depth = 0usize;
    let mut depths = Vec::with_capacity(tokens.len());
    for token in tokens {
        if matches!(token, LuaToken::Sign(b')' | b'}' | b']')) {
            depth = depth.saturating_sub(1);
        }
        depths.push(depth);
        depth += usize::from(matches!(token, LuaToken::Sign(b'(' | b'{' | b'[')));
    }
    depths
}

struct KeySource<'a> {
    registry: &'a Registry,
    tokens: &'a [LuaToken<'a>],
    depths: Vec<usize>,
}

/// Functions of `redis` that touch no key.
const HARMLESS: &[&[u8]] = &[
    b"error_reply",
    b"status_reply",
    b"sha1hex",
    b"log",
    b"setresp",
    b"replicate_commands",
    b"LOG_DEBUG",
    b"LOG_VERBOSE",
    b"LOG_NOTICE",
    b"LOG_WARNING",
];

impl<'a> KeySource<'a> {
    fn at(&self, at: usize) -> Option<LuaToken<'a>> {
        self.tokens.get(at).copied()
    }

    fn before(&self, at: usize) -> Option<LuaToken<'a>> {
        at.checked_sub(1).and_then(|at| self.at(at))
    }

    fn is_contained(&self) -> bool {
        (0..self.tokens.len()).all(|at| match self.tokens[at] {
            // Statements within brackets would look like expressions.
            LuaToken::Name(b"function") => self.depths[at] == 0,
            LuaToken::Name(b"_G" | b"load" | b"loadstring" | b"dragonfly") => false,
            LuaToken::Name(b"redis" | b"server") => self.is_fine_call(at),
            LuaToken::Name(b"KEYS") => self.is_fine_use_of_keys(at),
            _ => true,
        })
    }

    /// `KEYS[...]` that is read, or `#KEYS`.
    fn is_fine_use_of_keys(&self, at: usize) -> bool {
        if self.at(at + 1) != Some(LuaToken::Sign(b'[')) {
            return self.before(at) == Some(LuaToken::Sign(b'#'));
        }
        let Some(close) = (at + 2..self.tokens.len()).find(|&close| self.depths[close] == self.depths[at])
        else {
            return false;
        };
        match self.at(close + 1) {
            Some(LuaToken::Sign(b'=')) => false,
            Some(LuaToken::Sign(b',')) if self.depths[at] == 0 => {
                matches!(self.before(at), Some(LuaToken::Sign(b'=') | LuaToken::Name(b"return")))
            }
            _ => true,
        }
    }

    fn is_fine_call(&self, at: usize) -> bool {
        if self.at(at + 1) != Some(LuaToken::Sign(b'.')) {
            return false;
        }
        match self.at(at + 2) {
            Some(LuaToken::Name(b"call" | b"pcall" | b"acall" | b"apcall")) => {
                self.at(at + 3) == Some(LuaToken::Sign(b'(')) && self.is_fine_command(at + 4)
            }
            Some(LuaToken::Name(name)) => HARMLESS.contains(&name),
            _ => false,
        }
    }

    /// Whether the command whose words begin at token `start` has only named keys.
    fn is_fine_command(&self, start: usize) -> bool {
        let Some(LuaToken::Text(name)) = self.at(start) else { return false };
        let Some(words) = self.words(start) else { return false };
        if words.first().is_none_or(|word| word.len() != 1) {
            return false;
        }
        let Some(entry) = self.registry.find(name).filter(|entry| entry.subs.is_empty()) else {
            return false;
        };
        if matches!(entry.run, RunKind::Server(_)) {
            return true;
        }
        let (RunKind::Data(_), Reach::Keys | Reach::Linked(_, Rarity::Seldom)) =
            (entry.run, entry.spec.reach)
        else {
            return false;
        };
        let (first, last, step) = match entry.spec.keys {
            Keys::None => return true,
            Keys::Range { first, last, step } => (usize::from(first), last, usize::from(step.max(1))),
            Keys::Count { .. } | Keys::Find(_) => return false,
        };
        // The last word of a call may stand for any number of values.
        let is_open = words.last().is_some_and(|word| {
            word.iter()
                .any(|token| matches!(token, LuaToken::Rest | LuaToken::Sign(b'(') | LuaToken::Name(b"end")))
        });
        let end = match usize::try_from(last) {
            Ok(last) => last + 1,
            Err(_) if is_open => return false,
            Err(_) => (words.len() + 1).saturating_sub(usize::from(last.unsigned_abs())),
        };
        (first..end).step_by(step).all(|at| words.get(at).is_some_and(|word| self.is_key(word)))
    }

    /// The words of a call as tokens, from `start` to the bracket that ends it.
    fn words(&self, start: usize) -> Option<Vec<&'a [LuaToken<'a>]>> {
        let depth = *self.depths.get(start)?;
        let mut words = Vec::new();
        let mut begin = start;
        for at in start..self.tokens.len() {
            let is_end = self.depths[at] < depth;
            if is_end || (self.depths[at] == depth && self.tokens[at] == LuaToken::Sign(b',')) {
                words.push(&self.tokens[begin..at]);
                begin = at + 1;
            }
            if is_end {
                return Some(words);
            }
        }
        None
    }

    fn is_key(&self, word: &[LuaToken<'_>]) -> bool {
        match word {
            [
                LuaToken::Name(b"KEYS"),
                LuaToken::Sign(b'['),
                LuaToken::Number | LuaToken::Name(_),
                LuaToken::Sign(b']'),
            ] => true,
            [LuaToken::Name(name)] => self.is_alias(name),
            _ => false,
        }
    }

    /// Whether `name` is a local variable that is set once, to an element of `KEYS`.
    fn is_alias(&self, name: &[u8]) -> bool {
        let mut definitions = 0;
        for at in 0..self.tokens.len() {
            match self.tokens[at] {
                LuaToken::Name(b"function") => return false,
                LuaToken::Name(found) if found == name => {}
                _ => continue,
            }
            if self.defines_alias(at) {
                definitions += 1;
                continue;
            }
            let is_target = self.depths[at] == 0
                && (self.before(at) == Some(LuaToken::Sign(b','))
                    || matches!(self.at(at + 1), Some(LuaToken::Sign(b',' | b'='))));
            if is_target || matches!(self.before(at), Some(LuaToken::Name(b"local" | b"for"))) {
                return false;
            }
        }
        definitions == 1
    }

    /// `local name = KEYS[n]` and the end of the statement.
    fn defines_alias(&self, at: usize) -> bool {
        let is_head = self.before(at) == Some(LuaToken::Name(b"local"))
            && self.at(at + 1) == Some(LuaToken::Sign(b'='))
            && self.at(at + 2) == Some(LuaToken::Name(b"KEYS"))
            && self.at(at + 3) == Some(LuaToken::Sign(b'['))
            && matches!(self.at(at + 4), Some(LuaToken::Number | LuaToken::Name(_)))
            && self.at(at + 5) == Some(LuaToken::Sign(b']'));
        let ends = match self.at(at + 6) {
            None | Some(LuaToken::Sign(b';')) => true,
            Some(LuaToken::Name(word)) => word != b"or" && word != b"and",
            _ => false,
        };
        is_head && ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_only_named_keys_is_known() {
        let registry = Registry::build();
        for code in [
            "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
            "local key = KEYS[1]; redis.call('incrby', key, ARGV[1]) return redis.call('pttl', key)",
            "return redis.call(\"SET\", KEYS[1], 'x', 'PX', tonumber(ARGV[1]))",
            "redis.call('publish', ARGV[1], 'x') return #KEYS -- done",
            "local a, b = KEYS[1], KEYS[2] return redis.call('mget', KEYS[1], KEYS[2])",
            "return 1",
        ] {
            assert!(is_contained(&registry, code.as_bytes()), "{code}");
        }
    }

    #[test]
    fn every_doubt_is_a_no() {
        let registry = Registry::build();
        for code in [
            "return redis.call('get', 'x')",
            "return redis.call('get', KEYS[1] .. ARGV[1])",
            "return redis.call(ARGV[1], KEYS[1])",
            "redis.acall('set', 'x', '1')",
            "redis.apcall('get', KEYS[1] .. ARGV[1])",
            "return dragonfly.ihash(0, true, 'get', ARGV[1])",
            "local call = redis.call return call('get', 'x')",
            "return pcall(redis.call, 'get', 'x')",
            "KEYS[1] = 'x' return redis.call('get', KEYS[1])",
            "KEYS[1], y = 'x', 1 return redis.call('get', KEYS[1])",
            "local y y, KEYS[1] = 1, 'x' return redis.call('get', KEYS[1])",
            "local KEYS = {'x'} return redis.call('get', KEYS[1])",
            "table.insert(KEYS, 'x') return redis.call('get', KEYS[2])",
            "local k = KEYS[1] k = 'x' return redis.call('get', k)",
            "local k = KEYS[1] .. 'x' return redis.call('get', k)",
            "local k = KEYS[1] or 'x' return redis.call('get', k)",
            "local k = KEYS[1] for k in pairs({x=1}) do redis.call('get', k) end",
            "local k = KEYS[1] local function f(k) return redis.call('get', k) end return f('x')",
            "pcall(function() KEYS[1], y = 'x', 1 end) return redis.call('get', KEYS[1])",
            "return redis.call('del', KEYS[1], unpack(ARGV))",
            "return redis.call('del', unpack(KEYS))",
            "return redis.call('keys', '*')",
            "return redis.call('flushall')",
            "return redis.call('g\\101t', 'x')",
            "return _G.redis.call('get', 'x')",
            "return loadstring('return redis.call(\"get\", \"x\")')()",
            "return redis.call [[get]]",
            "return redis['call']('get', 'x')",
            "return redis.call('sort', KEYS[1], 'by', 'x')",
            "return redis.call('get' .. '', 'x')",
        ] {
            assert!(!is_contained(&registry, code.as_bytes()), "{code}");
        }
    }
}
