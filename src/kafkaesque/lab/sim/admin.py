"""A client of the controller: makes and deletes topics, registers brokers, takes producer ids."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol
from uuid import UUID

from kafkaesque.broker.cluster.rules.controller import Controller, NewTopic, Outcome
from kafkaesque.broker.cluster.rules.registration import NewBroker
from kafkaesque.lab.sim.controller import Operation
from kafkaesque.lab.sim.partition import Answer, Verdict
from kafkaesque.lab.sim.schedule import Schedule
from kafkaesque.lab.sim.truth import require
from kafkaesque.model.ids import NodeId

TOPIC_NAMES = [f"topic-{number}" for number in range(4)]


class Cluster(Protocol):
    def administer(
        self, operation: Operation, reply: Callable[[Answer, object], None], random: Random
    ) -> None: ...


class SimulatedAdmin:
    """Asks for something now and then; keeps in mind what it was told for certain."""

    def __init__(self, cluster: Cluster, schedule: Schedule, random: Random) -> None:
        self.done_count = 0
        self._cluster = cluster
        self._schedule = schedule
        self._random = random
        self._producer_ids: set[int] = set()
        """The first id of every block that anyone was given."""

    def start(self, interval_us: int) -> None:
        self._schedule.after(self._random.randrange(interval_us), lambda: self._beat(interval_us))

    def _beat(self, interval_us: int) -> None:
        operation = self._choose()
        self._cluster.administer(operation, self._answered, self._random)
        self._schedule.after(
            interval_us // 2 + self._random.randrange(interval_us), lambda: self._beat(interval_us)
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

    def _answered(self, answer: Answer, result: object) -> None:
        if answer.verdict is not Verdict.COMMITTED:
            return
        self.done_count += 1
        if isinstance(result, range):
            is_new = result.start not in self._producer_ids
            require(is_new, "producer ids are given once", f"{result} was given twice")
            self._producer_ids.add(result.start)


def _delete(controller: Controller, name: str) -> Outcome[None]:
    topic = controller.tables.by_name.get(name)
    return controller.delete_topics([] if topic is None else [topic])
