"""Clients of other languages: a small program each, controlled by JSON lines.

The protocol: one request per line `{"id", "op", ...}`, one answer per line `{"id", "ok"}` or
`{"id", "code", "error"}`, in any order. Bytes travel as base64, null as null.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from tests.conformance.clients.model import (
    Client,
    ClientFailure,
    Consumer,
    ConsumerOptions,
    Message,
    Received,
)

CALL_TIMEOUT_S = 60


class Program:
    """The child process; calls may come from several threads at once."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._ids = itertools.count()
        self._pending: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, operation: str, **values: Any) -> Any:
        future: Future[Any] = Future()
        with self._lock:
            request_id = next(self._ids)
            self._pending[request_id] = future
            assert self._process.stdin is not None
            self._process.stdin.write(
                json.dumps({"id": request_id, "op": operation} | values) + "\n"
            )
            self._process.stdin.flush()
        return future.result(CALL_TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._pending.pop(answer["id"])
            if "error" in answer:
                code = answer.get("code")
                code = code if code is not None and code > 0 else None
                future.set_exception(ClientFailure(code, answer["error"]))
            else:
                future.set_result(answer["ok"])
        self._errors.seek(0)
        words = f"the client program ended: {self._errors.read()[-2000:]}"
        for future in self._pending.values():
            future.set_exception(AssertionError(words))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class ProgramConsumer(Consumer):
    def __init__(self, program: Program, handle: str) -> None:
        self._program = program
        self._handle = handle

    def _call(self, operation: str, **values: Any) -> Any:
        return self._program.call(operation, handle=self._handle, **values)

    def poll(self, timeout_s: float) -> list[Received]:
        return [_received(row) for row in self._call("poll", timeout_ms=int(timeout_s * 1000))]

    def assignment(self) -> set[tuple[str, int]]:
        return {(topic, partition) for topic, partition in self._call("assignment")}

    def commit(self) -> None:
        self._call("commit")

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._call("seek", topic=topic, partition=partition, offset=offset)

    def position(self, topic: str, partition: int) -> int:
        return int(self._call("position", topic=topic, partition=partition))

    def close(self) -> None:
        self._call("close")


class ProgramClient(Client):
    """Base of the clients in other languages; a subclass builds and starts its program."""

    _handles: ClassVar[Any] = itertools.count()

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.program = Program(self.command())

    def command(self) -> Sequence[str]:
        """The program's command line; raises `Unavailable` if its toolchain is missing."""
        raise NotImplementedError

    def settings(self, options: ConsumerOptions) -> dict[str, Any]:
        """The options by the program's own names."""
        raise NotImplementedError

    def close(self) -> None:
        self.program.close()

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        bootstrap: str | None = None,
        batch_bytes: int | None = None,
    ) -> list[int]:
        rows = [
            {
                "key": _text(message.key),
                "value": _text(message.value),
                "headers": [[name, _text(value)] for name, value in message.headers],
                "timestamp_ms": message.timestamp_ms,
                "partition": message.partition,
            }
            for message in messages
        ]
        offsets = self.program.call(
            "produce",
            topic=topic,
            messages=rows,
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            bootstrap=bootstrap or self.bootstrap,
            batch_bytes=batch_bytes,
        )
        return [-1 if acks == 0 else int(offset) for offset in offsets]

    def subscribe(self, topics: Sequence[str], options: ConsumerOptions) -> Consumer:
        return self._open(options, topics=list(topics))

    def assign(self, partitions: Sequence[tuple[str, int]], options: ConsumerOptions) -> Consumer:
        return self._open(options, partitions=[list(one) for one in partitions])

    def _open(self, options: ConsumerOptions, **what: Any) -> Consumer:
        name = f"consumer-{next(self._handles)}"
        self.program.call(
            "open", name=name, reset=options.reset, settings=self.settings(options), **what
        )
        return ProgramConsumer(self.program, name)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self.program.call(
            "offset_for_time", topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )
        return None if found is None else int(found)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.program.call("watermarks", topic=topic, partition=partition)
        return int(low), int(high)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _received(row: dict[str, Any]) -> Received:
    return Received(
        partition=row["partition"],
        offset=row["offset"],
        key=_bytes(row["key"]),
        value=_bytes(row["value"]),
        headers=tuple((name, _bytes(value)) for name, value in row["headers"]),
        timestamp_ms=row["timestamp_ms"],
        timestamp_type=row.get("timestamp_type", 0),
    )
