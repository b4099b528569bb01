"""redis-py against HOST PORT; exits non-zero at the first wrong answer."""

import os
import sys
import threading
import time

import redis


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"redis-py: {what}: got {got!r}, wanted {wanted!r}")


def expect_error(what, call, text):
    try:
        got = call()
    except redis.ResponseError as error:
        if text not in str(error):
            sys.exit(f"redis-py: {what}: error {error!s}, wanted {text!r}")
        return
    sys.exit(f"redis-py: {what}: got {got!r}, wanted an error")


def strings(r):
    expect("set", r.set("s", "hello"), True)
    expect("get", r.get("s"), b"hello")
    expect("get missing", r.get("none"), None)
    expect("set nx", r.set("s", "x", nx=True), None)
    expect("set xx get", r.set("s", "world", xx=True, get=True), b"hello")
    expect("append", r.append("s", "!"), 6)
    expect("strlen", r.strlen("s"), 6)
    expect("getrange", r.getrange("s", 1, -2), b"orld")
    expect("setrange", r.setrange("s", 0, "W"), 6)
    expect("incr", [r.incr("n"), r.incrby("n", 41), r.decr("n")], [1, 42, 41])
    expect("incrbyfloat", r.incrbyfloat("f", 10.5), 10.5)
    expect("mset", r.mset({"a": "1", "b": "2"}), True)
    expect("mget", r.mget("a", "none", "b"), [b"1", None, b"2"])
    expect("getdel", r.getdel("a"), b"1")
    expect_error("incr of text", lambda: r.incr("s"), "value is not an integer or out of range")
    expect_error("unknown command", lambda: r.execute_command("NOSUCH"), "unknown command")
    expect_error("arity", lambda: r.execute_command("GET"), "wrong number of arguments")


def keys(r):
    r.flushdb()
    names = {f"key:{i}".encode() for i in range(500)}
    for name in names:
        r.set(name, "x")
    expect("dbsize", r.dbsize(), 500)
    expect("scan", set(r.scan_iter(match="key:*", count=20)), names)
    expect("keys", len(r.keys("key:1?")), 10)
    expect("exists", r.exists("key:1", "key:2", "none"), 2)
    expect("delete", r.delete("key:1", "none"), 1)
    expect("unlink", r.unlink("key:2"), 1)
    expect("rename", r.rename("key:3", "moved"), True)
    expect("type", [r.type("moved"), r.type("none")], [b"string", b"none"])
    expect("copy", r.copy("moved", "copied"), True)


def expiry(r):
    r.set("e", "x", px=40)
    expect("pttl", 0 < r.pttl("e") <= 40, True)
    time.sleep(0.06)
    expect("expired", r.get("e"), None)
    r.set("e", "x", ex=100)
    expect("ttl", 98 <= r.ttl("e") <= 100, True)
    expect("persist", r.persist("e"), True)
    expect("ttl after persist", r.ttl("e"), -1)
    expect("ttl of nothing", r.ttl("none"), -2)
    expect("expireat", r.expireat("e", 1), True)
    expect("gone", r.exists("e"), 0)


def pipelines(r):
    pipe = r.pipeline(transaction=False)
    for i in range(1000):
        pipe.set(f"p{i}", i)
    pipe.set("text", "x").incr("text").get("p999")
    answers = pipe.execute(raise_on_error=False)
    expect("pipeline length", len(answers), 1003)
    expect("pipeline error", isinstance(answers[1001], redis.ResponseError), True)
    expect("pipeline end", answers[1002], b"999")


def transactions(r):
    pipe = r.pipeline(transaction=True)
    expect("multi", pipe.set("t", "1").incr("t").get("t").execute(), [True, 2, b"2"])
    with r.pipeline() as watched:
        watched.watch("t")
        r.set("t", "changed")
        watched.multi()
        watched.set("t", "lost")
        try:
            watched.execute()
            sys.exit("redis-py: a watched key changed and EXEC went through")
        except redis.WatchError:
            pass
    expect("after watch", r.get("t"), b"changed")


def publish(r):
    listener = r.pubsub()
    listener.subscribe("news")
    listener.psubscribe("n*")
    for kind in ("subscribe", "psubscribe"):
        expect(kind, listener.get_message(timeout=60)["type"], kind)
    expect("publish", r.publish("news", b"\x00hello"), 2)
    got = [listener.get_message(timeout=60) for _ in range(2)]
    expect("messages", sorted(m["type"] for m in got), ["message", "pmessage"])
    expect("data", [m["data"] for m in got], [b"\x00hello"] * 2)
    listener.unsubscribe("news")
    expect("unsubscribe", listener.get_message(timeout=60)["type"], "unsubscribe")
    listener.close()


def bytes_of_all_kinds(r):
    every = bytes(range(256))
    r.set(every, every)
    expect("binary", r.get(every), every)
    big = os.urandom(8 << 20)
    r.set("big", big)
    expect("8 MiB", r.get("big") == big, True)
    expect("strlen of 8 MiB", r.strlen("big"), 8 << 20)


def parallel(host, port, protocol):
    def work():
        own = redis.Redis(host, port, db=9, protocol=protocol)
        for _ in range(200):
            own.incr("shared")
        own.close()

    threads = [threading.Thread(target=work) for _ in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def reconnect(r, host, port):
    own = r.client_id()
    expect("own id", isinstance(own, int) and own > 0, True)
    killer = redis.Redis(host, port)
    expect("client kill", killer.client_kill_filter(_id=own), 1)
    expect("after the kill", r.set("again", "yes"), True)
    expect("after the kill", r.get("again"), b"yes")


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    for protocol in (2, 3):
        r = redis.Redis(host, port, db=9, protocol=protocol, single_connection_client=False)
        expect("ping", r.ping(), True)
        r.flushdb()
        expect("setname", r.client_setname("check"), True)
        expect("getname", r.client_getname() in ("check", b"check"), True)
        strings(r)
        keys(r)
        expiry(r)
        pipelines(r)
        transactions(r)
        if "pubsub" not in os.environ.get("CHECK_WITHOUT", ""):
            publish(r)
        bytes_of_all_kinds(r)
        r.set("shared", 0)
        parallel(host, port, protocol)
        expect("parallel incr", r.get("shared"), b"2000")
        reconnect(r, host, port)
        info = r.info()
        expect("info", "redis_version" in info and "db9" in info, True)
        r.flushdb()
        expect("flushdb", r.dbsize(), 0)


main()
