#!/usr/bin/env python3
"""The console in a real Chromium: tests/console/check.py DARTER [FOLDER], or DARTER FOLDER --album for the pictures of docs/

Starts the server DARTER and Chromium, fills the server with one key of each type and some load, goes through every view as
a person would, and leaves pictures in FOLDER (default target/console). Exits non-zero if something is missing or
overflows, if text has too little contrast, if a control has no name, or if the browser complains.
"""
import binascii, json, pathlib, re, shutil, signal, socket, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "walks"))
from walk import PATIENCE, Server, check, etcd, over, resp, wait
from browser import Browser, Failure

QUIET = ("--proactor_threads", "2", "--dbfilename", "")


def url(server, page="", user=""):
    return f"http://{user}127.0.0.1:{server.port}/{page}"


class Link:
    """A client of the server."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def run(self, *commands):
        """Sends commands in one piece and returns when all are answered."""
        end = b"$7\r\nthe end\r\n"
        self.socket.sendall(b"".join([*commands, resp("ECHO", "the end")]))
        data = b""
        while not data.endswith(end):
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise ConnectionError("the server has closed the connection")
            data = data[-len(end):] + piece

    def close(self):
        self.socket.close()


def fill(server):
    """A key of each type, names that are no text, markup that must stay text, and slow commands."""
    link = Link(server.port)
    link.run(
        resp("CONFIG", "SET", "slowlog-log-slower-than", 2000),
        resp("SET", "config:app", '{"theme":"dark","limits":{"cpu":4,"memory":"2gb"},"features":["search","cache"]}'),
        resp("SET", "session:9f2c", "eyJhbGciOiJIUzI1NiJ9", "EX", 3600),
        resp("SET", "markup:<img src=x onerror=alert(1)>", "<script>document.title='owned'</script>"),
        resp("SET", b"binary:\xff\x00\x01", b"\x00\xff\xfe"),
        resp("HSET", "user:1001", "name", "Ada Lovelace", "email", "ada@example.org", "visits", 1843, "plan", "pro"),
        resp("RPUSH", "queue:mail", *[f"message {n}" for n in range(250)]),
        resp("SADD", "tags:article:7", "rust", "storage", "cache", "redis"),
        resp("ZADD", "leaderboard", 4200, "ada", 3900.5, "grace", 3100, "edsger", 2800, "barbara"),
        resp("XADD", "events", "*", "type", "login", "user", "1001"),
        resp("XADD", "events", "*", "type", "purchase", "user", "1001", "total", "12.50"),
        resp("EVAL", "local n = 0 for i = 1, 3000000 do n = n + i end return n", 0),
        resp("DEBUG", "SLEEP", "0.02"),
        *[resp(*line.split()) for line in ("EXISTS a", "TTL a", "STRLEN a", "LLEN queue:mail", "SCARD tags:article:7", "ZCARD leaderboard", "TYPE a", "XLEN events")],
        resp("SELECT", "5"), resp("DEBUG", "POPULATE", "100000", "populated", "10"),
    )
    return link


class Load(threading.Thread):
    """Some work for the charts: pipelines of mixed commands, a little slower and faster by turns."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.done, self.fault = port, threading.Event(), None
        self.start()

    def run(self):
        try:
            link = Link(self.port)
            beat = 0
            while not self.done.wait(0.05):
                beat += 1
                link.run(*self.commands(beat))
            link.close()
        except OSError as fault:
            self.fault = fault

    def commands(self, beat):
        for n in range(40 + beat * 7 % 60):
            key = f"item:{(beat * 131 + n * 17) % 4000}"
            yield from (resp("GET", key), resp("GET", key), resp("HGETALL", "user:1001"), resp("INCR", f"counter:{n % 9}"))
            if n % 2:
                yield resp("SET", key, "x" * (n * 5), "EX", 600)

    def stop(self):
        self.done.set()
        self.join(PATIENCE)
        check(not self.is_alive() and not self.fault, "the load was answered to its end", f"{self.fault or 'it waits for a reply'}")


