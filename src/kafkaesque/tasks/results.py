"""What became of calls, for those who wait for it: one reader of the results for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from kafkaesque.client.ports import Assignment, Log, LogError, LogReader, Record
from kafkaesque.events.tasks import MalformedTask, ResultMessage, decode_result, encode_message
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks.errors import ResultUnknown, TaskFailed
from kafkaesque.tasks.rules.call import Call
from kafkaesque.tasks.rules.outcome import Dead, Done

WAITING_MAX = 100_000
READ_SECONDS = 0.5


class ResultReader:
    """Hands each result to the call that waits for it. Reads only once a call is expected."""

    def __init__(self, topic: TopicSpec) -> None:
        self._topic = topic
        self._log: Log | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[ResultMessage]] = {}

    def attach(self, log: Log) -> None:
        self._log = log

    async def expect(self, call_id: str) -> None:
        """Before the call is sent: from here on its result will be seen."""
        if self._reading is None:
            if self._log is None:
                raise LogError("the application is not connected: async with app.connect(log)")
            reader = await self._open(self._log)
            self._reading = asyncio.create_task(self._read(reader))
        if len(self._waiting) >= WAITING_MAX:
            # Whoever sends and never asks for results must not make this grow.
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
            raise ResultUnknown(f"no result of {call_id} is expected: its task keeps none")
        finished, _ = await asyncio.wait([waiting], timeout=timeout_s)
        self._waiting.pop(call_id, None)
        if waiting not in finished:
            raise ResultUnknown(f"no result of {call_id} within {timeout_s:g} s")
        result = waiting.result()
        if not result.ok:
            raise TaskFailed(result.failure or "it was given up")
        return msgspec.json.decode(result.value)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        self._waiting.clear()


def result_record(topic: str, call: Call, outcome: Done | Dead, now_ms: TimestampMs) -> Record:
    """A value that is no JSON is reported as a failure of the result, not of the task."""
    value, failure = msgspec.Raw(b"null"), None
    if isinstance(outcome, Done):
        try:
            value = msgspec.Raw(msgspec.json.encode(outcome.value))
        except (TypeError, msgspec.MsgspecError) as error:
            failure = f"the result is no JSON: {error}"
    else:
        failure = f"{outcome.reason}: {outcome.failure}"
    message = ResultMessage(call.id, call.task_name, failure is None, now_ms, value, failure)
    return Record(topic, call.id.encode(), encode_message(message), timestamp_ms=now_ms)
