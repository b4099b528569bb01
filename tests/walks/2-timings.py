#!/usr/bin/env python3
"""Item 2: one expensive call among cheap ones weighs one."""
import re
from walk import Server, check, over

server = Server("--dbfilename", "", "--enable-debug-command", "yes").ready()
server.call("DEBUG", "POPULATE", "200000", "key", "20")
for n in range(300):
    server.call("ZADD", "z", n, n)
script = "local t = {} for i = 1, 7000 do t[2*i-1] = i t[2*i] = i end redis.call('ZADD', KEYS[1], unpack(t)) return 1"
server.call("EVAL", "for i = 1, 20 do redis.call('ZADD', KEYS[1], i, i) end return 1", 1, "y")
info = server.call("INFO", "commandstats").decode()
found = re.search(r"cmdstat_zadd:calls=(\d+),usec=(\d+),usec_per_call=([\d.]+)", info)
check(found and int(found[1]) == 320, "every call is counted", info)
sleeps = server.call("DEBUG", "SLEEP", "0.1")
info = server.call("INFO", "commandstats").decode()
debug = re.search(r"cmdstat_debug:calls=(\d+),usec=(\d+)", info)
# Two calls: POPULATE and 100 ms of sleep. Nothing is multiplied.
slept = int(debug[2]) if debug else 0
check(100_000 <= slept < 60_000_000, "an expensive call is not multiplied", info)
latency = server.call("INFO", "latencystats").decode()
check("latency_percentiles_usec_zadd" in latency, "INFO latencystats has it too", latency)
over()
