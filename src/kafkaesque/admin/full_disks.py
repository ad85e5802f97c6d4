"""Finds brokers with a full disk, to explain why a producer's records timed out.

librdkafka retries a batch that failed with KAFKA_STORAGE_ERROR until it expires, and then reports only the
timeout. DescribeLogDirs returns the free space of each broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkaesque.admin.cluster import BlockingAdmin, BrokerNode
from kafkaesque.admin.errors import AdminError
from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.limits import MIB
from kafkaesque.model.sizes import human_bytes
from kafkaesque.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

ROOM_BYTES_MIN: Final = 2 * MIB
"""Twice a producer's largest batch by default: a disk is full when the next batch does not fit."""


def full_disks(cluster: BlockingAdmin) -> list[str]:
    """One sentence for each full or failed disk. Brokers that do not answer are skipped.

    Raises AdminError if no broker answers.
    """
    return [
        problem
        for broker in cluster.brokers()
        for directory in _directories(cluster, broker)
        if (problem := describe_problem(broker.id, directory)) is not None
    ]


def _directories(cluster: BlockingAdmin, broker: BrokerNode) -> Iterator[DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=[])
    try:
        yield from cluster.call_broker(
            broker, request, DescribeLogDirsResponse, "describe log directories"
        ).results
    except AdminError:
        return


def describe_problem(node_id: int, directory: DescribeLogDirsResult) -> str | None:
    """The problem of a data directory; None if it has free space or does not report it."""
    disk = f"its disk ({directory.log_dir})"
    if directory.error_code:
        name = error_name(directory.error_code)
        return f"broker {node_id} cannot use {disk}: {name}; see its log"
    if not 0 <= directory.usable_bytes < ROOM_BYTES_MIN:
        return None
    room = human_bytes(directory.usable_bytes)
    return (
        f"broker {node_id} has {room} left on {disk} and rejects batches that do not fit "
        "(KAFKA_STORAGE_ERROR): free some space, then send the records again"
    )
