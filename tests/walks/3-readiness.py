#!/usr/bin/env python3
"""Item 3: "Ready" comes when the data is there, and systemd is told."""
import os, signal, socket, subprocess
from walk import DARTER, PATIENCE, ROOT, Server, check, folder, free_port, over, start

first = Server("--enable-debug-command", "yes").ready()
first.call("DEBUG", "POPULATE", "100000", "key", "50")
first.signal(signal.SIGTERM)
first.ended()
again = Server(dir=first.dir).ready()
said = again.said()
check(said.index("loading dump.darter") < said.index("loaded dump.darter") < said.index("Ready to accept"), "loading comes before Ready", said)
check(again.call("DBSIZE") == b":100000\r\n", "all keys are there")
unit = (ROOT / "packaging/darter.service").read_text()
for word in ("Type=notify", "ExecReload", "TimeoutStopSec"):
    check(word in unit, f"the unit has {word}")
place = folder() / "notify"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(str(place))
listener.settimeout(PATIENCE)
start([DARTER, "--port", str(free_port()), "--bind", "127.0.0.1", "--dbfilename", ""],
      env={**os.environ, "NOTIFY_SOCKET": str(place)}, stderr=subprocess.DEVNULL)
told = b""
try:
    while b"READY=1" not in told:
        told += listener.recv(4096)
except TimeoutError:
    pass
check(b"READY=1" in told, "systemd is told READY=1", f"{told}")
over()