# Texts whose contrast with what is behind them is below WCAG's AA: 4.5, or 3 for large ones.
CONTRAST = r"""(() => {
  const parse = (text) => {
    let m = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(text);
    if (m) return [m[1] / 255, m[2] / 255, m[3] / 255, m[4] === undefined ? 1 : +m[4]];
    m = /^color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.e-]+))?\)$/.exec(text);
    return m ? [+m[1], +m[2], +m[3], m[4] === undefined ? 1 : +m[4]] : [0, 0, 0, 0];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = (node) => {
    const layers = [];
    for (let e = node; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [1, 1, 1, 1]);
  };
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => sum + part * (c[i] <= 0.04045 ? c[i] / 12.92 : ((c[i] + 0.055) / 1.055) ** 2.4), 0);
  const bad = new Set();
  const test = (node, color, style, text) => {
    const back = behind(node);
    const [a, b] = [light(over(parse(color), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 600) ? 3 : 4.5;
    if (ratio < least) bad.add(`${node.tagName}.${node.className} "${text.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  };
  const top = document.querySelector('dialog[open]') || document.body;
  for (const node of top.querySelectorAll('*')) {
    if (!node.checkVisibility() || node.closest('.unseen, .skip, option') || node.disabled) continue;
    const style = getComputedStyle(node);
    const text = [...node.childNodes].filter((c) => c.nodeType === 3).map((c) => c.data).join('');
    if (text.trim()) test(node, style.color, style, text);
    if (node.placeholder) test(node, getComputedStyle(node, '::placeholder').color, style, node.placeholder);
  }
  return [...bad];
})()"""


def accessible(browser, what):
    """Contrast of all texts in both schemes, and names of all controls."""
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        bad = browser.js(CONTRAST)
        check(not bad, f"contrast, {what}, {scheme}", "\n".join("    " + line for line in bad))
    # Chromium makes its tree of names some time after the page has changed.
    if wait(lambda: not nameless(browser), f"every control has a name, {what}", lambda: f"    {nameless(browser)}", pause=0.2):
        check(True, f"every control has a name, {what}")


def nameless(browser):
    """Roles of controls that a screen reader has no name for."""
    named = ("button", "link", "textbox", "searchbox", "combobox", "radio", "checkbox", "spinbutton", "table", "image", "dialog", "region")
    return [node["role"]["value"] for node in browser.call("Accessibility.getFullAXTree")["nodes"]
            if not node.get("ignored") and node["role"]["value"] in named and not node.get("name", {}).get("value", "").strip()]


def count(selector):
    return f"document.querySelectorAll({json.dumps(selector)}).length"


# What a page holds once it has asked the server.
CONTENT = {
    "overview": "document.getElementById('ops').textContent !== '–'",
    "keys": count("#key-list li") + " > 0",
    "shell": "document.activeElement.id === 'line'",
    "clients": count("#client-table tbody tr") + " > 0",
    "replication": count("#replication-facts dd") + " > 0",
    "diagnose": count("#slow-table tbody tr") + " > 0",
}


def turn(browser, name, content=None):
    """Goes to a page of the console and waits for what it holds."""
    browser.js(f"location.hash = '#{name}'")
    browser.until(f"document.getElementById('{name}').checkVisibility() && {content or CONTENT[name]}", f"the page {name} holds something")
    browser.settle()


def visit(browser, server, page="", user=""):
    """Opens the console of a server and waits until it is connected."""
    browser.open(url(server, page, user))
    browser.until("document.getElementById('dot')?.className", f"the page of {server.port} is connected", "on")


# Axes are grey; a line of some seconds has at least this many pixels of a colour.
DRAWN = """[...document.querySelectorAll('canvas[id^=chart-]')].every((canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0;
  for (let at = 0; at < data.length; at += 4) coloured += data[at + 3] > 200 && Math.abs(data[at] - data[at + 2]) > 60;
  return coloured > 8;
})"""


def overview(browser):
    browser.screen(1360, 1010, "light")
    turn(browser, "overview")
    for part in ("p99", "used", "hits", "keys-all"):
        browser.wait(f"!['–', ''].includes(document.getElementById('{part}').textContent)", f"the tile {part}")
    browser.wait(count("#commands tbody tr") + " > 12", "every command is listed")
    browser.wait(count(".thread"), "both threads are shown", 2)
    browser.wait(count("#keyspace tbody tr") + " >= 1", "databases are listed")
    browser.wait(DRAWN, "every chart has a line")
    browser.picture("overview-light.png")
    browser.scheme("dark")
    browser.picture("overview-dark.png")
    browser.click("#spans button", "1 h")
    browser.wait("document.getElementById('chart-ops').ariaLabel.startsWith('Throughput, last 1 h')", "the span of the charts is chosen")
    browser.js("document.querySelector('#spans [aria-checked=true]').focus()")
    browser.key("ArrowLeft", 37)
    browser.wait("document.activeElement.textContent === '15 min' && document.activeElement.ariaChecked === 'true'", "arrow keys choose the span")
    browser.click("#spans button", "3 min")
    browser.click("#commands .sort", "Command")
    names = browser.js("[...document.querySelectorAll('#commands tbody td:first-child')].map(c => c.textContent)")
    check(names == sorted(names), "commands are sorted by name", f"{names}")
    browser.put("#commands input", "hget")
    browser.wait(count("#commands tbody tr"), "commands are filtered", 1)
    browser.put("#commands input", "")
    browser.click("#commands .sort", "Calls")
    accessible(browser, "overview")


