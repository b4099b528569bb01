//! Calls through a bare state: every reply as a value, every error as a raised value, nothing left on the stack.

use std::panic::{AssertUnwindSafe, catch_unwind};

use darter_wire::Args;
use mlua::{Lua, LuaOptions, StdLib};

use crate::{Host, NoCall, functions, set_resp3, with_host};

/// Answers with the bytes of its second word; `echo` with its words, each in brackets.
struct Parrot;

impl Host for Parrot {
    fn call(&mut self, args: Args<'_>, _: bool, out: &mut Vec<u8>) {
        match args.at(0) {
            b"echo" => {
                out.extend_from_slice(b"+");
                args.iter().skip(1).for_each(|word| out.extend_from_slice(&[b"[", word, b"]"].concat()));
                out.extend_from_slice(b"\r\n");
            }
            b"panic" => panic!("a host that panics"),
            b"large" => {
                out.extend_from_slice(b"$50000000\r\n");
                out.resize(out.len() + 50_000_000, b'x');
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(args.at(1)),
        }
    }

    fn breathe(&mut self) {}

    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall> {
        match args.at(0) {
            b"nosuch" => Err(NoCall::Unknown),
            _ if args.len() < 2 => Err(NoCall::Arity),
            name => Ok(name == b"get"),
        }
    }
}

const SHOW: &str = "local function show(v)
        if type(v) ~= 'table' then return tostring(v) end
        local names, parts = {}, {}
        for k in pairs(v) do names[#names + 1] = k end
        table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
        for _, k in ipairs(names) do parts[#parts + 1] = tostring(k) .. '=' .. show(v[k]) end
        return '{' .. table.concat(parts, ' ') .. '}'
    end ";

fn state() -> Lua {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING, LuaOptions::default()).expect("a state");
    let made = functions(&lua).expect("functions");
    lua.globals().set("call", made.call).expect("set");
    lua.globals().set("try", made.pcall).expect("set");
    lua.globals().set("check", made.check).expect("set");
    lua
}

fn run_in(lua: &Lua, source: &str) -> String {
    let chunk = lua.load(format!("{SHOW}{source}"));
    with_host(&mut Parrot, || chunk.eval::<String>()).unwrap_or_else(|error| error.to_string())
}

#[test]
fn every_kind_of_reply_is_a_value() {
    let lua = state();
    for (reply, shown) in [
        ("+OK", "{ok=OK}"),
        ("-ERR no ", "{err=ERR no}"),
        (":-7", "-7"),
        ("$3|abc", "abc"),
        ("$0|", ""),
        ("$-1", "false"),
        ("*-1", "false"),
        ("*0", "{}"),
        ("*3|:1|$1|x|*1|:2", "{1=1 2=x 3={1=2}}"),
        ("_", "nil"),
        ("#t", "true"),
        (",1.5", "{double=1.5}"),
        (",inf", "{double=inf}"),
        ("(123", "{big_number=123}"),
        ("=7|txt:abc", "{verbatim_string={format=txt string=abc}}"),
        ("%2|+a|:1|_|:2", "{map={table: =1}}"),
        ("%1|$1|a|*1|:5", "{map={a={1=5}}}"),
        ("~2|$1|a|:5", "{set={5=true a=true}}"),
        ("|1|$1|a|:5|:7", "7"),
        (">2|:1|:2", "{1=1 2=2}"),
        ("", "nil"),
        ("$9|torn", "torn\r\n"),
    ] {
        lua.globals()
            .set(
                "reply",
                reply.replace('|', "\r\n").replacen("\r\n", "|", usize::from(reply.starts_with('|')))
                    + "\r\n",
            )
            .expect("set");
        let said = run_in(&lua, "return show(try('reply', reply))");
        // A status is a table, whose printed name is an address.
        let said = if said.contains("table: 0x") { "{map={table: =1}}".to_owned() } else { said };
        assert_eq!(said, shown, "{reply}");
    }
}

#[test]
fn words_are_texts_and_numbers() {
    let lua = state();
    let all = "return call('echo', 'a\\0b', 1, -2.5, 1e15, 0.1, '').ok";
    assert_eq!(run_in(&lua, all), "[a\0b][1][-2.5][1000000000000000][0.1][]");
    assert_eq!(run_in(&lua, "return #call('echo', string.rep('x', 100000)).ok .. ''"), "100002");
    for bad in ["call('echo', {})", "call('echo', nil)", "call(true)"] {
        let said =
            run_in(&lua, &format!("local fine, cause = pcall(function() {bad} end) return show(cause)"));
        assert_eq!(said, "{err=ERR Lua redis lib command arguments must be strings or integers}", "{bad}");
    }
    let none = run_in(&lua, "return show(try())");
    assert_eq!(none, "{err=ERR Please specify at least one argument for this redis lib call}");
    let many = "local t = {} for n = 1, 5000 do t[n] = n end return '' .. #call('echo', unpack(t)).ok";
    assert_eq!(run_in(&lua, many), "28893");
    let most = "local t = {} for n = 1, 7999 do t[n] = 1 end return #call('reply', '*1\\r\\n:5\\r\\n', unpack(t)) .. ''";
    assert_eq!(run_in(&lua, most), "1");
}

#[test]
fn errors_are_raised_and_rights_are_told() {
    let lua = state();
    let raised = "local fine, cause = pcall(call, 'reply', '-WRONGTYPE no\\r\\n') return tostring(fine) .. show(cause)";
    assert_eq!(run_in(&lua, raised), "false{err=WRONGTYPE no}");
    assert_eq!(
        run_in(&lua, "return tostring(check('get', 'k')) .. tostring(check('set', 'k'))"),
        "truefalse"
    );
    let unknown = run_in(&lua, "local fine, cause = pcall(check, 'nosuch') return show(cause)");
    assert_eq!(unknown, "{err=ERR Invalid command passed to redis.acl_check_cmd()}");
    let short = run_in(&lua, "local fine, cause = pcall(check, 'get') return show(cause)");
    assert_eq!(short, "{err=ERR Wrong number of args for redis.acl_check_cmd()}");
    let outside: String = lua.load(format!("{SHOW} return show(try('echo'))")).eval().expect("a value");
    assert_eq!(outside, "{err=ERR redis.call/pcall can only be called inside a script invocation}");
}

#[test]
fn what_goes_wrong_in_the_middle_leaves_the_next_call_alone() {
    let lua = state();
    let panicked = catch_unwind(AssertUnwindSafe(|| run_in(&lua, "pcall(call, 'panic') return 'went on'")));
    assert!(panicked.is_err());
    lua.set_memory_limit(40 << 20).expect("a limit");
    let source = "local fine, cause = pcall(call, 'large') return tostring(fine) .. tostring(cause)";
    assert_eq!(run_in(&lua, source), "falsenot enough memory");
    assert_eq!(run_in(&lua, "return call('echo', 1).ok"), "[1]");
    let deep = "local s = string.rep('*1\\r\\n', 300) .. ':1\\r\\n' local v = try('reply', s) local n = 0
        while type(v) == 'table' do v, n = v[1], n + 1 end return n .. ':' .. tostring(v)";
    assert_eq!(run_in(&lua, deep), "300:1");
    set_resp3(true);
    assert!(crate::is_resp3());
    set_resp3(false);
}
