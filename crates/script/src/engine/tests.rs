mod escapes;

use std::sync::Arc;

use darter_lua::{Host, NoCall};
use darter_wire::{Args, OwnedArgs, Reply};

use super::Engine;
use crate::functions::Library;
use crate::script::Script;
use crate::watch::{Killing, ScriptWatch};

/// Answers with its words, or as the command requires.
struct Echo;

impl Host for Echo {
    fn breathe(&mut self) {}

    fn allows(&mut self, args: Args<'_>) -> Result<bool, NoCall> {
        if args.at(0) == b"nosuch" { Err(NoCall::Unknown) } else { Ok(args.at(0) != b"forbidden") }
    }

    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) {
        let mut reply = Reply::new(out, resp3);
        match args.at(0) {
            b"fail" => reply.error("WRONGTYPE no"),
            b"status" => reply.status("FINE"),
            b"null" => reply.null(),
            b"double" => reply.double(1.5),
            b"int" => reply.int(7),
            _ => {
                reply.array(args.len());
                args.iter().for_each(|arg| reply.bulk(arg));
            }
        }
    }
}

fn run_on(engine: &mut Engine, source: &str, resp3: bool) -> String {
    let mut out = Vec::new();
    let keys = OwnedArgs::from_slices(&[b"k1", b"k2"]);
    let argv = OwnedArgs::from_slices(&[b"a1"]);
    let script = match Script::new(source.as_bytes()) {
        Ok(script) => script,
        Err(line) => return line,
    };
    match engine.run(&mut Echo, &script, keys.args(), argv.args(), &mut Reply::new(&mut out, resp3)) {
        Ok(()) => String::from_utf8_lossy(&out).replace("\r\n", "|"),
        Err(line) => format!("-{}", String::from_utf8_lossy(&line)),
    }
}

fn run(source: &str) -> String {
    let mut engine = Engine::new(Arc::default()).expect("a state");
    engine.limit_memory(256 << 20);
    run_on(&mut engine, source, false)
}

#[test]
fn values_become_replies() {
    for (source, expected) in [
        ("return 3.99", ":3|"),
        ("return 'x'", "$1|x|"),
        ("return true", ":1|"),
        ("return false", "$-1|"),
        ("return", "$-1|"),
        ("return {1,2,nil,4}", "*2|:1|:2|"),
        ("return {ok='fine'}", "+fine|"),
        ("return {err='My Err'}", "-My Err|"),
        ("return {double=3.5}", "$3|3.5|"),
        ("return redis.status_reply('A')", "+A|"),
        ("return redis.error_reply('MY_ERR custom')", "-MY_ERR custom|"),
        ("return redis.error_reply('short')", "-ERR short|"),
        ("return KEYS[2] .. ARGV[1]", "$4|k2a1|"),
        ("return redis.sha1hex('')", "$40|da39a3ee5e6b4b0d3255bfef95601890afd80709|"),
    ] {
        assert_eq!(run(source), expected, "{source}");
    }
}

#[test]
fn replies_become_values() {
    for (source, expected) in [
        ("return redis.call('a', 1, 2.5, 'x')", "*4|$1|a|$1|1|$3|2.5|$1|x|"),
        ("return redis.call('status').ok", "$4|FINE|"),
        ("return redis.call('null') == false", ":1|"),
        ("redis.setresp(3) return redis.call('null') == nil", ":1|"),
        ("redis.setresp(3) return redis.call('double').double * 2", ":3|"),
        ("return redis.call('int') + 1", ":8|"),
        ("return redis.pcall('fail').err", "$12|WRONGTYPE no|"),
        ("return server.call('int')", ":7|"),
        ("return redis.acall('int')", "$-1|"),
        ("return redis.apcall('fail')", "$-1|"),
    ] {
        assert_eq!(run(source), expected, "{source}");
    }
}