STATE = "document.getElementById('key-state').textContent"


def find(browser, pattern, db=None, then=""):
    """Begins a search; `then` is done in the page at once."""
    if db is not None:
        browser.js(f"document.getElementById('scan-db').value = '{db}'")
    browser.js(f"document.getElementById('scan-match').value = {json.dumps(pattern)}; {then}; document.getElementById('scan').requestSubmit()")


def show(browser, pattern, wanted):
    """Finds a key and opens it."""
    find(browser, pattern)
    browser.until(STATE, f"{pattern} is found alone", "1 key found")
    browser.click("#key-list button")
    browser.says("detail", wanted, f"{pattern} shows {wanted}")


def keys(browser):
    browser.screen(1360, 860, "light")
    turn(browser, "keys")
    browser.wait(count("#key-list li") + " > 5", "keys are listed")
    for pattern, wanted in [("user:1001", "Ada Lovelace"), ("queue:*", "message 0"), ("tags:*", "storage"),
                            ("leaderboard", "3900.5"), ("events", "purchase"), ("config:app", '"limits": {'),
                            ("binary:*", "\\x00\\xff\\xfe"), ("markup:*", "<script>")]:
        show(browser, pattern, wanted)
        if pattern == "queue:*":
            browser.click("#detail .more")
            browser.wait(count("#detail tbody tr"), "the next elements come", 200)
    check(browser.js("document.images.length") == 1 and browser.js("document.title") != "owned", "markup in a value stays text")
    find(browser, "[^i]*")
    browser.until(f"{STATE}.endsWith('found') && {count('#key-list li')} > 9", "many keys")
    browser.click("#key-list [title='user:1001']")
    browser.says("detail", "Ada", "the chosen one")
    browser.picture("keys-light.png")
    browser.scheme("dark")
    browser.picture("keys-dark.png")
    accessible(browser, "keys")


# Presses Stop as soon as the search has looked at something and before it ends.
STOP = """{const state = document.getElementById('key-state');
    new MutationObserver((_, watch) => {
      if (!/^0 keys; searched [1-9]/.test(state.textContent)) return;
      watch.disconnect();
      document.getElementById('key-stop').click();
    }).observe(state, {childList: true, characterData: true, subtree: true});}"""


def searching(browser):
    """Database 5 holds 100,000 keys: names at once, progress, stop, continue, tree."""
    find(browser, "populated:77777", db=5)
    browser.until("document.querySelector('#key-list .name')?.textContent", "an exact name is found", "populated:77777")
    browser.wait(STATE, "an exact name is found among 100,000", "1 key found")
    find(browser, "7777")
    browser.wait(STATE, "part of a name is found", f"{sum('7777' in str(n) for n in range(100000))} keys found")
    find(browser, "nothing*", then=STOP)
    browser.says("key-state", "Stopped; 0 keys among", "a search is stopped")
    browser.click("#key-more")
    browser.wait(STATE, "a search that was stopped continues", "No key matches.")
    find(browser, "")
    browser.says("key-state", "Paused at", "a search pauses")
    browser.wait(count("#key-list li"), "long lists are shown in steps", 200)
    browser.click("#key-rest")
    browser.wait(count("#key-list li"), "more of a long list is shown", 1200)
    find(browser, "", db=0)
    browser.until(f"{STATE}.endsWith('keys found')", "the search ends")
    browser.click("#layouts button", "Tree")
    browser.click(".folder .name", "tags:")
    browser.click(".folder .name", "article:")
    browser.click("#key-list [title='tags:article:7']")
    browser.says("detail", "storage", "a key of the tree is shown")
    browser.screen(1360, 860, "light")
    browser.picture("tree-light.png")
    browser.click("#layouts button", "List")


def dialog(browser, action, stays=None, **fields):
    """Fills the open dialog and submits it; fields by their labels. The dialog closes, unless it `stays` and says why."""
    browser.until("document.getElementById('dialog').open", f"a dialog opens: {action}")
    for label, value in fields.items():
        browser.js(f"""{{const field = [...document.querySelectorAll('#dialog label')].find(l => l.textContent.startsWith({json.dumps(label.replace('_', ' '))}));
            const e = field.querySelector('input, textarea, select'); e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change'));}}""")
    browser.click("#dialog button", action)
    if stays:
        browser.says("dialog", stays, f"the dialog stays: {stays}")
    else:
        closed(browser, action)


