"""Incremental fetch sessions (KIP-227): a consumer of many partitions sends only what changed.

A session remembers the partitions of its client and what it last sent about each. A partition is in
the answer if it has data, an error, or changes. The number of sessions is limited; the least
recently used one is evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from kafkaesque.model.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey: TypeAlias = tuple[str, UUID, int]
"""(topic name, topic id, partition). Clients use names before v13 and ids since."""


@dataclass(slots=True)
class FetchedPartition:
    """A partition that the client fetches, and what was last sent about it (-1: nothing yet)."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    sent_high_watermark: int = -1
    sent_stable_offset: int = -1
    sent_log_start: int = -1
    sent_error: bool = True


@dataclass(slots=True)
class FetchSession:
    session_id: int
    uses_topic_ids: bool
    epoch: int = 1
    """The epoch of the next request."""
    partitions: OrderedDict[PartitionKey, FetchedPartition] = field(default_factory=OrderedDict)


class FetchSessions:
    """All sessions of a broker."""

    __slots__ = ("_new_id", "_sessions", "_sessions_max")

    def __init__(self, sessions_max: int, new_id: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, uses_topic_ids: bool) -> FetchSession | None:
        """Creates a session; None if sessions are disabled."""
        if self._sessions_max == 0:
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        if len(self._sessions) >= self._sessions_max:
            self._sessions.popitem(last=False)
        session = FetchSession(session_id, uses_topic_ids)
        self._sessions[session_id] = session
        return session

    def take(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        """Returns the session of an incremental request, and advances its epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"No fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"Fetch session {session_id} expects epoch {session.epoch}, not {epoch}"
            )
        if uses_topic_ids is not session.uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"Fetch session {session_id} cannot change between topic names and ids"
            )
        self._sessions.move_to_end(session_id)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
