#!/usr/bin/env python3
"""How soon the nodes of a cluster route by a change of its map: tools/local/map.py DARTER [NODES] [CHANGES]

Starts an etcd and NODES servers (100) on this machine. CHANGES times (50) a slot is given to another node, and every node is
asked for a key of that slot until it names the new owner. Prints the times from the answer to the change until a node knew.
"""
import pathlib, socket, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/walks"))
from walk import PATIENCE, Server, check, etcd, over, resp, wait

NODES, CHANGES = [int(word) for word in sys.argv[2:4]] + [100, 50][len(sys.argv[2:4]):]


class Asking:
    """A connection that asks a node where a key is."""

    def __init__(self, server):
        self.link, self.rest = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE), b""

    def ask(self, key):
        self.link.sendall(resp("GET", key))

    def said(self):
        while b"\r\n" not in self.rest:
            self.rest += self.link.recv(1 << 16)
        line, _, self.rest = self.rest.partition(b"\r\n")
        return line


def needs(is_so, what):
    if not wait(is_so, what, pause=0.05):
        over()


store = etcd()
servers = [Server("--save", "", "--proactor_threads", 1, "--maxmemory", "64mb", "--cluster_mode=yes", "--cluster_store", store)
           for _ in range(NODES)]
for server in servers:
    server.ready()
    needs(lambda: b"cluster_store_connected:1" in server.call("INFO", "cluster"), "a node reaches the store")
first, ids = servers[0], [server.call("CLUSTER", "MYID").split(b"\r\n")[1] for server in servers]
for server in servers[1:]:
    check(first.call("CLUSTER", "MEET", "127.0.0.1", server.port) == b"+OK\r\n", "a node is met")
check(first.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"+OK\r\n", "the first has all slots")
asking, times = [Asking(server) for server in servers], []
for change in range(CHANGES):
    key, owner = f"key-{change}", 1 + change % (NODES - 1)
    slot = int(first.call("CLUSTER", "KEYSLOT", key)[1:])
    others = [node for node in asking if node is not asking[owner]]

    def knowing(port):
        """Those that name this owner."""
        for node in others:
            node.ask(key)
        return [node for node in others if node.said() == b"-MOVED %d 127.0.0.1:%d" % (slot, port)]

    needs(lambda: len(knowing(first.port)) >= NODES - 2, "all know the owner before")
    answer = first.call("CLUSTER", "SETSLOT", slot, "NODE", ids[owner])
    began = time.monotonic()
    if answer != b"+OK\r\n":
        check(False, "a slot is given away", answer)
        break
    while others:
        know = knowing(servers[owner].port)
        times += [(time.monotonic() - began) * 1000] * len(know)
        others = [node for node in others if node not in know]
        if time.monotonic() > began + PATIENCE:
            check(False, "all nodes hear of a change", len(others))
            break
times.sort()
at = lambda part: times[min(len(times) - 1, int(len(times) * part))]
print(f"{NODES} nodes, {CHANGES} changes: p50 {at(0.5):.0f} ms, p99 {at(0.99):.0f} ms, max {times[-1]:.0f} ms")
over()
