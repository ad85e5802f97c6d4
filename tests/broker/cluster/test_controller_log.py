"""The controller's log: committed before applied, finished once begun, replayed in full."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from tests.broker.partitions.rig import elect_with
from tests.broker.replication.no_peers import Nowhere, no_prefix

from kafkaesque.broker.cluster import controller_log as controller_log_module
from kafkaesque.broker.cluster.controller_log import ControllerLog
from kafkaesque.broker.cluster.replicated_machine import StateFile
from kafkaesque.broker.cluster.rules.commands import (
    RegisterBroker,
    ReserveProducerIds,
    SetBrokerConfigs,
    UnregisterBroker,
)
from kafkaesque.broker.cluster.rules.controller import Decision
from kafkaesque.broker.cluster.rules.errors import ControllerMoved
from kafkaesque.broker.raft.messages import Append, InstallSnapshot
from kafkaesque.broker.raft.types import Entry, EntryKind, LogIndex, Membership, Snapshot, Term
from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.replication.opening import open_replica
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import CONTROLLER_CONFIG, ReplicaSet
from kafkaesque.broker.replication.rules.entry_payload import encode_state
from kafkaesque.broker.replication.rules.pending_readies import TRIED_EVERY_TICKS
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import NotController, StorageFailed, TopicAlreadyExists
from kafkaesque.model.ids import CONTROLLER_GROUP, MemberId, Offset, TimestampMs

ME, PEER, OTHER = MemberId(0), MemberId(1), MemberId(2)
SMALL = LogConfig(segment_bytes=1024)


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


@asynccontextmanager
async def open_controller_log(
    directory: Path,
    *,
    clean: bool = True,
    calls: SystemCalls | None = None,
    others: tuple[MemberId, ...] = (),
) -> AsyncIterator[ControllerLog]:
    """The controller log of a leader, alone in its cluster or with `others`, which the test simulates. Closed
    as by a crash."""
    loop = asyncio.get_running_loop()
    files, flusher = OpenFiles(8, calls), Flusher(loop)
    (directory / "raft").mkdir(parents=True, exist_ok=True)
    failures: list[BaseException] = []
    facts = RaftJournal.open(directory / "raft", files)
    replicas = ReplicaSet(
        ME, facts, flusher, Nowhere(), no_prefix, Clock(), loop.call_soon, failures.append
    )
    log = Log.open(directory / "journal", SMALL, files, clean=clean)

    def new_replica(machine: StateMachine) -> Replica:
        members = (ME, *others)
        return open_replica(
            CONTROLLER_GROUP, log, members, replicas, machine, CONTROLLER_CONFIG, is_clean=clean
        )

    states = StateFile(directory, files.calls)
    controller_log = ControllerLog(states, facts, Clock(), failures.append, new_replica)
    replicas.add(controller_log.replica)
    controller_log.replica.campaign()
    if others:
        await elect_with(controller_log.replica, others[0])
    while not controller_log.is_leader:
        await controller_log.leader_changed.wait()
        controller_log.leader_changed.clear()
    try:
        yield controller_log
    finally:
        await flusher.settled()
        replicas.remove(CONTROLLER_GROUP)
        await flusher.close()
        log.close(clean=False)
        files.close()


def test_committed_commands_are_replayed_after_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path) as controller_log:
            for end in (1000, 2000):
                answer, index = await controller_log.submit(
                    lambda end=end: Decision((ReserveProducerIds(end),), end)
                )
                assert answer == end
                assert controller_log.applied_index == index
        async with open_controller_log(tmp_path, clean=False) as again:
            assert again.tables.next_producer_id == 2000

    asyncio.run(story())


def test_addresses_of_brokers_are_known_before_anything_is_known_to_be_committed(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        disks = [UUID(int=number) for number in range(3)]
        async with open_controller_log(tmp_path) as controller_log:
            commands = (
                *(RegisterBroker(node, disks[node], "a", 9092 + node) for node in range(3)),
                RegisterBroker(1, disks[1], "b", 9999),
                UnregisterBroker(2),
            )
            await controller_log.submit(lambda: Decision(commands, None))
            known = [(0, "a", 9092), (1, "b", 9999)]
            assert controller_log.addresses() == known
            fresh = ControllerLog(
                controller_log._states,
                controller_log._raft_journal,
                Clock(),
                lambda _: None,
                lambda _: controller_log.replica,
            )
            assert fresh.tables.brokers == {}
            assert fresh.addresses() == known

    asyncio.run(story())


def test_rejected_operation_changes_nothing(tmp_path: Path) -> None:
    def refuse() -> Decision[None]:
        raise TopicAlreadyExists("no")

    async def story() -> None:
        async with open_controller_log(tmp_path / "one") as controller_log:
            with pytest.raises(TopicAlreadyExists):
                await controller_log.submit(refuse)
            async with open_controller_log(tmp_path / "other") as other:
                assert other.tables == controller_log.tables

    asyncio.run(story())


def test_operation_of_a_cancelled_caller_is_visible_to_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path) as controller_log:
            seen: list[int] = []

            def reserve() -> Decision[None]:
                seen.append(controller_log.tables.next_producer_id)
                return Decision(
                    (ReserveProducerIds(controller_log.tables.next_producer_id + 10),), None
                )

            asking = asyncio.create_task(controller_log.submit(reserve))
            while not seen:
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await controller_log.submit(reserve)
            assert seen == [0, 10]
            assert controller_log.tables.next_producer_id == 20

    asyncio.run(story())


def test_operations_see_all_that_was_committed_before_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path) as controller_log:
            seen: list[int] = []

            def reserve() -> Decision[None]:
                seen.append(controller_log.tables.next_producer_id)
                return Decision(
                    (ReserveProducerIds(controller_log.tables.next_producer_id + 10),), None
                )

            await asyncio.gather(*(controller_log.submit(reserve) for _ in range(5)))
            assert seen == [0, 10, 20, 30, 40]

    asyncio.run(story())


def test_changes_are_queued_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path) as controller_log:
            commands = [SetBrokerConfigs(None, {"num.partitions": str(n)}) for n in (3, 4)]
            for command in commands:
                await controller_log.submit(lambda command=command: Decision((command,), None))
            changes = [
                controller_log.changes.get_nowait() for _ in range(controller_log.changes.qsize())
            ]
            assert [c for change in changes for c in change.commands or ()] == commands
            indexes = [change.index for change in changes]
            assert indexes == sorted(indexes)

    asyncio.run(story())


def test_command_whose_sync_failed_is_refused_and_nothing_may_follow_it(tmp_path: Path) -> None:
    async def story() -> None:
        calls = FailingCalls()
        async with open_controller_log(tmp_path, calls=calls) as controller_log:
            await controller_log.submit(lambda: Decision((ReserveProducerIds(10),), None))
            calls.broken = True
            for refusal in (StorageFailed, ControllerMoved):
                with pytest.raises(refusal):
                    await controller_log.submit(lambda: Decision((ReserveProducerIds(20),), None))
            assert controller_log.tables.next_producer_id == 10

    asyncio.run(story())


def test_snapshot_of_the_tables_replaces_the_log_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_log_module, "SNAPSHOT_ENTRIES", 20)

    async def story() -> None:
        async with open_controller_log(tmp_path) as controller_log:
            for end in range(1, 51):
                await controller_log.submit(
                    lambda end=end: Decision((ReserveProducerIds(end),), None)
                )
                await controller_log.save_if_grown()
            entries = controller_log.replica.entries
            assert entries.first_index > 20
            assert entries.snapshot().index >= entries.first_index - 1
        async with open_controller_log(tmp_path, clean=False) as again:
            assert again.tables.next_producer_id == 50
            assert again.replica.entries.first_index == entries.first_index

    asyncio.run(story())


async def begin(controller_log: ControllerLog) -> asyncio.Task[tuple[None, LogIndex]]:
    """Submits a command and waits until it is written here; no other member has it yet."""
    written = controller_log.replica.last_index + 1
    asked = asyncio.create_task(
        controller_log.submit(lambda: Decision((ReserveProducerIds(7),), None))
    )
    while controller_log.replica.entries.last_index < written:
        await asyncio.sleep(0)
    return asked


def follow(
    controller_log: ControllerLog, entries: tuple[Entry, ...], prev: tuple[LogIndex, Term]
) -> None:
    """Another one leads the next term and has committed all that it sends."""
    term = Term(controller_log.replica.leadership.term + 1)
    commit_index = LogIndex(prev[0] + len(entries))
    controller_log.replica.step(Append(PEER, ME, term, *prev, commit_index, entries))


def test_command_that_the_next_leader_has_is_done_though_this_one_leads_no_more(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path, others=(PEER, OTHER)) as controller_log:
            asked = await begin(controller_log)
            index, term = controller_log.replica.last_index, controller_log.replica.leadership.term
            noop = Entry(LogIndex(index + 1), Term(term + 1), EntryKind.NOOP, 0, None)
            follow(controller_log, (noop,), (index, term))
            assert await asked == (None, index)
            assert not controller_log.is_leader
            await controller_log.applied_to(index)
            assert controller_log.tables.next_producer_id == 7

    asyncio.run(story())


def test_command_that_another_entry_replaced_may_be_retried_at_the_next_controller(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with open_controller_log(tmp_path, others=(PEER, OTHER)) as controller_log:
            asked = await begin(controller_log)
            index, term = controller_log.replica.last_index, controller_log.replica.leadership.term
            noop = Entry(index, Term(term + 1), EntryKind.NOOP, 0, None)
            follow(controller_log, (noop,), (LogIndex(index - 1), term))
            with pytest.raises(ControllerMoved, match="replaced these commands"):
                await asked
            assert controller_log.tables.next_producer_id == 0
            with pytest.raises(ControllerMoved, match="not the controller"):
                await controller_log.submit(lambda: Decision((ReserveProducerIds(8),), None))

    asyncio.run(story())


def test_command_without_news_has_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_log_module, "OUTCOME_SECONDS", 0.01)

    async def story() -> None:
        async with open_controller_log(tmp_path, others=(PEER, OTHER)) as controller_log:
            asked = await begin(controller_log)
            controller_log.replica.resign()
            with pytest.raises(NotController, match="moved"):
                await asked
            assert controller_log._pending == []

    asyncio.run(story())


class Full(SystemCalls):
    """Segments take nothing, nor does the file of the state, while there is no `room`."""

    room = True

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if not self.room and not path.endswith("raft.journal"):
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data, position)


def make_room(controller_log: ControllerLog, calls: Full) -> None:
    calls.room = True
    for _ in range(TRIED_EVERY_TICKS):
        controller_log.replica.tick()


def test_command_that_a_full_controller_holds_is_done_when_the_others_have_it(
    tmp_path: Path,
) -> None:
    """The controller cannot apply the command, but its outcome is certain: the client does not wait for
    room on the disk."""

    async def story() -> None:
        calls = Full()
        async with open_controller_log(
            tmp_path, calls=calls, others=(PEER, OTHER)
        ) as controller_log:
            calls.room = False
            asked = asyncio.create_task(
                controller_log.submit(lambda: Decision((ReserveProducerIds(7),), None))
            )
            while not controller_log.replica.is_without_room:
                await asyncio.sleep(0)
            waiting = asyncio.create_task(
                controller_log.submit(lambda: Decision((ReserveProducerIds(8),), None))
            )
            index, term = controller_log.replica.last_index, controller_log.replica.leadership.term
            noop = Entry(LogIndex(index + 1), Term(term + 1), EntryKind.NOOP, 0, None)
            follow(controller_log, (noop,), (index, term))
            assert await asked == (None, index)
            with pytest.raises(ControllerMoved):
                await waiting
            assert controller_log.tables.next_producer_id == 0
            make_room(controller_log, calls)
            await controller_log.applied_to(index)
            assert controller_log.tables.next_producer_id == 7

    asyncio.run(story())


def test_snapshot_without_room_on_disk_waits_and_blocks_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        calls = Full()
        async with open_controller_log(
            tmp_path, calls=calls, others=(PEER, OTHER)
        ) as controller_log:
            calls.room = False
            state = encode_state(Offset(40), controller_log.tables.snapshot())
            term = Term(controller_log.replica.leadership.term + 1)
            snapshot = Snapshot(LogIndex(50), term, Membership((ME, PEER, OTHER), ()), state)
            controller_log.replica.step(InstallSnapshot(PEER, ME, term, snapshot))
            while not controller_log.replica.is_without_room:
                await asyncio.sleep(0)
            make_room(controller_log, calls)
            await controller_log.applied_to(snapshot.index)

    asyncio.run(story())


def test_state_that_cannot_be_saved_is_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller_log_module, "SNAPSHOT_ENTRIES", 5)

    async def story() -> None:
        calls = Full()
        async with open_controller_log(tmp_path, calls=calls) as controller_log:
            for end in range(1, 10):
                await controller_log.submit(
                    lambda end=end: Decision((ReserveProducerIds(end),), None)
                )
            calls.room = False
            await controller_log.save_if_grown()
            assert "snapshot retried" in caplog.text
            assert controller_log._saved_index == 0
            calls.room = True
            await controller_log.save_if_grown()
            assert controller_log._saved_index == controller_log.applied_index

    asyncio.run(story())
