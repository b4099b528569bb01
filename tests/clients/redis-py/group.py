"""redis-py's Sentinel client while the leader of a group changes: group.py HOST PORT, three members from PORT on (group.sh).

The leader changes once as planned and once by a kill. What the client was told of must be there once the last one leads.
Exits non-zero at the first wrong answer."""

import os
import signal
import sys
import time
from itertools import count

from redis import Redis
from redis.exceptions import RedisError
from redis.sentinel import Sentinel

host, first = sys.argv[1], int(sys.argv[2])
patience = 60
sentinels = [(host, first + at + 10) for at in range(3)]
sentinel = Sentinel(sentinels, socket_timeout=5, decode_responses=True)


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def until(what, is_so):
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > patience:
            raise AssertionError(what)
        time.sleep(0.05)


def leader():
    return sentinel.discover_master("darter")


def leads_another(one):
    try:
        return leader() != one
    except RedisError:
        return False


r = sentinel.master_for("darter", socket_timeout=5)
numbers = count()
answered = []


def write(more):
    """Adds until as many more were answered; an error leaves open whether it took place."""
    wanted = len(answered) + more
    began = time.monotonic()
    while len(answered) < wanted:
        number = str(next(numbers))
        try:
            r.sadd("told", number)
            answered.append(number)
        except RedisError as error:
            if time.monotonic() - began > patience:
                raise AssertionError(f"no answer: {error}") from error
            time.sleep(0.05)


r.delete("told")
write(200)
one = leader()
until("two followers", lambda: len(sentinel.discover_slaves("darter")) == 2)
expect("planned change", Redis(*one).execute_command("FAILOVER"), b"OK")
until("another leader after FAILOVER", lambda: leads_another(one))
write(200)
two = leader()
os.kill(Redis(*two).info("server")["process_id"], signal.SIGKILL)
write(200)
expect("the killed one leads no more", leader() != two, True)
found = r.smembers("told")
expect("lost", [number for number in answered if number not in found], [])
