"""The controller's log: Raft group 0. Commands are committed here before they change a table.

Every broker has a replica of the log and the same tables by replaying it; the leader alone decides
operations, one after the other, so each sees all that was committed before it and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from kafkaesque.broker.cluster.replicated_machine import ReplicatedMachine, States
from kafkaesque.broker.cluster.rules.commands import (
    Command,
    RegisterBroker,
    UnregisterBroker,
    decode_command,
    encode_command,
)
from kafkaesque.broker.cluster.rules.controller import Outcome
from kafkaesque.broker.cluster.rules.refusals import ControllerMoved
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.raft.ready import Standing
from kafkaesque.broker.raft.types import NO_TERM, LogIndex, Snapshot, Term
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
"""The tables are saved, and the log before them dropped, each time so many entries were applied."""
FATE_SECONDS = 5.0
"""How long a node that leads no more waits to hear what became of its last commands."""


@dataclass(frozen=True, slots=True, eq=False)
class _Fate:
    """Of commands that were written as one entry: whether that is committed."""

    index: LogIndex
    term: Term
    is_committed: asyncio.Future[bool]

    def decide(self, term: Term | None, unknown: KafkaError) -> None:
        """An entry of `term` is committed in its place; None if nobody can tell."""
        if self.is_committed.done():
            return
        if term is None:
            self.is_committed.set_exception(unknown)
        else:
            self.is_committed.set_result(term == self.term)


@dataclass(frozen=True, slots=True)
class Change:
    """Commands of one entry, in force in the tables. None: the tables were replaced as a whole."""

    index: LogIndex
    commands: Sequence[Command] | None


class Journal(ReplicatedMachine):
    """Commits commands, applies them to the tables, and keeps them for whoever acts on them."""

    __slots__ = ("_clock", "_fates", "_lock", "changes", "standing_changed", "tables")

    def __init__(self, states: States, clock: Clock, fail: Callable[[BaseException], None]) -> None:
        super().__init__(states, fail)
        self.tables = Tables()
        self._clock = clock
        self._lock = asyncio.Lock()
        self._fates: list[_Fate] = []
        self.changes: asyncio.Queue[Change] = asyncio.Queue()
        self.standing_changed = asyncio.Event()

    def addresses(self) -> list[tuple[int, str, int]]:
        """Node id, host and port of all brokers by the log on disk, be it committed or not: after a
        crash of all brokers they must be met before anyone knows what is committed."""
        entries = self.replica.entries
        told = {int(one.node_id): (one.host, one.port) for one in self.tables.brokers.values()}
        index = LogIndex(self._applied + 1)
        while index <= entries.last_index:
            some = entries.entries_between(index, entries.last_index, _LOAD_BYTES)
            for data in entries.load(some):
                for command in _commands(data) if data is not None else ():
                    if isinstance(command, RegisterBroker):
                        told[command.node_id] = command.host, command.port
                    elif isinstance(command, UnregisterBroker):
                        told.pop(command.node_id, None)
            index = LogIndex(some[-1].index + 1)
        return [(node, host, port) for node, (host, port) in told.items()]

    # -- the leader's part ----------------------------------------------------------------------

    async def submit(self, operation: Callable[[], Outcome[T]]) -> tuple[T, LogIndex]:
        """Run `operation` on the tables and commit its commands. The answer, and the index from
        which on the tables hold what it did.

        What `operation` raises leaves everything as it was. ControllerMoved if this node does not
        lead and did nothing of it; NotController if nobody here knows what became of the commands.
        """
        async with self._lock:
            if not self.replica.is_leader:
                raise ControllerMoved("this broker is not the controller")
            try:
                # Whoever asked before may have gone away before its commands were applied.
                await self.applied_to(self.replica.last_index)
            except NotController as error:
                raise ControllerMoved(str(error)) from None
            outcome = operation()
            index = self._applied
            if outcome.commands:
                index = await self._commit(outcome.commands)
            return outcome.answer, index

    async def _commit(self, commands: Sequence[Command]) -> LogIndex:
        fate = self._write(commands)
        self._fates.append(fate)
        try:
            is_committed = await fate.is_committed
        finally:
            self._fates.remove(fate)
        if not is_committed:
            raise ControllerMoved("another leader's entry took the place of these commands")
        return fate.index

    def _write(self, commands: Sequence[Command]) -> _Fate:
        now_ms = self._clock.wall_ms()
        base_offset = self.replica.next_offset
        term = self.replica.standing.term
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
        return _Fate(self.replica.last_index, term, asyncio.get_running_loop().create_future())

    def _lead_no_more(self, standing: Standing) -> None:
        """The next leader decides. What it has of ours stands before the first entry of its own term:
        when that is committed, all is known, whether or not it is on our disk yet."""
        raft, loop = self.replica.raft, asyncio.get_running_loop()
        for fate in self._fates:
            if standing.is_confirmed and standing.term > fate.term:
                is_there = fate.index <= raft.commit_index
                fate.decide(raft.term_at(fate.index) if is_there else NO_TERM, self._moved())
            loop.call_later(FATE_SECONDS, fate.decide, None, self._moved())

    # -- what is committed ------------------------------------------------------------------------

    def stands(self, standing: Standing) -> None:
        super().stands(standing)
        self.standing_changed.set()
        if not self.replica.is_leader:
            self._lead_no_more(standing)

    async def stands_anew(self, seconds: float) -> None:
        """Wait until it is seen that somebody else leads, or this node, for so long at most."""
        self.standing_changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.standing_changed.wait()

    def _moved(self) -> KafkaError:
        return NotController("The controller has moved to another broker.")

    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        commands = _commands(batch)
        for command in commands:
            self.tables.apply(command)
        self.changes.put_nowait(Change(index, commands))

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        super().committed(index, end_offset)
        for fate in self._fates:
            if fate.index <= index:
                fate.decide(self.replica.raft.term_at(fate.index), self._moved())
        # Entries of Raft's own change no table, and yet whoever waits for their index goes on.
        self.changes.put_nowait(Change(index, ()))

    def _snapshot(self) -> bytes:
        return self.tables.snapshot()

    def _restore(self, snapshot: bytes) -> None:
        self.tables.restore(snapshot)

    def installed(self, snapshot: Snapshot) -> None:
        super().installed(snapshot)
        self.changes.put_nowait(Change(snapshot.index, None))

    def failed(self, error: StorageFailed) -> None:
        for fate in self._fates:
            if not fate.is_committed.done():
                fate.is_committed.set_exception(error)
        super().failed(error)

    def _is_grown(self, entry_count: int) -> bool:
        return entry_count >= SNAPSHOT_ENTRIES


def _commands(batch: bytes | bytearray | memoryview) -> list[Command]:
    commands = []
    for record in decode_batch(memoryview(batch), 0):
        check(record.value is not None, "a command has a body")
        commands.append(decode_command(record.value or b""))
    return commands
