"""The network between the nodes: links that delay, lose, repeat and reorder messages, and break.

Modelled on `replication/links`: one link per pair of nodes. It counts as broken after a silence (or at
once when a process dies) and recovers by itself. Nothing passes while it is broken. Raft gets weaker
guarantees than TCP's: messages may also be lost, repeated and reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from kafkaesque.broker.raft.messages import Message
from kafkaesque.lab.sim.schedule import MILLISECOND_US, EventSchedule
from kafkaesque.model.ids import GroupId, NodeId

SILENCE_US: Final = 200 * MILLISECOND_US
"""Shorter than in the product, like all times here, but in the same proportion to an election timeout."""
WATCH_US: Final = 20 * MILLISECOND_US
IN_FLIGHT_MAX: Final = 2_000
"""Messages beyond this limit are dropped, as by a bounded queue."""

Blobs = Sequence[bytes | bytearray | memoryview | None]


class PeerEnvelope(NamedTuple):
    sender: NodeId
    to: NodeId
    group: GroupId
    message: Message
    blobs: Blobs


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """Probabilities per message, in percent."""

    loss: float = 0.0
    repeat: float = 0.0
    slow: float = 0.0
    latency_us_max: int = 2 * MILLISECOND_US
    is_ordered: bool = True
    """Order as on a TCP connection. Leases depend on it; Raft does not."""
    slow_us_max: int = 200 * MILLISECOND_US


class NetworkCallbacks:
    """Callbacks from the network to the nodes."""

    def __init__(
        self,
        is_responsive: Callable[[NodeId], bool],
        deliver: Callable[[PeerEnvelope], None],
        unreachable: Callable[[NodeId, NodeId], None],
        reachable: Callable[[NodeId, NodeId], None],
    ) -> None:
        self.is_responsive = is_responsive
        self.deliver = deliver
        self.unreachable = unreachable
        self.reachable = reachable


@dataclass(slots=True)
class _Link:
    is_up: bool = True
    silent_since_us: int = -1
    last_contact_us: int = 0
    """When both directions last worked."""


class SimulatedNetwork:
    """All links. `link_quality` and `cuts` may change at any time."""

    def __init__(self, schedule: EventSchedule, random: Random, nodes: Sequence[NodeId]) -> None:
        self.link_quality = LinkQuality()
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        """Directions in which nothing passes."""
        self.sent_count = 0
        self._schedule = schedule
        self._random = random
        self._in_flight = 0
        self._last_arrival_us: dict[tuple[NodeId, NodeId], int] = {}
        self._callbacks: NetworkCallbacks | None = None
        self._links = {(a, b): _Link() for a in nodes for b in nodes if a < b}

    def connect(self, callbacks: NetworkCallbacks) -> None:
        self._callbacks = callbacks
        self._schedule.after(WATCH_US, self._watch)

    def send(self, envelope: PeerEnvelope) -> None:
        self.sent_count += 1
        if (
            not self._link(envelope.sender, envelope.to).is_up
            or (envelope.sender, envelope.to) in self.cuts
            or self._in_flight >= IN_FLIGHT_MAX
        ):
            return
        link_quality, random = self.link_quality, self._random
        if random.random() * 100 < link_quality.loss:
            return
        self._plan(envelope)
        if random.random() * 100 < link_quality.repeat:
            self._plan(envelope)

    def last_contact_us(self, node: NodeId, peer: NodeId) -> int:
        """When the two nodes last reached each other."""
        return self._link(node, peer).last_contact_us

    def is_up(self, node: NodeId, peer: NodeId) -> bool:
        return self._link(node, peer).is_up

    def reset_links(self, node: NodeId) -> None:
        """The process of `node` died and its host resets the links."""
        for (a, b), link in self._links.items():
            is_cut = (a, b) in self.cuts or (b, a) in self.cuts
            if node in (a, b) and link.is_up and not is_cut:
                self._break(a, b, link)

    def _link(self, a: NodeId, b: NodeId) -> _Link:
        return self._links[(a, b) if a < b else (b, a)]

    def _plan(self, envelope: PeerEnvelope) -> None:
        link_quality, random = self.link_quality, self._random
        delay_us = 50 + int(random.random() * link_quality.latency_us_max)
        if random.random() * 100 < link_quality.slow:
            delay_us += int(random.random() * link_quality.slow_us_max)
        if link_quality.is_ordered:
            direction = (envelope.sender, envelope.to)
            now_us = self._schedule.now_us
            arrival_us = max(now_us + delay_us, self._last_arrival_us.get(direction, 0))
            self._last_arrival_us[direction] = arrival_us
            delay_us = arrival_us - now_us
        self._in_flight += 1
        self._schedule.after(delay_us, lambda: self._arrive(envelope))

    def _arrive(self, envelope: PeerEnvelope) -> None:
        self._in_flight -= 1
        if (envelope.sender, envelope.to) in self.cuts:
            return
        if self._callbacks is not None and self._link(envelope.sender, envelope.to).is_up:
            self._callbacks.deliver(envelope)

    def _watch(self) -> None:
        """Detects silent links, as pings do, without sending pings."""
        if self._callbacks is None:
            return
        now_us = self._schedule.now_us
        for (a, b), link in self._links.items():
            is_silent = (
                (a, b) in self.cuts
                or (b, a) in self.cuts
                or not self._callbacks.is_responsive(a)
                or not self._callbacks.is_responsive(b)
            )
            if not is_silent:
                link.silent_since_us, link.last_contact_us = -1, now_us
                if not link.is_up:
                    link.is_up = True
                    self._callbacks.reachable(a, b)
                    self._callbacks.reachable(b, a)
            elif link.silent_since_us < 0:
                link.silent_since_us = now_us
            elif link.is_up and now_us - link.silent_since_us >= SILENCE_US:
                self._break(a, b, link)
        self._schedule.after(WATCH_US, self._watch)

    def _break(self, a: NodeId, b: NodeId, link: _Link) -> None:
        link.is_up = False
        if self._callbacks is not None:
            self._callbacks.unreachable(a, b)
            self._callbacks.unreachable(b, a)
