"""The dead-letter queue of a task queue: list, redrive and drop.

The dead letters of queue `q` are the compacted topic `tasks.q.dead` (format: `events.tasks`). A tombstone
ends a letter. This module is the only implementation; `kafkaesque tasks dlq`, the console, workers and
tests use it. The rules of a redrive:

- The call returns to its queue with the same key and value, as a first attempt. It keeps its trace, its
  origin and the headers that its sender set. The headers of the failure are dropped.
- The call and the tombstone of its letter are one transaction, so a letter is redriven once, whatever
  crashes. Each queue has one transactional id: of two operators, the later one fences the earlier one
  before it reads, so both can never redrive the same letter. A repeated redrive finds nothing to do.
- A redrive covers the letters that exist when it starts. A call that fails again is a new letter.
- A transaction is bounded in records and bytes.
- A letter about a record of another topic (a listener could not handle it) cannot be redriven, because
  that topic belongs to someone else. It is skipped and reported; dropping it works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from kafkaesque.client.ports import Headers, Log, LogWriter, Received, Record, Span, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.model.limits import MIB

BATCH_LETTERS: Final = 500
BATCH_BYTES_MAX: Final = 8 * MIB
COUNTED_LETTERS_MAX: Final = 100_000


class RedriveRefused(Exception):
    """None of the chosen letters can be redriven."""


class LetterUnknown(Exception):
    """A queue has no dead letter with the id that was asked for."""

    def __init__(self, queue: str, letter_id: str) -> None:
        super().__init__(f"{queue} has no dead letter {letter_id}")
        self.queue = queue


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. `id` is TOPIC/PARTITION/OFFSET of the record that failed last."""

    id: str
    queue: str
    task: str | None
    """None if the value is not a call."""
    call_id: str | None
    reason: str
    failure: str
    trace: str
    """The traceback."""
    attempts: int
    origin: str
    dead_ms: int
    first_failure_ms: int
    key: bytes | None
    value: bytes
    record_key: bytes
    """The key of the letter's own record: `id` as bytes."""
    kept_headers: Headers
    """The headers that the call keeps when it is redriven."""

    @classmethod
    def from_record(cls, queue: str, record: Received) -> DeadLetter:
        headers = dict(record.headers)

        def text(name: str) -> str:
            return (headers.get(name) or b"").decode("utf-8", "replace")

        def number(name: str) -> int:
            return int(text(name)) if text(name).isdecimal() else 0

        task, call_id = None, None
        with suppress(MalformedTask):
            message = protocol.decode_task(record.value)
            task, call_id = message.task, message.id
        return cls(
            id=_letter_id(record),
            queue=queue,
            task=task,
            call_id=call_id,
            reason=text(protocol.DEAD_REASON),
            failure=text(protocol.FAILURE),
            trace=text(protocol.DEAD_TRACE),
            attempts=number(protocol.ATTEMPT),
            origin=text(protocol.ORIGIN),
            dead_ms=number(protocol.DEAD_TIME),
            first_failure_ms=number(protocol.FIRST_FAILURE),
            key=headers.get(protocol.DEAD_KEY),
            value=record.value or b"",
            record_key=record.key or b"",
            kept_headers=tuple(
                header for header in record.headers if header[0] not in _FAILURE_HEADERS
            ),
        )

    @property
    def can_be_redriven(self) -> bool:
        """Whether the failed record came from the queue itself or one of its retry topics."""
        topic = protocol.queue_topic(self.queue)
        return self.id.startswith((f"{topic}/", f"{topic}.retry."))

    def redriven(self) -> Record:
        """The call as the first attempt that goes back to the queue."""
        topic = protocol.queue_topic(self.queue)
        return Record(topic, self.key, self.value, self.kept_headers)

    def tombstone(self) -> Record:
        return Record(protocol.dead_topic(self.queue), self.record_key, None)

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.kept_headers)
        return len(self.value) + len(self.key or b"") + len(self.record_key) + headers


_FAILURE_HEADERS: Final = protocol.PLATFORM_HEADERS - {protocol.ORIGIN, protocol.TRACE}


def _letter_id(record: Received) -> str:
    # Keys that are not UTF-8 stay distinct.
    return (record.key or b"").decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class LetterSelection:
    """Which letters of a queue. A letter must meet every condition that is set."""

    ids: Collection[str] = ()
    """None: any. Each id must exist."""
    task: str | None = None
    reason: str | None = None

    def apply(self, queue: str, letters: Mapping[str, DeadLetter]) -> dict[str, DeadLetter]:
        """The selected ones, in the same order. Raises LetterUnknown."""
        for one in self.ids:
            if one not in letters:
                raise LetterUnknown(queue, one)
        return {name: letter for name, letter in letters.items() if self._includes(letter)}

    def _includes(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and (self.task is None or letter.task == self.task)
            and (self.reason is None or letter.reason == self.reason)
        )


