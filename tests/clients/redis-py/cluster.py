"""redis-py's cluster client against HOST PORT, a server with --cluster_mode=emulated; exits non-zero at the first wrong answer."""

import sys

from redis.cluster import RedisCluster


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py cluster: {what}: got {got!r}, wanted {wanted!r}")


host, port = sys.argv[1], int(sys.argv[2])
for protocol in (2, 3):
    r = RedisCluster(host=host, port=port, protocol=protocol)
    r.flushdb()
    names = [f"key:{i}" for i in range(200)]
    for name in names:
        expect("set", r.set(name, name), True)
    expect("get", [r.get(name) for name in names], [name.encode() for name in names])
    expect("dbsize", r.dbsize(), 200)
    expect("scan", {key.decode() for key in r.scan_iter(count=50)}, set(names))
    expect("nodes", len(r.get_nodes()), 1)
    expect("info", r.cluster_info()["cluster_state"], "ok")
    expect("keyslot", r.cluster_keyslot("foo"), 12182)
    expect("count", r.cluster_countkeysinslot(r.keyslot("key:1")) >= 1, True)
    expect("mset of a slot", r.mset({"{t}a": "1", "{t}b": "2"}), True)
    expect("mget of a slot", r.mget("{t}a", "{t}b"), [b"1", b"2"])
    expect("mget of several slots", r.mget_nonatomic("key:1", "key:2"), [b"key:1", b"key:2"])
    pipe = r.pipeline()
    for name in names[:50]:
        pipe.append(name, "!")
    expect("pipeline", pipe.execute(), [len(name) + 1 for name in names[:50]])
    expect("eval", r.eval("return redis.call('get', KEYS[1])", 1, "{t}a"), b"1")
    expect("publish", r.publish("channel", "x"), 0)
    r.close()