#[test]
fn dragonfly_has_random_texts_and_sums() {
    for (source, expected) in [
        ("return #dragonfly.randstr(100)", ":100|"),
        (
            "local a, b = dragonfly.randstr(30), dragonfly.randstr(30) return a ~= b and not a:find('%W')",
            ":1|",
        ),
        ("local list = dragonfly.randstr(7, 3) return {#list, #list[1], #list[3]}", "*3|:3|:7|:7|"),
        ("return dragonfly.ihash(0, false, 'a', 'k') == dragonfly.ihash(0, false, 'a', 'k')", ":1|"),
        ("return dragonfly.ihash(0, false, 'a', 'k') == dragonfly.ihash(1, false, 'a', 'k')", "$-1|"),
        (
            "return dragonfly.ihash(0, false, 'a', 'k', 'l') == dragonfly.ihash(0, false, 'a', 'l', 'k')",
            "$-1|",
        ),
        ("return dragonfly.ihash(5, true, 'int', 'k') > 0", ":1|"),
        ("return {table.unpack({1, 2, 3}, 2)}", "*2|:2|:3|"),
    ] {
        assert_eq!(run(source), expected, "{source}");
    }
    for (source, expected) in [
        ("dragonfly.randstr()", "expected randstr(size)"),
        ("dragonfly.randstr(0)", "size must be between 1 and 16777216"),
        ("dragonfly.randstr(2^24 + 1)", "size must be between 1 and 16777216"),
        ("dragonfly.randstr(1, 2^15 + 1)", "count must be between 1 and 32768"),
        ("dragonfly.randstr = 1", "readonly table"),
    ] {
        let failed = run(source);
        assert!(failed.starts_with('-') && failed.contains(expected), "{source}: {failed}");
    }
}

#[test]
fn failures_say_where() {
    let failed = run("local x = 1\nreturn redis.call('fail')");
    assert!(
        failed.starts_with("-WRONGTYPE no script: ") && failed.ends_with(", on @user_script:2."),
        "{failed}"
    );
    let failed = run("return nosuch");
    let expected =
        "-ERR user_script:1: Script attempted to access nonexistent global variable 'nosuch' script: ";
    assert!(failed.starts_with(expected) && failed.ends_with(", on @user_script:1."), "{failed}");
    assert!(run("redis.acall('fail')").starts_with("-WRONGTYPE no script: "));
    assert!(run("return (").starts_with("-ERR Error compiling script (new function): user_script:1:"));
    assert!(run("error('boom')").starts_with("-ERR user_script:1: boom script: "));
    assert!(run("return redis.sha1hex()").starts_with("-ERR wrong number of arguments script: "));
    assert!(run("return redis.call()").starts_with("-ERR Please specify at least one argument"));
    assert!(run("return redis.call({})").starts_with("-ERR Lua redis lib command arguments must be"));
}

#[test]
fn nothing_can_be_changed_or_reached() {
    for source in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index = 1",
        "redis.call = 1",
        "string.format = 1",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.upper = 1",
        "KEYS = 1",
        "table.insert(_G, 1)",
        "table.insert(redis, 1, 'x')",
        "table.insert(table, 1)",
        "table.insert(getmetatable(_G), 1)",
        "table.insert(getmetatable(''), 1)",
        "cjson.decode_array_with_array_mt(true) getmetatable(cjson.decode('[]')).__is_cjson_array = false",
        "cjson.decode_array_with_array_mt(true) rawset(getmetatable(cjson.decode('[]')), '__index', {})",
    ] {
        assert!(run(source).contains("Attempt to modify a readonly table"), "{source}: {}", run(source));
    }
    for name in [
        "print", "dofile", "loadfile", "require", "io", "debug", "getfenv", "setfenv", "newproxy", "package",
        "module",
    ] {
        assert!(run(&format!("return {name}")).contains("nonexistent global variable"), "{name}");
    }
    assert!(run("return os.execute('true')").starts_with('-'));
    assert_eq!(run("return {loadstring(string.dump(function() end))}"), "*0|");
    assert_eq!(run("return ('x'):upper()"), "$1|X|");
    assert!(run("return loadstring('y = 1')()").contains("readonly"));
}

#[test]
fn nothing_is_left_for_the_next_run() {
    let mut engine = Engine::new(Arc::default()).expect("a state");
    let source = "ARGV[1] = 'x'; KEYS.z = 1; return pcall(table.insert, _G, 9) and 2 or 1";
    assert_eq!(run_on(&mut engine, source, false), ":1|");
    assert_eq!(run_on(&mut engine, "return {ARGV[1], KEYS.z}", false), "*1|$2|a1|");
    assert_eq!(run_on(&mut engine, "return rawget(_G, 1)", false), "$-1|");
}

