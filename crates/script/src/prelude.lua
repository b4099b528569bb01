-- The world a script sees: views of the libraries that cannot be changed, and the `redis` table.
-- `native` holds functions in Rust.
local native = ...
local setmetatable, getmetatable, rawset = setmetatable, getmetatable, rawset
local error, type, tostring, pairs, pcall, xpcall = error, type, tostring, pairs, pcall, xpcall
local next, tonumber, unpack = next, tonumber, unpack
local loadstring, concat, collect = loadstring, table.concat, collectgarbage
local byte, find, sub = string.byte, string.find, string.sub
local ipairs, select, sort = ipairs, select, table.sort
local READONLY = "Attempt to modify a readonly table"
local views = setmetatable({}, { __mode = "k" })

local function refuse()
    error(READONLY, 2)
end

local locked = {}
setmetatable(locked, { __newindex = refuse, __metatable = locked })
views[locked] = true

local function view_of(table, view)
    view = setmetatable(view or {}, { __index = table, __newindex = refuse, __metatable = locked })
    views[view] = table
    return view
end

-- What Rust raised becomes what a script expects: a table with `err`, or a text.
local cause_of = native.cause

local function mend(fine, cause, ...)
    if not fine and type(cause) == "userdata" then
        return false, cause_of(cause)
    end
    return fine, cause, ...
end

local redis = {}
for name, body in pairs(native.redis) do
    redis[name] = body
end
for name, value in pairs(native.constants) do
    redis[name] = value
end

-- There is no debugger for them to talk to.
function redis.debug() end
function redis.breakpoint()
    return false
end
function redis.replicate_commands()
    return true
end

local base = {}
for _, name in pairs({
    "assert", "error", "gcinfo", "getmetatable", "ipairs", "next", "rawequal", "rawget", "select",
    "tonumber", "tostring", "type", "_VERSION",
}) do
    base[name] = _G[name]
end

function base.pcall(...)
    return mend(pcall(...))
end

function base.xpcall(body, handler)
    return mend(xpcall(body, function(cause)
        if type(cause) == "userdata" then
            cause = cause_of(cause)
        end
        return handler(cause)
    end))
end

-- A view has nothing of its own to go through: what it shows is gone through instead.
function base.pairs(table)
    local shown = views[table]
    if type(shown) ~= "table" then
        return pairs(table)
    end
    local key
    return function()
        local value
        key, value = next(shown, key)
        return key, value
    end
end

function base.setmetatable(table, meta)
    if views[table] then
        error(READONLY, 2)
    end
    return setmetatable(table, meta)
end

function base.rawset(table, key, value)
    if views[table] then
        error(READONLY, 2)
    end
    return rawset(table, key, value)
end

-- The library's own counts the values in an int, and what is checked after an overflow a compiler may leave out
-- (CVE-2025-46817).
local UNPACKED_MAX, INT_MIN, INT_MAX = 1000000, -2147483648, 2147483647

