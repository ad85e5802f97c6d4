"""The cluster's registries as read-only nodes: brokers, topics, controller and consumer groups.

The paths and formats are those of Kafka with ZooKeeper. They are computed from the cluster's tables
when a client reads or watches them. Consumer groups are requested from their coordinators, all
brokers at once, for each read, or less often if that is expensive (`ThrottledRefresh`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.group_survey import GROUPS, GroupSurvey, ThrottledRefresh
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

logger = logging.getLogger("kafkaesque.coordination")

GROUPS_SECONDS: Final = 1.0
"""How often groups are refreshed while a client watches them."""
CONSUMERS: Final = "consumers"


class ClusterRegistries:
    """Implements `host.Registries`."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_coordinator",
        "_groups",
        "_refreshed_s",
        "_refreshing",
        "_shown",
        "_survey",
    )

    def __init__(self, coordinator: Coordinator, cluster: Cluster, clock: Clock) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._clock = clock
        self._shown: object = None
        """The versions of everything that the shown tables depend on."""
        self._survey = GroupSurvey(
            cluster.node_id, cluster.live_nodes, cluster.links.call, self._own_groups
        )
        self._groups = ThrottledRefresh(self._refresh_groups, clock)
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = clock.monotonic()

    def refresh(self, paths: Sequence[str]) -> Awaitable[None] | None:
        if not touches_registry(paths):
            return None
        self._show_tables()
        return self._groups.run() if any(map(_is_consumers, paths)) else None

    def tick(self) -> None:
        watched = [path for path in self._coordinator.watches.paths() if is_registry(path)]
        if not watched:
            return
        self._show_tables()
        now_s = self._clock.monotonic()
        is_due = now_s - self._refreshed_s >= GROUPS_SECONDS and self._refreshing is None
        if is_due and any(map(_is_consumers, watched)):
            self._refreshed_s = now_s
            self._refreshing = asyncio.get_running_loop().create_task(self._groups.run())
            self._refreshing.add_done_callback(self._refresh_ended)

    def _refresh_ended(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the registry of consumers could not be refreshed", exc_info=error)

    # -- tables ----------------------------------------------------------------------------------

    def _show_tables(self) -> None:
        cluster = self._cluster
        versions = (
            cluster.controller_log.applied_index,
            cluster.leaders.revision,
            tuple(cluster.live_nodes()),
            cluster.controller_log.replica.leadership,
        )
        if versions == self._shown:
            return
        show = self._coordinator.show_registry
        if self._shown is None:
            show(CONSUMERS, {"/consumers": Leaf(b"")})
        self._shown = versions
        show("brokers", dict(self._brokers()))
        show("cluster", {"/cluster/id": _leaf(version="1", id=cluster.links.me.cluster_id)})
        epoch = cluster.controller_log.replica.leadership.term
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
        epoch = cluster.controller_log.replica.leadership.term
        for name, topic in cluster.tables.by_name.items():
            replicas = {str(n): list(p.replicas) for n, p in enumerate(topic.partitions)}
            at = f"/brokers/topics/{name}"
            yield at, _leaf(version=3, topic_id=str(topic.topic_id), partitions=replicas)
            for number, partition in enumerate(topic.partitions):
                leader = cluster.leaders.get(partition.group_id)
                is_led = leader is not None and cluster.is_up(leader.node_id)
                yield (
                    f"{at}/partitions/{number}/state",
                    _leaf(
                        version=1,
                        controller_epoch=epoch,
                        leader=leader.node_id if leader is not None and is_led else -1,
                        leader_epoch=leader.epoch if leader is not None else -1,
                        isr=list(leader.in_sync) if leader is not None else [],
                    ),
                )

    # -- consumer groups -------------------------------------------------------------------------

    async def _refresh_groups(self) -> float:
        await self._survey.survey()
        began_s = time.thread_time()
        leaves = dict(consumer_leaves(self._survey.groups()))
        self._coordinator.show_registry(CONSUMERS, leaves)
        return time.thread_time() - began_s

    def call(self, kind: int) -> bytes:
        """Answers another broker's survey."""
        if kind != GROUPS:
            raise ProtocolError(f"call of unknown kind {kind}")
        return self._survey.answer()

    def _own_groups(self) -> Iterator[GroupRow]:
        for host in self._cluster.groups:
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
    """Empty for other protocols than the consumers'."""
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
