#!/usr/bin/env python3
"""The console in a real Chromium: tests/console/check.py DARTER [FOLDER], or --album DARTER FOLDER for the pictures of docs/

Starts the server DARTER and Chromium (headless, spoken to over a pipe, so nothing has to be installed beside it), fills
the server with one key of each type and some load, goes through every view as a person would, and leaves screenshots in
FOLDER (default target/console). Exits non-zero if something is missing or overflows, if text has too little contrast, if
a control has no name, or if the browser complains.
"""
import base64, json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time


class Browser:
    """Chromium's debugging protocol over two pipes."""

    def __init__(self, profile):
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if not program:
            sys.exit("no chromium")
        out_child, self.out = os.pipe()
        self.inp, in_child = os.pipe()

        def places():  # Chromium reads from descriptor 3 and writes to 4.
            a, b = os.dup(out_child), os.dup(in_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=places, pass_fds=(3, 4, out_child, in_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(out_child)
        os.close(in_child)
        self.number, self.rest, self.complaints, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(domain + ".enable")

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.inp, 1 << 20)
            if not piece:
                raise SystemExit("chromium is gone")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:600])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            # Requests to a server that has been ended on purpose may be told of late.
            if self.ended and f":{self.ended}/" in params["entry"].get("url", ""):
                return
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(self.allowed):
                self.complaints.append("asked for " + url)

    ended = None
    allowed = ("http://127.0.0.1:", "http://default:", "about:", "data:")

    def js(self, text):
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{text}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, text, what, seconds=15):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(text):
                return
            time.sleep(0.1)
        raise SystemExit(f"FAILED: {what}: {text}\n" + "\n".join(self.complaints))

    def screen(self, width, height, scheme, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=mobile,
                  deviceScaleFactor=2 if mobile else 1)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(0.4)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if name == "Enter" and kind == "keyDown" else {}))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


    def click(self, selector, text=None):
        """Clicks the first element of the selector, with this text if one is given."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        if text is not None:
            found += f".filter(e => e.textContent.trim() === {json.dumps(text)})"
        self.wait(found + ".length > 0", f"there is {selector} {text or ''}")
        self.js(found + "[0].click()")

    def put(self, selector, value):
        self.js(f"{{const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
                "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}));}")

    def says(self, element, wanted, what):
        self.wait(f"document.getElementById({json.dumps(element)}).innerText.includes({json.dumps(wanted)})", what)


class Server:
    def __init__(self, program, *flags, port=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = port or probe.getsockname()[1]
        self.process = subprocess.Popen([program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("the server does not listen")

    def close(self):
        self.process.kill()
        self.process.wait()


def resp(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def fill(port):
    """A key of each type, names that are no text, markup that must stay text, and slow commands."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(b"".join([
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
    ]))
    time.sleep(0.5)
    return link


def load(port, done):
    """Some work for the charts: pipelines of mixed commands, a little slower and faster by turns."""
    link = socket.create_connection(("127.0.0.1", port))
    beat = 0
    while not done.is_set():
        beat += 1
        commands = []
        for n in range(40 + beat * 7 % 60):
            key = f"item:{(beat * 131 + n * 17) % 4000}"
            commands += [resp("GET", key), resp("GET", key), resp("HGETALL", "user:1001"), resp("INCR", f"counter:{n % 9}")]
            if n % 2:
                commands.append(resp("SET", key, "x" * (n * 5), "EX", 600))
        link.sendall(b"".join(commands))
        link.settimeout(0.05)
        try:
            while link.recv(1 << 20):
                pass
        except TimeoutError:
            pass
        link.setblocking(True)
    link.close()


def check(failed, is_true, what):
    print(("ok      " if is_true else "FAILED  ") + what)
    if not is_true:
        failed.append(what)


def no_overflow(browser):
    return browser.js("document.documentElement.scrollWidth <= innerWidth")


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


def accessible(browser, failed, what):
    """Contrast of all texts in both schemes, and names of all controls."""
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        bad = browser.js(CONTRAST)
        check(failed, not bad, f"contrast, {what}, {scheme}" + "".join("\n    " + line for line in bad))
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = ("button", "link", "textbox", "searchbox", "combobox", "radio", "checkbox", "spinbutton", "table", "image", "dialog", "region")
    bad = [node["role"]["value"] for node in nodes
           if not node.get("ignored") and node["role"]["value"] in named and not node.get("name", {}).get("value", "").strip()]
    check(failed, not bad, f"every control has a name, {what} {bad or ''}")


