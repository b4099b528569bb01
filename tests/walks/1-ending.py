#!/usr/bin/env python3
"""Item 1: starting and ending, where the folder can be written and where it cannot."""
import os, signal, subprocess
from walk import Server, check, over

server = Server().ready()
check("a crash loses everything; Ctrl-C saves to" in server.said(), "start says what a crash would lose", server.said())
server.call("SET", "a", "b")
server.signal(signal.SIGINT)
check(server.ended() == 0 and (server.dir / "dump.darter").exists(), "Ctrl-C saves and ends")
check("SIGINT" in server.said(), "the log names the signal", server.said())
again = Server(dir=server.dir).ready()
check(again.call("GET", "a") == b"$1\r\nb\r\n", "the next start has the data")
before = (server.dir / "dump.darter").stat().st_mtime_ns
again.signal(signal.SIGTERM)
check(again.ended() == 0 and (server.dir / "dump.darter").stat().st_mtime_ns == before, "what has not changed is not saved again")

# A folder in /proc can be written by nobody, root neither.
locked = Server("--dir", "/proc/self").ready()
check("WARN" in locked.said(), "a folder that cannot be written is warned of", locked.said())
locked.call("SET", "a", "b")
locked.signal(signal.SIGTERM)
locked.ended()
check("SIGTERM" in locked.said(), "SIGTERM ends a server whose save fails, and the log says why", locked.said())
refused = Server("--dir", "/proc/self", "--appendonly", "yes")
check(refused.ended() == 1, "with a journal the start is refused", refused.said())
refused = Server("--dir", "/proc/self", "--save", "60 1")
check(refused.ended() == 1, "with save points the start is refused", refused.said())

twice = Server("--dir", "/proc/self").ready()
twice.signal(signal.SIGINT)
twice.signal(signal.SIGINT)
twice.ended()
check(True, "a second Ctrl-C ends it")
ignored = subprocess.run(["git", "check-ignore", "-q", "dump.darter"], cwd=os.path.dirname(os.path.abspath(__file__)))
check(ignored.returncode in (0, 128), "dump.darter is in .gitignore")
over()
