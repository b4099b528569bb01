#!/usr/bin/env python3
"""Item 5: KEYS loses nothing, and a limit that cuts an answer is counted."""
import re
from walk import Server, check, over


def items(reply):
    return int(re.match(rb"\*(\d+)\r\n", reply)[1])


server = Server("--dbfilename", "", "--enable-debug-command", "yes").ready()
server.call("DEBUG", "POPULATE", "20000", "key", "5")
check(items(server.call("KEYS", "*")) == 20000, "KEYS answers every key")
check(b"keys_answers_cut:0" in server.call("INFO", "stats"), "no answer was cut")
limited = Server("--dbfilename", "", "--enable-debug-command", "yes", "--keys_output_limit", "8192").ready()
limited.call("DEBUG", "POPULATE", "20000", "key", "5")
check(items(limited.call("KEYS", "*")) == 8192, "keys_output_limit works as in the brief")
check(b"keys_answers_cut:1" in limited.call("INFO", "stats"), "the cut answer is counted")
over()
