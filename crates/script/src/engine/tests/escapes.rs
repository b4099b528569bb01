//! The published ways out of the sandbox of Redis' scripts, each tried on ours; and patterns, which are not among
//! them.

use std::sync::Arc;

use super::{call, run, run_on};
use crate::Engine;

/// CVE-2024-31449: `bit.tohex` with the smallest number of digits wrote before its buffer.
#[test]
fn tohex_counts_digits_that_have_no_opposite() {
    assert_eq!(run("return bit.tohex(65535, -2147483648)"), "$8|0000FFFF|");
    assert_eq!(run("return bit.tohex(-1, 2147483647)"), "$8|ffffffff|");
    assert_eq!(run("return bit.tohex(1, -2147483649)"), run("return bit.tohex(1, 2147483647)"));
}

/// CVE-2024-46981: objects whose `__gc` runs while the state is closed used memory freed before.
#[test]
fn scripts_cannot_make_objects_with_finalizers() {
    assert!(run("return newproxy(true)").contains("nonexistent global variable"));
    assert_eq!(run("local meta = getmetatable(pcall) return type(meta)"), "$3|nil|");
    let collected =
        "local hits = 0 setmetatable({}, {__gc = function() hits = 1 end}) collectgarbage() return hits";
    assert_eq!(run(collected), ":0|");
    let mut engine = Engine::new(Arc::default()).expect("a state");
    for round in 0..20 {
        let source = "local t = {} for n = 1, 1000 do t[n] = setmetatable({n}, {__gc = error}) end
            local ok, cause = pcall(redis.call, 'fail') return {type(cause), getmetatable(cause) == nil}";
        assert_eq!(run_on(&mut engine, source, false), "*2|$5|table|:1|", "{round}");
        engine = Engine::new(Arc::default()).expect("a state");
    }
}

/// CVE-2025-49844: the name of a chunk could be freed while the chunk was compiled.
#[test]
fn the_name_of_a_chunk_lives_as_long_as_its_compiler() {
    let source = "for n = 1, 300 do
            local text = 'local a = {}'
            for k = 1, 50 do text = text .. ' a.x' .. n .. 'y' .. k .. ' = \"' .. n .. 'z' .. k .. '\"' end
            local chunk = loadstring(text .. ' error(\"boom\")', '=na' .. n .. '\\0me')
            collectgarbage('step')
            local ok, cause = pcall(chunk)
            if cause ~= 'na' .. n .. ':1: boom' then return cause end
        end
        local pieces = {'return ', '7'}
        return load(function() collectgarbage() return table.remove(pieces, 1) end)()";
    assert_eq!(run(source), ":7|");
    assert_eq!(run("local f = loadstring('x x', 'a\\0b') return tostring(f)"), "$3|nil|");
    assert_eq!(
        run("return loadstring('return ' .. string.rep('(', 150) .. '1' .. string.rep(')', 150))()"),
        ":1|"
    );
}

/// CVE-2025-46817: the number of values of `unpack` overflowed.
#[test]
fn unpack_counts_without_overflow() {
    for range in [
        "0, 2147483647",
        "-1, 2147483647",
        "-2147483648, 2147483647",
        "1, 8001000",
        "2, 2^53",
        "0/0, 0/0",
        "1, 1/0",
        "-1/0, 1",
    ] {
        let said = run(&format!("return {{unpack({{1, 2, 3}}, {range})}}"));
        assert!(said.contains("too many results to unpack") || said == "*0|", "{range}: {said}");
    }
    assert_eq!(run("return {unpack({1, 2, 3}, 2147483647, 2147483647)}"), "*0|");
    assert_eq!(run("return {unpack({1, 2, 3}, 3, -2147483648)}"), "*0|");
    assert_eq!(run("return select('#', unpack({1, 2, 3}, -2147483648, -2147483646))"), ":3|");
}

/// CVE-2025-46818: metatables of texts and other plain values were shared with scripts of other users.
#[test]
fn plain_values_have_no_metatable_to_change() {
    for value in ["nil", "true", "1", "'x'", "tostring", "coroutine.create(function() end)"] {
        let source = format!(
            "local meta = getmetatable({value}) if not meta then return 'none' end
             local ok, cause = pcall(function() meta.__index = function() return 'mine' end end)
             return cause"
        );
        let said = run(&source);
        assert!(said == "$4|none|" || said.contains("readonly table"), "{value}: {said}");
    }
    assert!(run("getmetatable('').__index.upper = nil").contains("readonly table"));
    assert!(run("setmetatable('x', {})").starts_with('-'));
}