def overview(browser, failed, folder):
    browser.screen(1360, 1010, "light")
    browser.wait("document.getElementById('ops').textContent !== '–'", "numbers arrive")
    time.sleep(float(os.environ.get("CONSOLE_SECONDS", "8")))
    check(failed, browser.js("document.getElementById('dot').className") == "on", "the page is connected")
    for part in ("p99", "used", "hits", "keys-all"):
        check(failed, browser.js(f"document.getElementById('{part}').textContent") not in ("–", ""), f"the tile {part}")
    check(failed, browser.js("document.querySelectorAll('#commands tbody tr').length") > 12, "every command is listed")
    check(failed, browser.js("document.querySelectorAll('.thread').length") == 2, "both threads are shown")
    check(failed, browser.js("document.querySelectorAll('#keyspace tbody tr').length") >= 1, "databases are listed")
    check(failed, browser.js("""[...document.querySelectorAll('canvas')].every(c =>
        c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"""), "every chart has something in it")
    browser.picture(folder / "overview-light.png")
    browser.screen(1360, 1010, "dark")
    browser.picture(folder / "overview-dark.png")
    browser.click("#spans button", "1 h")
    check(failed, browser.js("document.getElementById('chart-ops').getAttribute('aria-label')").startswith("Throughput, last 1 h"), "the span of the charts is chosen")
    browser.js("document.querySelector('#spans [aria-checked=true]').focus()")
    browser.key("ArrowLeft", 37)
    browser.wait("document.activeElement.textContent === '15 min' && document.activeElement.getAttribute('aria-checked') === 'true'", "arrow keys choose the span")
    browser.click("#spans button", "3 min")
    browser.click("#commands .sort", "Command")
    names = browser.js("[...document.querySelectorAll('#commands tbody td:first-child')].map(c => c.textContent)")
    check(failed, names == sorted(names), "commands are sorted by name")
    browser.put("#commands input", "hget")
    check(failed, browser.js("document.querySelectorAll('#commands tbody tr').length") == 1, "commands are filtered")
    browser.put("#commands input", "")
    browser.click("#commands .sort", "Calls")
    accessible(browser, failed, "overview")


def find(browser, pattern, db=None, kind=None):
    if db is not None:
        browser.js(f"document.getElementById('scan-db').value = '{db}'")
    browser.js(f"document.getElementById('scan-type').value = {json.dumps(kind or '')};"
               f"document.getElementById('scan-match').value = {json.dumps(pattern)};"
               "document.getElementById('scan').requestSubmit()")


def keys(browser, failed, folder):
    browser.screen(1360, 860, "light")
    browser.js("location.hash = '#keys'")
    browser.wait("document.querySelectorAll('#key-list li').length > 5", "keys are listed")
    for pattern, wanted in [("user:1001", "Ada Lovelace"), ("queue:*", "message 0"), ("tags:*", "storage"),
                            ("leaderboard", "3900.5"), ("events", "purchase"), ("config:app", '"limits": {'),
                            ("binary:*", "\\x00\\xff\\xfe"), ("markup:*", "<script>")]:
        find(browser, pattern)
        browser.wait("document.querySelectorAll('#key-list li').length === 1", f"{pattern} is found alone")
        browser.js("document.querySelector('#key-list button').click()")
        browser.says("detail", wanted, f"{pattern} shows {wanted}")
        check(failed, True, f"the key browser shows {pattern}")
        if pattern == "queue:*":
            browser.js("document.querySelector('#detail .more').click()")
            browser.wait("document.querySelectorAll('#detail tbody tr').length === 200", "the next elements come")
    check(failed, browser.js("document.images.length") == 1, "markup in a value stays text")
    find(browser, "[^i]*")
    browser.wait("document.querySelectorAll('#key-list li').length > 9", "many keys")
    browser.js("[...document.querySelectorAll('#key-list button')].find(b => b.title === 'user:1001').click()")
    browser.says("detail", "Ada", "the chosen one")
    browser.picture(folder / "keys-light.png")
    browser.screen(1360, 860, "dark")
    browser.picture(folder / "keys-dark.png")
    accessible(browser, failed, "keys")
    searching(browser, failed, folder)
    editing(browser, failed, folder)


