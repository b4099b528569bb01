#!/usr/bin/env python3
"""The console in a real Chromium: tests/console/check.py DARTER [FOLDER]

Starts the server DARTER and Chromium (headless, spoken to over a pipe, so nothing has to be installed beside it), fills
the server with one key of each type and some load, goes through every view as a person would, and leaves screenshots in
FOLDER (default target/console). Exits non-zero when something is missing, overflows, or the browser complains.
"""
import base64, json, os, pathlib, shutil, signal, socket, subprocess, sys, tempfile, threading, time


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
        for domain in ("Page", "Runtime", "Log", "Network"):
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
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(self.allowed):
                self.complaints.append("asked for " + url)

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


class Server:
    def __init__(self, program, *flags):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen([program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(400):
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


def overview(browser, failed, folder):
    browser.screen(1360, 1010, "light")
    browser.wait("document.getElementById('ops').textContent !== '–'", "numbers arrive")
    time.sleep(float(os.environ.get("CONSOLE_SECONDS", "8")))
    check(failed, browser.js("document.getElementById('dot').className") == "on", "the page is connected")
    for part in ("p99", "used", "hits", "keys-all"):
        check(failed, browser.js(f"document.getElementById('{part}').textContent") not in ("–", ""), f"the tile {part}")
    check(failed, browser.js("document.querySelectorAll('#commands tbody tr').length") >= 4, "commands are listed")
    check(failed, browser.js("document.querySelectorAll('.thread').length") == 2, "both threads are shown")
    check(failed, browser.js("document.querySelectorAll('#keyspace tbody tr').length") >= 1, "databases are listed")
    check(failed, browser.js("""[...document.querySelectorAll('canvas')].every(c =>
        c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"""), "every chart has something in it")
    browser.picture(folder / "overview-light.png")
    browser.screen(1360, 1010, "dark")
    browser.picture(folder / "overview-dark.png")


def keys(browser, failed, folder):
    browser.screen(1360, 860, "light")
    browser.js("location.hash = '#keys'")
    browser.wait("document.querySelectorAll('#key-list li').length > 5", "keys are listed")
    for pattern, wanted in [("user:1001", "Ada Lovelace"), ("queue:*", "message 0"), ("tags:*", "storage"),
                            ("leaderboard", "3900.5"), ("events", "purchase"), ("config:app", '"limits": {'),
                            ("binary:*", "\\x00\\xff\\xfe"), ("markup:*", "<script>")]:
        browser.js(f"document.getElementById('scan-match').value = {json.dumps(pattern)};"
                   "document.getElementById('scan').requestSubmit()")
        browser.wait("document.querySelectorAll('#key-list li').length === 1", f"{pattern} is found alone")
        browser.js("document.querySelector('#key-list button').click()")
        browser.wait(f"document.getElementById('detail').innerText.includes({json.dumps(wanted)})", f"{pattern} shows {wanted}")
        check(failed, True, f"the key browser shows {pattern}")
        if pattern == "queue:*":
            browser.js("document.querySelector('#detail .more').click()")
            browser.wait("document.querySelectorAll('#detail tbody tr').length === 200", "the next elements come")
    check(failed, browser.js("document.images.length") == 1, "markup in a value stays text")
    browser.js("document.getElementById('scan-match').value = '[^i]*'; document.getElementById('scan').requestSubmit()")
    browser.wait("document.querySelectorAll('#key-list li').length > 9", "many keys")
    browser.js("[...document.querySelectorAll('#key-list button')].find(b => b.title === 'user:1001').click()")
    browser.wait("document.getElementById('detail').innerText.includes('Ada')", "the chosen one")
    browser.picture(folder / "keys-light.png")


def shell(browser, failed, folder):
    browser.js("location.hash = '#shell'")
    browser.wait("document.activeElement.id === 'line'", "the line has the focus")
    for line, wanted in [("SET greeting \"hello \\x41\"", "OK"), ("GET greeting", '"hello A"'), ("INCR visits", "(integer) 1"),
                         ("HGETALL user:1001", '"name" => "Ada Lovelace"'), ("GET nothing", "(nil)"), ("LPUSH visits x", "WRONGTYPE"),
                         ("ZRANGE leaderboard 0 -1 WITHSCORES", "(double) 2800"), ("SELECT 3", "3>"), ("SELECT 0", "0>"),
                         ("GET 'open", "a quote is not closed")]:
        browser.type(line)
        browser.key("Enter", 13)
        browser.wait(f"document.getElementById('shell').innerText.includes({json.dumps(wanted)})", f"{line} answers {wanted}")
        time.sleep(0.1)
    browser.key("ArrowUp", 38)
    browser.key("ArrowUp", 38)
    check(failed, browser.js("document.getElementById('line').value") == "SELECT 0", "the history goes back")
    browser.js("document.getElementById('line').value = ''")
    browser.type("zrangebysc")
    browser.key("Tab", 9)
    browser.wait("document.getElementById('line').value === 'zrangebyscore '", "names are completed")
    browser.js("document.getElementById('line').value = ''")
    browser.screen(1360, 860, "dark")
    browser.picture(folder / "shell-dark.png")


def others(browser, failed, folder):
    browser.screen(1360, 860, "light")
    browser.js("location.hash = '#clients'")
    browser.wait("document.querySelectorAll('#client-table tbody tr').length >= 3", "clients are listed")
    browser.picture(folder / "clients-light.png")
    browser.js("location.hash = '#slow'")
    browser.wait("document.getElementById('slow-table').innerText.includes('DEBUG SLEEP')", "slow commands are listed")
    browser.picture(folder / "slow-light.png")


def phone(browser, failed, folder):
    browser.screen(390, 844, "light", mobile=True)
    for name in ("overview", "keys", "shell", "clients", "slow"):
        browser.js(f"location.hash = '#{name}'; scrollTo(0, 0)")
        time.sleep(0.6)
        check(failed, no_overflow(browser), f"nothing is wider than a phone: {name}")
        check(failed, browser.js(f"""[...document.querySelectorAll('#{name} > .card .scroll')].every(box =>
            box.scrollWidth <= box.clientWidth)"""), f"no table has to be moved sideways: {name}")
        browser.picture(folder / f"phone-{name}.png")
    browser.screen(390, 844, "dark", mobile=True)
    browser.js("location.hash = '#overview'; scrollTo(0, 560)")
    time.sleep(0.6)
    browser.picture(folder / "phone-dark.png")


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
            for view in (overview, keys, shell, others, phone):
                view(browser, failed, folder)
            link.close()
            password(program, browser, failed)
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
