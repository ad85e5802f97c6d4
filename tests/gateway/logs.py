"""The log that a test runs on: in memory, or topics of its own on a Kafka.

KAFKA=host:port runs every story on that Kafka, ours or Apache's. Without it most run on the log in memory,
which is fast, and some also on our broker (`tests/gateway/test_on_broker.py`).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.gateway.own_topics import OwnTopics

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Assignment, Log, Received
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.testing import Broker

KAFKA = os.environ.get("KAFKA") or None
_bootstrap: ContextVar[str | None] = ContextVar("bootstrap", default=KAFKA)


@dataclass(frozen=True, slots=True)
class Place:
    """A prefix for one test's topics on a Kafka. The caller removes it."""

    bootstrap: str
    prefix: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}.")

    def log(self, properties: Mapping[str, Any] | None = None) -> OwnTopics:
        return OwnTopics(self.bootstrap, self.prefix, properties)


@contextmanager
def running_kafka() -> Iterator[str]:
    """Bootstrap servers: the Kafka that KAFKA names, or a broker of ours in this process."""
    if KAFKA is not None:
        yield KAFKA
        return
    # All of its code is imported before: on a busy machine that may take longer than a start should.
    importlib.import_module("kafkaesque.broker.node")
    with Broker(settings={"group.min.session.timeout.ms": 1000}) as broker:
        yield broker.bootstrap_servers


def memory_only(reason: str) -> pytest.MarkDecorator:
    """For a test that needs a feature of the log in memory."""
    return pytest.mark.skipif(
        KAFKA is not None, reason=f"only in memory, so run without KAFKA: {reason}"
    )


@contextmanager
def logs_at(bootstrap: str) -> Iterator[None]:
    """Stories inside this context run on this Kafka."""
    before = _bootstrap.set(bootstrap)
    try:
        yield
    finally:
        _bootstrap.reset(before)


@asynccontextmanager
async def log_of_a_test() -> AsyncIterator[MemoryLog | OwnTopics]:
    bootstrap = _bootstrap.get()
    if bootstrap is None:
        yield MemoryLog()
        return
    log = Place(bootstrap).log()
    try:
        yield log
    finally:
        await log.remove()


def with_log(story: Callable[[Log], Awaitable[None]]) -> None:
    async def run() -> None:
        async with log_of_a_test() as log:
            await story(log)

    asyncio.run(run())


async def trim(log: Log, place: TopicPartition, start: Offset) -> None:
    """Deletes the records before `start`, as retention does."""
    if isinstance(log, MemoryLog):
        log.trim(place, start)
    else:
        assert isinstance(log, OwnTopics)
        await log.trim(place, start)


async def records_of(log: Log, topic: str) -> list[Received]:
    """All records of a topic."""
    spans = await log.admin.spans(topic)
    reader = await log.open_reader(Assignment({place: one.start for place, one in spans.items()}))
    found: list[Received] = []
    try:
        behind = {place for place, span in spans.items() if span.start < span.end}
        while behind:
            found += await reader.read(wait_s=0.1)
            reached = await reader.positions()
            behind -= {place for place, at in reached.items() if at >= spans[place].end}
    finally:
        await reader.close()
    return found