#[test]
fn memory_and_depth_have_limits() {
    let mut engine = Engine::new(Arc::default()).expect("a state");
    engine.limit_memory(256 << 20);
    let line = run_on(&mut engine, "local t = {} for i=1,1e9 do t[i] = string.rep('x', 1e6) .. i end", false);
    assert!(line.contains("not enough memory"), "{line}");
    assert_eq!(run_on(&mut engine, "return 1", false), ":1|");
    let endless = run_on(&mut engine, "local a = {} a[1] = a return a", false);
    assert!(endless.contains("reached lua stack limit"));
}

#[test]
fn maps_and_sets_follow_the_clients_protocol() {
    let mut engine = Engine::new(Arc::default()).expect("a state");
    for (source, expected) in [
        ("return {map={a=1}}", "%1|$1|a|:1|"),
        ("return {set={a=true}}", "~1|$1|a|"),
        ("return {double=1.5}", ",1.5|"),
        ("redis.setresp(3) return true", "#t|"),
        ("return true", ":1|"),
        ("return false", "_|"),
        ("return {big_number='123'}", "(123|"),
        ("return {verbatim_string={format='txt', string='hi'}}", "=6|txt:hi|"),
    ] {
        assert_eq!(run_on(&mut engine, source, true), expected, "{source}");
    }
}

#[test]
fn libraries_do_what_scripts_know() {
    for (source, expected) in [
        ("return cjson.encode({1,2,{a='b/\"'}})", r#"$19|[1,2,{"a":"b\/\""}]|"#),
        ("return cjson.encode({0.1, 1e20, -5, 1e15})", "$20|[0.1,1e+20,-5,1e+15]|"),
        ("return cjson.decode('{\"a\": [1, 2, {\"b\": \"\\\\u00e9\"}]}').a[3].b", "$2|é|"),
        ("return cjson.decode('null') == cjson.null", ":1|"),
        ("return cjson.encode({})", "$2|{}|"),
        ("return cjson.encode({x=1, [1]='a'}):len()", ":15|"),
        ("return cjson.encode(cjson.decode('[[],{}]'))", "$7|[{},{}]|"),
        (
            "cjson.decode_array_with_array_mt(true) local t = cjson.decode('[[],{},[7]]') t[3][1] = nil
             return cjson.encode(t)",
            "$10|[[],{},[]]|",
        ),
        ("return cjson.encode(setmetatable({}, {__is_cjson_array = true}))", "$2|[]|"),
        ("return cjson.encode(setmetatable({}, {__is_cjson_array = false}))", "$2|{}|"),
        ("cjson.decode_array_with_array_mt(true) return cjson.decode('[1,[2]]')", "*2|:1|*1|:2|"),
        ("local n = 0 for k in pairs(os) do n = n + 1 end return n", ":1|"),
        ("return #cmsgpack.pack({1,2,3}, 'abc', -1099511627776, 0.1)", ":26|"),
        ("return cmsgpack.unpack(cmsgpack.pack({1,2,{k='v'}}))[3].k", "$1|v|"),
        ("return {cmsgpack.unpack_one(cmsgpack.pack(1,2), 1)}", "*2|:-1|:2|"),
        (
            "return {bit.band(7, 3), bit.bxor(1, 2), bit.lshift(1, 4), bit.tobit(0xffffffff)}",
            "*4|:3|:3|:16|:-1|",
        ),
        ("return bit.tohex(65535, -2147483648)", "$8|0000FFFF|"),
        ("return {struct.unpack('>I2hs', struct.pack('>I2hs', 1, -2, 'xyz'))}", "*4|:1|:-2|$3|xyz|:9|"),
        ("return struct.size('!8bd')", ":16|"),
        ("return {struct.unpack('Bc0', struct.pack('Bc0', 3, 'abc'))}", "*2|$3|abc|:5|"),
    ] {
        assert_eq!(run(source), expected, "{source}");
    }
}

#[test]
fn libraries_refuse_what_is_no_input() {
    for (source, part) in [
        ("cjson.decode('[1,')", "user_script:1: Expected value but found T_END at character 4"),
        ("cjson.decode('{1:2}')", "Expected object key string but found T_NUMBER"),
        ("cjson.decode(string.rep('[', 1001))", "Found too many nested data structures (1001)"),
        ("cjson.encode({[1]=1,[1000]=2})", "excessively sparse array"),
        ("cjson.encode(0/0)", "must not be NaN or Inf"),
        ("local t = {} t.t = t cjson.encode(t)", "excessive depth (1001)"),
        ("cmsgpack.unpack('\\221')", "Missing bytes in input."),
        ("cmsgpack.unpack('\\221\\255\\255\\255\\255')", "bytes in input."),
        ("cmsgpack.unpack(string.rep('\\145', 100000))", "in input."),
        ("struct.pack('I33', 1)", "larger than limit"),
        ("struct.unpack('c2147483647', 'x')", "overflow"),
        ("struct.unpack('d', 'x', 9007199254740992)", "too short"),
        ("struct.unpack('', 'x', 0/0)", "offset must be 1 or greater"),
        ("bit.band()", "number expected"),
    ] {
        let said = run(source);
        assert!(said.starts_with("-ERR user_script:1: ") && said.contains(part), "{source}: {said}");
    }
    assert_eq!(
        run("local ok, text = pcall(cjson.decode, 'x') return {tostring(ok), type(text)}"),
        "*2|$5|false|$6|string|"
    );
}

#[test]
fn a_killed_script_ends_whatever_it_catches() {
    let watch = Arc::<ScriptWatch>::default();
    let mut engine = Engine::new(watch.clone()).expect("a state");
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local c = coroutine.wrap(function() while true do pcall(function() while true do end end) end end) c()",
    ] {
        watch.begin(1);
        let killer = watch.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            killer.kill()
        });
        let said = run_on(&mut engine, source, false);
        assert!(said.contains("Script killed by user with SCRIPT KILL."), "{source}: {said}");
        assert_eq!(thread.join().ok(), Some(Killing::Done));
        assert!(watch.end());
        assert_eq!(
            run_on(&mut engine, "local n = 0 for i = 1, 300000 do n = n + 1 end return n", false),
            ":300000|"
        );
    }
}

