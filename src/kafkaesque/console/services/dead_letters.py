"""Dead letters of task queues: listed, sent back, dropped; as docs/TASKS.md and `events.tasks` have it.

A queue's dead letters are a compacted topic; a tombstone ends one. The call goes back and its tombstone is
written in one transaction, under the same transactional id as `kafkaesque tasks dlq` uses: two operators
cannot both send back the same letter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import LogError, Received, Record, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.console.decoding.detection import printable
from kafkaesque.console.rules.view import Document
from kafkaesque.events import tasks as words

BATCH_LETTERS: Final = 500
LETTERS_SHOWN: Final = 200


class LettersFailed(Exception):
    """The letters cannot be read, or were not sent back; the message says why."""


@dataclass(frozen=True, slots=True)
class Letter:
    id: bytes
    """Of its record: where the call stood that failed last."""
    record: Received

    def document(self) -> Document:
        headers = dict(self.record.headers)

        def text(name: str) -> str:
            return (headers.get(name) or b"").decode("utf-8", "replace")

        try:
            task = words.decode_task(self.record.value).task
        except words.MalformedTask:
            task = None
        dead_ms = text(words.DEAD_TIME)
        return {
            "id": self.id.decode("utf-8", "replace"),
            "task": task,
            "reason": text(words.DEAD_REASON),
            "failure": text(words.FAILURE),
            "traceback": text(words.DEAD_TRACE),
            "attempts": text(words.ATTEMPT),
            "dead_s": int(dead_ms) / 1000 if dead_ms.isdecimal() else None,
            "value": printable(self.record.value or b"") or (self.record.value or b"").hex(),
        }

    def redriven(self, queue: str) -> Record:
        """The call as a first attempt, with where it first stood and its trace."""
        headers = dict(self.record.headers)
        kept = tuple(
            (name, headers[name]) for name in (words.ORIGIN, words.TRACE) if name in headers
        )
        return Record(
            words.queue_topic(queue), headers.get(words.DEAD_KEY), self.record.value, kept
        )

    def is_of(self, queue: str) -> bool:
        """What came from a topic of somebody else's is not ours to write there again."""
        topic = words.queue_topic(queue).encode()
        return self.id.startswith((topic + b"/", topic + b".retry."))


class DeadLetters:
    def __init__(self, bootstrap: str, properties: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._properties = dict(properties)

    def _log(self) -> KafkaLog:
        return KafkaLog(self._bootstrap, self._properties, client_id="kafkaesque-console")

    async def listed(self, queue: str) -> list[Document]:
        """The newest first."""
        try:
            letters = await _read(self._log(), queue)
        except LogError as error:
            raise LettersFailed(str(error)) from None
        return [letter.document() for letter in list(letters.values())[: -LETTERS_SHOWN - 1 : -1]]

    async def end(self, queue: str, ids: Collection[str], is_redriven: bool) -> int:
        """Send back or drop the letters of these ids (none: all); how many."""
        log = self._log()
        options = WriterOptions(transactional_id=f"tasks.{queue}.dead-letters")
        try:
            writer = await log.open_writer(options)
            try:
                found = await _read(log, queue)
                chosen = [letter for name, letter in found.items() if not ids or name in ids]
                if is_redriven:
                    chosen = [letter for letter in chosen if letter.is_of(queue)]
                for start in range(0, len(chosen), BATCH_LETTERS):
                    batch = chosen[start : start + BATCH_LETTERS]
                    ends = [Record(words.dead_topic(queue), item.id, None) for item in batch]
                    calls = [item.redriven(queue) for item in batch] if is_redriven else []
                    async with writer.transaction():
                        await writer.send([*calls, *ends])
            finally:
                await writer.close()
        except LogError as error:
            raise LettersFailed(str(error)) from None
        return len(chosen)


async def _read(log: KafkaLog, queue: str) -> dict[str, Letter]:
    letters: dict[str, Letter] = {}
    spans = await log.admin.spans(words.dead_topic(queue))
    async for batch in read_stretch(log, spans):
        for record in batch:
            key = record.key or b""
            name = key.decode("utf-8", "replace")
            letters.pop(name, None)
            if record.value is not None:
                letters[name] = Letter(key, record)
    return letters
