"""redis-py's client-side cache against HOST PORT; exits non-zero at the first wrong answer. Empties the server."""

import sys
import time

import redis
from redis.cache import CacheConfig


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py cache: {what}: got {got!r}, wanted {wanted!r}")


def main(host, port):
    plain = redis.Redis(host, port, db=9, protocol=3)
    cached = redis.Redis(host, port, db=9, protocol=3, cache_config=CacheConfig(max_size=1000))

    def asked():
        return plain.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]

    def eventually(what, wanted):
        """The message travels by itself; until it is here, the old value may be seen."""
        until = time.monotonic() + 60
        while cached.get("k") != wanted and time.monotonic() < until:
            time.sleep(0.01)
        expect(what, cached.get("k"), wanted)

    plain.flushall()
    plain.set("k", "one")
    expect("first read", cached.get("k"), b"one")
    before = asked()
    for _ in range(100):
        expect("hit", cached.get("k"), b"one")
    expect("what hits asked the server", asked() - before, 0)

    plain.set("k", "two")
    eventually("after a change elsewhere", b"two")
    plain.set("k", "brief", px=5000)
    eventually("before expiry", b"brief")
    eventually("after expiry", None)
    plain.set("k", "three")
    eventually("a key that was absent", b"three")
    plain.flushall()
    eventually("after FLUSHALL", None)


main(sys.argv[1], int(sys.argv[2]))
