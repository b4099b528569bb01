"""What the walks share: a server as a user starts it, commands as a client sends them, and a list of what was found.

Used by the scripts beside it; run one with the path of the binary: tests/walks/1-ending.py target/debug/darter
"""
import atexit, os, pathlib, shutil, socket, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
DARTER = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/darter").resolve())
PATIENCE = 60
failed, running = [], []


def check(is_true, what, more=""):
    print(("ok      " if is_true else "FAILED  ") + what + (f"\n{more}" if more and not is_true else ""))
    if not is_true:
        failed.append(what)


def end():
    for server in running:
        server.process.kill()
        server.process.wait()


atexit.register(end)


def over():
    """Ends a walk: exit code 1 if something was wrong."""
    print(f"{pathlib.Path(sys.argv[0]).stem}: {len(failed)} failures")
    sys.exit(1 if failed else 0)


def folder():
    place = tempfile.mkdtemp(prefix="darter-walk-")
    atexit.register(shutil.rmtree, place, True)
    return pathlib.Path(place)


def run(*words, **options):
    """Exit code and everything that DARTER prints with these arguments."""
    out = subprocess.run([DARTER, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, **options)
    return out.returncode, out.stdout + out.stderr


def wait(is_so, what):
    end_at = time.time() + PATIENCE
    while time.time() < end_at:
        if is_so():
            return True
        time.sleep(0.01)
    check(False, what)
    return False


class Server:
    """DARTER in a folder, with its log."""

    def __init__(self, *flags, dir=None, prefix=(), file=()):
        self.dir, self.port = dir or folder(), free_port()
        self.log = folder() / "log"
        words = [*prefix, DARTER, *file, "--port", str(self.port), "--bind", "127.0.0.1", *map(str, flags)]
        self.process = subprocess.Popen(words, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=open(self.log, "w"))
        running.append(self)

    def said(self):
        return self.log.read_text()

    def ready(self):
        wait(lambda: "Ready to accept connections" in self.said() or self.process.poll() is not None, "it is ready")
        return self

    def call(self, *words):
        """One command's reply as bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as link:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            link.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
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