def searching(browser, failed, folder):
    """Database 5 holds 100,000 keys: names at once, progress, stop, continue, tree."""
    first = "document.querySelector('#key-list .name')?.textContent"
    find(browser, "populated:77777", db=5)
    browser.wait(f"{first} === 'populated:77777'", "an exact name is found")
    browser.says("key-state", "1 key found", "a search goes on until its end")
    check(failed, True, "an exact name is found among 100,000")
    find(browser, "7777")
    browser.says("key-state", "keys found", "part of a name")
    check(failed, browser.js("document.getElementById('key-state').textContent") == f"{sum('7777' in str(n) for n in range(100000))} keys found", "part of a name is found")
    find(browser, "nothing*")
    browser.click("#key-stop")
    browser.says("key-state", "Stopped; 0 keys among", "a search is stopped")
    browser.click("#key-more")
    browser.says("key-state", "No key matches.", "a search that was stopped continues")
    find(browser, "")
    browser.says("key-state", "Paused at", "a search pauses")
    check(failed, browser.js("document.querySelectorAll('#key-list li').length") == 200, "long lists are shown in steps")
    browser.click("#key-rest")
    check(failed, browser.js("document.querySelectorAll('#key-list li').length") == 1200, "more of a long list is shown")
    find(browser, "", db=0)
    browser.says("key-state", "found", "the search ends")
    browser.click("#layouts button", "Tree")
    browser.wait("[...document.querySelectorAll('.folder .name')].some(e => e.textContent === 'user:')", "the tree has prefixes")
    browser.js("[...document.querySelectorAll('.folder')].find(e => e.textContent.startsWith('tags:')).click()")
    browser.js("[...document.querySelectorAll('.folder')].find(e => e.textContent.startsWith('article:')).click()")
    browser.js("[...document.querySelectorAll('#key-list button')].find(e => e.title === 'tags:article:7').click()")
    browser.says("detail", "storage", "a key of the tree is shown")
    browser.screen(1360, 860, "light")
    browser.picture(folder / "tree-light.png")
    browser.click("#layouts button", "List")
    check(failed, True, "the prefix tree")


def dialog(browser, action, **fields):
    """Fills the open dialog and submits it; fields by their labels."""
    browser.wait("document.getElementById('dialog').open", f"a dialog opens: {action}")
    for label, value in fields.items():
        browser.js(f"""{{const field = [...document.querySelectorAll('#dialog label')].find(l => l.textContent.startsWith({json.dumps(label.replace('_', ' '))}));
            const e = field.querySelector('input, textarea, select'); e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change'));}}""")
    browser.click("#dialog button", action)


def closed(browser, what):
    browser.wait("!document.getElementById('dialog').open", what)


