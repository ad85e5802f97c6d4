"""The owner of a replica whose entries are commands: applies what is committed, keeps snapshots.

What the commands are and what they change is the business of who derives from `ReplicatedMachine`
(the controller's tables, the coordination tree). Here: how far it is, who waits for that, and what
stands for the log's beginning.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from kafkaesque.broker.raft.ready import Standing
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex, Snapshot
from kafkaesque.broker.replication.commit_waiters import CommitWaiters
from kafkaesque.broker.replication.entry_log import OwnerState, owner_data
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.model.errors import KafkaError, StorageFailed, check
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader

logger = logging.getLogger(__name__)

_LOAD_BYTES = 1 << 20


class States(Protocol):
    """Where the newest snapshot of the state is kept; all of it blocks."""

    def save(self, state: OwnerState) -> None: ...

    def load(self) -> OwnerState | None: ...

    def sync_facts(self) -> None:
        """Make the raft journal durable."""


class ReplicatedMachine(ABC):
    """Implements `replica.Owner`. Everything on the event loop's thread."""

    __slots__ = ("_applied", "_fail", "_saved_index", "_states", "_waiters", "replica")

    replica: Replica
    """Set right after this object is made: the two know each other."""
    waits_for_room = True
    """The node cannot go on without it."""

    def __init__(self, states: States, fail: Callable[[BaseException], None]) -> None:
        self._states = states
        self._fail = fail
        """The node cannot go on without this state."""
        self._applied = NO_INDEX
        """The state is that of this entry."""
        self._saved_index = NO_INDEX
        """A snapshot of the state as of this entry is on disk."""
        self._waiters: CommitWaiters[LogIndex] = CommitWaiters()

    # -- what the state is -------------------------------------------------------------------------

    @abstractmethod
    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        """Do what the commands of an entry say."""

    @abstractmethod
    def _snapshot(self) -> bytes:
        """The state as of the last entry applied."""

    @abstractmethod
    def _restore(self, snapshot: bytes) -> None:
        """Become what a snapshot was taken of."""

    @abstractmethod
    def _is_grown(self, entry_count: int) -> bool:
        """Whether a snapshot is due when so many entries were applied since the last."""

    @abstractmethod
    def _moved(self) -> KafkaError:
        """What those who wait are told when this node does not lead."""

    # -- begin and end -----------------------------------------------------------------------------

    def load(self) -> None:
        """Begin with the state that the log on disk begins with. Blocking."""
        entries = self.replica.entries
        self._applied = self._saved_index = LogIndex(entries.first_index - 1)
        state = self._states.load()
        if state is not None and state.index >= self._applied:
            # May lie beyond the log, if a crash came between: what it says is committed.
            self._restore(state.data)
            self._applied = self._saved_index = state.index
            if state.index <= entries.last_index:
                entries.owner_state = state
        check(
            state is not None or self._applied == NO_INDEX,
            f"{entries.log.directory} begins behind {self._applied} and its state is missing",
        )

    def close(self) -> bool:
        """True if the log is closed cleanly. Blocking."""
        log = self.replica.entries.log
        try:
            self.replica.entries.close()
            log.close(clean=True)
        except KafkaError as error:
            logger.error("%s was not closed cleanly: %s", log.directory, error)
            return False
        return True

    # -- how far it is -------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.replica.is_leader

    @property
    def applied_index(self) -> LogIndex:
        return self._applied

    async def applied_to(self, index: LogIndex) -> None:
        """Wait until the state holds everything up to `index`."""
        if index > self._applied:
            await self._waiters.add(index)

    # -- what the replica tells ----------------------------------------------------------------------

    def stands(self, standing: Standing) -> None:
        if not self.replica.is_leader:
            self._waiters.fail_all(self._moved())

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        entries = self.replica.entries
        while self._applied < index:
            first = LogIndex(self._applied + 1)
            found = entries.entries_between(first, index, _LOAD_BYTES)
            for entry, data in zip(found, entries.load(found), strict=True):
                if data is not None:
                    self._apply(entry.index, memoryview(data))
            self._applied = found[-1].index
        self._waiters.advance(self._applied)

    def appended(self, header: BatchHeader) -> None:  # noqa: B027 - nothing is what is wanted
        """Nothing: the state follows what is committed."""

    def control(self, payload: bytes) -> None:  # noqa: B027
        """Nothing: these groups have no controls of their own."""

    def cut(self, end_offset: Offset) -> None:  # noqa: B027
        """Nothing: the state never held what was not committed."""

    def installing(self, snapshot: Snapshot) -> None:
        self._states.save(OwnerState(snapshot.index, owner_data(snapshot)))

    def installed(self, snapshot: Snapshot) -> None:
        state = OwnerState(snapshot.index, owner_data(snapshot))
        self._restore(state.data)
        self.replica.entries.owner_state = state
        self._applied = self._saved_index = snapshot.index
        self._waiters.advance(self._applied)

    def failed(self, error: StorageFailed) -> None:
        self._waiters.fail_all(error)
        self._fail(error)

    # -- snapshots -----------------------------------------------------------------------------------

    async def save_if_grown(self) -> None:
        """Let a snapshot of the state stand for the log up to here."""
        if not self._is_grown(self._applied - self._saved_index):
            return
        state = OwnerState(self._applied, self._snapshot())
        try:
            await asyncio.to_thread(self._states.save, state)
        except StorageFailed as error:
            logger.warning("the log grows on, its state is saved later: %s", error)
            return
        entries = self.replica.entries
        if state.index < entries.first_index - 1:
            return  # a snapshot of the leader's came meanwhile
        self._saved_index = state.index
        entries.owner_state = state
        offset = entries.end_offset_of(state.index)
        entries.drop_before(offset)
        await asyncio.to_thread(self._drop_before, offset)

    def _drop_before(self, offset: Offset) -> None:
        """Blocking. What the raft journal does not know to be dropped must not be missing."""
        self._states.sync_facts()
        self.replica.entries.log.delete_before(offset)
