"""Ports for the servers of checks; used by tests/walks and tests/monitoring."""

import random
import socket


def free_port():
    """A port on which nobody listens, below those that the kernel gives to whoever connects meanwhile."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
