"""Operations of tests on a running node, as coroutines for the node's event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkaesque.broker.cluster.rules.controller import Controller, Decision
    from kafkaesque.broker.node import Node


def setting_texts(
    values: Mapping[str, bool | int | float | str | Sequence[str] | None],
) -> dict[str, str]:
    """Settings as the strings that Kafka uses; None values are left out."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: bool | int | float | str | Sequence[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(value)


async def create_topic(
    node: Node, name: str, partition_count: int, configs: Mapping[str, str]
) -> None:
    from kafkaesque.broker.cluster.rules.controller import NewTopic

    wanted = NewTopic(name, partition_count, configs=configs)
    await node.context.cluster.submit(lambda controller: controller.create_topic(wanted))


async def delete_topics(node: Node, names: Sequence[str]) -> None:
    def operation(controller: Controller) -> Decision[None]:
        by_name = controller.tables.by_name
        return controller.delete_topics([by_name[name] for name in names if name in by_name])

    await node.context.cluster.submit(operation)


async def create_cluster_topic(
    node: Node, name: str, counts: Sequence[int], configs: Mapping[str, str]
) -> None:
    """Create a topic through the controller, on whichever node it is.

    `counts` are partitions and replicas; -1 takes the default.
    """
    from kafkaesque.broker.cluster.rules.controller import NewTopic

    partition_count, replication_factor = counts
    wanted = NewTopic(name, partition_count, replication_factor, dict(configs))
    refused = await node.context.cluster.create_topics([wanted])
    for error in refused.values():
        raise error


class CutDirections(NamedTuple):
    """The directions in which messages between a broker and `other` are dropped."""

    other: int
    is_in: bool
    is_out: bool


async def cut(node: Node, cuts: Iterable[CutDirections]) -> None:
    from kafkaesque.model.ids import NodeId

    for other, is_in, is_out in cuts:
        node.context.cluster.links.partition(NodeId(other), cut_in=is_in, cut_out=is_out)


async def heal(node: Node, others: Iterable[int]) -> None:
    from kafkaesque.model.ids import NodeId

    for other in others:
        node.context.cluster.links.heal(NodeId(other))


async def maintain(node: Node) -> None:
    context = node.context
    await context.partitions.maintain(context.config.producer_id_expiration_ms)
    context.groups.expire_offsets()
    # Group timers follow the event loop's time, so a manual clock does not fire them.
    for host in context.groups:
        host.carry_out(lambda registry, now: registry.tick(now))
