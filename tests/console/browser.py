"""Chromium without a screen, spoken to over two pipes, so that nothing else has to be installed. Used by check.py beside it."""
import base64, contextlib, json, os, pathlib, select, shutil, signal, subprocess, sys, tempfile, time
from walk import PATIENCE, check

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Failure(Exception):
    """What the page never showed, or Chromium never answered. Ends the check."""


class PageError(Exception):
    """An expression that the page could not evaluate, for example amid a navigation."""


class Browser:
    def __init__(self, folder):
        """Starts Chromium; pictures go into `folder`."""
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if not program:
            sys.exit("no Chromium")
        self.folder, self.profile = folder, tempfile.mkdtemp(prefix="darter-chromium-")
        self.log = tempfile.TemporaryFile()
        out_child, self.out = os.pipe()
        self.inp, in_child = os.pipe()

        def places():  # Chromium reads from descriptor 3 and writes to 4.
            a, b = os.dup(out_child), os.dup(in_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        # A session of its own: at the end every process of it must be gone.
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=places, pass_fds=(3, 4, out_child, in_child), start_new_session=True, stdout=self.log, stderr=self.log)
        os.close(out_child)
        os.close(in_child)
        self.number, self.rest, self.session, self.width = 0, b"", None, 0
        # What the browser complains of, and the ports of servers that were ended, or refuse, on purpose.
        self.complaints, self.excused = [], set()
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                self.call(domain + ".enable")
            self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        except BaseException:
            self.close()
            raise

    # ---- the protocol ----

    def read(self, end):
        """The next message that comes before `end`."""
        while b"\0" not in self.rest:
            if not select.select([self.inp], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure(f"Chromium does not answer within {PATIENCE} s\n{self.said()}")
            piece = os.read(self.inp, 1 << 20)
            if not piece:
                raise Failure(f"Chromium is gone\n{self.said()}")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def said(self):
        """The end of Chromium's own log."""
        self.log.seek(0)
        return self.log.read()[-2000:].decode(errors="replace")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.out, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise Failure(f"Chromium is gone\n{self.said()}") from None
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.read(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer.get("method"), answer.get("params", {}))

    def note(self, event, params):
        """Keeps what a person would find wrong in the browser's console."""
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:600])
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            text, place = params["entry"]["text"], params["entry"].get("url", "")
            # The page of Chromium's own that stands for one that did not come: `open` tells of it.
            is_meant = place.startswith("chrome-error:") or any(f":{port}/" in place for port in self.excused)
            if params["entry"]["source"] != "network" or not is_meant:
                self.complaints.append(f"{text} {place}")
        elif event == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("http://127.0.0.1:", "http://default:", "about:", "data:")):
                self.complaints.append("asked for " + url)
        elif event == "Inspector.targetCrashed":
            raise Failure("the page has crashed")

    # ---- what the page shows ----

    def js(self, text):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def until(self, text, what, wanted=True):
        """Waits until an expression is true, or is what is wanted."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                seen = self.js(text)
                if seen == wanted if wanted is not True else seen:
                    return
            except PageError as error:
                seen = error
            if time.monotonic() > end:
                raise Failure(f"{what}\n  expected within {PATIENCE} s: {text}" + ("" if wanted is True else f" === {wanted!r}")
                              + f"\n  seen: {seen!r}\n{self.shown()}")
            time.sleep(0.03)

    def wait(self, text, what, wanted=True):
        """Waits as `until` does, and tells of it."""
        self.until(text, what, wanted)
        check(True, what)

    def says(self, element, wanted, what):
        found = f"document.getElementById({json.dumps(element)}).innerText"
        try:
            self.wait(f"{found}.includes({json.dumps(wanted)})", what)
        except Failure as failure:
            raise Failure(f"{failure}\n  {element}: {self.attempt(found)}") from None

    def attempt(self, text):
        """The value of an expression, or why there is none."""
        try:
            return self.js(text)
        except (PageError, Failure) as error:
            return f"({error})"

    def shown(self):
        """What a person sees, for whoever reads of a failure. Leaves a picture, too."""
        with contextlib.suppress(PageError, Failure):
            self.picture("failed.png")
        seen = self.attempt("[location.href, document.title, document.activeElement?.outerHTML.split('>')[0], document.body.innerText].join('\\n  ')")
        return f"  the page: {str(seen)[:3000]}\n  complaints: {self.complaints}"

    def settle(self):
        """Waits until what was asked of the page is drawn: two frames."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def picture(self, name):
        self.settle()
        data = self.call("Page.captureScreenshot", format="png")["data"]
        (self.folder / name).write_bytes(base64.b64decode(data))

    # ---- what a person does ----

    def open(self, url, fault=None):
        """Goes to a page and waits until it is there; with a `fault` it must not come for this reason."""
        self.js("window.isLeft = true")
        seen = self.call("Page.navigate", url=url).get("errorText")
        if seen != fault:
            raise Failure(f"{url}\n  expected: {fault or 'the page'}\n  seen: {seen or self.shown()}")
        self.until("!window.isLeft && document.readyState === 'complete'", f"{url} is loaded")

    def scheme(self, name):
        """Light or dark, without transitions: colours are the final ones at once."""
        features = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[{"name": key, "value": value} for key, value in features.items()])
        self.until(f"matchMedia('(prefers-color-scheme: {name})').matches", f"the page is {name}")
        self.settle()

    def screen(self, width, height, scheme, mobile=False):
        self.width = width
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, screenWidth=width, screenHeight=height,
                  mobile=mobile, deviceScaleFactor=2 if mobile else 1)
        self.until("screen.width", f"the screen is {width} wide", width)
        self.scheme(scheme)

    def overflows(self):
        """Whether the page is wider than the screen."""
        return self.js(f"document.documentElement.scrollWidth > {self.width}")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if name == "Enter" and kind == "keyDown" else {}))

    def click(self, selector, text=None):
        """Clicks the first element of the selector that can be seen, with this text if one is given."""
        has_text = "" if text is None else f" && e.textContent.trim() === {json.dumps(text)}"
        found = f"[...document.querySelectorAll({json.dumps(selector)})].find(e => e.checkVisibility() && !e.disabled{has_text})"
        self.until(f"(e => e && (e.click(), true))({found})", f"there is {selector} {text or ''}")

    def put(self, selector, value):
        """Writes into a field, which keeps the focus: the page overwrites fields that nobody edits."""
        self.js(f"{{const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = {json.dumps(value)};"
                "e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}));}")

    # ---- the end ----

    def close(self):
        """Ends Chromium, waits until each of its processes has ended, and removes its profile."""
        self.session = None
        with contextlib.suppress(Failure, PageError):
            self.call("Browser.close")
        os.close(self.out)
        os.close(self.inp)
        end = time.monotonic() + PATIENCE
        while (self.process.poll() is None or self.others()) and time.monotonic() < end:
            time.sleep(0.02)
        if self.process.poll() is None or self.others():
            check(False, "Chromium ends", f"{self.others()} are left after {PATIENCE} s\n{self.said()}")
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
        self.log.close()

    def others(self):
        """Processes of Chromium's session that run: some outlive the first one, and write into the profile."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self.process.pid and state not in "ZX":
                    found.append(int(stat.parent.name))
        return found
