"""Dead letters of task queues as the console shows and ends them. The rules are `client.dead_letters`'s."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kafkaesque.client.dead_letters import (
    DeadLetter,
    DeadLetterQueue,
    LetterSelection,
    RedriveRefused,
    read_dead_letters,
)
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import LogError
from kafkaesque.console.decoding.detection import printable
from kafkaesque.console.rules.view import Document

LETTERS_SHOWN: Final = 200


class LettersFailed(Exception):
    """The letters could not be read, redriven or dropped; the message says why."""


class DeadLetters:
    """Reads and ends the dead letters of any queue of one cluster."""

    def __init__(self, bootstrap: str, properties: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._properties = dict(properties)

    def _log(self) -> KafkaLog:
        return KafkaLog(self._bootstrap, self._properties, client_id="kafkaesque-console")

    async def listed(self, queue: str) -> list[Document]:
        """The newest first."""
        try:
            letters = await read_dead_letters(self._log(), queue)
        except LogError as error:
            raise LettersFailed(str(error)) from None
        return [_document(letter) for letter in list(letters.values())[: -LETTERS_SHOWN - 1 : -1]]

    async def redrive(self, queue: str, ids: Collection[str]) -> tuple[int, int]:
        """Redrives the letters of these ids (none: all). Returns how many were redriven and skipped.

        Raises LetterUnknown for an id that does not exist; nothing is redriven then.
        """
        async with self._opened(queue, ids) as (letters, chosen):
            done = await letters.redrive(chosen)
            return len(done.redriven), len(done.skipped)

    async def drop(self, queue: str, ids: Collection[str]) -> int:
        """Drops the letters of these ids (none: all). Returns how many. Raises LetterUnknown."""
        async with self._opened(queue, ids) as (letters, chosen):
            await letters.drop(chosen)
            return len(chosen)

    @asynccontextmanager
    async def _opened(
        self, queue: str, ids: Collection[str]
    ) -> AsyncIterator[tuple[DeadLetterQueue, list[DeadLetter]]]:
        try:
            async with DeadLetterQueue.open(self._log(), queue) as letters:
                yield letters, list((await letters.read(LetterSelection(ids))).values())
        except (LogError, RedriveRefused) as error:
            raise LettersFailed(str(error)) from None


def _document(letter: DeadLetter) -> Document:
    return {
        "id": letter.id,
        "task": letter.task,
        "reason": letter.reason,
        "failure": letter.failure,
        "traceback": letter.trace,
        "attempts": str(letter.attempts) if letter.attempts else "",
        "dead_s": letter.dead_ms / 1000 if letter.dead_ms else None,
        "value": printable(letter.value) or letter.value.hex(),
    }