ALL_LETTERS: Final = LetterSelection()


async def read_dead_letters(
    log: Log, queue: str, selection: LetterSelection = ALL_LETTERS
) -> Mapping[str, DeadLetter]:
    """The selected letters of `queue` by id, oldest first.

    Raises TopicUnknown if the queue does not exist, and LetterUnknown.
    """
    letters: dict[str, DeadLetter] = {}
    spans = await log.admin.spans(protocol.dead_topic(queue))
    async for batch in read_stretch(log, spans):
        for record in batch:
            name = _letter_id(record)
            letters.pop(name, None)
            if record.value is not None:
                letters[name] = DeadLetter.from_record(queue, record)
    return selection.apply(queue, letters)


@dataclass(frozen=True, slots=True)
class Redrive:
    """The result of a redrive."""

    redriven: Sequence[DeadLetter]
    skipped: Sequence[DeadLetter]
    """Letters that cannot be redriven; they still exist."""


class DeadLetterQueue:
    """Exclusive write access to the dead letters of one queue. Create it with `open`."""

    def __init__(self, log: Log, queue: str, writer: LogWriter) -> None:
        self._log = log
        self._queue = queue
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(cls, log: Log, queue: str) -> AsyncIterator[DeadLetterQueue]:
        """Fences every earlier writer of this queue. Read the letters after this, not before.

        Raises TopicUnknown if the queue does not exist, and fences nobody then.
        """
        await log.admin.spans(protocol.dead_topic(queue))
        options = WriterOptions(transactional_id=f"tasks.{queue}.dead-letters")
        writer = await log.open_writer(options)
        try:
            yield cls(log, queue, writer)
        finally:
            await writer.close()

    async def read(self, selection: LetterSelection = ALL_LETTERS) -> Mapping[str, DeadLetter]:
        """As `read_dead_letters`."""
        return await read_dead_letters(self._log, self._queue, selection)

    async def redrive(self, letters: Sequence[DeadLetter]) -> Redrive:
        """Sends the calls back to the queue and ends their letters."""
        redriven = [letter for letter in letters if letter.can_be_redriven]
        skipped = [letter for letter in letters if not letter.can_be_redriven]
        if skipped and not redriven:
            raise RedriveRefused(
                f"{skipped[0].id} came from a topic that is not a queue: it can only be dropped"
            )
        for batch in _batches(redriven):
            calls = [letter.redriven() for letter in batch]
            await self._write([*calls, *(letter.tombstone() for letter in batch)])
        return Redrive(redriven, skipped)

    async def drop(self, letters: Sequence[DeadLetter]) -> None:
        """Ends letters for good."""
        for batch in _batches(letters):
            await self._write([letter.tombstone() for letter in batch])

    async def _write(self, records: Sequence[Record]) -> None:
        async with self._writer.transaction():
            await self._writer.send(records)


def _batches(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Splits letters into transactions."""
    batch: list[DeadLetter] = []
    size_bytes = 0
    for letter in letters:
        if batch and (
            len(batch) >= BATCH_LETTERS or size_bytes + letter.size_bytes > BATCH_BYTES_MAX
        ):
            yield batch
            batch, size_bytes = [], 0
        batch.append(letter)
        size_bytes += letter.size_bytes
    if batch:
        yield batch


class DeadLetterCounts:
    """The number of letters of a queue by task. Each `update` reads only what is new."""

    def __init__(self, log: Log, queue: str, known_tasks: Container[str], other: str) -> None:
        """Tasks outside `known_tasks` count together under the name `other`."""
        self._log = log
        self._queue = queue
        self._known_tasks = known_tasks
        self._other = other
        self._next: dict[TopicPartition, Offset] = {}
        self._tasks: dict[bytes, str] = {}
        """The task of each letter. Letters beyond `COUNTED_LETTERS_MAX` are not counted."""

    async def update(self) -> dict[str, int]:
        spans = await self._log.admin.spans(protocol.dead_topic(self._queue))
        if any(self._next.get(place, Offset(0)) > span.end for place, span in spans.items()):
            # The topic was deleted and created again.
            self._next.clear()
            self._tasks.clear()
        new = {
            place: Span(max(span.start, self._next.get(place, span.start)), span.end)
            for place, span in spans.items()
        }
        async for batch in read_stretch(self._log, new):
            for record in batch:
                self._apply(record)
        self._next = {place: span.end for place, span in spans.items()}
        return dict(Counter(self._tasks.values()))

    def _apply(self, record: Received) -> None:
        key = record.key or b""
        self._tasks.pop(key, None)
        if record.value is not None and len(self._tasks) < COUNTED_LETTERS_MAX:
            task = self._other
            with suppress(MalformedTask):
                name = protocol.decode_task(record.value).task
                task = name if name in self._known_tasks else self._other
            self._tasks[key] = task
