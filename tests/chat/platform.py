"""Back end, gateway and page of one process, for tests of the clients that people use.

Over the log in memory, which needs no broker and little time; `bootstrap` puts it on a real one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.chat.stage import poll

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.web_server import WebServer
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Log
from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.machine_clock import MachineClock

START_SECONDS_MAX = 110.0


class Platform:
    """Runs on a thread of its own. `gateway` is HOST:PORT, `page` a URL."""

    def __init__(self, bootstrap: str | None, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._memory: MemoryLog | None = None
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self.gateway = ""
        self.page = ""
        self.backend: Backend | None = None

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS_MAX)

    async def _start(self) -> None:
        await self.start_backend()
        log = self._log({"fetch.wait.max.ms": 50})
        config = gateway_config({"ws.origins": "*"})
        gateway = Gateway("g1", log, config, self._directory, MachineClock(), cheap_passwords=True)
        await gateway.prepare()
        self._stack.push_async_callback(gateway.stop)
        self.gateway = await gateway.listen("127.0.0.1", 0)
        page = WebServer([f"ws://{self.gateway}/"])
        self.page = f"http://{await page.start('127.0.0.1', 0)}/"
        self._stack.push_async_callback(page.stop)

    def _log(self, properties: dict[str, Any]) -> Log:
        if self._bootstrap is not None:
            return KafkaLog(self._bootstrap, properties)
        self._memory = self._memory or MemoryLog()
        return self._memory

    async def start_backend(self) -> None:
        config = BackendConfig(poll_wait_ms=50, snapshot_facts=10)
        backend = Backend(self._log(config.log_properties()), "b1", config)
        self._task = asyncio.create_task(backend.run())
        self.backend = backend
        await poll(lambda: backend.state.ready or self._task.done())

    async def stop_backend(self) -> None:
        if self.backend is not None:
            self.backend.stop()
            await self._task

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._stack.aclose()
        await self.stop_backend()


@contextmanager
def platform(bootstrap: str | None, directory: Path) -> Iterator[Platform]:
    one = Platform(bootstrap, directory)
    one.start()
    try:
        yield one
    finally:
        one.stop()
