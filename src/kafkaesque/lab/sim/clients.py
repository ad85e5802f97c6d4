"""The clients of a simulated cluster: idempotent producers, readers of partitions, an admin client.

Transactional producers are in `transactor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol
from uuid import UUID

from kafkaesque.broker.cluster.rules.controller import Controller, Decision, NewTopic
from kafkaesque.broker.cluster.rules.registration import NewBroker
from kafkaesque.lab.sim.controller import Operation
from kafkaesque.lab.sim.ground_truth import require
from kafkaesque.lab.sim.partition import ProduceOutcome, ProduceResult
from kafkaesque.lab.sim.schedule import MILLISECOND_US, EventSchedule
from kafkaesque.model.ids import GroupId, NodeId, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.codec import Record, encode_batch

REQUEST_TIMEOUT_US: Final = 600 * MILLISECOND_US
IN_FLIGHT_MAX: Final = 3
TOPIC_NAMES: Final = [f"topic-{number}" for number in range(4)]


class ReachableCluster(Protocol):
    """The requests that clients can send."""

    def produce(
        self, node: NodeId, group: GroupId, batch: bytes, reply: Callable[[ProduceResult], None]
    ) -> None: ...

    def read(
        self, node: NodeId, group: GroupId, offset: Offset, floor: Offset
    ) -> Offset | None: ...

    def administer(
        self, operation: Operation, reply: Callable[[ProduceResult, object], None], random: Random
    ) -> None: ...

    def guess_leader(self, group: GroupId, random: Random) -> NodeId: ...

    def acknowledged_offset(self, group: GroupId) -> Offset: ...


class _Outstanding:
    """A batch whose outcome is unknown."""

    __slots__ = ("attempt", "batch", "is_sent")

    def __init__(self, batch: bytes) -> None:
        self.batch = batch
        self.is_sent = False
        self.attempt = 0


class SimulatedProducer:
    """An idempotent producer of one partition: sends batches in order and retries until their
    outcome is known."""

    def __init__(
        self,
        producer_id: ProducerId,
        group: GroupId,
        cluster: ReachableCluster,
        schedule: EventSchedule,
        random: Random,
    ) -> None:
        self.group = group
        self.acked_count = 0
        self.is_finishing = False
        """No new batches; outstanding ones are still retried."""
        self._producer_id = producer_id
        self._cluster = cluster
        self._schedule = schedule
        self._random = random
        self._target = cluster.guess_leader(group, random)
        self._next_sequence = 0
        self._outstanding: list[_Outstanding] = []
        self._backs_off = False
        self._last_arrival_us = 0

    @property
    def outstanding_count(self) -> int:
        return len(self._outstanding)

    def start(self, interval_us: int) -> None:
        self._schedule.after(self._random.randrange(interval_us), lambda: self._tick(interval_us))

    def _tick(self, interval_us: int) -> None:
        # One at a time until the first outcome is known: a partition without state for a producer
        # accepts any first sequence.
        room = IN_FLIGHT_MAX if self.acked_count else 1
        if not self.is_finishing and len(self._outstanding) < room:
            self._outstanding.append(_Outstanding(self._new_batch()))
        self._send()
        self._schedule.after(
            interval_us // 2 + self._random.randrange(interval_us), lambda: self._tick(interval_us)
        )

    def _new_batch(self) -> bytes:
        count = self._random.randrange(1, 4)
        sequence = self._next_sequence
        self._next_sequence += count
        records = [
            Record(Offset(number), TimestampMs(1_700_000_000_000), None, _value(sequence + number))
            for number in range(count)
        ]
        return bytes(
            encode_batch(
                records,
                producer_id=self._producer_id,
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
        )

    def _send(self) -> None:
        if self._backs_off:
            return
        for one in self._outstanding:
            if not one.is_sent:
                one.is_sent = True
                one.attempt += 1
                self._send_one(one, one.attempt)

    def _send_one(self, one: _Outstanding, attempt: int) -> None:
        target = self._target
        now_us = self._schedule.now_us
        # A connection keeps the order of its requests.
        arrival_us = max(now_us + self._random.randrange(100, 2_000), self._last_arrival_us + 1)
        self._last_arrival_us = arrival_us
        self._schedule.after(
            arrival_us - now_us,
            lambda: self._cluster.produce(
                target, self.group, one.batch, lambda answer: self._answered(one, attempt, answer)
            ),
        )
        self._schedule.after(REQUEST_TIMEOUT_US, lambda: self._timed_out(one, attempt))

    def _timed_out(self, one: _Outstanding, attempt: int) -> None:
        self._answered(one, attempt, ProduceResult(ProduceOutcome.UNKNOWN, None, "timed out"))

    def _answered(self, one: _Outstanding, attempt: int, answer: ProduceResult) -> None:
        if one not in self._outstanding:
            return
        if answer.outcome is ProduceOutcome.COMMITTED:
            self._outstanding.remove(one)
            self.acked_count += 1
        elif attempt == one.attempt and one.is_sent and not self._backs_off:
            self._retry()

    def _retry(self) -> None:
        """Resends all outstanding batches, in order, to the presumed leader."""
        self._backs_off = True
        for one in self._outstanding:
            one.is_sent = False
        self._schedule.after(self._random.randrange(5_000, 60_000), self._try_again)

    def _try_again(self) -> None:
        self._backs_off = False
        self._target = self._cluster.guess_leader(self.group, self._random)
        self._send()


def _value(number: int) -> bytes:
    return b"value %d" % number


class SimulatedReader:
    """Reads a part of one partition now and then; the checkers check what it gets."""

    def __init__(
        self, group: GroupId, cluster: ReachableCluster, schedule: EventSchedule, random: Random
    ) -> None:
        self.read_count = 0
        self._group = group
        self._cluster = cluster
        self._schedule = schedule
        self._random = random
        self._seen = Offset(0)

    def start(self, interval_us: int) -> None:
        self._schedule.after(self._random.randrange(interval_us), lambda: self._tick(interval_us))

    def _tick(self, interval_us: int) -> None:
        target = self._cluster.guess_leader(self._group, self._random)
        floor = self._cluster.acknowledged_offset(self._group)
        self._schedule.after(
            self._random.randrange(100, 2_000), lambda: self._arrive(target, floor)
        )
        self._schedule.after(
            interval_us // 2 + self._random.randrange(interval_us), lambda: self._tick(interval_us)
        )

    def _arrive(self, target: NodeId, floor: Offset) -> None:
        offset = Offset(self._random.randrange(self._seen + 1))
        seen = self._cluster.read(target, self._group, offset, floor)
        if seen is not None:
            self.read_count += 1
            self._seen = max(self._seen, seen)


class SimulatedAdmin:
    """Sends administrative requests now and then, and checks that producer ids are unique."""

    def __init__(self, cluster: ReachableCluster, schedule: EventSchedule, random: Random) -> None:
        self.done_count = 0
        self._cluster = cluster
        self._schedule = schedule
        self._random = random
        self._producer_ids: set[int] = set()
        """The first id of every block that was handed out."""

    def start(self, interval_us: int) -> None:
        self._schedule.after(self._random.randrange(interval_us), lambda: self._tick(interval_us))

    def _tick(self, interval_us: int) -> None:
        operation = self._choose()
        self._cluster.administer(operation, self._answered, self._random)
        self._schedule.after(
            interval_us // 2 + self._random.randrange(interval_us), lambda: self._tick(interval_us)
        )

    def _choose(self) -> Operation:
        random = self._random
        name = random.choice(TOPIC_NAMES)
        node = NodeId(random.randrange(3))
        kind = random.randrange(4)
        if kind == 0:
            return lambda controller: controller.create_topic(NewTopic(name, 1, 1))
        if kind == 1:
            return lambda controller: _delete(controller, name)
        if kind == 2:
            broker = NewBroker(node, UUID(int=node + 1), "localhost", 9092 + node)
            return lambda controller: controller.register_broker(broker, is_old_gone=True)
        return Controller.reserve_producer_ids

    def _answered(self, answer: ProduceResult, result: object) -> None:
        if answer.outcome is not ProduceOutcome.COMMITTED:
            return
        self.done_count += 1
        if isinstance(result, range):
            is_new = result.start not in self._producer_ids
            require(is_new, "producer ids are given once", f"{result} was given twice")
            self._producer_ids.add(result.start)


def _delete(controller: Controller, name: str) -> Decision[None]:
    topic = controller.tables.by_name.get(name)
    return controller.delete_topics([] if topic is None else [topic])
