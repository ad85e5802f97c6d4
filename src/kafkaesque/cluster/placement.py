"""Which brokers get which replicas: a pure choice."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.model.errors import InvalidReplicationFactor
from kafkaesque.model.ids import NodeId


def place(
    nodes: Sequence[NodeId], partition_count: int, replication_factor: int, start: int
) -> tuple[tuple[NodeId, ...], ...]:
    """Replicas of each new partition, the preferred leader first.

    Leaders go round the nodes from `start` on, followers stand on the nodes after their leader.
    """
    if replication_factor > len(nodes):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(nodes)} broker(s) are registered."
        )
    ordered = sorted(nodes)
    return tuple(
        tuple(
            ordered[(start + partition + replica) % len(ordered)]
            for replica in range(replication_factor)
        )
        for partition in range(partition_count)
    )