def closed(browser, action):
    browser.until("!document.getElementById('dialog').open && !document.getElementById('dialog').hasChildNodes()", f"the dialog closes: {action}")


def creating(browser):
    """A new key of every type, with a TTL that is removed."""
    values = {"string": "one", "hash": "name: Ada\nplan: pro", "list": "a\nb\na", "set": "x\ny", "zset": "ada: 1.5\nbob: 2", "stream": "kind: login",
              "ReJSON-RL": '{"plan": "pro", "seats": [1, 2]}'}
    for kind, value in values.items():
        name = f"made:{kind}"
        browser.click("#key-new")
        browser.until("document.getElementById('dialog').open", "the dialog opens")
        browser.js(f"document.querySelector('#dialog textarea').value = {json.dumps(value)}")
        dialog(browser, "Create", Name=name, Type=kind, TTL="600")
        browser.until("document.querySelector('#detail .title')?.textContent", f"{name} is shown", name)
        browser.says("detail", "to live", f"{name} has a TTL")
        browser.click("#detail button", "Remove TTL")
        browser.says("detail", "does not expire", f"{name} has none any more")


def editing(browser):
    """Every type: what it holds is changed."""
    rows = count("#detail tbody tr")
    show(browser, "made:string", "one")
    browser.click("#detail button", "Edit value")
    dialog(browser, "Save", Value="two words")
    browser.says("detail", "two words", "a string is edited")
    show(browser, "made:hash", "Ada")
    browser.click("#detail .acts button", "Edit")
    dialog(browser, "Save", Value="Grace")
    browser.says("detail", "Grace", "a field is edited")
    browser.click("#detail button", "Add field")
    dialog(browser, "Add", Field="visits", Value="7")
    browser.says("detail", "visits", "a field is added")
    browser.click("#detail button", "Add field")
    dialog(browser, "Add", stays="exists already", Field="visits", Value="8")
    browser.click("#dialog button", "Cancel")
    closed(browser, "Add")
    show(browser, "made:list", "b")
    browser.click("#detail [aria-label='Remove 0']")
    dialog(browser, "Remove the element")
    browser.wait("[...document.querySelectorAll('#detail tbody tr')].map(r => r.children[1].textContent).join()", "the right element is removed", "b,a")
    show(browser, "made:set", "x")
    browser.click("#detail button", "Add member")
    dialog(browser, "Add", Member="z")
    browser.wait(rows, "a member is added", 3)
    show(browser, "made:zset", "ada")
    browser.click("#detail [aria-label='Edit ada']")
    dialog(browser, "Save", Score="40")
    browser.says("detail", "40", "a score is changed")
    show(browser, "made:ReJSON-RL", '"plan": "pro"')
    browser.click("#detail button", "Edit value")
    dialog(browser, "Save", JSON_document='{"plan": "free"}')
    browser.says("detail", '"plan": "free"', "a JSON document is edited")
    show(browser, "made:stream", "login")
    browser.click("#detail button", "Add entry")
    dialog(browser, "Add", Fields="kind: logout")
    browser.says("detail", "logout", "an entry is added")


def renaming(browser):
    """The stream that is open: another name, a TTL, and its end, each with a dialog."""
    browser.click("#detail button", "Rename")
    dialog(browser, "Rename", stays="A key of this name exists.", New_name="made:set")
    dialog(browser, "Rename", New_name="made:renamed")
    browser.wait("document.querySelector('#detail .title')?.textContent", "a key is renamed", "made:renamed")
    browser.click("#detail button", "Set TTL")
    dialog(browser, "Set TTL", Time_to_live="3", Unit="3600000")
    browser.says("detail", "to live", "a TTL is set")
    browser.click("#detail button", "Delete")
    browser.wait("document.activeElement.textContent", "the harmless button has the focus", "Cancel")
    accessible(browser, "a dialog")
    browser.screen(1360, 860, "light")
    browser.picture("delete-light.png")
    browser.key("Escape", 27)
    closed(browser, "Escape")
    browser.says("detail", "logout", "the key is still there")
    browser.js("""{const open = [...document.querySelectorAll('#detail button')].find(e => e.textContent === 'Delete');
        open.click(); document.getElementById('dialog').close(); open.click();}""")
    browser.settle()
    browser.says("dialog", "This cannot be undone.", "a dialog that opens as another closes has its content")
    browser.key("Escape", 27)
    closed(browser, "Escape")
    browser.click("#detail button", "Delete")
    dialog(browser, "Delete the key")
    browser.says("detail", "Choose a key", "the key is deleted")


LINE = "document.getElementById('line').value"