def editing(browser, failed, folder):
    """Every type: create, change, rename, TTL, delete."""
    values = {"string": "one", "hash": "name: Ada\nplan: pro", "list": "a\nb\na", "set": "x\ny", "zset": "ada: 1.5\nbob: 2", "stream": "kind: login",
              "ReJSON-RL": '{"plan": "pro", "seats": [1, 2]}'}
    for kind, value in values.items():
        name = f"made:{kind}"
        browser.click("#key-new")
        browser.wait("document.getElementById('dialog').open", "the dialog opens")
        browser.js(f"{{const s = document.querySelector('#dialog select'); s.value = '{kind}'; s.dispatchEvent(new Event('change'));}}")
        browser.js(f"document.querySelector('#dialog textarea').value = {json.dumps(value)}")
        dialog(browser, "Create", Name=name, TTL="600")
        closed(browser, f"{name} is created")
        browser.says("detail", name, f"{name} is shown")
        browser.says("detail", "to live", f"{name} has a TTL")
        browser.click("#detail button", "Remove TTL")
        browser.says("detail", "does not expire", f"{name} has none any more")
    check(failed, True, "keys of every type are created, with a TTL that is removed")

    def show(name, wanted):
        find(browser, name)
        browser.wait(f"document.querySelector('#key-list button')?.title === {json.dumps(name)}", f"{name} is there")
        browser.js("document.querySelector('#key-list button').click()")
        browser.says("detail", wanted, f"{name} shows {wanted}")

    show("made:string", "one")
    browser.click("#detail button", "Edit value")
    dialog(browser, "Save", Value="two words")
    browser.says("detail", "two words", "a string is edited")
    show("made:hash", "Ada")
    browser.click("#detail .acts button", "Edit")
    dialog(browser, "Save", Value="Grace")
    browser.says("detail", "Grace", "a field is edited")
    browser.click("#detail button", "Add field")
    dialog(browser, "Add", Field="visits", Value="7")
    browser.says("detail", "visits", "a field is added")
    browser.click("#detail button", "Add field")
    dialog(browser, "Add", Field="visits", Value="8")
    browser.says("dialog", "exists already", "a field is not overwritten by mistake")
    browser.click("#dialog button", "Cancel")
    show("made:list", "b")
    browser.click("#detail [aria-label='Remove 0']")
    dialog(browser, "Remove the element")
    browser.wait("document.querySelectorAll('#detail tbody tr').length === 2 && document.querySelector('#detail tbody').innerText.includes('b')", "an element is removed by its place")
    check(failed, browser.js("[...document.querySelectorAll('#detail tbody tr')].map(r => r.children[1].textContent).join()") == "b,a", "the right element is removed")
    show("made:set", "x")
    browser.click("#detail button", "Add member")
    dialog(browser, "Add", Member="z")
    browser.wait("document.querySelectorAll('#detail tbody tr').length === 3", "a member is added")
    show("made:zset", "ada")
    browser.click("#detail [aria-label='Edit ada']")
    dialog(browser, "Save", Score="40")
    browser.says("detail", "40", "a score is changed")
    show("made:stream", "login")
    browser.click("#detail button", "Add entry")
    dialog(browser, "Add", Fields="kind: logout")
    browser.says("detail", "logout", "an entry is added")
    show("made:ReJSON-RL", '"plan": "pro"')
    browser.click("#detail button", "Edit value")
    dialog(browser, "Save", JSON_document='{"plan": "free"}')
    browser.says("detail", '"plan": "free"', "a JSON document is edited")
    show("made:stream", "logout")
    check(failed, True, "values of every type are changed")

    browser.click("#detail button", "Rename")
    dialog(browser, "Rename", New_name="made:set")
    browser.says("dialog", "A key of this name exists.", "no key is replaced by mistake")
    dialog(browser, "Rename", New_name="made:renamed")
    closed(browser, "the dialog closes")
    browser.says("detail", "made:renamed", "a key is renamed")
    browser.click("#detail button", "Set TTL")
    dialog(browser, "Set TTL", Time_to_live="3", Unit="3600000")
    browser.says("detail", "to live", "a TTL is set")
    browser.click("#detail button", "Delete")
    browser.wait("document.activeElement.textContent === 'Cancel'", "the harmless button has the focus")
    accessible(browser, failed, "a dialog")
    browser.screen(1360, 860, "light")
    browser.picture(folder / "delete-light.png")
    browser.key("Escape", 27)
    closed(browser, "Escape closes the dialog")
    browser.says("detail", "logout", "the key is still there")
    browser.click("#detail button", "Delete")
    dialog(browser, "Delete the key")
    browser.says("detail", "Choose a key", "the key is deleted")
    check(failed, True, "keys are renamed, given a TTL and deleted, each with a dialog")


