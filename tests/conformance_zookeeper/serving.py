"""Our coordination server without a broker, on a thread of its own; sessions may be short."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import TracebackType

from tests.broker.coordination.cluster import CONFIG, Cluster

from kafkaesque.broker.coordination.config import CoordinationConfig


class ServerThread:
    """A server between `start` and `stop`, over a log in memory; a restart keeps log and port."""

    def __init__(self, config: CoordinationConfig = CONFIG) -> None:
        self._config = config
        self._log: list[bytes] = []
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> ServerThread:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10), "the server did not start"

    def stop(self) -> None:
        assert self._loop is not None
        assert self._ended is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        cluster = Cluster(1, self._config, log=self._log)
        await cluster.start(self._port)
        self._port = cluster.replicas[0].server.address[1]
        ready.set()
        await self._ended.wait()
        await cluster.stop()
        if cluster.failures:
            logging.getLogger(__name__).error("the server failed", exc_info=cluster.failures[0])
