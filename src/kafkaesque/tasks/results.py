"""Results of calls: one reader serves all callers of a process that wait for one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from kafkaesque.client.ports import Assignment, Log, LogError, LogReader
from kafkaesque.events.tasks import MalformedTask, ResultMessage, decode_result
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks.errors import ResultUnknown, TaskFailed

WAITING_MAX = 100_000
READ_SECONDS = 0.5


class ResultReader:
    """Delivers each result to its waiting caller. It starts reading when the first result is expected."""

    def __init__(self, topic: TopicSpec) -> None:
        self._topic = topic
        self._log: Log | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[ResultMessage]] = {}

    def attach(self, log: Log) -> None:
        self._log = log

    async def expect(self, call_id: str) -> None:
        """Called before the call is sent, so that its result cannot be missed."""
        if self._reading is None:
            if self._log is None:
                raise LogError("the application is not connected: async with app.connect(log)")
            reader = await self._open(self._log)
            self._reading = asyncio.create_task(self._read(reader))
        if len(self._waiting) >= WAITING_MAX:
            # A caller that never asks for its results must not make this grow.
            self._waiting.pop(next(iter(self._waiting))).cancel()
        self._waiting[call_id] = asyncio.get_running_loop().create_future()

    async def _open(self, log: Log) -> LogReader:
        await log.admin.ensure_topics([self._topic])
        spans = await log.admin.spans(self._topic.name)
        return await log.open_reader(Assignment({place: span.end for place, span in spans.items()}))

    async def _read(self, reader: LogReader) -> None:
        try:
            while True:
                for record in await reader.read(wait_s=READ_SECONDS):
                    with contextlib.suppress(MalformedTask):
                        result = decode_result(record.value)
                        waiting = self._waiting.get(result.id)
                        if waiting is not None and not waiting.done():
                            waiting.set_result(result)
        finally:
            await reader.close()

    async def wait(self, call_id: str, timeout_s: float) -> Any:
        waiting = self._waiting.get(call_id)
        if waiting is None:
            raise ResultUnknown(
                f"no result of {call_id} is expected: its task does not keep results"
            )
        finished, _ = await asyncio.wait([waiting], timeout=timeout_s)
        self._waiting.pop(call_id, None)
        if waiting not in finished:
            raise ResultUnknown(f"no result of {call_id} within {timeout_s:g} s")
        result = waiting.result()
        if not result.ok:
            raise TaskFailed(result.failure or "the call was given up")
        return msgspec.json.decode(result.value)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        self._waiting.clear()
