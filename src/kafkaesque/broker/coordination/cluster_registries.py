"""The registries of document 002 as nodes: brokers, topics, controller and consumer groups.

Kafka's own paths and forms, made from the tables of the cluster whenever somebody looks or watches.
Consumer groups are known to their coordinators: those are asked, all brokers at once, for each look at
them, or less often where there are many (`gathering`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.gathering import Gathering
from kafkaesque.broker.coordination.group_survey import GROUPS, GroupSurvey
from kafkaesque.broker.coordination.rules.consumers import (
    OWNER_MARK,
    GroupRow,
    MemberRow,
    consumer_leaves,
    json_leaf,
)
from kafkaesque.broker.coordination.rules.registry import Leaf, is_registry, touches_registry
from kafkaesque.broker.groups.consumer_protocol import (
    Assignment,
    decode_assignment,
    subscribed_topics,
)
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ProtocolError

logger = logging.getLogger("kafkaesque.broker.coordination.rules")

GROUPS_SECONDS: Final = 1.0
"""How often groups are looked at while somebody watches them."""
CONSUMERS: Final = "consumers"


class ClusterRegistries:
    """Implements `host.Registries`."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_coordinator",
        "_groups",
        "_looked_s",
        "_looking",
        "_shown",
        "_survey",
    )

    def __init__(self, coordinator: Coordinator, cluster: Cluster, clock: Clock) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._clock = clock
        self._shown: object = None
        """What the tables looked like when they were last shown."""
        self._survey = GroupSurvey(
            cluster.node_id, cluster.live_nodes, cluster.links.call, self._own_groups
        )
        self._groups = Gathering(self._gather, clock)
        self._looking: asyncio.Task[None] | None = None
        self._looked_s = clock.monotonic()

    def refresh(self, paths: Sequence[str]) -> Awaitable[None] | None:
        if not touches_registry(paths):
            return None
        self._show_tables()
        return self._groups.look() if any(map(_is_consumers, paths)) else None

    def tick(self) -> None:
        watched = [path for path in self._coordinator.watches.paths() if is_registry(path)]
        if not watched:
            return
        self._show_tables()
        now_s = self._clock.monotonic()
        is_due = now_s - self._looked_s >= GROUPS_SECONDS and self._looking is None
        if is_due and any(map(_is_consumers, watched)):
            self._looked_s = now_s
            self._looking = asyncio.get_running_loop().create_task(self._groups.look())
            self._looking.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the registry of consumers cannot be shown", exc_info=error)

    # -- tables ----------------------------------------------------------------------------------

    def _show_tables(self) -> None:
        cluster = self._cluster
        looks = (
            cluster.journal.applied_index,
            cluster.leaders.revision,
            tuple(cluster.live_nodes()),
            cluster.journal.replica.standing,
        )
        if looks == self._shown:
            return
        show = self._coordinator.show_registry
        if self._shown is None:
            show(CONSUMERS, {"/consumers": Leaf(b"")})
        self._shown = looks
        show("brokers", dict(self._brokers()))
        show("cluster", {"/cluster/id": _leaf(version="1", id=cluster.links.me.cluster_id)})
        epoch = cluster.journal.replica.standing.term
        show("controller_epoch", {"/controller_epoch": Leaf(b"%d" % epoch)})
        controller = cluster.controller_id
        if controller is None or not cluster.is_up(controller):
            show("controller", {})
        else:
            leaf = _leaf(_owner(controller), version=1, brokerid=controller)
            show("controller", {"/controller": leaf})

    def _brokers(self) -> Iterator[tuple[str, Leaf]]:
        cluster = self._cluster
        yield "/brokers/ids", Leaf(b"")
        for broker in cluster.live_brokers():
            endpoint = f"PLAINTEXT://{broker.host}:{broker.port}"
            yield (
                f"/brokers/ids/{broker.node_id}",
                _leaf(
                    _owner(broker.node_id),
                    version=5,
                    host=broker.host,
                    port=broker.port,
                    endpoints=[endpoint],
                    listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
                    rack=broker.rack,
                    jmx_port=-1,
                ),
            )
        yield "/brokers/topics", Leaf(b"")
        epoch = cluster.journal.replica.standing.term
        for name, topic in cluster.tables.by_name.items():
            replicas = {str(n): list(p.replicas) for n, p in enumerate(topic.partitions)}
            at = f"/brokers/topics/{name}"
            yield at, _leaf(version=3, topic_id=str(topic.topic_id), partitions=replicas)
            for number, partition in enumerate(topic.partitions):
                told = cluster.leaders.of(partition.group_id)
                is_led = told is not None and cluster.is_up(told.node_id)
                yield (
                    f"{at}/partitions/{number}/state",
                    _leaf(
                        version=1,
                        controller_epoch=epoch,
                        leader=told.node_id if told is not None and is_led else -1,
                        leader_epoch=told.epoch if told is not None else -1,
                        isr=list(told.in_sync) if told is not None else [],
                    ),
                )

    # -- consumer groups -------------------------------------------------------------------------

    async def _gather(self) -> float:
        await self._survey.ask()
        began_s = time.thread_time()
        leaves = dict(consumer_leaves(self._survey.groups()))
        self._coordinator.show_registry(CONSUMERS, leaves)
        return time.thread_time() - began_s

    def call(self, kind: int) -> bytes:
        """What another broker asks."""
        if kind != GROUPS:
            raise ProtocolError(f"call of unknown kind {kind}")
        return self._survey.answer()

    def _own_groups(self) -> Iterator[GroupRow]:
        for host in self._cluster.coordinators.groups:
            registry = host.registry
            if registry is None:
                continue
            for group in registry.describe_groups(list(registry.group_ids()), 0):
                offsets = registry.committed_offsets(group.group_id)
                yield GroupRow(
                    group.group_id,
                    [
                        MemberRow(
                            member.member_id,
                            sorted(subscribed_topics(bytes(member.metadata)) or ()),
                            _assignment(bytes(member.assignment)),
                        )
                        for member in group.members
                    ],
                    {
                        topic: {int(n): int(value.offset) for n, value in found.items()}
                        for topic, found in offsets.items()
                    },
                )


def _assignment(data: bytes) -> Assignment:
    """Of another protocol than consumers' nothing is known."""
    try:
        return decode_assignment(data)
    except ProtocolError:
        return {}


def _owner(node_id: int) -> int:
    return OWNER_MARK | node_id


def _leaf(owner: int = 0, **fields: object) -> Leaf:
    return json_leaf(fields, owner)


def _is_consumers(path: str) -> bool:
    return path == "/consumers" or path.startswith("/consumers/")