fn call(engine: &mut Engine, library: &Library, function: &str) -> String {
    let mut out = Vec::new();
    let keys = OwnedArgs::from_slices(&[b"k1"]);
    let argv = OwnedArgs::from_slices(&[b"a1"]);
    let reply = &mut Reply::new(&mut out, false);
    match engine.run_function(&mut Echo, library, function, keys.args(), argv.args(), reply) {
        Ok(()) => String::from_utf8_lossy(&out).replace("\r\n", "|"),
        Err(line) => format!("-{}", String::from_utf8_lossy(&line)),
    }
}

#[test]
fn libraries_are_loaded_where_they_are_needed() {
    let source = "#!lua name=mine\nlocal function call(...) return redis.call(...) end
        redis.register_function('f', function(keys, args) return call('echo', keys[1], args[1]) end)
        redis.register_function{function_name='ro', callback=function() return redis.call('int') end,
            flags={'no-writes'}, description='reads'}
        redis.register_function('bad', function() return KEYS end)";
    let library =
        Engine::new(Arc::default()).expect("a state").load_library(source.as_bytes()).expect("a library");
    assert_eq!((library.name.as_str(), library.functions.len()), ("mine", 3));
    let ro = &library.functions[1];
    assert!(
        ro.flags.no_writes && ro.description.as_deref() == Some("reads") && ro.flag_names == ["no-writes"]
    );
    let mut other = Engine::new(Arc::default()).expect("a state");
    assert_eq!(call(&mut other, &library, "f"), "*3|$4|echo|$2|k1|$2|a1|");
    assert_eq!(call(&mut other, &library, "ro"), ":7|");
    let bad = call(&mut other, &library, "bad");
    assert!(bad.contains("nonexistent global variable 'KEYS' script: bad, on @user_function:"), "{bad}");
    assert!(run_on(&mut other, "return redis.register_function", false).starts_with("$-1"));
}

#[test]
fn what_loading_gives_a_library_is_of_no_use_later() {
    let source = "#!lua name=mine\nlocal lib = server
        lib.log(lib.LOG_DEBUG, 'loading')
        local function helper() return math.floor(1.5) + #redis.sha1hex('') end
        server.register_function('late', function() lib.register_function('g', function() end) end)
        redis.register_function('change', function() lib.math = math end)
        redis.register_function('sets', function() global = 1 end)
        redis.register_function('inside', function() redis.register_function('g', function() end) end)
        redis.register_function('helped', function() return helper() end)";
    let mut engine = Engine::new(Arc::default()).expect("a state");
    let library = engine.load_library(source.as_bytes()).expect("a library");
    for (function, answer) in [
        ("late", "server.register_function can only be called on FUNCTION LOAD command"),
        ("change", "Attempt to modify a readonly table"),
        ("sets", "Attempt to modify a readonly table"),
        ("inside", "attempt to call field 'register_function' (a nil value)"),
        ("helped", ":41|"),
    ] {
        let said = call(&mut engine, &library, function);
        assert!(said.contains(answer), "{function}: {said}");
    }
    assert!(engine.load_library(b"#!lua name=x\nredis.nothing()").is_err(), "a world of its own again");
}

