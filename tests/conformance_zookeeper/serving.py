"""Our coordination server for tests: on a thread of its own, with sessions that may be short.

`python -m tests.conformance_zookeeper.serving DIRECTORY` is the same as a process, to be killed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.server import LocalServer
from kafkaesque.broker.server.system_clock import SystemClock

CONFIG = CoordinationConfig(min_session_timeout_ms=400, tick_interval_ms=50, reap_interval_ms=200)


class ServerThread:
    """A server in `directory` between `start` and `stop`; a restart keeps its port."""

    def __init__(self, directory: Path, config: CoordinationConfig = CONFIG) -> None:
        self._directory = directory
        self._config = config
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self.server: LocalServer | None = None

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
        failures: list[BaseException] = []
        self.server = LocalServer(self._directory, SystemClock(), self._config, failures.append)
        await self.server.start("127.0.0.1", self._port)
        self._port = self.server.address[1]
        ready.set()
        await self._ended.wait()
        await self.server.stop()
        if failures:
            logging.getLogger(__name__).error("the server failed", exc_info=failures[0])


if __name__ == "__main__":
    with ServerThread(Path(sys.argv[1])) as running:
        print(f"ready {running.address}", flush=True)
        signal.pause()
