"""This server's side of the state machine: applies commands, notifies watchers, tracks sessions.

Implements `replicated.Applied`. Connections use it too: the machine to read from, the watches, and
which connection holds which session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kafkaesque.broker.coordination.rules.machine import ApplyResult, Machine
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.registry import Leaf, RegistryTree
from kafkaesque.broker.coordination.rules.sessions import ExpiryClock
from kafkaesque.broker.coordination.rules.watches import WatchTable
from kafkaesque.model.clock import Clock


class SessionClient(Protocol):
    """A connection that holds a session."""

    owner: int

    def __hash__(self) -> int: ...

    def notify(self, event: NodeEvent) -> None:
        """Sends the event, before any later answer."""
        ...

    def session_lost(self, reason: str) -> None:
        """The session ended, or moved to another connection."""
        ...


class Coordinator:
    """One per server. Everything runs on one event loop."""

    __slots__ = (
        "_by_session",
        "_clock",
        "_touched",
        "expiry",
        "machine",
        "registry",
        "watches",
    )

    def __init__(self, machine: Machine, clock: Clock, expiry_slack_s: float = 0.0) -> None:
        """`expiry_slack_s`: how long the report of a session touched on another server may take."""
        self.machine = machine
        self._clock = clock
        self.expiry = ExpiryClock(expiry_slack_s)
        self.watches: WatchTable[SessionClient] = WatchTable()
        self._by_session: dict[int, SessionClient] = {}
        self._touched: set[int] = set()
        self.registry: RegistryTree | None = None
        """The read-only registries beside the tree, if any."""

    # -- replicated.Applied ---------------------------------------------------------------------

    def apply(self, index: int, command: bytes) -> ApplyResult:
        outcome = self.machine.apply(index, command)
        if outcome.events:
            self._notify(outcome.events)
        started = outcome.session_started
        if started is not None:
            self.expiry.start(started.session_id, started.timeout_ms, self._clock.monotonic())
            holder = self._by_session.get(started.session_id)
            if holder is not None and holder.owner != started.owner:
                self._by_session.pop(started.session_id)
                holder.session_lost("its session moved to another connection")
        if outcome.session_closed is not None:
            self.expiry.forget(outcome.session_closed)
            holder = self._by_session.pop(outcome.session_closed, None)
            if holder is not None:
                holder.session_lost("its session ended")
        return outcome

    def snapshot(self) -> bytes:
        return self.machine.snapshot()

    def restore(self, snapshot: bytes) -> None:
        self.machine.restore(snapshot)
        self.restart_expiry()
        for client in tuple(self._by_session.values()):
            client.session_lost("this server installed a snapshot")
        self._by_session.clear()

    def sessions_touched(self, session_ids: Collection[int]) -> None:
        self.expiry.touch(session_ids, self._clock.monotonic())

    # -- sessions -------------------------------------------------------------------------------

    def restart_expiry(self) -> None:
        """Gives every session its full timeout from now."""
        now_s = self._clock.monotonic()
        self.expiry.clear()
        for session in self.machine.sessions.values():
            self.expiry.start(session.session_id, session.timeout_ms, now_s)

    def hold(self, session_id: int, client: SessionClient) -> bool:
        """`client` takes the session; False if it has lost it again already."""
        session = self.machine.sessions.get(session_id)
        if session is None or session.owner != client.owner:
            return False
        self._by_session[session_id] = client
        return True

    def release(self, session_id: int, client: SessionClient) -> None:
        """The connection is gone; the session stays alive until its timeout."""
        self.watches.remove_all(client)
        if self._by_session.get(session_id) is client:
            del self._by_session[session_id]

    def touch(self, session_id: int) -> None:
        self._touched.add(session_id)

    def take_touched(self) -> set[int]:
        """The sessions touched since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def show_registry(self, name: str, leaves: Mapping[str, Leaf]) -> None:
        """Replaces the content of the registry `name` and notifies watchers of the changes."""
        if self.registry is None:
            self.registry = RegistryTree()
        now_ms = self._clock.wall_ms()
        self._notify(self.registry.show(name, leaves, self.machine.zxid, now_ms))

    def _notify(self, events: Iterable[NodeEvent]) -> None:
        for client, event in self.watches.trigger(events):
            client.notify(event)
