"""What the walks share: a server as a user starts it, commands as a client sends them, and a list of what was found.

Used by the scripts beside it, by tests/console and by tests/monitoring. Run one with the path of the binary:
tests/walks/1-ending.py target/debug/darter
"""
import atexit, pathlib, random, shutil, signal, socket, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DARTER = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/darter").resolve())
PATIENCE = 60
failed, running, folders = [], [], []


def check(is_true, what, more=""):
    print(("ok      " if is_true else "FAILED  ") + what + (f"\n{more}" if more and not is_true else ""), flush=True)
    if not is_true:
        failed.append(what)


def end():
    for process in running:
        process.kill()
        process.wait()
    for place in folders:
        shutil.rmtree(place, ignore_errors=True)


atexit.register(end)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def start(words, **options):
    """A program in the background. It ends with the walk, however that ends."""
    process = subprocess.Popen(words, **options)
    running.append(process)
    return process


def over():
    """Ends a walk: exit code 1 if something was wrong."""
    print(f"{'/'.join(pathlib.Path(sys.argv[0]).resolve().parts[-2:])}: {len(failed)} failures")
    sys.exit(1 if failed else 0)


def folder():
    place = pathlib.Path(tempfile.mkdtemp(prefix="darter-walk-"))
    folders.append(place)
    return place


def run(*words, **options):
    """Exit code and everything that DARTER prints with these arguments."""
    out = subprocess.run([DARTER, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, **options)
    return out.returncode, out.stdout + out.stderr


def wait(is_so, what, more=lambda: "", pause=0.01):
    """Whether it became so within the minute; if not, `more` says what is there instead."""
    end_at = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end_at:
            check(False, f"{what}, within {PATIENCE} s", more())
            return False
        time.sleep(pause)
    return True


def free_port():
    """A port on which nobody listens, above 10080, which browsers refuse, and below those that the kernel gives to clients."""
    while True:
        port = random.randrange(10_100, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        return True
    except OSError:
        return False


def resp(*words):
    """A command as a client sends it."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def etcd():
    """Starts an etcd of one member; returns its address."""
    port, peers = free_port(), free_port()
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    start(["etcd", "--data-dir", str(folder()), "--listen-client-urls", url, "--advertise-client-urls", url,
           "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"],
          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not wait(lambda: listens(port), "etcd listens"):
        over()
    return f"etcd://127.0.0.1:{port}"


class Server:
    """DARTER in a folder, with its log."""

    def __init__(self, *flags, dir=None, port=None, file=()):
        self.dir, self.port = dir or folder(), port or free_port()
        self.log = folder() / "log"
        words = [DARTER, *file, "--port", str(self.port), "--bind", "127.0.0.1", *map(str, flags)]
        with open(self.log, "w") as log:
            self.process = start(words, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=log)

    def said(self):
        return self.log.read_text()

    def ready(self):
        """This server, once it is ready. Without it the walk is over."""
        is_ready = lambda: "Ready to accept connections" in self.said()
        wait(lambda: is_ready() or self.process.poll() is not None, "it is ready")
        if not is_ready():
            check(False, "it starts", self.said())
            over()
        return self

    def call(self, *words):
        """One command's reply as bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as link:
            link.sendall(resp(*words))
            data = b""
            while not whole(data):
                piece = link.recv(1 << 20)
                if not piece:
                    break
                data += piece
            return data

    def signal(self, number):
        self.process.send_signal(number)

    def ended(self):
        """Its exit code, once it has ended."""
        wait(lambda: self.process.poll() is not None, "it ends")
        return self.process.poll()

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()


def whole(data):
    """Whether this is a whole reply."""
    def take(at):
        end_of_line = data.find(b"\r\n", at)
        if end_of_line < 0:
            return None
        kind, rest, at = data[at:at + 1], data[at + 1:end_of_line], end_of_line + 2
        if kind == b"$" and int(rest) >= 0:
            at += int(rest) + 2
            return at if at <= len(data) else None
        if kind == b"*":
            for _ in range(max(int(rest), 0)):
                at = take(at)
                if at is None:
                    return None
        return at
    return take(0) is not None
