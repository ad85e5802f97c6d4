"""A kazoo client that ends with its block, also when the block fails.

One that stays goes on trying to connect, in threads of its own, under the tests that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient


@contextmanager
def opened(hosts: str, timeout_s: float = 15.0) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts)
    try:
        client.start(timeout=timeout_s)
        yield client
    finally:
        client.stop()
        client.close()
