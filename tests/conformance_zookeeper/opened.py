"""A kazoo client that is closed at the end of its block, even if the block fails.

A client that is not closed keeps trying to connect, in its own threads, during the following tests.
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