def shell(browser, failed, folder):
    browser.js("location.hash = '#shell'")
    browser.wait("document.activeElement.id === 'line'", "the line has the focus")
    for line, wanted in [("SET greeting \"hello \\x41\"", "OK"), ("GET greeting", '"hello A"'), ("INCR visits", "(integer) 1"),
                         ("HGETALL user:1001", '"name" => "Ada Lovelace"'), ("GET nothing", "(nil)"), ("LPUSH visits x", "WRONGTYPE"),
                         ("ZRANGE leaderboard 0 -1 WITHSCORES", "(double) 2800"), ("SELECT 3", "3>"), ("SELECT 0", "0>"),
                         ("GET 'open", "A quote is not closed."), ("help zadd", "score member [score member ...]"),
                         ("help", "lists a group"), ("help nonsense", "No command is called nonsense.")]:
        browser.type(line)
        browser.key("Enter", 13)
        browser.says("shell", wanted, f"{line} answers {wanted}")
        time.sleep(0.1)
    value = "document.getElementById('line').value"
    for _ in range(5):
        browser.key("ArrowUp", 38)
    check(failed, browser.js(value) == "SELECT 0", "the history goes back")
    browser.put("#line", "")
    browser.type("HG")
    browser.key("ArrowUp", 38)
    check(failed, browser.js(value) == "HGETALL user:1001", "the history is searched by what was typed")
    browser.put("#line", "")
    browser.type("auth secret")
    browser.key("Enter", 13)
    browser.says("log", "auth secret", "AUTH is run")
    check(failed, "auth" not in browser.js("localStorage.getItem('history')"), "passwords are not stored")
    browser.type("zrangebysc")
    browser.says("hints", "ZRANGEBYSCORE", "names are proposed")
    browser.key("Tab", 9)
    browser.wait(f"{value} === 'zrangebyscore '", "names are completed")
    browser.says("hints", "key min max", "the syntax is shown")
    browser.screen(1360, 860, "dark")
    browser.picture(folder / "shell-dark.png")
    browser.screen(1360, 860, "light")
    browser.picture(folder / "shell-light.png")
    accessible(browser, failed, "command line")
    browser.put("#line", "")
    browser.key("Tab", 9)
    check(failed, browser.js("document.activeElement.textContent") == "Run", "Tab leaves an empty line")
    browser.js("document.getElementById('line').focus()")
    browser.type("FLUSHALL")
    browser.key("Enter", 13)
    browser.says("dialog", "Every key of every database is deleted. This cannot be undone.", "FLUSHALL asks first")
    browser.click("#dialog button", "Cancel")
    browser.type("EXISTS user:1001")
    browser.key("Enter", 13)
    browser.wait("[...document.querySelectorAll('#log > div')].pop().innerText.includes('(integer) 1')", "nothing was deleted")
    check(failed, True, "commands, help, hints, history and confirmation")


def clients(browser, failed, folder, port):
    many = [socket.create_connection(("127.0.0.1", port)) for _ in range(260)]
    many[0].sendall(resp("CLIENT", "SETNAME", "the-one"))
    browser.screen(1360, 860, "light")
    browser.js("location.hash = '#clients'")
    browser.says("clients", "200 of 26", "clients are listed")
    browser.click("#client-table .foot button")
    check(failed, browser.js("document.querySelectorAll('#client-table tbody tr').length") > 260, "all clients can be seen")
    browser.put("#client-table input", "the-one")
    browser.wait("document.querySelectorAll('#client-table tbody tr').length === 1", "clients are filtered")
    browser.click("#client-table button", "Close")
    dialog(browser, "Close the connection")
    browser.says("client-table", "No row matches the filter.", "a client is closed")
    browser.put("#client-table input", "")
    for link in many:
        link.close()
    browser.wait("document.querySelectorAll('#client-table tbody tr').length < 20", "closed clients disappear")
    browser.picture(folder / "clients-light.png")
    browser.screen(1360, 860, "dark")
    browser.picture(folder / "clients-dark.png")
    accessible(browser, failed, "clients")


def diagnose(browser, failed, folder, port):
    browser.screen(1360, 1100, "light")
    browser.js("location.hash = '#diagnose'")
    browser.says("slow-table", "DEBUG SLEEP", "slow commands are listed")
    browser.says("slow-note", "longer than 2.00 ms", "the threshold is shown")
    browser.put("#slow-threshold", "1.5")
    browser.js("document.getElementById('slow-form').requestSubmit()")
    browser.says("slow-note", "longer than 1.50 ms", "the threshold is set")
    browser.put("#latency-threshold", "5")
    browser.js("document.getElementById('latency-form').requestSubmit()")
    browser.says("latency-note", "Events of 5.00 ms and more", "the threshold of events is set")
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(resp("DEBUG", "SLEEP", "0.02"))
    browser.says("latency-table", "command", "events are listed")
    browser.click("#survey-start")
    browser.says("survey-state", "Finished:", "all keys are looked at")
    browser.says("survey-state", "Hot keys need a policy", "the page says why there are no hot keys")
    browser.says("big-table", "queue:mail", "big keys are listed")
    browser.says("prefix-table", "item:", "memory by prefix")
    link.sendall(resp("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"))
    time.sleep(0.3)
    browser.click("#survey-start")
    browser.wait("document.querySelectorAll('#hot-table tbody tr').length > 0 && document.getElementById('survey-state').textContent.startsWith('Finished')", "hot keys are listed")
    link.close()
    browser.picture(folder / "diagnose-light.png")
    browser.screen(1360, 1100, "dark")
    browser.picture(folder / "diagnose-dark.png")
    accessible(browser, failed, "diagnostics")
    browser.js("[...document.querySelectorAll('#big-table .link')].find(e => e.textContent === 'queue:mail').click()")
    browser.says("detail", "message 0", "a big key is opened")
    check(failed, True, "slow log, latency events, big keys and hot keys")


