"""pymemcache against HOST PORT; empties database 0 and exits non-zero at the first wrong answer."""

import sys
import threading
import time

from pymemcache import Client, PooledClient, serde
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"pymemcache: {what}: got {got!r}, wanted {wanted!r}")


def expect_error(what, call, kind):
    try:
        got = call()
    except kind:
        return
    sys.exit(f"pymemcache: {what}: got {got!r}, wanted {kind.__name__}")


def classic(c):
    expect("set", c.set("k", b"v", expire=100, noreply=False), True)
    expect("get", c.get("k"), b"v")
    expect("get missing", c.get("none"), None)
    expect("add", [c.add("k", b"x", noreply=False), c.add("k2", b"x", noreply=False)], [False, True])
    expect("replace", [c.replace("k2", b"y", noreply=False), c.replace("none", b"y", noreply=False)], [True, False])
    expect("append", c.append("k", b"2", noreply=False), True)
    expect("prepend", c.prepend("k", b"0", noreply=False), True)
    expect("joined", c.get("k"), b"0v2")
    expect("set many", c.set_many({f"m{n}": str(n) for n in range(100)}, noreply=False), [])
    expect("get many", c.get_many([f"m{n}" for n in range(101)]), {f"m{n}": str(n).encode() for n in range(100)})
    expect("incr", [c.set("n", b"10", noreply=False), c.incr("n", 5), c.decr("n", 20)], [True, 15, 0])
    expect("incr missing", c.incr("none", 1), None)
    expect("touch", [c.touch("k", 50, noreply=False), c.touch("none", 50, noreply=False)], [True, False])
    value, token = c.gets("k")
    expect("cas", [c.cas("k", b"new", token, noreply=False), c.cas("k", b"newer", token, noreply=False)], [True, False])
    expect("cas missing", c.cas("none", b"x", token, noreply=False), None)
    expect("gets many", set(c.gets_many(["k", "n", "none"])), {"k", "n"})
    expect("delete", [c.delete("k", noreply=False), c.delete("k", noreply=False)], [True, False])
    c.set("quiet", b"1")
    expect("noreply", c.get("quiet"), b"1")
    expect("expired", [c.set("e", b"x", expire=-1, noreply=False), c.get("e")], [True, None])
    c.set("soon", b"x", expire=1, noreply=False)
    time.sleep(2.1)
    expect("expires", c.get("soon"), None)


def types(host, port):
    c = Client((host, port), serde=serde.pickle_serde)
    for value in ["text", b"bytes", 42, [1, "two", None], {"a": 1.5}, "ü" * 3000]:
        c.set("t", value, noreply=False)
        expect("type", c.get("t"), value)


def limits(c):
    big = b"x" * 1_000_000
    expect("big", [c.set("big", big, noreply=False), c.get("big") == big], [True, True])
    expect_error("too big", lambda: c.set("big", b"x" * 3_000_000, noreply=False), MemcacheServerError)
    expect("too big removes", c.get("big"), None)
    expect_error("not a number", lambda: (c.set("s", b"x", noreply=False), c.incr("s", 1)), MemcacheClientError)


def administration(c):
    expect("version", c.version().split(b".")[0], b"1")
    stats = c.stats()
    for name in [b"pid", b"curr_items", b"cmd_get", b"get_hits", b"bytes", b"threads"]:
        expect(f"stats {name}", name in stats, True)
    expect("stats settings", c.stats("settings")[b"item_size_max"], 1 << 20)
    expect("flush", [c.flush_all(noreply=False), c.get("n")], [True, None])


def parallel(host, port):
    pool = PooledClient((host, port), max_pool_size=8)
    pool.set("sum", b"0", noreply=False)

    def work():
        for _ in range(500):
            pool.incr("sum", 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("parallel", pool.get("sum"), b"4000")


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    c = Client((host, port))
    c.flush_all(noreply=False)
    classic(c)
    types(host, port)
    limits(c)
    administration(c)
    parallel(host, port)


main()
