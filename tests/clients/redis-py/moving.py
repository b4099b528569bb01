"""redis-py's cluster client while slots move as a whole: moving.py HOST PORT, three masters from PORT on (six.sh).

Every increment and every element that the client was told of must be there once. Exits non-zero at the first that is not."""

import sys
import threading
import time

from redis import Redis
from redis.cluster import RedisCluster

host, first = sys.argv[1], int(sys.argv[2])
moves = int(sys.argv[3]) if len(sys.argv) > 3 else 12
# While etcd stands still, so do the slots that it is asked about; a client that gives up earlier sends its command again.
patience = 60
stop = threading.Event()
faults = []


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def work(who):
    try:
        r = RedisCluster(host=host, port=first, decode_responses=True, socket_timeout=patience)
        counts = [0] * 50
        n = 0
        while not stop.is_set() or n < 300:
            at = n % len(counts)
            tag = f"{{{who}-{at}}}"
            counts[at] += 1
            if n % 4 == 0:
                with r.pipeline() as pipe:
                    pipe.incr(f"{tag}n")
                    pipe.rpush(f"{tag}l", counts[at])
                    expect(tag, pipe.execute(), [counts[at], counts[at]])
            elif n % 4 == 1:
                script = "redis.call('rpush', KEYS[2], ARGV[1]) return redis.call('incr', KEYS[1])"
                expect(tag, r.eval(script, 2, f"{tag}n", f"{tag}l", counts[at]), counts[at])
            else:
                expect(tag, r.incr(f"{tag}n"), counts[at])
                expect(tag, r.rpush(f"{tag}l", counts[at]), counts[at])
            n += 1
        for at, count in enumerate(counts):
            tag = f"{{{who}-{at}}}"
            expect(tag, r.lrange(f"{tag}l", 0, -1), [str(i + 1) for i in range(count)])
            expect(tag, r.get(f"{tag}n"), str(count))
    except Exception as fault:  # told below, by the thread that may exit
        faults.append(fault)


nodes = [Redis(host=host, port=first + at, decode_responses=True, socket_timeout=patience) for at in range(3)]
ids = [node.execute_command("CLUSTER MYID") for node in nodes]


def state(node):
    fields = node.execute_command("CLUSTER GETSLOTMIGRATIONS")[0]
    latest = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2]))
    return latest["state"], latest["message"]


threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
for thread in threads:
    thread.start()
try:
    for n in range(moves):
        source, target = n % 3, (n + 1) % 3
        deadline = time.time() + 60
        while True:
            try:
                nodes[source].execute_command("CLUSTER MIGRATESLOTS SLOTSRANGE", 0, 1000, "NODE", ids[target])
                break
            except Exception as fault:
                if "being removed" not in str(fault) or time.time() > deadline:
                    raise
                time.sleep(0.05)
        while state(nodes[source])[0] not in ("success", "failed", "cancelled"):
            if time.time() > deadline:
                raise AssertionError("a migration does not end")
            time.sleep(0.01)
        expect("the migration", state(nodes[source]), ("success", ""))
        if faults:
            break
finally:
    stop.set()
    for thread in threads:
        thread.join()
if faults:
    raise faults[0]
print(f"{moves} moves")
