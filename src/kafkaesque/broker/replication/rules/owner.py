"""What a replica tells whoever keeps what its group's entries amount to."""

from __future__ import annotations

from typing import Protocol

from kafkaesque.broker.raft.ready import Standing
from kafkaesque.broker.raft.types import LogIndex, Snapshot
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader


class Owner(Protocol):
    """Whoever keeps what the group's entries amount to. Called from `process`."""

    @property
    def waits_for_room(self) -> bool:
        """Whether a follower's replica is kept while the disk is full, because the node needs it, and
        not failed, to be opened again. What waits is in memory: only a few groups of a node may."""
        ...

    def stands(self, standing: Standing) -> None:
        """Who leads has changed, or is now certain. No longer leading: what was appended and is
        not committed may vanish."""

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        """Everything up to entry `index`, which ends before `end_offset`, is committed. A leader
        hears of it as soon as that is so, others when it is on their own disk too."""

    def appended(self, header: BatchHeader) -> None:
        """A batch of another leader was written here; it may still be cut again."""

    def control(self, payload: bytes) -> None:
        """What `propose_control` was given, on any member, is committed."""

    def cut(self, end_offset: Offset) -> None:
        """The log lost what lay at and behind `end_offset`; none of it was committed."""

    def installing(self, snapshot: Snapshot) -> None:
        """The log is about to be replaced: keep, durably, what the snapshot says of it."""

    def installed(self, snapshot: Snapshot) -> None:
        """The log was replaced: it is empty and goes on behind `snapshot`."""

    def failed(self, error: StorageFailed) -> None:
        """The disk refused. This replica is dead; another one may be opened in its place."""
