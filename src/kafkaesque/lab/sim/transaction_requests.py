"""Delivery of transaction requests, from clients to nodes and from node to node.

No request is certainly lost: one without an answer in time may still arrive, and any request may arrive
a second time, much later. Late requests must have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from kafkaesque.lab.sim.broker_transactions import TransactionHost, Work
from kafkaesque.lab.sim.checkers.transactions import TransactionEnd
from kafkaesque.lab.sim.loop import SimulatedFuture
from kafkaesque.lab.sim.observer import Observer
from kafkaesque.lab.sim.schedule import MILLISECOND_US, Action, EventSchedule
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.ids import GroupId, NodeId, ProducerId, ProducerIdentity

if TYPE_CHECKING:
    from kafkaesque.lab.sim.node import SimulatedNode

PATIENCE_US: Final = 400 * MILLISECOND_US
_LATENCY_US_MAX: Final = 2 * MILLISECOND_US
_HELD_US_MAX: Final = 3_000 * MILLISECOND_US
_HELD_SHARE: Final = 0.05
_REPEATED_SHARE: Final = 0.05
_FIRST_PRODUCER_ID: Final = 100_000


class RoutedCluster(Protocol):
    """The nodes, and a guess which of them leads a group."""

    schedule: EventSchedule
    observer: Observer
    nodes: Sequence[SimulatedNode]

    def guess_leader(self, group: GroupId, random: Random) -> NodeId: ...


class TransactionRequests:
    """The cluster as seen by transactional producers, and by nodes that call each other."""

    def __init__(self, cluster: RoutedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._next_producer_id = _FIRST_PRODUCER_ID

    def next_producer_id(self) -> ProducerId:
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id)

    def commit_requested(self, producer: ProducerIdentity) -> None:
        """Called before the commit of the producer's transaction is requested."""
        if self._cluster.observer.transactions is not None:
            self._cluster.observer.transactions.commit_requested(producer)

    def transaction_ended(self, end: TransactionEnd) -> None:
        if self._cluster.observer.transactions is not None:
            self._cluster.observer.transactions.ends.append(end)

    def send(self, group: GroupId, work: Work) -> SimulatedFuture:
        """Sends a client's request to the presumed leader of `group`."""
        return self._send(group, work, self._cluster.schedule.after)

    def send_between(self, node: TransactionHost, group: GroupId, work: Work) -> SimulatedFuture:
        """Sends a node's request; the answer is dropped if the node has died meanwhile."""
        return self._send(group, work, node.reply_scheduler())

    def _held_us(self) -> int:
        """Mostly short: a request that is late by one transaction is more dangerous than one late by ten."""
        return int(_HELD_US_MAX * self._random.random() ** 3)

    def _send(
        self, group: GroupId, work: Work, later: Callable[[int, Action], None]
    ) -> SimulatedFuture:
        answer = SimulatedFuture()
        random, schedule = self._random, self._cluster.schedule

        def settle(value: object) -> None:
            if not answer.done():
                answer.set_result(value)

        def arrive() -> None:
            target = self._cluster.nodes[self._cluster.guess_leader(group, random)]
            target.run(lambda: perform(target))

        def perform(target: SimulatedNode) -> None:
            broker = None if target.process is None else target.process.transactions
            if broker is not None:
                broker.loop.create_task(work(broker)).add_done_callback(reply)

        def reply(done: object) -> None:
            if isinstance(done, SimulatedFuture):
                error = done.exception()
                if error is None or isinstance(error, KafkaError):
                    value = done.result() if error is None else error
                    later(random.randrange(_LATENCY_US_MAX), lambda: settle(value))

        is_held = random.random() < _HELD_SHARE
        delay_us = self._held_us() if is_held else random.randrange(_LATENCY_US_MAX)
        schedule.after(delay_us, arrive)
        if random.random() < _REPEATED_SHARE:
            schedule.after(self._held_us(), arrive)
        later(PATIENCE_US, lambda: settle(None))
        return answer
