"""A real console in a thread of this process, for tests of its API and its pages."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Message, Producer
from tests.waiting import eventually

from kafkaesque.console.web.app import run_console
from kafkaesque.console.web.config import ConsoleConfig

PASSWORD = "metamorphosis"
WITHIN_S = 60.0
POLL_S = 0.05

HOSTILE = [
    b"<script>alert(1)</script>",
    b"<img src=x onerror=alert(2)>",
    b'{"a": "</td></tr></table><script>alert(3)</script>"}',
    b'" onmouseover="alert(4)" x="',
    b"{{ 7 * 7 }} {% raw %} ${7*7}",
    "\u202e right to left \u0000 null".encode(),
    b"\xff\xfe\x00\x01",
    b"javascript:alert(5)",
]


class RunningConsole:
    """`with RunningConsole(config) as console:`; `get` and `act` call its API."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._config = config
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.address = ""

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()

            def ready(address: str) -> None:
                self.address = address
                self._ready.set()

            await run_console(self._config, self._stopping, ready)

        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  raised in __enter__
            self._failure = error
        finally:
            self._ready.set()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WITHIN_S)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers=dict(headers or {})
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    def get(self, path: str) -> Any:
        status, body, _ = self.ask(path)
        assert status == 200, (path, status, body[:500])
        return json.loads(body)

    def act(self, path: str, body: Any = None, method: str = "POST") -> tuple[int, Any]:
        """Call the API as an operator, by password."""
        headers = {"Authorization": f"Bearer {PASSWORD}"}
        status, answer, _ = self.ask(path, method, body, headers)
        return status, json.loads(answer)

    def wait_for_topics(self, *names: str) -> None:
        eventually(
            lambda: (
                set(names) <= {row["name"] for row in self.get("/api/topics?size=500")["items"]}
            ),
            f"topics {names} are shown",
        )

    def wait_for_group(self, name: str, **wanted: Any) -> Any:
        def seen() -> Any:
            rows = [
                row for row in self.get(f"/api/groups?q={name}")["items"] if row["name"] == name
            ]
            fits = rows and all(rows[0][key] == value for key, value in wanted.items())
            return rows[0] if fits else None

        return eventually(seen, f"group {name} with {wanted}")


def write(bootstrap: str, topic: str, values: list[bytes | None], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        key = options.get("key") or f"key-{number % 10}".encode()
        producer.produce(topic, key=key, value=value, headers=[("number", str(number).encode())])
    assert producer.flush(WITHIN_S) == 0


def read_as_group(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Read `count` records, commit, and leave the group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "log_level": 0, "client.id": f"{group}-reader"}
    )  # fmt: skip
    consumer.subscribe([topic])
    seen: list[Message] = []

    def read_and_check() -> bool:
        seen.extend(consumer.consume(count - len(seen), 0.5))
        return len(seen) == count

    eventually(read_and_check, f"{group} did not read {count} records", WITHIN_S)
    consumer.commit(asynchronous=False)
    consumer.close()
