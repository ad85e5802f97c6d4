"""Calls that were given up: list them, send them back, drop them.

A queue's dead letters are a compacted topic; a tombstone ends one. Sending back writes the call to its
queue and the tombstone in one transaction, under one transactional id for each queue: two operators who
redrive at the same time cannot both succeed with the same letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from kafkaesque.client.ports import Log, LogWriter, Received, Record, Span, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.rules.holdings import UNKNOWN

BATCH_LETTERS = 500
COUNTED_LETTERS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `id` is where the record stood that failed last."""

    id: str
    queue: str
    task: str | None
    """None for what is no call."""
    call_id: str | None
    reason: str
    failure: str
    trace: str
    attempts: int
    origin: str
    dead_ms: int
    first_failure_ms: int
    key: bytes | None
    value: bytes
    trace_parent: bytes | None

    @property
    def can_be_redriven(self) -> bool:
        """What came from a topic of somebody else's is not ours to write there again."""
        return self.id.startswith(f"{words.queue_topic(self.queue)}/") or self.id.startswith(
            f"{words.queue_topic(self.queue)}.retry."
        )


def read_letter(queue: str, record: Received) -> Letter:
    headers = dict(record.headers)

    def text(name: str) -> str:
        return (headers.get(name) or b"").decode("utf-8", "replace")

    def number(name: str) -> int:
        return int(text(name)) if text(name).isdigit() else 0

    task, call_id = None, None
    with suppress(MalformedTask):
        message = words.decode_task(record.value)
        task, call_id = message.task, message.id
    return Letter(
        id=(record.key or b"").decode("utf-8", "replace"),
        queue=queue,
        task=task,
        call_id=call_id,
        reason=text(words.DEAD_REASON),
        failure=text(words.FAILURE),
        trace=text(words.DEAD_TRACE),
        attempts=number(words.ATTEMPT),
        origin=text(words.ORIGIN),
        dead_ms=number(words.DEAD_TIME),
        first_failure_ms=number(words.FIRST_FAILURE),
        key=headers.get(words.DEAD_KEY),
        value=record.value or b"",
        trace_parent=headers.get(words.TRACE),
    )


async def read_letters(log: Log, queue: str) -> Mapping[str, Letter]:
    """All that are there, the oldest first. TopicUnknown if there is no such queue."""
    letters: dict[str, Letter] = {}
    spans = await log.admin.spans(words.dead_topic(queue))
    async for batch in read_stretch(log, spans):
        for record in batch:
            name = (record.key or b"").decode("utf-8", "replace")
            letters.pop(name, None)
            if record.value is not None:
                letters[name] = read_letter(queue, record)
    return letters


class LetterCounts:
    """How many letters of a queue wait, by task: reads what has come since it looked last."""

    def __init__(self, log: Log, queue: str, known: Container[str]) -> None:
        self._log = log
        self._queue = queue
        self._known = known
        self._next: dict[TopicPartition, Offset] = {}
        self._tasks: dict[bytes, str] = {}
        """By letter. Of more than `COUNTED_LETTERS_MAX` the rest is not counted."""

    async def look(self) -> dict[str, int]:
        spans = await self._log.admin.spans(words.dead_topic(self._queue))
        if any(self._next.get(place, Offset(0)) > span.end for place, span in spans.items()):
            # The topic was made anew.
            self._next.clear()
            self._tasks.clear()
        news = {
            place: Span(max(span.start, self._next.get(place, span.start)), span.end)
            for place, span in spans.items()
        }
        async for batch in read_stretch(self._log, news):
            for record in batch:
                self._count(record)
        self._next = {place: span.end for place, span in spans.items()}
        return dict(Counter(self._tasks.values()))

    def _count(self, record: Received) -> None:
        key = record.key or b""
        self._tasks.pop(key, None)
        if record.value is not None and len(self._tasks) < COUNTED_LETTERS_MAX:
            task = read_letter(self._queue, record).task
            self._tasks[key] = task if task is not None and task in self._known else UNKNOWN


class DeadLetters:
    """One operator's hands on the letters of a queue. Made by `opened`."""

    def __init__(self, log: Log, queue: str, writer: LogWriter) -> None:
        self._log = log
        self._queue = queue
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def opened(cls, log: Log, queue: str) -> AsyncIterator[DeadLetters]:
        """Whoever has opened them before can no longer write: read after this, not before."""
        options = WriterOptions(transactional_id=f"tasks.{queue}.dead-letters")
        writer = await log.open_writer(options)
        try:
            yield cls(log, queue, writer)
        finally:
            await writer.close()

    async def read(self) -> Mapping[str, Letter]:
        return await read_letters(self._log, self._queue)

    async def redrive(self, letters: Sequence[Letter]) -> None:
        """Back to their queue, as first attempts. All or none of each batch."""
        foreign = next((letter for letter in letters if not letter.can_be_redriven), None)
        if foreign is not None:
            raise TaskRefused(f"{foreign.id} came from a topic that is not a queue: only drop it")
        await self._end(letters, [_redriven(letter) for letter in letters])

    async def drop(self, letters: Sequence[Letter]) -> None:
        await self._end(letters, [])

    async def _end(self, letters: Sequence[Letter], calls: Sequence[Record]) -> None:
        topic = words.dead_topic(self._queue)
        for start in range(0, len(letters), BATCH_LETTERS):
            batch = slice(start, start + BATCH_LETTERS)
            ends = [Record(topic, letter.id.encode(), None) for letter in letters[batch]]
            async with self._writer.transaction():
                await self._writer.send([*calls[batch], *ends])


def _redriven(letter: Letter) -> Record:
    headers: list[tuple[str, bytes | None]] = [(words.ORIGIN, letter.origin.encode())]
    if letter.trace_parent is not None:
        headers.append((words.TRACE, letter.trace_parent))
    return Record(words.queue_topic(letter.queue), letter.key, letter.value, tuple(headers))