def enter(browser, line, wanted):
    """Runs a line of the console and waits for its reply, or for the prompt that follows."""
    before = browser.js(count("#log > div"))
    browser.type(line)
    browser.key("Enter", 13)
    browser.wait(f"{count('#log > div')} === {before + 1} && (document.querySelector('#log > div:last-child > :last-child').innerText"
                 f" + document.getElementById('ps').innerText).includes({json.dumps(wanted)})", f"{line} answers {wanted}")


def shell(browser):
    turn(browser, "shell")
    for line, wanted in [("SET greeting \"hello \\x41\"", "OK"), ("GET greeting", '"hello A"'), ("INCR visits", "(integer) 1"),
                         ("HGETALL user:1001", '"name" => "Ada Lovelace"'), ("GET nothing", "(nil)"), ("LPUSH visits x", "WRONGTYPE"),
                         ("ZRANGE leaderboard 0 -1 WITHSCORES", "(double) 2800"), ("SELECT 3", "3>"), ("SELECT 0", "0>"),
                         ("GET 'open", "A quote is not closed."), ("help zadd", "score member [score member ...]"),
                         ("help", "lists a group"), ("help nonsense", "No command is called nonsense.")]:
        enter(browser, line, wanted)
    for _ in range(5):
        browser.key("ArrowUp", 38)
    browser.wait(LINE, "the history goes back", "SELECT 0")
    browser.put("#line", "")
    browser.type("HG")
    browser.key("ArrowUp", 38)
    browser.wait(LINE, "the history is searched by what was typed", "HGETALL user:1001")
    browser.put("#line", "")
    enter(browser, "auth secret", "(error)")
    check("auth" not in browser.js("localStorage.getItem('history')"), "passwords are not stored")
    browser.type("zrangebysc")
    browser.says("hints", "ZRANGEBYSCORE", "names are proposed")
    browser.key("Tab", 9)
    browser.wait(LINE, "names are completed", "zrangebyscore ")
    browser.says("hints", "key min max", "the syntax is shown")
    for scheme in ("dark", "light"):
        browser.screen(1360, 860, scheme)
        browser.picture(f"shell-{scheme}.png")
    accessible(browser, "command line")
    browser.put("#line", "")
    browser.key("Tab", 9)
    browser.wait("document.activeElement.textContent", "Tab leaves an empty line", "Run")
    browser.js("document.getElementById('line').focus()")
    browser.type("FLUSHALL")
    browser.key("Enter", 13)
    browser.says("dialog", "Every key of every database is deleted. This cannot be undone.", "FLUSHALL asks first")
    browser.click("#dialog button", "Cancel")
    browser.until("document.activeElement.id", "the line has the focus again", "line")
    enter(browser, "EXISTS user:1001", "(integer) 1")


def clients(browser, server):
    many = [Link(server.port) for _ in range(260)]
    many[0].run(resp("CLIENT", "SETNAME", "the-one"))
    browser.screen(1360, 860, "light")
    turn(browser, "clients")
    browser.says("clients", "200 of 26", "clients are listed")
    browser.click("#client-table .foot button")
    browser.wait(count("#client-table tbody tr") + " > 260", "all clients can be seen")
    browser.put("#client-table input", "the-one")
    browser.wait(count("#client-table tbody tr"), "clients are filtered", 1)
    browser.click("#client-table button", "Close")
    dialog(browser, "Close the connection")
    browser.says("client-table", "No row matches the filter.", "a client is closed")
    browser.put("#client-table input", "")
    for link in many:
        link.close()
    browser.wait(count("#client-table tbody tr") + " < 20", "closed clients disappear")
    browser.picture("clients-light.png")
    browser.scheme("dark")
    browser.picture("clients-dark.png")
    accessible(browser, "clients")


def diagnose(browser, server):
    browser.screen(1360, 1100, "light")
    turn(browser, "diagnose")
    browser.says("slow-table", "DEBUG SLEEP", "slow commands are listed")
    browser.says("slow-note", "longer than 2.00 ms", "the threshold is shown")
    browser.put("#slow-threshold", "1.5")
    browser.js("document.getElementById('slow-form').requestSubmit()")
    browser.says("slow-note", "longer than 1.50 ms", "the threshold is set")
    browser.put("#latency-threshold", "5")
    browser.js("document.getElementById('latency-form').requestSubmit()")
    browser.says("latency-note", "Events of 5.00 ms and more", "the threshold of events is set")
    link = Link(server.port)
    link.run(resp("DEBUG", "SLEEP", "0.02"))
    browser.says("latency-table", "command", "events are listed")
    browser.click("#survey-start")
    browser.says("survey-state", "Finished:", "all keys are looked at")
    browser.says("survey-state", "Hot keys need a policy", "the page says why there are no hot keys")
    browser.wait("fetch('/api/stats', {headers: {'X-Darter-Console': '1'}}).then(a => a.json()).then(s => s.totals.errors < 100)", "and has not asked for them key by key")
    browser.says("big-table", "queue:mail", "big keys are listed")
    browser.says("prefix-table", "item:", "memory by prefix")
    link.run(resp("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"))
    link.close()
    browser.click("#survey-start")
    browser.wait(count("#hot-table tbody tr") + " > 0 && document.getElementById('survey-state').textContent.startsWith('Finished')", "hot keys are listed")
    browser.picture("diagnose-light.png")
    browser.scheme("dark")
    browser.picture("diagnose-dark.png")
    accessible(browser, "diagnostics")
    browser.click("#big-table .link", "queue:mail")
    browser.says("detail", "message 0", "a big key is opened")


