"""Callbacks from a replica to the state machine that it feeds."""

from __future__ import annotations

from typing import Protocol

from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import LogIndex, Snapshot
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader


class StateMachine(Protocol):
    """The state machine of a Raft group: a partition, or the controller's tables. Called from
    `Replica.process`."""

    @property
    def waits_for_room(self) -> bool:
        """Whether a follower keeps what it cannot write while the disk is full, instead of failing and
        being reopened. The entries wait in memory, so only groups that the node depends on may."""
        ...

    def leadership_changed(self, leadership: Leadership) -> None:
        """The leader changed, or its term was confirmed. After a loss of leadership, appended batches
        that are not committed may be lost."""

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        """Everything up to entry `index`, which ends before `end_offset`, is committed. A leader is
        notified at once, a follower when its own disk has the entries too."""

    def appended(self, header: BatchHeader) -> None:
        """A batch of another leader was written here. It may still be truncated."""

    def control(self, payload: bytes) -> None:
        """The payload that a leader gave to `propose_control` is committed. Called on every member."""

    def truncated(self, end_offset: Offset) -> None:
        """The log was truncated to `end_offset`. Nothing committed was lost."""

    def installing(self, snapshot: Snapshot) -> None:
        """The log is about to be replaced: save the snapshot's state durably."""

    def installed(self, snapshot: Snapshot) -> None:
        """The log was replaced. It is empty and continues after `snapshot`."""

    def failed(self, error: StorageFailed) -> None:
        """The disk failed. This replica is dead; another may be opened in its place."""
