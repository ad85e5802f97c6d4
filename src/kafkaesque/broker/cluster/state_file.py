"""The newest snapshot of a replicated state, in a file that is replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.entry_log import OwnerState
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.open_files import REAL_CALLS, SystemCalls
from kafkaesque.model.errors import CorruptMessage, StorageFailed

TABLES_NAME = "tables.state"

_decoder = msgspec.msgpack.Decoder(tuple[int, bytes])


class StateFile:
    """Implements `replicated_machine.States`. Blocking."""

    __slots__ = ("_calls", "_facts", "_path")

    def __init__(
        self,
        directory: Path | str,
        facts: RaftJournal,
        calls: SystemCalls = REAL_CALLS,
        *,
        name: str = TABLES_NAME,
    ) -> None:
        self._path = f"{directory}/{name}"
        self._facts = facts
        self._calls = calls

    def save(self, state: OwnerState) -> None:
        try:
            durable_state.save(
                self._path, msgspec.msgpack.encode((state.index, state.data)), self._calls
            )
        except OSError as error:
            raise StorageFailed(f"cannot save {self._path}: {error}") from error

    def load(self) -> OwnerState | None:
        try:
            content = durable_state.load(self._path, self._calls)
            if content is None:
                return None
            index, data = _decoder.decode(content)
        except (durable_state.StateDamaged, msgspec.MsgspecError) as error:
            raise CorruptMessage(f"{self._path}: {error}") from error
        return OwnerState(LogIndex(index), data)

    def sync_facts(self) -> None:
        self._facts.sync()