def replication(browser, server):
    """Who follows whom, at the master and at a replica; a replica that stands still falls behind."""
    replica = Server(*QUIET, "--replicaof", f"127.0.0.1:{server.port}").ready()
    browser.screen(1360, 860, "light")
    turn(browser, "replication")
    browser.says("replica-table", "following", "a replica is shown")
    browser.says("replication-chain", str(replica.port), "the way of a change is shown")
    browser.picture("replication-light.png")
    replica.signal(signal.SIGSTOP)
    browser.wait("[...document.querySelectorAll('#replica-table tbody td')].some(cell => /[KM]iB$/.test(cell.textContent))",
                 "a replica that stands still lacks something")
    replica.signal(signal.SIGCONT)
    browser.scheme("dark")
    browser.picture("replication-dark.png")
    accessible(browser, "replication")
    visit(browser, replica, "#replication")
    browser.says("master-facts", "following", "the replica shows its master")
    browser.says("replication-facts", "replica", "and its role")
    browser.picture("replication-replica.png")
    visit(browser, server)
    replica.kill()


def group(browser):
    """A group of two servers: who leads, who is a member, what has changed. A member that stands still is dropped."""
    if not shutil.which("etcd"):
        return print("skipped  no etcd: the page of a group")
    flags = (*QUIET, "--ha_store", etcd(), "--min_replicas_to_ack", "1")
    first = Server(*flags).ready()
    browser.screen(1360, 1200, "light")
    visit(browser, first, "#replication")
    browser.says("group-facts", "leads", "a server alone leads its group")
    browser.says("group-facts", "too few members", "and refuses writes")
    second = Server(*flags).ready()
    browser.wait("[...document.querySelectorAll('#member-table tbody tr')].filter(row => row.innerText.includes('yes')).length", "another one is a member", 2)
    browser.says("change-table", "is a member", "which is told as a change")
    browser.picture("group-light.png")
    accessible(browser, "group")
    browser.scheme("dark")
    browser.picture("group-dark.png")
    second.signal(signal.SIGSTOP)
    browser.says("change-table", "is no member any more", "a member that stands still is dropped")
    check(not browser.overflows(), "the page of a group fits")
    browser.open("about:blank")
    second.kill()
    first.kill()


def configuration(nodes, owner, moves):
    """Two nodes; slots 0 to 4095 are that of `owner`, the others are the first one's. `moves`: those slots move to the other."""
    ranges = [[(0, 16383)], []] if owner == 0 else [[(4096, 16383)], [(0, 4095)]]
    span = lambda pair: {"start": pair[0], "end": pair[1]}
    address = lambda at: {"ip": "127.0.0.1", "port": nodes[at].port}
    to = [{"node_id": f"node{1 - owner}", **address(1 - owner), "slot_ranges": [span((0, 4095))]}] if moves else []
    return json.dumps([{"slot_ranges": [span(pair) for pair in ranges[at]], "master": {"id": f"node{at}", **address(at)},
                        "replicas": [], "migrations": to if at == owner else []} for at in range(2)])


# The colours of the dots of the first slots, as many as there are.
SLOT_COLOURS = """(() => {
  const canvas = document.getElementById('slot-map');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, 2);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 4).join(' '));
  return [...seen].sort();
})()"""


# Whether the page says how many of the keys have moved, and how many these are.
FAR = "/of 20\\D000 keys/.test(document.getElementById('move-table').innerText)"
COPIED = "+(/(\\d[\\d\\D]{0,7}) of 20\\D000/.exec(document.getElementById('move-table').innerText)?.[1].replace(/\\D/g, '') || 0)"


