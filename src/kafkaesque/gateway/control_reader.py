"""Reads what the log contains for the gateway itself: replies, revoked tokens, presence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

from kafkaesque.client.ports import Assignment, Log, LogError, Received
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import (
    PRESENCE,
    REPLIES,
    REVOKED,
    Presence,
    Reply,
    Revocation,
    decode_presence,
    decode_reply,
    decode_revocation,
)
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)

READ_RECORDS = 1000
WAIT_SECONDS = 0.5
RETRY_SECONDS = 0.5


class ControlReceiver(Protocol):
    """Acts on the records."""

    def replied(self, correlation: str, reply: Reply) -> None: ...

    def revoked(self, token_id: str, revocation: Revocation) -> None: ...

    def present(self, user: str, presence: Presence | None) -> None: ...


class ControlReader:
    """One reader for all three topics. After a log error it continues where it was."""

    def __init__(self, log: Log, gateway: str, receiver: ControlReceiver) -> None:
        self._log = log
        self._gateway = gateway.encode()
        self._receiver = receiver
        self._next: dict[TopicPartition, Offset] = {}
        self.task: asyncio.Task[None] | None = None

    async def start(self, slot: PartitionIndex) -> None:
        """Replies and presence are read from now on, revocations from the beginning."""
        admin = self._log.admin
        replies = TopicPartition(REPLIES.name, slot)
        self._next[replies] = (await admin.spans(REPLIES.name))[replies].end
        for place, span in (await admin.spans(PRESENCE.name)).items():
            self._next[place] = span.end
        for place, span in (await admin.spans(REVOKED.name)).items():
            self._next[place] = span.start
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._read()
            except LogError as error:
                logger.warning("control topics: reader reopened: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self) -> None:
        reader = await self._log.open_reader(Assignment(dict(self._next)))
        try:
            while True:
                for record in await reader.read(READ_RECORDS, WAIT_SECONDS):
                    self._dispatch(record)
                positions: Mapping[TopicPartition, Offset] = await reader.positions()
                self._next |= positions
        finally:
            with contextlib.suppress(LogError):
                await asyncio.shield(reader.close())

    def _dispatch(self, record: Received) -> None:
        try:
            if record.topic == REPLIES.name:
                self._reply(record)
            elif record.topic == REVOKED.name and record.value is not None:
                token_id = (record.key or b"").decode()
                self._receiver.revoked(token_id, decode_revocation(record.value))
            elif record.topic == PRESENCE.name:
                value = record.value
                presence = None if value is None else decode_presence(value)
                self._receiver.present((record.key or b"").decode(), presence)
        except (MalformedEvent, UnicodeDecodeError) as error:
            where = f"{record.topic}-{record.partition} offset={record.offset}"
            logger.warning("unreadable record: %s: %s", where, error)

    def _reply(self, record: Received) -> None:
        headers = dict(record.headers)
        if headers.get("gateway") == self._gateway:
            correlation = (headers.get("correlation") or b"").decode()
            self._receiver.replied(correlation, decode_reply(record.value or b""))
