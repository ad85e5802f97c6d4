"""The start of a gateway on a log that is still starting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import pytest
from tests.gateway.stage import SECONDS_MAX, Stage, stage

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import LogUnavailable, Span, TopicUnknown
from kafkaesque.gateway import gateway as module
from kafkaesque.model.ids import TopicId, TopicPartition


class LateLog(MemoryLog):
    """Fails the first two requests about topics: a Kafka broker learns of a new topic later than the
    controller that created it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, int] = {}
        self.silent = False

    def _ask(self, question: str) -> None:
        if self.silent:
            raise LogUnavailable("no broker answers")
        self.asked[question] = self.asked.get(question, 0) + 1
        if self.asked[question] < 3:
            raise TopicUnknown(f"{question}: not heard of yet")

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        wanted = list(names)
        self._ask(f"id of {wanted}")
        return await super().topic_ids(wanted)

    async def partition_count(self, topic: str) -> int:
        self._ask(f"size of {topic}")
        return await super().partition_count(topic)

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        self._ask(f"ends of {topic}")
        return await super().spans(topic)


def test_start_waits_for_topics_that_do_not_exist_yet() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        assert (await alice.ask("who"))["user"] == "alice"

    async def play() -> None:
        async with asyncio.timeout(SECONDS_MAX), stage(LateLog()) as on:
            await story(on)

    asyncio.run(play())


def test_start_fails_if_the_log_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS_MAX", 0.5)

    async def play() -> None:
        log = LateLog()
        async with asyncio.timeout(SECONDS_MAX), stage(log) as on:
            log.silent = True
            with pytest.raises(LogUnavailable, match="no broker answers"):
                await on.gateway()

    asyncio.run(play())