#[test]
fn what_is_no_library_is_refused() {
    for (source, part) in [
        ("return 1", "ERR Missing library metadata"),
        ("#!lua name=x", "ERR Invalid library metadata"),
        ("#!js name=x\n", "ERR Engine 'js' not found"),
        ("#!lua\n", "ERR Library name was not given"),
        ("#!lua name=a-b\n", "ERR Library names can only contain letters"),
        ("#!lua foo=x\n", "ERR Invalid metadata value given: foo=x"),
        ("#!lua name=x\nreturn 1", "ERR No functions registered"),
        ("#!lua name=x\nreturn (", "ERR Error compiling function: user_function:"),
        ("#!lua name=x\nredis.register_function('f')", "is only applicable to Lua table"),
        ("#!lua name=x\nredis.register_function('f', 1)", "must be a function"),
        ("#!lua name=x\nredis.register_function('a b', function() end)", "Library names can only contain"),
        (
            "#!lua name=x\nfor i=1,2 do redis.register_function('f', function() end) end",
            "Function already exists",
        ),
        ("#!lua name=x\nredis.call('int')", "attempted to access nonexistent global variable 'call'"),
        ("#!lua name=x\nredis.math.random()", "attempted to access nonexistent global variable 'math'"),
        ("#!lua name=x\nlocal x = math.random()", "attempted to access nonexistent global variable 'math'"),
        (
            "#!lua name=x\nx = getmetatable(_G)",
            "attempted to access nonexistent global variable 'getmetatable'",
        ),
        ("#!lua name=x\nredis.setresp(3)", "attempted to access nonexistent global variable 'setresp'"),
        ("#!lua name=x\nserver.register_function()", "wrong number of arguments to server.register_function"),
        (
            "#!lua name=x\nx = 1",
            "ERR Error registering functions: user_function:2: Attempt to modify a readonly table",
        ),
    ] {
        let line = Engine::new(Arc::default())
            .expect("a state")
            .load_library(source.as_bytes())
            .map(|library| library.name);
        assert!(line.as_ref().is_err_and(|line| line.contains(part)), "{source}: {line:?}");
    }
}

#[test]
fn what_has_no_effect_here_is_checked_as_in_redis() {
    for (call, reply) in [
        (
            "return {redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL}",
            ":0|:1|:2|:2|:3|",
        ),
        ("return redis.set_repl(redis.REPL_AOF)", "$-1|"),
        ("return redis.set_repl('x')", "$-1|"),
        (
            "return redis.set_repl(4)",
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ),
        ("return redis.set_repl(-1)", "Invalid replication flags."),
        ("return redis.set_repl()", "redis.set_repl() requires two arguments."),
        ("return redis.debug('x', {})", "$-1|"),
        ("return redis.breakpoint()", "$-1|"),
    ] {
        let answer = run(call);
        assert!(answer.contains(reply), "{call}: {answer}");
    }
}

#[test]
fn a_script_can_ask_what_its_user_may_run() {
    for (call, reply) in [
        ("return redis.acl_check_cmd('get', 'k')", ":1|"),
        ("return redis.acl_check_cmd('forbidden')", "$-1|"),
        ("return redis.acl_check_cmd('nosuch')", "Invalid command passed to redis.acl_check_cmd()"),
        ("return redis.acl_check_cmd()", "Please specify at least one argument for this redis lib call"),
    ] {
        let answer = run(call);
        assert!(answer.contains(reply), "{call}: {answer}");
    }
}