/// CVE-2025-46819: the level of a long bracket overflowed with as many signs as no text of ours can have.
#[test]
fn long_brackets_of_any_level_end_or_are_refused() {
    let level = "string.rep('=', 1000000)";
    assert_eq!(
        run(&format!("local e = {level} return loadstring('return [' .. e .. '[x]' .. e .. ']')()")),
        "$1|x|"
    );
    let said = run(&format!("local e = {level} return {{loadstring('return [' .. e .. '[x]' .. e)}}"));
    assert_eq!(said, "*0|");
}

/// CVE-2022-24834: lengths overflowed when `cjson.encode` made room for a text of more than a gigabyte.
#[test]
fn what_is_encoded_counts_against_the_memory_of_scripts() {
    assert!(run("return #cjson.encode(string.rep('\\0', 50000000))").starts_with("-ERR"));
}

/// CVE-2021-32626 and CVE-2020-14147: nested input and `struct` sizes ran over the stack or the buffer.
#[test]
fn nested_input_and_large_sizes_are_refused() {
    assert!(run("return cmsgpack.unpack(string.rep('\\145', 1000000))").starts_with("-ERR"));
    assert!(run("return struct.pack('>I2147483648', 10)").starts_with("-ERR"));
    assert!(run("return struct.unpack('>c0', 'x', -2147483648)").starts_with("-ERR"));
}

/// CVE-2015-4335: compiled code was run without a check.
#[test]
fn compiled_code_is_refused_by_every_door() {
    assert_eq!(run("return {loadstring(string.dump(function() end))}"), "*0|");
    assert_eq!(
        run(
            "local text = string.dump(function() end) return {load(function() local t = text text = nil return t end)}"
        ),
        "*0|"
    );
    assert!(run("\x1bLua").starts_with("-ERR Error compiling script"));
}

/// A pattern is matched by recursion, an item a call: one of 20,000 items overran the stack of a thread.
#[test]
fn a_long_pattern_is_refused_and_a_long_plain_text_is_not() {
    for call in ["find(t, p)", "match(t, p)", "gsub(t, p, '')", "gmatch(t, p)()"] {
        let said = run(&format!(
            "local t, p = string.rep('a', 9), string.rep('a?', 3000) local r = string.{call} return r"
        ));
        assert!(said.contains("user_script:1: pattern too complex"), "{call}: {said}");
    }
    assert!(
        run("local r = (''):rep(9):find(string.rep('(a)', 3000)) return r").contains("pattern too complex")
    );
    assert_eq!(run("local t = string.rep('ab.', 9000) return string.find('x' .. t, t, 1, true)"), ":2|");
    assert_eq!(run("return string.find(string.rep('a', 10), string.rep('a?', 1990) .. '$')"), ":1|");
    assert_eq!(run("local n = 0 for w in ('a b c'):gmatch('%a') do n = n + 1 end return n"), ":3|");
    assert_eq!(run("return {('x=1'):match('(%a)=(%d)')}"), "*2|$1|x|$1|1|");
    assert_eq!(run("return {('aaa'):gsub('a', 'b', 2)}"), "*2|$3|bba|:2|");
}

/// The code of a library that never ends is ended; nothing else would end it.
#[test]
fn a_library_that_never_ends_is_not_loaded() {
    let mut engine = Engine::new(Arc::default()).expect("a state");
    let fine = b"#!lua name=fine\nredis.register_function('f', function() return #redis.sha1hex('') end)";
    let library = engine.load_library(fine).expect("a library");
    let forever = b"#!lua name=forever\nwhile true do (function() for i = 1, 1000 do end end)() end";
    let refused = engine.load_library(forever).expect_err("no library");
    assert_eq!(refused, "ERR Error registering functions: FUNCTION LOAD timeout");
    assert_eq!(
        run_on(&mut engine, "local n = 0 for i = 1, 300000 do n = n + 1 end return n", false),
        ":300000|"
    );
    // The globals of loading were removed with it.
    assert_eq!(call(&mut engine, &library, "f"), ":40|");
    assert!(engine.load_library(fine).is_ok());
}
