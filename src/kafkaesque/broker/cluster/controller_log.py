"""The controller's log: Raft group 0. Commands are committed here before they change a table.

Every broker replays the same log into the same tables. Only the leader decides operations, one at a
time, so each operation sees everything committed before it and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from kafkaesque.broker.cluster.replicated_machine import ReplicatedMachine, StateFile
from kafkaesque.broker.cluster.rules.commands import (
    Command,
    DeleteTopic,
    RegisterBroker,
    UnregisterBroker,
    decode_command,
    encode_command,
)
from kafkaesque.broker.cluster.rules.controller import Decision
from kafkaesque.broker.cluster.rules.errors import ControllerMoved
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import NO_TERM, LogIndex, Snapshot, Term
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import (
    KafkaError,
    NotController,
    NotLeaderOrFollower,
    StorageFailed,
    check,
)
from kafkaesque.model.ids import LeaderEpoch, Offset
from kafkaesque.records.batch import read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch

T = TypeVar("T")

_LOAD_BYTES = 1 << 20
SNAPSHOT_ENTRIES = 2_000
"""A snapshot of the tables is saved, and the log before it dropped, after this many entries."""
OUTCOME_SECONDS = 5.0
"""How long a deposed leader waits for the outcome of its last commands."""


@dataclass(frozen=True, slots=True, eq=False)
class _PendingCommit:
    """Commands that were written as one entry, and whether that entry is committed."""

    index: LogIndex
    term: Term
    is_committed: asyncio.Future[bool]

    def decide(self, term: Term | None, unknown: KafkaError) -> None:
        """An entry of `term` is committed at this index; None if that stays unknown."""
        if self.is_committed.done():
            return
        if term is None:
            self.is_committed.set_exception(unknown)
        else:
            self.is_committed.set_result(term == self.term)


@dataclass(frozen=True, slots=True)
class TableChange:
    """The commands of one applied entry. None: a snapshot replaced the tables as a whole."""

    index: LogIndex
    commands: Sequence[Command] | None

    @property
    def deletes_topics(self) -> bool:
        """Whether topics are gone, or may be."""
        commands = self.commands
        return commands is None or any(isinstance(one, DeleteTopic) for one in commands)


class ControllerLog(ReplicatedMachine):
    """Commits commands, applies them to the tables, and queues the `changes` for the reconciler."""

    __slots__ = ("_clock", "_lock", "_pending", "changes", "leader_changed", "tables")

    def __init__(
        self,
        states: StateFile,
        raft_journal: RaftJournal,
        clock: Clock,
        fail: Callable[[BaseException], None],
        new_replica: Callable[[StateMachine], Replica],
    ) -> None:
        super().__init__(states, raft_journal, fail, new_replica)
        self.tables = Tables()
        self._clock = clock
        self._lock = asyncio.Lock()
        self._pending: list[_PendingCommit] = []
        self.changes: asyncio.Queue[TableChange] = asyncio.Queue()
        self.leader_changed = asyncio.Event()
        self._load()

    def addresses(self) -> list[tuple[int, str, int]]:
        """Node id, host and port of all brokers by the log on disk, committed or not: after a crash
        of all brokers they must connect before any of them can determine what is committed."""
        entries = self.replica.entries
        found = {int(one.node_id): (one.host, one.port) for one in self.tables.brokers.values()}
        index = LogIndex(self._applied + 1)
        while index <= entries.last_index:
            some = entries.entries_between(index, entries.last_index, _LOAD_BYTES)
            for data in entries.load(some):
                for command in _commands(data) if data is not None else ():
                    if isinstance(command, RegisterBroker):
                        found[command.node_id] = command.host, command.port
                    elif isinstance(command, UnregisterBroker):
                        found.pop(command.node_id, None)
            index = LogIndex(some[-1].index + 1)
        return [(node, host, port) for node, (host, port) in found.items()]

    # -- leader ---------------------------------------------------------------------------------

    async def submit(self, operation: Callable[[], Decision[T]]) -> tuple[T, LogIndex]:
        """Runs `operation` on the tables and commits its commands. Returns its answer and the index
        from which on the tables contain the change.

        An error that `operation` raises changes nothing. Raises ControllerMoved if this node does
        not lead and nothing was or will be done; NotController if the outcome is unknown.
        """
        async with self._lock:
            if not self.is_leader:
                raise ControllerMoved("this broker is not the controller")
            try:
                # The caller before may have been cancelled before its commands were applied.
                await self.applied_to(self.replica.last_index)
            except NotController as error:
                raise ControllerMoved(str(error)) from None
            decision = operation()
            index = self._applied
            if decision.commands:
                index = await self._commit(decision.commands)
            return decision.answer, index

    async def _commit(self, commands: Sequence[Command]) -> LogIndex:
        pending = self._append(commands)
        self._pending.append(pending)
        try:
            is_committed = await pending.is_committed
        finally:
            self._pending.remove(pending)
        if not is_committed:
            raise ControllerMoved("another leader's entry replaced these commands")
        return pending.index

    def _append(self, commands: Sequence[Command]) -> _PendingCommit:
        now_ms = self._clock.wall_ms()
        base_offset = self.replica.next_offset
        term = self.replica.leadership.term
        records = [
            Record(Offset(base_offset + number), now_ms, None, encode_command(command))
            for number, command in enumerate(commands)
        ]
        epoch = LeaderEpoch(term)
        batch = memoryview(encode_batch(records, base_offset=base_offset, leader_epoch=epoch))
        try:
            self.replica.append(batch, read_header(batch), now_ms)
        except NotLeaderOrFollower as error:
            raise ControllerMoved(str(error)) from None
        is_committed = asyncio.get_running_loop().create_future()
        return _PendingCommit(self.replica.last_index, term, is_committed)

    def _leadership_lost(self, leadership: Leadership) -> None:
        """The next leader decides about our pending entries. Those that it has precede the first
        entry of its own term: once that one is committed, the outcome of all is known, whether or
        not it is on our disk yet."""
        raft, loop = self.replica.raft, asyncio.get_running_loop()
        for pending in self._pending:
            if leadership.is_confirmed and leadership.term > pending.term:
                is_there = pending.index <= raft.commit_index
                pending.decide(raft.term_at(pending.index) if is_there else NO_TERM, self._moved())
            loop.call_later(OUTCOME_SECONDS, pending.decide, None, self._moved())

    # -- callbacks of the replica ------------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        super().leadership_changed(leadership)
        self.leader_changed.set()
        if not self.is_leader:
            self._leadership_lost(leadership)

    async def wait_for_leader_change(self, seconds: float) -> None:
        """Waits until this node sees another leader, or leads itself; at most `seconds`."""
        self.leader_changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.leader_changed.wait()

    def _moved(self) -> KafkaError:
        return NotController("The controller has moved to another broker.")

    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        commands = _commands(batch)
        for command in commands:
            self.tables.apply(command)
        self.changes.put_nowait(TableChange(index, commands))

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        super().committed(index, end_offset)
        for pending in self._pending:
            if pending.index <= index:
                pending.decide(self.replica.raft.term_at(pending.index), self._moved())
        # Raft's own entries change no table, but a caller may wait for their index.
        self.changes.put_nowait(TableChange(index, ()))

    def _snapshot(self) -> bytes:
        return self.tables.snapshot()

    def _restore(self, snapshot: bytes) -> None:
        self.tables.restore(snapshot)

    def installed(self, snapshot: Snapshot) -> None:
        super().installed(snapshot)
        self.changes.put_nowait(TableChange(snapshot.index, None))

    def failed(self, error: StorageFailed) -> None:
        for pending in self._pending:
            if not pending.is_committed.done():
                pending.is_committed.set_exception(error)
        super().failed(error)

    def _is_grown(self, entry_count: int) -> bool:
        return entry_count >= SNAPSHOT_ENTRIES


def _commands(batch: bytes | bytearray | memoryview) -> list[Command]:
    commands = []
    for record in decode_batch(memoryview(batch), 0):
        check(record.value is not None, "a command has a body")
        commands.append(decode_command(record.value or b""))
    return commands
