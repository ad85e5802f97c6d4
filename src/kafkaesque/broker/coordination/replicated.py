"""The interface between the coordination service and the replicated log of its commands.

The service calls `Replicated`; the implementation (`raft_group.py`) calls back `Applied`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Protocol

from kafkaesque.broker.coordination.rules.machine import ApplyResult


class NotCommitted(Exception):
    """It is unknown whether the command will ever be applied: leader lost, disk failed.

    The service closes the client's connection, as ZooKeeper does.
    """


class Applied(Protocol):
    """The state machine of this node; called on the event loop, in the order of the log."""

    def apply(self, index: int, command: bytes) -> ApplyResult:
        """`command` is committed at `index`. Indexes grow from 1 and may leave gaps."""
        ...

    def snapshot(self) -> bytes:
        """Returns the state after the last applied command."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replaces the state. Clients are disconnected, since their watches missed events."""
        ...

    def sessions_touched(self, session_ids: Collection[int]) -> None:
        """On the leader: clients sent requests in these sessions, somewhere in the cluster."""
        ...


class Replicated(Protocol):
    """Replicates commands to every server and applies them there."""

    def propose(self, command: bytes) -> Awaitable[ApplyResult]:
        """Returns the result of `Applied.apply` on THIS server. May raise NotCommitted.

        Proposals of one server should commit in the order of the calls; if one is lost, the machine
        rejects the later ones of that client (`commands.Write.sequence`).
        """
        ...

    def read_barrier(self) -> Awaitable[None]:
        """Waits until everything committed before the call is applied here. May raise NotCommitted."""
        ...

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        """Reports to the leader that clients sent requests in these sessions. Not replicated, may be lost, never waits."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this server expires sessions and reaps nodes."""
        ...

    @property
    def is_voter(self) -> bool:
        """Whether this server counts for the quorum."""
        ...

    @property
    def term(self) -> int:
        """Changes with every leader: then all sessions get their full timeout again."""
        ...

    @property
    def is_available(self) -> bool:
        """False without a quorum: clients are disconnected, so that they find another server."""
        ...