def replication(program, browser, failed, folder, port):
    """Who follows whom, at the master and at a replica; a replica that stands still falls behind."""
    replica = Server(program, "--proactor_threads", "2", "--dbfilename", "", "--replicaof", f"127.0.0.1:{port}")
    try:
        browser.screen(1360, 860, "light")
        browser.js("location.hash = '#replication'")
        browser.says("replica-table", "following", "a replica is shown")
        browser.says("replication-chain", str(replica.port), "the way of a change is shown")
        browser.picture(folder / "replication-light.png")
        replica.process.send_signal(signal.SIGSTOP)
        browser.wait("[...document.querySelectorAll('#replica-table tbody td')].some(cell => /[KM]iB$/.test(cell.textContent))",
                     "a replica that stands still lacks something")
        replica.process.send_signal(signal.SIGCONT)
        browser.screen(1360, 860, "dark")
        browser.picture(folder / "replication-dark.png")
        accessible(browser, failed, "replication")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{replica.port}/#replication")
        browser.wait("!!document.getElementById('master-facts')", "the page of the replica is there")
        browser.says("master-facts", "following", "the replica shows its master")
        browser.says("replication-facts", "replica", "and its role")
        browser.picture(folder / "replication-replica.png")
        before = list(browser.complaints)
        browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
        browser.wait("document.getElementById('dot')?.className === 'on'", "the page is back")
        browser.complaints[:] = before
        check(failed, True, "replicas, their lag, and the master of one")
    finally:
        replica.close()


