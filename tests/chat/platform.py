"""A back end, a gateway and the web page in one process over a broker, for tests of the clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.gateway.logs import Place
from tests.waiting import until

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.web_server import WebServer
from kafkaesque.client.ports import Record
from kafkaesque.events.gateway import INBOX, Event, encode_value, raw
from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.service.clock import SystemClock

START_SECONDS_MAX = 110.0


class Platform:
    """Runs on its own thread. `gateway` is HOST:PORT, `page` a URL."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._place = Place(bootstrap)
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._gateways: dict[str, Gateway] = {}
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
        self.gateway = await self.start_gateway("g1")
        page = WebServer([f"ws://{self.gateway}/"])
        self.page = f"http://{await page.start('127.0.0.1', 0)}/"
        self._stack.push_async_callback(page.stop)

    async def start_gateway(self, name: str, port: int = 0) -> str:
        """Returns its address."""
        log = self._place.log({"fetch.wait.max.ms": 50})
        config = gateway_config({"ws.origins": "*"})
        gateway = Gateway(name, log, config, self._directory, SystemClock(), cheap_passwords=True)
        self._gateways[name] = gateway
        await gateway.prepare()
        return await gateway.listen("127.0.0.1", port)

    async def kill_gateway(self, name: str) -> None:
        """Looks like kill -9 from outside: connections are reset without a BYE."""
        gateway = self._gateways.pop(name)
        gateway.connections.abort_all()
        await gateway.stop(handed_over=True)

    async def start_backend(self) -> None:
        config = BackendConfig(poll_wait_ms=50, snapshot_facts=10)
        backend = Backend(self._place.log(config.log_properties()), "b1", config)
        self._task = asyncio.create_task(backend.run())
        self.backend = backend
        await until(lambda: backend.state.ready or self._task.done())

    async def stop_backend(self) -> None:
        if self.backend is not None:
            self.backend.stop()
            await self._task

    async def notify(self, user: str, sender: str) -> None:
        """Writes the event that the tasks' notification job writes when `sender` messages `user`."""
        now_ms = SystemClock().wall_ms()
        body = {"message_id": "m", "conversation_id": "c", "from": sender, "sent_ms": now_ms}
        event = Event("notification", raw(body), None, now_ms)
        writer = await self._place.log().open_writer()
        try:
            await writer.send([Record(INBOX.name, user.encode(), encode_value(event))])
        finally:
            await writer.close()

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._stack.aclose()
        for gateway in self._gateways.values():
            await gateway.stop()
        await self.stop_backend()
        await self._place.log().remove()


@contextmanager
def platform(bootstrap: str, directory: Path) -> Iterator[Platform]:
    one = Platform(bootstrap, directory)
    one.start()
    try:
        yield one
    finally:
        one.stop()
