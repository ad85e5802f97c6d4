from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from kafkaesque.broker.coordination.local_journal import JOURNAL_CONFIG, LocalJournal
from kafkaesque.broker.coordination.replicated import NotCommitted
from kafkaesque.broker.coordination.rules.machine import Outcome
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.testing.clock import ManualClock


class Recorder:
    """A state machine whose state is what was applied."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []
        self.restored: bytes | None = None
        self.touched_ids: list[int] = []

    def apply(self, index: int, command: bytes) -> Outcome:
        if command == b"impossible":
            raise InvariantBroken("no")
        self.applied.append((index, command))
        return Outcome(index)

    def snapshot(self) -> bytes:
        return b"as of %d" % self.applied[-1][0]

    def restore(self, snapshot: bytes) -> None:
        self.restored = snapshot

    def touched(self, session_ids: Collection[int]) -> None:
        self.touched_ids += session_ids


class FailingCalls(SystemCalls):
    """Syncs fail while `broken`."""

    broken = False

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        super().fdatasync(fd)


def open_journal(
    directory: Path,
    recorder: Recorder,
    failures: list[BaseException] | None = None,
    *,
    calls: SystemCalls | None = None,
    snapshot_after: int = 10**9,
    config: LogConfig = JOURNAL_CONFIG,
) -> LocalJournal:
    log = Log.open(directory, config, OpenFiles(8, calls), clean=False)
    failed = (failures if failures is not None else []).append
    return LocalJournal(log, ManualClock(), recorder, failed, snapshot_after)


async def propose_all(journal: LocalJournal, *commands: bytes) -> list[int]:
    outcomes = await asyncio.gather(*(journal.propose(command) for command in commands))
    return [outcome.zxid for outcome in outcomes]


def test_commands_are_applied_in_order_and_replayed_after_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        first = Recorder()
        journal = open_journal(tmp_path, first)
        journal.load()
        journal.start()
        assert await propose_all(journal, b"a", b"b") == [1, 2]
        assert await propose_all(journal, b"c") == [3]
        # No close: the process is gone.
        second = Recorder()
        again = open_journal(tmp_path, second)
        again.load()
        assert second.applied == first.applied == [(1, b"a"), (2, b"b"), (3, b"c")]
        await journal.close()

    asyncio.run(story())


def test_snapshot_replaces_what_lies_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        small = LogConfig(segment_bytes=300)
        journal = open_journal(tmp_path, Recorder(), snapshot_after=10, config=small)
        journal.load()
        journal.start()
        for number in range(35):
            await propose_all(journal, b"command %d" % number)
        await journal.close()
        log = Log.open(tmp_path, small, OpenFiles(8), clean=False)
        assert log.log_start_offset == 20
        log.close()
        recorder = Recorder()
        again = open_journal(tmp_path, recorder, config=small)
        again.load()
        assert recorder.restored == b"as of 30"
        assert recorder.applied == [(n + 1, b"command %d" % n) for n in range(30, 35)]
        again.start()
        assert await propose_all(again, b"next") == [36]
        await again.close()

    asyncio.run(story())


def test_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(tmp_path, Recorder(), snapshot_after=10)
        journal.load()
        journal.start()
        for number in range(25):
            await propose_all(journal, b"command %d" % number)
        await journal.close()
        newest = max(tmp_path.glob("*.snapshot"))
        newest.write_bytes(newest.read_bytes()[:-1] + b"?")
        recorder = Recorder()
        open_journal(tmp_path, recorder).load()
        assert recorder.restored == b"as of 10"
        assert [index for index, _ in recorder.applied] == list(range(11, 26))

    asyncio.run(story())


def test_failed_disk_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        calls, recorder = FailingCalls(), Recorder()
        journal = open_journal(tmp_path, recorder, calls=calls)
        journal.load()
        journal.start()
        await propose_all(journal, b"good")
        calls.broken = True
        for _ in range(2):
            with pytest.raises(NotCommitted):
                await journal.propose(b"bad")
        assert recorder.applied == [(1, b"good")]
        assert not journal.is_available
        calls.broken = False
        again = Recorder()
        open_journal(tmp_path, again).load()
        assert again.applied == [(1, b"good")]
        await journal.close()

    asyncio.run(story())


def test_broken_invariant_stops_the_node_and_fails_who_waits(tmp_path: Path) -> None:
    async def story() -> None:
        failures: list[BaseException] = []
        journal = open_journal(tmp_path, Recorder(), failures)
        journal.load()
        journal.start()
        waiting = [journal.propose(command) for command in (b"ok", b"impossible", b"later")]
        assert (await waiting[0]).zxid == 1
        for future in waiting[1:]:
            with pytest.raises(NotCommitted):
                await future
        assert isinstance(failures[0], InvariantBroken)
        with pytest.raises(NotCommitted):
            await journal.propose(b"more")
        await journal.close()

    asyncio.run(story())


def test_proposal_whose_proposer_left_is_applied_all_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        recorder = Recorder()
        journal = open_journal(tmp_path, recorder)
        journal.load()
        journal.start()
        journal.propose(b"left").cancel()
        await propose_all(journal, b"stayed")
        await journal.read_barrier()
        assert [command for _, command in recorder.applied] == [b"left", b"stayed"]
        await journal.close()

    asyncio.run(story())


def test_local_journal_is_a_leader_that_hears_by_itself(tmp_path: Path) -> None:
    async def story() -> None:
        recorder = Recorder()
        journal = open_journal(tmp_path, recorder)
        journal.touch_sessions({7})
        assert (journal.is_leader, journal.is_available, recorder.touched_ids) == (True, True, [7])
        journal.start()
        await journal.close()
        assert not journal.is_available

    asyncio.run(story())
