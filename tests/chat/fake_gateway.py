"""A fake gateway over a real log: sends commands, collects what the back ends write."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.waiting import until

from kafkaesque.client.ports import Assignment, Log, Received, Record, WriterOptions
from kafkaesque.events.gateway import (
    INBOX,
    REPLIES,
    ROOMS,
    Command,
    CommandHeaders,
    command_topic,
    encode_value,
    raw,
)
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs

SECONDS_MAX = 60.0
SLOT = PartitionIndex(5)


class FakeGateway:
    """Call `open` first. What it has read is kept in `inbox`, `rooms` and `answers`."""

    def __init__(self, log: Log, version: str = "v1") -> None:
        self.log = log
        self._topic = command_topic(version).name
        self.inbox: list[tuple[str, dict[str, Any]]] = []
        self.rooms: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        self.writer = await self.log.open_writer(WriterOptions(linger_ms=0))
        places = [
            place
            for topic in (INBOX, ROOMS, REPLIES)
            for place in await self.log.admin.spans(topic.name)
        ]
        self.reader = await self.log.open_reader(Assignment(dict.fromkeys(places, Offset(0))))

    async def close(self) -> None:
        await self.writer.close()
        await self.reader.close()

    async def send(self, user: str, op: str, command_id: str | None = None, **body: Any) -> str:
        command_id = command_id or f"c{next(self._numbers)}"
        await self._write(user, op, body, command_id)
        return command_id

    async def ask(self, user: str, op: str, *, anonymous: bool = False, **body: Any) -> Any:
        correlation = f"q{next(self._numbers)}"
        await self._write(
            user, op, body, correlation, reply=SLOT, correlation=correlation, anonymous=anonymous
        )
        await self.until(lambda: correlation in self.answers)
        return self.answers[correlation]

    async def _write(
        self, user: str, op: str, body: dict[str, Any], command_id: str, **more: Any
    ) -> None:
        at_ms = TimestampMs(time.time_ns() // 1_000_000)
        headers = CommandHeaders(command_id, "g1", "v1", at_ms, **more).to_headers()
        value = encode_value(Command(op, raw(body)))
        await self.writer.send([Record(self._topic, user.encode(), value, headers)])

    async def open_accounts(self, *users: str) -> None:
        sent = [(user, await self.send(user, "account.open")) for user in users]
        for user, command_id in sent:
            await self.result(user, command_id)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Reads what the back ends write until `condition` holds."""

        async def read_and_check() -> bool:
            if not condition():
                for record in await self.reader.read(1000, 0.05):
                    self._take(record)
            return condition()

        await until(read_and_check, "the back ends did not answer", SECONDS_MAX)

    def _take(self, record: Received) -> None:
        value = msgspec.json.decode(record.value or b"")
        key = (record.key or b"").decode()
        if record.topic == REPLIES.name:
            correlation = dict(record.headers)["correlation"] or b""
            assert correlation.decode() not in self.answers
            self.answers[correlation.decode()] = value
        else:
            (self.inbox if record.topic == INBOX.name else self.rooms).append((key, value))

    def results(self, user: str, command_id: str) -> list[dict[str, Any]]:
        return [
            event["body"]
            for key, event in self.inbox
            if key == user and event.get("re") == command_id
        ]

    async def result(self, user: str, command_id: str) -> dict[str, Any]:
        await self.until(lambda: bool(self.results(user, command_id)))
        return self.results(user, command_id)[0]

    def bodies(self, user: str, kind: str) -> list[dict[str, Any]]:
        return [event["body"] for key, event in self.inbox if key == user and event["type"] == kind]


@contextmanager
def backend_process(
    bootstrap: str, name: str, directory: Path, *arguments: str
) -> Iterator[BackendProcess]:
    process = BackendProcess(bootstrap, name, directory, *arguments)
    process.start()
    try:
        yield process
    finally:
        process.end()


class BackendProcess:
    """`kafkaesque chat backend` as a separate process, for kill -9."""

    def __init__(self, bootstrap: str, name: str, directory: Path, *arguments: str) -> None:
        self._command = [
            sys.executable, "-m", "kafkaesque.cli.main", "chat", "backend", "-b", bootstrap,
            "--name", name, "--data", str(directory / name), "--log-level", "info", *arguments,
        ]  # fmt: skip
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        self.facts: dict[str, str] = {}

    def start(self) -> None:
        """Returns when it is ready."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), self._log.read_text()
        self.facts = dict(pair.split("=", 1) for pair in line.split()[1:])

    def signal(self, number: int) -> int:
        assert self._process is not None
        os.kill(self._process.pid, number)
        code = self._process.wait(SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def stop(self) -> int:
        return self.signal(signal.SIGTERM)

    def end(self) -> None:
        if self._process is not None:
            self.kill()