def cluster(browser):
    """Two nodes: the owners of slots, a move on its way and at its end."""
    nodes = [Server(*QUIET, "--cluster_mode=yes", "--cluster_node_id", f"node{at}").ready() for at in range(2)]
    push = lambda owner, moves: [node.call("DFLYCLUSTER", "CONFIG", configuration(nodes, owner, moves)) for node in nodes]
    check(push(0, False) == [b"+OK\r\n"] * 2, "a configuration is taken")
    for n in range(200):
        nodes[0].call("MSET", *[word for m in range(100) for word in (f"{{{TAG}}}{n * 100 + m}", "x" * 100)])
    browser.screen(1360, 1200, "light")
    visit(browser, nodes[0])
    shown = count("#node-table tbody tr") + " === 2"
    turn(browser, "cluster", shown)
    browser.says("cluster-facts", "pushed", "the map is pushed")
    browser.says("node-table", f"127.0.0.1:{nodes[0].port} (this server's group)", "the server is marked")
    browser.says("node-table", f"127.0.0.1:{nodes[1].port}", "and the other is there")
    one = browser.js(SLOT_COLOURS)
    check(len(one) == 1, "the slots of one node have its colour", f"{one}")
    label = browser.js("document.getElementById('slot-map').getAttribute('aria-label')")
    check(re.search(rf"127\.0\.0\.1:{nodes[0].port}: 16\D384 slots", label), "the map says it in words", label)
    browser.says("move-table", "None from or to", "no slots move")
    nodes[0].call("CONFIG", "SET", "slot_migration_throttle_us", "1000000")
    check(push(0, True) == [b"+OK\r\n"] * 2, "slots begin to move")
    browser.says("move-table", "copies", "a move is under way")
    browser.wait(FAR, "it says how far it is")
    browser.says("move-table", " left", "and how long it takes")
    before = browser.js(COPIED)
    browser.wait(f"{COPIED} > {before}", "it goes on")
    both = browser.js(SLOT_COLOURS)
    check(len(both) == 2 and one[0] in both, "slots that move have the colours of both", f"{both}")
    browser.picture("cluster-light.png")
    check(not browser.overflows(), "the page of a cluster fits")
    accessible(browser, "cluster")
    browser.scheme("dark")
    browser.picture("cluster-dark.png")
    browser.screen(390, 844, "light", mobile=True)
    turn(browser, "cluster", shown)
    browser.wait(FAR, "a phone shows the move")
    fits_phone(browser, "cluster")
    browser.scheme("light")
    nodes[0].call("CONFIG", "SET", "slot_migration_throttle_us", "0")
    browser.says("move-table", "is done", "the move ends")
    browser.wait(f"JSON.stringify({SLOT_COLOURS})", "the slots have the colour of the other",
                 json.dumps([colour for colour in both if colour not in one], separators=(",", ":")))
    browser.open("about:blank")
    for node in nodes:
        node.kill()


# A tag of slot 5, which is among those that move.
TAG = next(str(n) for n in range(100000) if binascii.crc_hqx(str(n).encode(), 0) % 16384 == 5)


def fits_phone(browser, name):
    check(not browser.overflows(), f"nothing is wider than a phone: {name}")
    wide = browser.js(f"""[...document.querySelectorAll('#{name} .scroll')].filter(box => !box.closest('#detail') &&
        box.scrollWidth > box.clientWidth).map(box => box.innerText.slice(0, 200))""")
    check(not wide, f"no table has to be moved sideways: {name}", f"{wide}")
    browser.picture(f"phone-{name}.png")
    accessible(browser, f"{name} on a phone")


def phone(browser):
    for name in CONTENT:
        browser.screen(390, 844, "light", mobile=True)
        turn(browser, name)
        fits_phone(browser, name)
    browser.wait("[...document.querySelectorAll('#slow-table tbody tr:first-child td')].filter(c => c.checkVisibility()).length", "every column is there on a phone", 4)
    browser.scheme("dark")
    turn(browser, "overview")
    browser.js("scrollTo(0, 560)")
    browser.picture("phone-dark.png")


def keyboard(browser, server):
    browser.screen(1360, 860, "light")
    # With a page's name in the address, Tab begins at that page.
    browser.open("about:blank")
    visit(browser, server)
    browser.key("Tab", 9)
    browser.wait("document.activeElement.className", "the first stop of Tab skips to the content", "skip")
    browser.key("Enter", 13)
    browser.wait("document.activeElement.id", "Enter does so", "main")


