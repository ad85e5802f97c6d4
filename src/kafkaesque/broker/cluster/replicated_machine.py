"""A state machine replicated by Raft: applies committed entries and keeps snapshots of the state.

Subclasses define the commands and the state (the controller's tables, the coordination tree). This
module keeps the applied index, the calls that wait for it, and the snapshot that replaces the
beginning of the log.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import msgspec

from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex, Snapshot
from kafkaesque.broker.replication.commit_waiters import CommitWaiters
from kafkaesque.broker.replication.entry_log import MachineState, machine_data
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.open_files import REAL_CALLS, SystemCalls
from kafkaesque.model.errors import CorruptMessage, KafkaError, StorageFailed, check
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader

logger = logging.getLogger(__name__)

_LOAD_BYTES = 1 << 20


TABLES_NAME = "tables.state"

_decoder = msgspec.msgpack.Decoder(tuple[int, bytes])


class StateFile:
    """The newest snapshot of a replicated state, in a file that is replaced atomically. Blocking."""

    __slots__ = ("_calls", "_path")

    def __init__(
        self,
        directory: Path | str,
        calls: SystemCalls = REAL_CALLS,
        *,
        name: str = TABLES_NAME,
    ) -> None:
        self._path = f"{directory}/{name}"
        self._calls = calls

    def save(self, state: MachineState) -> None:
        try:
            durable_state.save(
                self._path, msgspec.msgpack.encode((state.index, state.data)), self._calls
            )
        except OSError as error:
            raise StorageFailed(f"cannot save {self._path}: {error}") from error

    def load(self) -> MachineState | None:
        try:
            content = durable_state.load(self._path, self._calls)
            if content is None:
                return None
            index, data = _decoder.decode(content)
        except (durable_state.StateDamaged, msgspec.MsgspecError) as error:
            raise CorruptMessage(f"{self._path}: {error}") from error
        return MachineState(LogIndex(index), data)


class ReplicatedMachine(ABC):
    """Implements `StateMachine`. Everything runs on the event loop's thread."""

    __slots__ = (
        "_applied",
        "_fail",
        "_raft_journal",
        "_saved_index",
        "_states",
        "_waiters",
        "replica",
    )

    waits_for_room = True
    """With a full disk the replica waits for room: the node cannot work without this state."""

    def __init__(
        self,
        states: StateFile,
        raft_journal: RaftJournal,
        fail: Callable[[BaseException], None],
        new_replica: Callable[[StateMachine], Replica],
    ) -> None:
        """`new_replica` creates the replica that reports to this machine. A subclass calls `_load`
        when it can restore its state. Blocking."""
        self._states = states
        self._raft_journal = raft_journal
        self._fail = fail
        """Stops the node, which cannot work without this state."""
        self._applied = NO_INDEX
        """The last entry that the state contains."""
        self._saved_index = NO_INDEX
        """The last entry that the snapshot on disk contains."""
        self._waiters: CommitWaiters[LogIndex] = CommitWaiters()
        self.replica = new_replica(self)

    # -- the state -----------------------------------------------------------------------------------

    @abstractmethod
    def _apply(self, index: LogIndex, batch: memoryview) -> None:
        """Applies the commands of an entry."""

    @abstractmethod
    def _snapshot(self) -> bytes:
        """Returns the state as of the last applied entry."""

    @abstractmethod
    def _restore(self, snapshot: bytes) -> None:
        """Replaces the state with a snapshot."""

    @abstractmethod
    def _is_grown(self, entry_count: int) -> bool:
        """Whether a snapshot is due, `entry_count` entries after the last one."""

    @abstractmethod
    def _moved(self) -> KafkaError:
        """The error for waiting calls when this node loses leadership."""

    # -- open and close ------------------------------------------------------------------------------

    def _load(self) -> None:
        """Loads the state at the beginning of the log on disk. Blocking."""
        entries = self.replica.entries
        self._applied = self._saved_index = LogIndex(entries.first_index - 1)
        state = self._states.load()
        if state is not None and state.index >= self._applied:
            # May be beyond the end of the log after a crash; everything in it is committed.
            self._restore(state.data)
            self._applied = self._saved_index = state.index
            if state.index <= entries.last_index:
                entries.note_machine_state(state)
        check(
            state is not None or self._applied == NO_INDEX,
            f"{entries.log.directory} starts after index {self._applied} and its state is missing",
        )

    def close(self) -> bool:
        """Closes the log; True if that was clean. Blocking."""
        log = self.replica.entries.log
        try:
            self.replica.entries.close()
            log.close(clean=True)
        except KafkaError as error:
            logger.error("%s was not closed cleanly: %s", log.directory, error)
            return False
        return True

    # -- progress ------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.replica.is_leader

    @property
    def applied_index(self) -> LogIndex:
        return self._applied

    async def applied_to(self, index: LogIndex) -> None:
        """Waits until every entry up to `index` is applied."""
        if index > self._applied:
            await self._waiters.add(index)

    # -- callbacks of the replica ------------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        if not self.is_leader:
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

    def appended(self, header: BatchHeader) -> None:  # noqa: B027 - empty on purpose
        """Nothing: only committed entries change the state."""

    def control(self, payload: bytes) -> None:  # noqa: B027
        """Nothing: these groups have no control entries of their own."""

    def truncated(self, end_offset: Offset) -> None:  # noqa: B027
        """Nothing: the state contains no uncommitted entry."""

    def installing(self, snapshot: Snapshot) -> None:
        self._states.save(MachineState(snapshot.index, machine_data(snapshot)))

    def installed(self, snapshot: Snapshot) -> None:
        state = MachineState(snapshot.index, machine_data(snapshot))
        self._restore(state.data)
        self.replica.entries.note_machine_state(state)
        self._applied = self._saved_index = snapshot.index
        self._waiters.advance(self._applied)

    def failed(self, error: StorageFailed) -> None:
        self._waiters.fail_all(error)
        self._fail(error)

    # -- snapshots -----------------------------------------------------------------------------------

    async def save_if_grown(self) -> None:
        """Saves a snapshot if one is due, and drops the log that it replaces."""
        if not self._is_grown(self._applied - self._saved_index):
            return
        state = MachineState(self._applied, self._snapshot())
        try:
            await asyncio.to_thread(self._states.save, state)
        except StorageFailed as error:
            logger.warning("snapshot failed, the log is kept and the snapshot retried: %s", error)
            return
        entries = self.replica.entries
        if state.index < entries.first_index - 1:
            return  # a snapshot from the leader was installed meanwhile
        self._saved_index = state.index
        entries.note_machine_state(state)
        offset = entries.end_offset_of(state.index)
        entries.drop_before(offset)
        await asyncio.to_thread(self._drop_before, offset)

    def _drop_before(self, offset: Offset) -> None:
        """Blocking. The raft journal must durably record the new start before the files go."""
        self._raft_journal.sync()
        self.replica.entries.log.delete_before(offset)
