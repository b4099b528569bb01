#!/usr/bin/env python3
"""Item 4: Debian's redis.conf, amounts as people write them, typing errors, and files of Redis that are checked."""
import pathlib, re, shutil, signal, subprocess
from walk import Server, check, folder, free_port, over, run, start, wait

debian = pathlib.Path("/etc/redis/redis.conf")
if debian.exists():
    place = folder()
    text = debian.read_text()
    # The folders of the package belong to another user here.
    for name in ("/var/lib/redis", "/var/log/redis", "/run/redis"):
        text = text.replace(name, str(place))
    text = re.sub(r"^port .*", f"port {free_port()}", text, flags=re.M)
    text = re.sub(r"^bind .*", "bind 127.0.0.1", text, flags=re.M)
    (place / "redis.conf").write_text(text)
    server = Server("--daemonize", "no", "--logfile", "", "--supervised", "no", dir=place, file=[str(place / "redis.conf")])
    server.ready()
    check("Ready to accept" in server.said(), "Debian's redis.conf starts as it is", server.said())
    check("save points" in server.said(), "its default save points apply, and the log says so", server.said())
else:
    print("skipped  /etc/redis/redis.conf is not there")

for amount, expected in (("1GiB", b"1073741824"), ("2gb", b"2147483648"), ("1e9", b"1000000000"), ("100GiB", b"107374182400")):
    server = Server("--dbfilename", "", "--maxmemory", amount).ready()
    check(expected in server.call("CONFIG", "GET", "maxmemory"), f"--maxmemory {amount}", server.said())
    server.signal(signal.SIGTERM)
server = Server("--dbfilename", "", "--maxmemory", "1mb").ready()
check("maxmemory" in server.said() and "WARN" in server.said(), "too small a --maxmemory is warned of", server.said())
server = Server("--dbfilename", "", "--cache_mode", "--maxmemory", "1gb").ready()
check(b"noeviction" not in server.call("CONFIG", "GET", "maxmemory-policy"), "--cache_mode shows the policy it has")

for words, expected in (
    (["--prot", "7000"], "did you mean --port"),
    (["--maxmemory", "1gx"], "--maxmemory: argument must be a memory value"),
    (["--appendonly", "maybe"], "neither yes nor no"),
    (["--port", "x"], "--port: argument couldn't be parsed into an integer"),
    (["/nonexistent.conf"], "can't read the configuration file '/nonexistent.conf'"),
    (["--dir", "/nonexistent"], "--dir: No such file or directory"),
):
    code, said = run(*words)
    check(code == 1 and expected in said and said.count("\n") == 1, f"{' '.join(words)} is one clear line and exit code 1", f"{code} {said}")

server = Server("--dbfilename", "").ready()
check(run("--ping", "--port", server.port) == (0, "+PONG\n"), "darter --ping finds the port by the server's own settings")

if shutil.which("redis-server"):
    place = folder()
    port = free_port()
    redis = start(["redis-server", "--port", str(port), "--dir", str(place), "--appendonly", "yes", "--save", ""],
                  stdout=subprocess.DEVNULL)
    ask = lambda *words: subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True).stdout
    wait(lambda: ask("MSET", "a", "1", "b", "2") == "OK\n", "Redis writes its journal")
    ask("SHUTDOWN")
    wait(lambda: redis.poll() is not None, "Redis ends")
    code, said = run("--check", place / "appendonlydir")
    check(code == 0 and "result     good" in said, "an AOF folder of Redis is good", said)
    tail = next((place / "appendonlydir").glob("*.incr.aof"))
    tail.write_bytes(tail.read_bytes()[:-3])
    code, said = run("--check", place / "appendonlydir")
    theirs = subprocess.run(["redis-check-aof", str(place / "appendonlydir/appendonly.aof.manifest")], capture_output=True)
    check(code == 1 and "cut off" in said and theirs.returncode != 0, "a cut off one is not, as redis-check-aof says", said)
    moved = Server("--appendonly", "yes", dir=place).ready()
    check(b"LOADING" not in moved.call("DBSIZE") and moved.process.poll() is None, "it starts without the cut off command", moved.said())
else:
    print("skipped  redis-server is not installed")
over()