def disconnected(browser):
    """The page of a server that has ended is grey and says so; it goes on when the server is back."""
    server = Server(*QUIET).ready()
    browser.screen(1360, 1010, "light")
    visit(browser, server)
    browser.until(CONTENT["overview"], "numbers arrive")
    browser.excused.add(server.port)
    server.kill()
    browser.wait("document.body.classList.contains('offline') && document.getElementById('banner').checkVisibility()", "the page is grey")
    banner = browser.js("document.getElementById('banner').textContent")
    check(re.match(r"Disconnected since \d\d:\d\d:\d\d: the server does not answer\. What you see is of \d", banner), "the page says that it is disconnected", banner)
    browser.wait("document.title.startsWith('Disconnected')", "so does its title")
    browser.picture("disconnected-light.png")
    server = Server(*QUIET, port=server.port).ready()
    browser.wait("!document.body.classList.contains('offline') && document.getElementById('banner').hidden", "the page goes on when the server is back")
    browser.open("about:blank")
    server.kill()


def readonly(browser):
    """Where the console only shows, no control that writes is there, and the command line is refused."""
    server = Server(*QUIET, "--http_console_readonly").ready()
    link = fill(server)

    def writes_nothing(what):
        seen = browser.js("[...document.querySelectorAll('.writes')].filter(e => e.checkVisibility()).map(e => e.textContent)")
        check(not seen, f"nothing writes {what}", f"{seen}")

    browser.screen(1360, 860, "light")
    visit(browser, server, "#keys")
    browser.wait("document.getElementById('pulse').textContent.startsWith('read-only')", "the page says that it is read-only")
    for pattern, wanted in [("user:1001", "Ada Lovelace"), ("queue:*", "message 0"), ("session:*", "eyJ"), ("config:*", "limits")]:
        show(browser, pattern, wanted)
        writes_nothing(f"to {pattern}")
    browser.picture("readonly-light.png")
    for name in ("overview", "clients", "diagnose"):
        turn(browser, name)
        writes_nothing(f"on the page {name}")
    turn(browser, "shell")
    enter(browser, "set user:1001 x", "READONLY this console changes nothing")
    enter(browser, "get session:9f2c", "eyJ")
    browser.open("about:blank")
    link.close()
    server.kill()


def password(browser):
    server = Server(*QUIET, "--requirepass", "s3cret").ready()
    visit(browser, server, user="default:s3cret@")
    check(True, "with a password the page works")
    browser.excused.add(server.port)
    browser.open(url(server, user="default:wrong@"), "net::ERR_INVALID_AUTH_CREDENTIALS")
    check(True, "with a wrong one it does not come")
    browser.open("about:blank")
    server.kill()


def walk(browser):
    server = Server("--proactor_threads", "2").ready()
    link, work = fill(server), Load(server.port)
    visit(browser, server)
    for view in (overview, keys, searching, creating, editing, renaming, shell):
        view(browser)
    for view in (clients, diagnose, replication):
        view(browser, server)
    phone(browser)
    keyboard(browser, server)
    work.stop()
    link.close()
    for view in (disconnected, readonly, password, group, cluster):
        view(browser)
    check(not browser.complaints, "the browser has nothing to complain about", "\n".join("  " + c for c in browser.complaints))


def album(browser):
    """A picture of each page in light, dark and at a phone's width, for docs/."""
    server = Server(*QUIET, "--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lfu").ready()
    link, work = fill(server), Load(server.port)
    browser.screen(1360, 1010, "light")
    visit(browser, server)
    # What the charts show is time.
    time.sleep(20)
    turn(browser, "keys")
    find(browser, "[^i]*", db=0)
    browser.until(STATE + ".endsWith('keys found')", "many keys")
    browser.click("#key-list [title='leaderboard']")
    browser.says("detail", "3900.5", "the chosen one")
    turn(browser, "shell")
    for line, wanted in [("hgetall user:1001", "Ada"), ("zrange leaderboard 0 -1 rev withscores", "4200"), ("xlen events", "2"), ("help getex", "GETEX")]:
        enter(browser, line, wanted)
    turn(browser, "diagnose")
    browser.put("#survey-db", "0")
    browser.click("#survey-start")
    browser.says("survey-state", "Finished:", "all keys are looked at")
    for name in ("overview", "keys", "shell", "clients", "diagnose"):
        for shape, width, height in (("light", 1360, 860), ("dark", 1360, 860), ("phone", 390, 844)):
            browser.screen(width, height, "dark" if shape == "dark" else "light", mobile=shape == "phone")
            turn(browser, name)
            browser.picture(f"console-{name}-{shape}.png")
    work.stop()
    link.close()


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "target/console")
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(folder)
    try:
        (album if "--album" in sys.argv else walk)(browser)
    except Failure as failure:
        check(False, str(failure))
    finally:
        browser.close()
    print(f"pictures are in {folder}")
    over()


if __name__ == "__main__":
    main()