def group(program, browser, failed, folder):
    """A group of two servers: who leads, who is a member, what has changed. A member that stands still is dropped."""
    if not shutil.which("etcd"):
        return print("skipped  no etcd: the page of a group")
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0)), b.bind(("127.0.0.1", 0))
        store, peers = a.getsockname()[1], b.getsockname()[1]
    url, peer_url = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
    data = tempfile.mkdtemp()
    etcd = subprocess.Popen(["etcd", "--data-dir", data, "--listen-client-urls", url, "--advertise-client-urls", url,
                             "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
                             "--initial-cluster", f"default={peer_url}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flags = ("--proactor_threads", "2", "--dbfilename", "", "--ha_store", f"etcd://127.0.0.1:{store}", "--min_replicas_to_ack", "1")
    first = Server(program, *flags)
    try:
        browser.screen(1360, 1200, "light")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{first.port}/#replication")
        browser.wait("document.getElementById('group-facts')?.innerText.includes('leads')", "a server alone leads its group", 30)
        browser.says("group-facts", "too few members", "and refuses writes")
        second = Server(program, *flags)
        try:
            browser.wait("[...document.querySelectorAll('#member-table tbody tr')].filter(row => row.innerText.includes('yes')).length === 2",
                         "another one is a member", 30)
            browser.says("change-table", "is a member", "which is told as a change")
            browser.picture(folder / "group-light.png")
            accessible(browser, failed, "group")
            browser.screen(1360, 1200, "dark")
            browser.picture(folder / "group-dark.png")
            second.process.send_signal(signal.SIGSTOP)
            browser.says("change-table", "is no member any more", "a member that stands still is dropped")
            second.process.send_signal(signal.SIGCONT)
        finally:
            second.close()
        check(failed, no_overflow(browser), "the page of a group fits")
    finally:
        first.close()
        etcd.terminate()
        etcd.wait()
        shutil.rmtree(data, ignore_errors=True)


def phone(browser, failed, folder):
    for name in ("overview", "keys", "shell", "clients", "replication", "diagnose"):
        browser.screen(390, 844, "light", mobile=True)
        browser.js(f"location.hash = '#{name}'; scrollTo(0, 0)")
        time.sleep(0.8)
        check(failed, no_overflow(browser), f"nothing is wider than a phone: {name}")
        check(failed, browser.js(f"""[...document.querySelectorAll('#{name} .scroll')].filter(box => !box.closest('#detail')).every(box =>
            box.scrollWidth <= box.clientWidth)"""), f"no table has to be moved sideways: {name}")
        browser.picture(folder / f"phone-{name}.png")
        accessible(browser, failed, f"{name} on a phone")
    check(failed, browser.js("[...document.querySelectorAll('#slow-table tbody tr:first-child td')].filter(c => c.checkVisibility()).length") == 4,
          "every column is there on a phone")
    browser.screen(390, 844, "dark", mobile=True)
    browser.js("location.hash = '#overview'")
    time.sleep(0.6)
    browser.js("scrollTo(0, 560)")
    time.sleep(0.6)
    browser.picture(folder / "phone-dark.png")


def keyboard(browser, failed):
    browser.screen(1360, 860, "light")
    # With a page's name in the address, Tab begins at that page.
    browser.js("history.replaceState(null, '', '/'); window.isOld = true")
    browser.call("Page.reload")
    browser.wait("!window.isOld && document.getElementById('dot')?.className === 'on'", "the page is back")
    browser.key("Tab", 9)
    check(failed, browser.js("document.activeElement.className") == "skip", "the first stop of Tab skips to the content")
    browser.key("Enter", 13)
    check(failed, browser.js("document.activeElement.id") == "main", "Enter does so")


def disconnected(program, browser, failed, folder):
    """The page of a server that has ended is grey and says so; it goes on when the server is back."""
    server = Server(program, "--proactor_threads", "2", "--dbfilename", "")
    try:
        browser.screen(1360, 1010, "light")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        browser.wait("document.getElementById('dot')?.className === 'on'", "the page is connected")
        time.sleep(3)
        browser.ended = server.port
        server.close()
        browser.wait("document.body.classList.contains('offline') && !document.getElementById('banner').hidden", "the page is grey")
        check(failed, re.match(r"Disconnected since \d\d:\d\d:\d\d: the server does not answer\. What you see is of",
                               browser.js("document.getElementById('banner').textContent")), "the page says that it is disconnected")
        check(failed, browser.js("document.title").startswith("Disconnected"), "so does its title")
        browser.picture(folder / "disconnected-light.png")
        server = Server(program, "--proactor_threads", "2", "--dbfilename", "", port=server.port)
        browser.wait("!document.body.classList.contains('offline') && document.getElementById('banner').hidden", "the page goes on")
        check(failed, True, "the page goes on when the server is back")
    finally:
        server.close()


VISIBLE = "[...document.querySelectorAll('.writes')].filter(e => e.checkVisibility()).map(e => e.textContent)"


def readonly(program, browser, failed, folder):
    """Where the console only shows, no control that writes is there, and the command line is refused."""
    server = Server(program, "--proactor_threads", "2", "--dbfilename", "", "--http_console_readonly")
    try:
        link = fill(server.port)
        browser.screen(1360, 860, "light")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/#keys")
        browser.wait("document.getElementById('dot')?.className === 'on'", "the page is connected")
        check(failed, browser.js("document.getElementById('pulse').textContent").startswith("read-only"), "the page says that it is read-only")
        for pattern, wanted in [("user:1001", "Ada Lovelace"), ("queue:*", "message 0"), ("session:*", "eyJ"), ("config:*", "limits")]:
            find(browser, pattern, db=0)
            browser.wait("document.querySelectorAll('#key-list li').length === 1", f"{pattern} is found alone")
            browser.js("document.querySelector('#key-list button').click()")
            browser.says("detail", wanted, f"{pattern} is shown")
            seen = browser.js(VISIBLE)
            check(failed, not seen, f"nothing writes to {pattern} {seen or ''}")
        browser.picture(folder / "readonly-light.png")
        for name in ("overview", "clients", "diagnose"):
            browser.js(f"location.hash = '#{name}'")
            time.sleep(0.6)
            seen = browser.js(VISIBLE)
            check(failed, not seen, f"nothing writes on the page {name} {seen or ''}")
        browser.js("location.hash = '#shell'")
        time.sleep(0.3)
        for line in ("set user:1001 x", "get session:9f2c"):
            browser.js(f"document.getElementById('line').value = {json.dumps(line)}; document.getElementById('prompt').requestSubmit()")
            time.sleep(0.3)
        browser.says("log", "READONLY this console changes nothing", "a command that writes is refused")
        browser.says("log", "eyJ", "a command that reads is run")
        check(failed, True, "the command line of a read-only console")
        link.close()
    finally:
        server.close()


def album(program, browser, folder):
    """A picture of each page in light, dark and at a phone's width, for docs/."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(program, "--proactor_threads", "2", "--dbfilename", "", "--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lfu")
    done = threading.Event()
    worker = threading.Thread(target=load, args=(server.port, done))
    try:
        link = fill(server.port)
        worker.start()
        browser.screen(1360, 1010, "light")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        browser.wait("document.getElementById('ops')?.textContent !== '–'", "numbers arrive")
        time.sleep(float(os.environ.get("CONSOLE_SECONDS", "8")) * 2)
        browser.js("location.hash = '#keys'")
        find(browser, "[^i]*", db=0)
        browser.wait("document.querySelectorAll('#key-list li').length > 9", "many keys")
        browser.js("[...document.querySelectorAll('#key-list button')].find(b => b.title === 'leaderboard').click()")
        browser.says("detail", "3900.5", "the chosen one")
        browser.js("location.hash = '#shell'")
        for line in ("hgetall user:1001", "zrange leaderboard 0 -1 rev withscores", "xlen events", "help getex"):
            browser.js(f"document.getElementById('line').value = {json.dumps(line)}; document.getElementById('prompt').requestSubmit()")
            time.sleep(0.4)
        browser.js("location.hash = '#diagnose'")
        browser.wait("document.querySelectorAll('#slow-table tbody tr').length > 0", "slow commands")
        browser.js("document.getElementById('survey-db').value = '0'; document.getElementById('survey-start').click()")
        browser.wait("document.querySelectorAll('#big-table tbody tr').length > 3 && document.getElementById('survey-stop').hidden", "big keys")
        for name in ("overview", "keys", "shell", "clients", "diagnose"):
            for shape, width, height in (("light", 1360, 860), ("dark", 1360, 860), ("phone", 390, 844)):
                browser.screen(width, height, "dark" if shape == "dark" else "light", mobile=shape == "phone")
                browser.js(f"location.hash = '#{name}'; scrollTo(0, 0)")
                time.sleep(1.2)
                browser.picture(folder / f"console-{name}-{shape}.png")
        link.close()
    finally:
        done.set()
        if worker.ident:
            worker.join()
        server.close()


def password(program, browser, failed):
    server = Server(program, "--requirepass", "s3cret")
    try:
        browser.call("Page.navigate", url=f"http://default:s3cret@127.0.0.1:{server.port}/")
        browser.wait("document.getElementById('dot') && document.getElementById('dot').className === 'on'", "the password opens the page")
        check(failed, True, "with a password the page works")
        before = list(browser.complaints)
        browser.call("Page.navigate", url=f"http://default:wrong@127.0.0.1:{server.port}/")
        time.sleep(0.5)
        check(failed, not browser.js("!!document.getElementById('dot')"), "with a wrong one it does not")
        browser.complaints[:] = before  # the 401 is meant
    finally:
        server.close()


def main():
    if sys.argv[1] == "--album":
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(profile)
            album(sys.argv[2], browser, pathlib.Path(sys.argv[3]))
            browser.close()
        return 0
    program = sys.argv[1]
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "target/console")
    folder.mkdir(parents=True, exist_ok=True)
    failed, done = [], threading.Event()
    server = Server(program, "--proactor_threads", "2")
    worker = threading.Thread(target=load, args=(server.port, done))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            link = fill(server.port)
            worker.start()
            browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
            for view in (overview, keys, shell):
                view(browser, failed, folder)
            clients(browser, failed, folder, server.port)
            diagnose(browser, failed, folder, server.port)
            replication(program, browser, failed, folder, server.port)
            phone(browser, failed, folder)
            keyboard(browser, failed)
            link.close()
            disconnected(program, browser, failed, folder)
            readonly(program, browser, failed, folder)
            password(program, browser, failed)
            before = list(browser.complaints)
            group(program, browser, failed, folder)
            browser.complaints[:] = before  # its servers are ended while the page is open
            check(failed, not browser.complaints, "the browser has nothing to complain about" + "".join("\n  " + c for c in browser.complaints))
        finally:
            done.set()
            browser.close()
            if worker.ident:
                worker.join()
            server.close()
    print(f"console: {len(failed)} failures; screenshots in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
