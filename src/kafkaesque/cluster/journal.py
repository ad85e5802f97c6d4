"""The controller's log: Raft group 0. Commands are committed here before they change a table.

Every broker has a replica of the log and the same tables by replaying it; the leader alone decides
operations, one after the other, so each sees all that was committed before it and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafkaesque.cluster.commands import (
    Command,
    RegisterBroker,
    UnregisterBroker,
    decode_command,
    encode_command,
)
from kafkaesque.cluster.controller import Outcome
from kafkaesque.cluster.tables import Tables
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import KafkaError, NotController, StorageFailed, check
from kafkaesque.model.ids import LeaderEpoch, Offset
from kafkaesque.raft.ready import Standing
from kafkaesque.raft.types import NO_INDEX, LogIndex, Snapshot
from kafkaesque.records.batch import BatchHeader, read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.replication.replica import Replica

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOAD_BYTES = 1 << 20
SNAPSHOT_ENTRIES = 2_000
"""The tables are saved, and the log before them dropped, each time so many entries were applied."""


@dataclass(frozen=True, slots=True)
class Change:
    """Commands of one entry, in force in the tables. None: the tables were replaced as a whole."""

    index: LogIndex
    commands: Sequence[Command] | None


class Journal:
    """Commits commands, applies them to the tables, and keeps them for whoever acts on them."""

    __slots__ = (
        "_applied",
        "_clock",
        "_fail",
        "_lock",
        "_saved_index",
        "_waiting",
        "changes",
        "replica",
        "standing_changed",
        "tables",
    )

    replica: Replica
    """Set right after this object is made: the two know each other."""

    def __init__(self, clock: Clock, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self.tables = Tables()
        self._applied = NO_INDEX
        """The tables are those of this entry."""
        self._saved_index = NO_INDEX
        """A snapshot of the tables as of this entry is on disk."""
        self._clock = clock
        self._lock = asyncio.Lock()
        self._waiting: deque[tuple[LogIndex, asyncio.Future[None]]] = deque()
        self.changes: asyncio.Queue[Change] = asyncio.Queue()
        self.standing_changed = asyncio.Event()

    def load(self) -> None:
        """Begin with the tables that the log on disk begins with."""
        entries = self.replica.entries
        self._applied = self._saved_index = LogIndex(entries.first_index - 1)

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

    def close(self) -> bool:
        """True if the log is closed cleanly. Blocking."""
        try:
            self.replica.entries.close()
            self.replica.entries.log.close(clean=True)
        except KafkaError as error:
            logger.error("the controller's log was not closed cleanly: %s", error)
            return False
        return True

    @property
    def leads(self) -> bool:
        return self.replica.is_leader

    @property
    def applied_index(self) -> LogIndex:
        return self._applied

    # -- the leader's part ----------------------------------------------------------------------

    async def submit(self, operation: Callable[[], Outcome[T]]) -> tuple[T, LogIndex]:
        """Run `operation` on the tables and commit its commands. The answer, and the index from
        which on the tables hold what it did.

        What `operation` raises leaves everything as it was. NotController if this node does not
        lead, or did not lead long enough to know what became of the commands.
        """
        async with self._lock:
            self._check_leads()
            # Whoever asked before may have gone away before its commands were applied.
            await self.applied_to(self.replica.raft.last_index)
            outcome = operation()
            index = self._applied
            if outcome.commands:
                index = await self._commit(outcome.commands)
            return outcome.answer, index

    def _check_leads(self) -> None:
        if not self.replica.is_leader:
            raise NotController("This is not the correct controller for this cluster.")

    async def _commit(self, commands: Sequence[Command]) -> LogIndex:
        now_ms = self._clock.wall_ms()
        base_offset = self.replica.next_offset
        epoch = LeaderEpoch(self.replica.standing.term)
        records = [
            Record(Offset(base_offset + number), now_ms, None, encode_command(command))
            for number, command in enumerate(commands)
        ]
        batch = memoryview(encode_batch(records, base_offset=base_offset, leader_epoch=epoch))
        self.replica.append(batch, read_header(batch), now_ms)
        index = self.replica.raft.last_index
        await self.applied_to(index)
        return index

    async def applied_to(self, index: LogIndex) -> None:
        """Wait until the tables hold everything up to `index`."""
        if index <= self._applied:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, future))
        await future

    # -- what the replica tells -------------------------------------------------------------------

    def stands(self, standing: Standing) -> None:
        if not self.replica.is_leader:
            self._fail_waiting(NotController("The controller has moved to another broker."))
        self.standing_changed.set()

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        entries = self.replica.entries
        while self._applied < index:
            first = LogIndex(self._applied + 1)
            found = entries.entries_between(first, index, _LOAD_BYTES)
            for entry, data in zip(found, entries.load(found), strict=True):
                if data is not None:
                    self._apply(entry.index, memoryview(data))
            self._applied = found[-1].index
        # Entries of Raft's own change no table, and yet whoever waits for their index goes on.
        self.changes.put_nowait(Change(index, ()))
        self._resolve_waiting()

    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        commands = _commands(batch)
        for command in commands:
            self.tables.apply(command)
        self.changes.put_nowait(Change(index, commands))

    def appended(self, header: BatchHeader) -> None:
        """Nothing: the tables follow what is committed."""

    def control(self, payload: bytes) -> None:
        """Nothing: this group has no controls of its own."""

    def cut(self, end_offset: Offset) -> None:
        """Nothing: the tables never held what was not committed."""

    def installed(self, snapshot: Snapshot) -> None:
        self._applied = self._saved_index = snapshot.index
        self.changes.put_nowait(Change(snapshot.index, None))
        self._resolve_waiting()

    def failed(self, error: StorageFailed) -> None:
        """The node cannot go on without the tables."""
        self._fail_waiting(error)
        self._fail(error)

    def save_if_grown(self) -> None:
        """Let a snapshot of the tables stand for the log up to here. Blocking, short."""
        if self._applied - self._saved_index >= SNAPSHOT_ENTRIES:
            self._saved_index = self._applied

    def _resolve_waiting(self) -> None:
        still: deque[tuple[LogIndex, asyncio.Future[None]]] = deque()
        for index, future in self._waiting:
            if index > self._applied:
                still.append((index, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


def _commands(batch: bytes | bytearray | memoryview) -> list[Command]:
    commands = []
    for record in decode_batch(memoryview(batch), 0):
        check(record.value is not None, "a command has a body")
        commands.append(decode_command(record.value or b""))
    return commands
