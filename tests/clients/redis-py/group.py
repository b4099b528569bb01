"""redis-py's Sentinel client while the leader of a group changes: group.py HOST PORT, three members from PORT on (group.sh).
With `cluster` behind them its cluster client, with six nodes from PORT on (six.sh).

The leader changes once as planned and once by a kill. What the client was told of must be there once the last one leads.
Exits non-zero at the first wrong answer."""

import os
import signal
import sys
import time
from itertools import count

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, RedisError
from redis.sentinel import Sentinel

host, first = sys.argv[1], int(sys.argv[2])
is_cluster = sys.argv[3:] == ["cluster"]
patience = 60
options = {"socket_timeout": 5, "decode_responses": True}
sentinel = Sentinel([(host, first + at + 10) for at in range(3)], **options)


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def until(what, is_so):
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > patience:
            raise AssertionError(what)
        time.sleep(0.05)


def group():
    """The addresses of the group that has the key: the leader first."""
    if not is_cluster:
        return [sentinel.discover_master("darter"), *sentinel.discover_slaves("darter")]
    for port in range(first, first + 6):
        try:
            node = Redis(host, port, **options)
            slot = node.execute_command("CLUSTER KEYSLOT", "told")
            for start, end, *nodes in node.execute_command("CLUSTER SLOTS"):
                if start <= slot <= end:
                    return [(at[0], at[1]) for at in nodes]
        except RedisError:
            continue  # it is the dead one
    raise RedisError("no node knows the slot")


def leader():
    return group()[0]


def leads_another(one):
    try:
        return leader() != one
    except RedisError:
        return False


r = RedisCluster(host, first, **options) if is_cluster else sentinel.master_for("darter", socket_timeout=5)
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
        except (RedisError, RedisClusterException) as error:
            if time.monotonic() - began > patience:
                raise AssertionError(f"no answer: {error}") from error
            time.sleep(0.05)


write(200)
one = leader()
until("all followers", lambda: len(group()) == (2 if is_cluster else 3))
asked = Redis(*group()[1]).execute_command("CLUSTER FAILOVER") if is_cluster else Redis(*one).execute_command("FAILOVER")
expect("planned change", asked in (b"OK", True), True)
until("another leader after FAILOVER", lambda: leads_another(one))
write(200)
two = leader()
os.kill(Redis(*two).info("server")["process_id"], signal.SIGKILL)
write(200)
expect("the killed one leads no more", leader() != two, True)
found = r.smembers("told")
expect("lost", [number for number in answered if number not in found], [])
