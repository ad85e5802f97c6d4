"""The controller's log: committed before applied, finished once begun, replayed in full."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkaesque.cluster.commands import Command, ReserveProducerIds, SetBrokerConfigs
from kafkaesque.cluster.controller import Outcome
from kafkaesque.cluster.journal import Journal
from kafkaesque.model.errors import InvalidRequest, StorageFailed, TopicAlreadyExists
from kafkaesque.model.ids import LeaderEpoch, TimestampMs
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles, SystemCalls


class Clock:
    def wall_ms(self) -> TimestampMs:
        return TimestampMs(1)

    def monotonic(self) -> float:
        return 0.0


class FailingCalls(SystemCalls):
    """Syncs fail while `broken`."""

    broken = False

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        super().fdatasync(fd)


def open_journal(
    directory: Path, *, clean: bool = True, calls: SystemCalls | None = None
) -> Journal:
    log = Log.open(directory / "journal", LogConfig(), OpenFiles(8, calls), clean=clean)
    return Journal(log, Clock(), LeaderEpoch(0))


async def nothing(_: Sequence[Command]) -> None:
    return None


def test_committed_commands_are_replayed_after_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(tmp_path)
        for end in (1000, 2000):
            answer = await journal.submit(
                lambda end=end: Outcome((ReserveProducerIds(end),), end), nothing
            )
            assert answer == end
        # No close: the process is gone.
        again = open_journal(tmp_path, clean=False)
        again.load()
        assert again.tables.next_producer_id == 2000

    asyncio.run(story())


def test_refused_operation_leaves_nothing(tmp_path: Path) -> None:
    def refuse() -> Outcome[None]:
        raise TopicAlreadyExists("no")

    async def story() -> None:
        journal = open_journal(tmp_path)
        with pytest.raises(TopicAlreadyExists):
            await journal.submit(refuse, nothing)
        again = open_journal(tmp_path / "other")
        assert again.tables == journal.tables

    asyncio.run(story())


def test_cancelled_caller_leaves_no_command_that_the_tables_never_saw(tmp_path: Path) -> None:
    """A client that vanishes while its topic is created must not break the next start."""

    async def story() -> None:
        journal = open_journal(tmp_path)
        asking = asyncio.create_task(
            journal.submit(lambda: Outcome((ReserveProducerIds(1000),), None), nothing)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await journal.close()
        assert journal.tables.next_producer_id == 1000

    asyncio.run(story())


def test_operations_see_all_that_was_committed_before_them(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(tmp_path)
        seen: list[int] = []

        def reserve() -> Outcome[None]:
            seen.append(journal.tables.next_producer_id)
            return Outcome((ReserveProducerIds(journal.tables.next_producer_id + 10),), None)

        await asyncio.gather(*(journal.submit(reserve, nothing) for _ in range(5)))
        assert seen == [0, 10, 20, 30, 40]

    asyncio.run(story())


def test_failed_reconciling_is_told_to_the_caller_and_the_command_stands(tmp_path: Path) -> None:
    async def refuse(_: Sequence[Command]) -> None:
        raise InvalidRequest("the node could not follow")

    async def story() -> None:
        journal = open_journal(tmp_path)
        command = SetBrokerConfigs(None, {"num.partitions": "3"})
        with pytest.raises(InvalidRequest):
            await journal.submit(lambda: Outcome((command,), None), refuse)
        assert journal.tables.broker_configs == {None: {"num.partitions": "3"}}

    asyncio.run(story())


def test_command_whose_sync_failed_is_refused_and_nothing_may_follow_it(tmp_path: Path) -> None:
    async def story() -> None:
        calls = FailingCalls()
        journal = open_journal(tmp_path, calls=calls)
        await journal.submit(lambda: Outcome((ReserveProducerIds(10),), None), nothing)
        calls.broken = True
        for _ in range(2):
            with pytest.raises(StorageFailed):
                await journal.submit(lambda: Outcome((ReserveProducerIds(20),), None), nothing)
        assert journal.tables.next_producer_id == 10

    asyncio.run(story())


def test_refusal_that_nobody_waits_for_is_no_news(tmp_path: Path) -> None:
    """asyncio would log "exception was never retrieved" for a client that went away."""

    def refuse() -> Outcome[None]:
        raise TopicAlreadyExists("no")

    async def story() -> list[dict[str, object]]:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        journal = open_journal(tmp_path)
        async with journal._lock:
            asking = asyncio.create_task(journal.submit(refuse, nothing))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await journal.close()
        del asking
        gc.collect()
        return complaints

    assert asyncio.run(story()) == []
