"""Changes of a cluster while a client library works: changes.py moves|failover HOST PORT COMMAND..., six nodes from PORT on (six.sh).

COMMAND is started with HOST, PORT and `exact` (moves) or `any` (failover) behind it. It adds numbers to keys in many slots, says
`answered` after each hundred answers, and when its input ends reads all back and exits non-zero if something is missing. With `exact` no
command may fail, and none may take place twice; with `any` commands may fail, and those that were answered must be there.

moves: slots go round the three masters as a whole. failover: a master changes once as planned and once by `kill -9`."""

import os
import signal
import subprocess
import sys
import threading
import time

from redis import Redis
from redis.exceptions import RedisError

kind, host, first, command = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
MOVES = 6
PATIENCE_S = 60
nodes = [Redis(host, first + at, socket_timeout=PATIENCE_S, decode_responses=True) for at in range(6)]


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def until(what, is_so):
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > PATIENCE_S:
            raise AssertionError(what)
        time.sleep(0.02)


class Work:
    """The client at work."""

    def __init__(self):
        words = [*command, host, str(first), {"moves": "exact", "failover": "any"}[kind]]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answered = 0
        threading.Thread(target=self.count, daemon=True).start()

    def count(self):
        for line in self.child.stdout:
            self.answered += line == "answered\n"

    def goes_on(self):
        """Waits for some hundred answers more."""
        wanted = self.answered + 4
        until("the client is answered", lambda: self.answered >= wanted or self.child.poll() is not None)
        expect("the client runs", self.child.poll(), None)

    def end(self):
        self.child.stdin.close()
        expect("the client's end", self.child.wait(PATIENCE_S), 0)


def latest(node):
    fields = node.execute_command("CLUSTER GETSLOTMIGRATIONS")[0]
    fields = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2]))
    return fields["state"], fields["message"]


def is_begun(source, target_id):
    """Asks for a move, unless the keys of the one before are being removed still."""
    try:
        return nodes[source].execute_command("CLUSTER MIGRATESLOTS SLOTSRANGE", 0, 5460, "NODE", target_id) == "OK"
    except RedisError as error:
        if "being removed" not in str(error):
            raise
        return False


def moves(work):
    ids = [node.execute_command("CLUSTER MYID") for node in nodes[:3]]
    for move in range(MOVES):
        source, target = move % 3, (move + 1) % 3
        until("the move before is tidied up", lambda: is_begun(source, ids[target]))
        until("the move ends", lambda: latest(nodes[source])[0] in ("success", "failed", "cancelled"))
        expect("the move", latest(nodes[source]), ("success", ""))
        work.goes_on()


def group():
    """The numbers of the nodes of the first slot, its master first."""
    for node in nodes:
        try:
            ranges = node.execute_command("CLUSTER SLOTS")
            return [at[1] - first for at in next(row for row in ranges if row[0] == 0)[2:]]
        except RedisError:
            continue  # it is the dead one
    raise AssertionError("no node knows the slot")


def failover(work):
    until("the replica follows", lambda: len(group()) == 2)
    one, replica = group()
    expect("the planned change", nodes[replica].execute_command("CLUSTER FAILOVER") in ("OK", True), True)
    until("another master", lambda: group()[0] != one)
    work.goes_on()
    until("the old master follows", lambda: len(group()) == 2)
    two = group()[0]
    os.kill(nodes[two].info("server")["process_id"], signal.SIGKILL)
    until("another master after the kill", lambda: group()[0] != two)
    work.goes_on()


work = Work()
try:
    work.goes_on()
    {"moves": moves, "failover": failover}[kind](work)
    work.end()
finally:
    work.child.kill()
