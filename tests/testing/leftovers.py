"""Programs that check that a broker leaves no threads, descriptors or directories in its process.

Each check runs in a process of its own (`python tests/testing/leftovers.py NAME`): a worker of the test
run also has the session's brokers, whose threads and files come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaesque.testing import Broker, BrokerFailed
from kafkaesque.testing.client import SharedClient


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    with Broker():
        pass  # libuv opens a pipe for the life of the process with its first loop
    threads, files = set(threading.enumerate()), descriptors()
    yield
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert descriptors() == files


def by_a_stopped_one() -> None:
    with nothing_left():
        broker = Broker().start()
        with SharedClient(broker.bootstrap_servers) as client:
            client.produce("t", [{"value": "a"}], within_s=30)
        data = broker.data
        assert data.is_dir()
        broker.stop()
        assert not data.exists()


def by_a_collected_one() -> None:
    with nothing_left():
        Broker().start()


def by_a_failed_start() -> None:
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        with socket.create_server(("127.0.0.1", 0)) as server, nothing_left():
            taken = f"127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(BrokerFailed):
                Broker(settings={"listeners": taken}).start()
        assert list(Path(directory).iterdir()) == []


def by_a_cancelled_start() -> None:
    async def cancel(broker: Broker) -> None:
        entering = asyncio.create_task(broker.__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    with nothing_left():
        broker = Broker()
        asyncio.run(cancel(broker))
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


QUESTIONS = {
    question.__name__: question
    for question in (by_a_stopped_one, by_a_collected_one, by_a_failed_start, by_a_cancelled_start)
}

if __name__ == "__main__":
    QUESTIONS[sys.argv[1]]()
