"""redis-py's cluster client against three servers of tests/clients/three.sh, which are on PORT and the two ports above; the
slots change owners meanwhile. Exits non-zero at the first wrong answer."""

import json
import sys

import redis
from redis.cluster import RedisCluster


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py nodes: {what}: got {got!r}, wanted {wanted!r}")


host, first = sys.argv[1], int(sys.argv[2])


def push(slots):
    """Gives each of the three nodes a range of slots."""
    groups = [
        {
            "slot_ranges": [{"start": start, "end": end}],
            "master": {"id": f"node{at}", "ip": host, "port": first + at},
            "replicas": [],
            "migrations": [],
        }
        for at, (start, end) in enumerate(slots)
    ]
    for at in range(3):
        node = redis.Redis(host, first + at)
        expect("config", node.execute_command("DFLYCLUSTER", "CONFIG", json.dumps(groups)), b"OK")
        node.close()


THIRDS = [(0, 5460), (5461, 10922), (10923, 16383)]
SHIFTED = [(0, 1000), (1001, 12500), (12501, 16383)]
names = [f"key:{i}" for i in range(300)]
for protocol in (2, 3):
    push(THIRDS)
    r = RedisCluster(host=host, port=first, protocol=protocol)
    expect("nodes", len(r.get_primaries()), 3)
    for slots in (THIRDS, SHIFTED, THIRDS):
        push(slots)
        for name in names:
            expect("set", r.set(name, name), True)
        expect("get", [r.get(name) for name in names], [name.encode() for name in names])
        pipe = r.pipeline()
        for name in names[:50]:
            pipe.append(name, "!")
        expect("pipeline", pipe.execute(), [len(name) + 1 for name in names[:50]])
        expect("mget of several slots", r.mget_nonatomic("key:61", "key:62"), [b"key:61", b"key:62"])
        expect("eval", r.eval("return redis.call('get', KEYS[1])", 1, "key:70"), b"key:70")
        expect("spublish", r.execute_command("SPUBLISH", "key:3", "x", target_nodes=r.get_node_from_key("key:3")), 0)
    for slots in (THIRDS, SHIFTED):
        push(slots)
        r.flushall(target_nodes=RedisCluster.PRIMARIES)
        for name in names:
            expect("set", r.set(name, name), True)
        expect("scan", {key.decode() for key in r.scan_iter(count=50)}, set(names))
        expect("dbsize", r.dbsize(target_nodes=RedisCluster.PRIMARIES), len(names))
    r.close()
