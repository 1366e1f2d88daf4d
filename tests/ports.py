"""Ports for servers that tests and benchmarks start on loopback.

Not what the kernel gives for port 0: between the question and the server's start
an outgoing connection may take such a port. These lie below that range, and below
the node ports of a cluster on the same machine.
"""

import random
import socket

_RANGE = range(15_000, 30_000)
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on and that this process was not given before."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(_RANGE)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
