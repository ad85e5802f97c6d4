"""What the replicas of a node share, as one of them sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kafkaesque.broker.raft.messages import InstallSnapshot, Message
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.model.ids import GroupId

R = TypeVar("R", contravariant=True)
"""A replica."""


class Surroundings(Protocol[R]):
    """What the replicas of a node share; `replica_set` has the real one."""

    @property
    def journal(self) -> RaftJournal: ...

    def touch(self, replica: R) -> None:
        """Call its `process` soon."""

    def sync_journal(self, replica: R) -> None:
        """Sync the journal soon and call its `journal_synced`."""

    def sync_log(self, replica: R) -> None:
        """Call its `sync` from a worker thread soon, then `synced` or `sync_failed`."""

    def send(self, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None: ...

    def damaged(self, replica: R) -> None:
        """A batch of its log is not what was written."""

    def fetch_prefix(self, replica: R, message: InstallSnapshot) -> None:
        """Get the batches that the snapshot speaks of, then `step` it again."""

    def now_ms(self) -> int: ...