function base.unpack(list, first, last)
    local from, to = tonumber(first or 1), tonumber(last or type(list) == "table" and #list or 0)
    local fits = from and to and from >= INT_MIN and from <= INT_MAX and to >= INT_MIN and to <= INT_MAX
    if from and to and not (fits and to - from < UNPACKED_MAX) then
        if to < from then
            return
        end
        error("too many results to unpack", 2)
    end
    if first == nil and last == nil then
        -- Each argument passed is a value less that fits the stack.
        return unpack(list)
    end
    return unpack(list, first, last)
end

-- By its name of later versions of Lua.
table.unpack = base.unpack

-- Dragonfly's table. A sum is made of the words after the command's name and of the texts of its answer, which can be
-- put in order first.
local function add_texts(answer, texts)
    if type(answer) ~= "table" then
        texts[#texts + 1] = tostring(answer)
        return
    end
    texts[#texts + 1] = answer.err or answer.ok
    for _, item in ipairs(answer) do
        add_texts(item, texts)
    end
end

local dragonfly = { randstr = native.dragonfly.randstr }
function dragonfly.ihash(sum, sorts, ...)
    local texts = {}
    add_texts(redis.pcall(...), texts)
    if sorts then
        sort(texts)
    end
    for at = 2, select("#", ...) do
        sum = native.dragonfly.sum(sum, (select(at, ...)))
    end
    for _, text in ipairs(texts) do
        sum = native.dragonfly.sum(sum, text)
    end
    return sum
end

-- Compiled code is never loaded: the machine trusts it. The name goes in without zeros, so that the compiler's own copy
-- of it is this very string, which the call keeps alive (CVE-2025-49844).
function base.loadstring(text, name)
    if type(text) == "string" and byte(text, 1) == 27 then
        return nil, "attempt to load chunk with wrong mode"
    end
    name = name or text
    local zero = type(name) == "string" and find(name, "%z")
    return loadstring(text, zero and sub(name, 1, zero - 1) or name)
end

function base.load(reader, name)
    local pieces = {}
    while true do
        local piece = reader()
        if piece == nil or piece == "" then
            break
        end
        pieces[#pieces + 1] = piece
    end
    return base.loadstring(concat(pieces), name or "=(load)")
end

function base.collectgarbage(what)
    if what == nil or what == "collect" or what == "count" or what == "step" then
        return collect(what)
    end
    return 0
end

-- Matching takes a piece of the thread's stack for each item of a pattern.
local PATTERN_MAX = 4000

local function is_long(pattern)
    return type(pattern) == "string" and #pattern > PATTERN_MAX
end

local function bounded(search)
    return function(text, pattern, ...)
        if is_long(pattern) then
            error("pattern too complex", 2)
        end
        return search(text, pattern, ...)
    end
end

for _, name in pairs({ "match", "gmatch", "gsub" }) do
    string[name] = bounded(string[name])
end
string.gfind = string.gmatch
function string.find(text, pattern, start, plain)
    if not plain and is_long(pattern) then
        error("pattern too complex", 2)
    end
    return find(text, pattern, start, plain)
end

-- The library's own writes past `__newindex`. The others that write find nothing in a view.
local insert = table.insert
function table.insert(list, ...)
    if views[list] then
        error(READONLY, 2)
    end
    return insert(list, ...)
end

math.random, math.randomseed = native.random, native.randomseed
local resume = coroutine.resume
function coroutine.resume(...)
    return mend(resume(...))
end
for _, name in pairs({ "string", "table", "math", "coroutine" }) do
    base[name] = view_of(_G[name])
end
-- The metatable of what `cjson.decode` marks as an array.
view_of({ __is_cjson_array = true }, native.array_mark)
for name, library in pairs(native.libraries) do
    base[name] = view_of(library)
end
base.os = view_of({ clock = os.clock })
base.dragonfly = view_of(dragonfly)
base.redis = view_of(redis)
base.server = base.redis
local text_meta = getmetatable("")
text_meta.__index = base.string
text_meta.__metatable = view_of({ __index = base.string })

local unknown = {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
}
setmetatable(base, unknown)
local globals = view_of(base)
base._G = globals

-- The world of a library while it is loaded: it registers functions and writes to the log. Errors call the table by the
-- name it was called by.
local loading = setmetatable({}, unknown)
for _, api in pairs({ "redis", "server" }) do
    local known = setmetatable({ log = redis.log }, unknown)
    for name, value in pairs(native.constants) do
        if find(name, "^LOG_") or find(name, "VERSION") or find(name, "NAME") then
            known[name] = value
        end
    end
    function known.register_function(...)
        return native.register(api, ...)
    end
    loading[api] = view_of(known)
end
local library_meta = { __index = base, __newindex = refuse, __metatable = locked }
local library = setmetatable({}, library_meta)
views[library] = base

local function explain(cause)
    if type(cause) == "userdata" then
        cause = cause_of(cause)
    end
    if type(cause) ~= "table" then
        cause = { err = "ERR " .. tostring(cause) }
    end
    local source, line = native.place()
    if line and not views[cause] then
        rawset(cause, "source", source)
        rawset(cause, "line", line)
    end
    return cause
end

local function run(body)
    return xpcall(body, explain)
end

return globals, base, run, explain, library, library_meta, loading
