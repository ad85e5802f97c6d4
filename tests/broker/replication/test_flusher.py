"""Rounds with real threads: the work of the threads, and failures of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.broker.replication.sync_journal_rig import JournalRig
from tests.broker.replication.test_sync_rounds import LogOfGroup, new_logs
from tests.waiting import until

from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.model.ids import GroupId


def run(rig: JournalRig, story: Callable[[Flusher], Awaitable[None]]) -> None:
    async def begin() -> None:
        flusher = Flusher(asyncio.get_running_loop(), rig.journal)
        try:
            await story(flusher)
        finally:
            await flusher.close()

    asyncio.run(begin())


async def sync(flusher: Flusher, *logs: LogOfGroup) -> None:
    for log in logs:
        flusher.request_sync(log)
    await flusher.settled()


def test_failed_journal_fails_no_log() -> None:
    rig = JournalRig()
    logs = new_logs(rig, 3)
    rig.sync()

    async def story(flusher: Flusher) -> None:
        for group in range(3):
            rig.append(group)
        rig.disk.faults.sync_failures = 1
        await sync(flusher, *logs)

    run(rig, story)
    assert [log.outcomes for log in logs] == [[2], [2], [2]]
    assert [log.log.file_synced_offset for log in logs] == [2, 2, 2]


def test_full_journal_is_emptied_even_if_no_round_uses_it() -> None:
    """It could not be emptied earlier: a log in it was closed, and is open again."""
    rig = JournalRig(file_bytes=400)
    while rig.journal.has_room(200):
        rig.append(0)
        rig.sync()
    rig.logs[GroupId(0)].close(clean=False)
    assert rig.journal.retire() == []
    assert len(rig.journal_files()) == 2
    rig.open(0)

    async def story(flusher: Flusher) -> None:
        rig.append(0, size_bytes=200)
        log = LogOfGroup(rig, 0)
        await sync(flusher, log)
        assert log.outcomes == [log.log.log_end_offset]
        await until(lambda: rig.journal.has_room(200))

    run(rig, story)
