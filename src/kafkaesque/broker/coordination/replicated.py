"""The seam between the coordination service and what makes its commands durable and ordered.

`Replicated` is asked by the service; `Applied` is what an implementation tells it in return. One
implementation is a journal of this node alone (`local_journal.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Protocol

from kafkaesque.broker.coordination.rules.machine import Outcome


class NotCommitted(Exception):
    """It is not known whether the command will ever be applied: leader lost, disk failed.

    The service closes the client's connection, which is how ZooKeeper says so.
    """


class Applied(Protocol):
    """The state machine of this node, called on the event loop in the order of the log."""

    def apply(self, index: int, command: bytes) -> Outcome:
        """`command` is committed at `index`. Indexes grow from 1 and may leave gaps."""
        ...

    def snapshot(self) -> bytes:
        """The state after the last command applied."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replace the state; clients are let go, since watches cannot tell what they missed."""
        ...

    def touched(self, session_ids: Collection[int]) -> None:
        """On the leader: these sessions were heard somewhere in the cluster."""
        ...


class Replicated(Protocol):
    """What replicates commands to every server and applies them there."""

    def propose(self, command: bytes) -> Awaitable[Outcome]:
        """What `Applied.apply` returned, after it was applied HERE. May raise NotCommitted.

        Proposals of one server should commit in the order of the calls; where one is lost, the
        machine itself refuses the later ones of that client (`commands.Write.sequence`).
        """
        ...

    def read_barrier(self) -> Awaitable[None]:
        """Done when everything committed before the call is applied here. May raise NotCommitted."""
        ...

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        """Tell the leader that these were heard. Not replicated, may be lost, never waits."""
        ...

    @property
    def is_leader(self) -> bool:
        """True while this server is the one that ends sessions and reaps nodes."""
        ...

    @property
    def is_voter(self) -> bool:
        """False while this server follows and its word does not count for a quorum yet."""
        ...

    @property
    def term(self) -> int:
        """Changes with every change of leader: then all sessions get their whole timeout anew."""
        ...

    @property
    def is_available(self) -> bool:
        """False while no quorum is in reach: clients are let go, to find a server that has one."""
        ...