#[test]
fn globals_are_the_same_with_and_without_a_view_and_cannot_be_set() {
    for sets in ["", "local function never() tonumber = nil end "] {
        let kept =
            format!("{sets}return {{KEYS[1], ARGV[1], type(_G.KEYS), type(_G), tostring(_G == _G._G)}}");
        assert_eq!(run(&kept), "*5|$2|k1|$2|a1|$5|table|$5|table|$4|true|", "{sets}");
        let unknown = run(&format!("{sets}return nosuch"));
        assert!(unknown.contains("attempted to access nonexistent global variable 'nosuch'"), "{unknown}");
        for change in [
            "_G.x = 1",
            "_G.KEYS = {}",
            "redis.call = nil",
            "rawset(_G, 'x', 1)",
            "setmetatable(_G, {})",
            "getmetatable(_G).__index = nil",
        ] {
            let said = run(&format!("{sets}{change}"));
            assert!(said.contains("Attempt to modify a readonly table"), "{sets}{change}: {said}");
        }
    }
    for change in ["x = 1", "KEYS = {}", "redis = {}", "tonumber = nil", "loadstring('KEYS = {}')()"] {
        let said = run(change);
        assert!(said.contains("Attempt to modify a readonly table"), "{change}: {said}");
    }
}

#[test]
fn a_loop_of_long_calls_is_ended_soon() {
    let watch = Arc::<ScriptWatch>::default();
    let mut engine = Engine::new(watch.clone()).expect("a state");
    watch.begin(1);
    // Killed before its first line, it ends at its first check, after a thousand instructions or some 150 calls. With
    // 100,000 instructions between two checks, all 2,000 calls were made.
    watch.kill();
    let source = "for n = 1, 2000 do string.rep('x', 1024 * 1024) end return 'all of them'";
    let said = run_on(&mut engine, source, false);
    assert!(said.contains("Script killed by user with SCRIPT KILL."), "{said}");
    assert!(watch.end());
}

#[test]
fn a_loop_of_long_calls_is_looked_at_soon_though_short_scripts_ran_before() {
    /// Kills the script at the first check, and counts its commands.
    struct Killer(Arc<ScriptWatch>, u32);
    impl Host for Killer {
        fn breathe(&mut self) {
            self.0.kill();
        }
        fn allows(&mut self, _: Args<'_>) -> Result<bool, NoCall> {
            Ok(true)
        }
        fn call(&mut self, _: Args<'_>, resp3: bool, out: &mut Vec<u8>) {
            self.1 += 1;
            Reply::new(out, resp3).int(1);
        }
    }
    let watch = Arc::<ScriptWatch>::default();
    let mut engine = Engine::new(watch.clone()).expect("a state");
    // After these, checks are as rare as allowed.
    for _ in 0..20 {
        watch.begin(1);
        assert_eq!(run_on(&mut engine, "for i = 1, 20000 do end return 1", false), ":1|");
        watch.end();
    }
    watch.begin(2);
    let mut host = Killer(watch.clone(), 0);
    let script = Script::new(b"while true do local s = string.rep('x', 1024) redis.call('ping') end")
        .expect("a script");
    let (none, mut out) = (OwnedArgs::default(), Vec::new());
    let ended = engine.run(&mut host, &script, none.args(), none.args(), &mut Reply::new(&mut out, false));
    assert!(ended.is_err() && watch.end());
    // Some seven instructions each.
    assert!(host.1 < 500, "{} calls before the first look", host.1);
}

#[test]
fn others_see_what_a_script_holds() {
    let watch = Arc::<ScriptWatch>::default();
    let mut engine = Engine::new(watch.clone()).expect("a state");
    assert_eq!(run_on(&mut engine, "kept = 1", false).chars().next(), Some('-'));
    let idle = watch.memory_bytes();
    assert!((10_000..4 << 20).contains(&idle), "{idle} bytes");
    struct Look(Arc<ScriptWatch>, u64);
    impl Host for Look {
        fn breathe(&mut self) {
            self.1 = self.1.max(self.0.memory_bytes());
        }
        fn allows(&mut self, _: Args<'_>) -> Result<bool, NoCall> {
            Ok(true)
        }
        fn call(&mut self, _: Args<'_>, _: bool, _: &mut Vec<u8>) {}
    }
    let mut host = Look(watch.clone(), 0);
    let source =
        "local t = {} for i = 1, 300 do t[i] = string.rep('x', 50000) .. i end for i = 1, 20000 do end";
    let script = Script::new(source.as_bytes()).expect("a script");
    let (none, mut out) = (OwnedArgs::default(), Vec::new());
    engine
        .run(&mut host, &script, none.args(), none.args(), &mut Reply::new(&mut out, false))
        .expect("it runs");
    assert!(host.1 > 10 << 20, "{} bytes while it ran", host.1);
    assert!(watch.memory_bytes() < 4 << 20, "{} bytes afterwards", watch.memory_bytes());
    drop(engine);
    assert_eq!(watch.memory_bytes(), 0);
}
