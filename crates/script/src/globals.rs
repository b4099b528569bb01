//! Detection of assignments to global variables in compiled code.
//!
//! Code without them may use the real table of globals as its environment, in which a name is one lookup. All other
//! code needs a view that refuses changes. Called once for each compiled text.

/// Returns true if code in the form of `string.dump` has an instruction that sets a global, or cannot be read.
pub fn sets_globals(dump: &[u8]) -> bool {
    let mut reader = GlobalsReader { rest: dump.strip_prefix(HEADER).unwrap_or_default() };
    reader.function(DEPTH_MAX) != Some(false)
}

/// Lua 5.1 of this machine: `int` has four bytes, `size_t` and numbers have eight.
const HEADER: &[u8] = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00";
/// Functions in one another; the compiler allows fewer.
const DEPTH_MAX: usize = 256;
const SET_GLOBAL: u8 = 7;
/// Bits of an instruction that select the operation.
const OPERATION: u8 = 0x3f;

struct GlobalsReader<'a> {
    rest: &'a [u8],
}

impl<'a> GlobalsReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn int(&mut self) -> Option<usize> {
        self.take(4)?.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn text(&mut self) -> Option<()> {
        let len = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        self.take(usize::try_from(len).ok()?).map(drop)
    }

    /// Returns true if this function, or one inside it, sets a global.
    fn function(&mut self, depth: usize) -> Option<bool> {
        self.text()?;
        self.take(4 + 4 + 4)?;
        let code_len = self.int()?.checked_mul(4)?;
        let code = self.take(code_len)?;
        let sets = code.chunks_exact(4).any(|instruction| instruction[0] & OPERATION == SET_GLOBAL);
        for _ in 0..self.int()? {
            match self.take(1)?[0] {
                0 => {}
                1 => self.take(1).map(drop)?,
                3 => self.take(8).map(drop)?,
                4 => self.text()?,
                _ => return None,
            }
        }
        let mut inner_sets = false;
        for _ in 0..self.int()? {
            inner_sets |= self.function(depth.checked_sub(1)?)?;
        }
        let lines_len = self.int()?.checked_mul(4)?;
        self.take(lines_len)?;
        for _ in 0..self.int()? {
            self.text()?;
            self.take(4 + 4)?;
        }
        for _ in 0..self.int()? {
            self.text()?;
        }
        Some(sets || inner_sets)
    }
}

#[cfg(test)]
mod tests {
    use mlua::{Lua, LuaOptions, StdLib};

    use super::*;

    fn sets(source: &str) -> bool {
        let lua = Lua::new_with(StdLib::NONE, LuaOptions::default()).expect("a state");
        sets_globals(&lua.load(source).into_function().expect("good code").dump(false))
    }

    #[test]
    fn assignments_are_found_wherever_they_are() {
        for source in [
            "x = 1",
            "local function f() return function() x = 1 end end",
            "function f() end",
            "local y y, x = 1, 2",
            "for n = 1, 2 do if n then x = n end end",
        ] {
            assert!(sets(source), "{source}");
        }
        for source in [
            "return x",
            "local x = 1 x = 2 return x",
            "local t = {} t.x = x t[x], t[2] = 'text', 1.5 return function(...) return nil, true, f(...) end",
            "_G.x = 1",
        ] {
            assert!(!sets(source), "{source}");
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_setting_them() {
        let lua = Lua::new_with(StdLib::NONE, LuaOptions::default()).expect("a state");
        let code = "local a = 'text' return function(b) return a, b, c, 1 end";
        let dump = lua.load(code).into_function().expect("good code").dump(false);
        assert!(!sets_globals(&dump));
        (0..dump.len()).for_each(|len| assert!(sets_globals(&dump[..len]), "{len}"));
    }
}
