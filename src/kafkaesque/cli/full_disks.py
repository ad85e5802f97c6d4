"""Finds brokers with a full disk, for a command whose records were refused.

librdkafka retries a batch that failed with KAFKA_STORAGE_ERROR until it expires, and then reports only the
timeout. So the brokers are asked for their free space (DescribeLogDirs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkaesque.admin.cluster import Broker, ClusterAdmin
from kafkaesque.admin.errors import AdminError
from kafkaesque.cli.client import PROBE_TIMEOUT_S_MAX, Connection
from kafkaesque.cli.failures import Failure
from kafkaesque.cli.render import human_bytes
from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.limits import MIB
from kafkaesque.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

ROOM_BYTES_MIN: Final = 2 * MIB
"""Twice a producer's largest batch by default: a disk is full when the next batch does not fit."""


def full_disks(connection: Connection) -> list[str]:
    """A sentence for each full disk; empty if none is known to be, or no broker answers soon."""
    quick = Connection(
        connection.bootstrap, connection.properties, min(connection.timeout_s, PROBE_TIMEOUT_S_MAX)
    )
    try:
        cluster = quick.cluster
        brokers = cluster.brokers()
    except (Failure, AdminError):
        return []
    return [
        problem
        for broker in brokers
        for directory in _directories(cluster, broker)
        if (problem := describe_room(broker.id, directory)) is not None
    ]


def _directories(cluster: ClusterAdmin, broker: Broker) -> Iterator[DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=[])
    try:
        yield from cluster.call_broker(
            broker, request, DescribeLogDirsResponse, "look at disks"
        ).results
    except AdminError:
        return


def describe_room(node_id: int, directory: DescribeLogDirsResult) -> str | None:
    """What is wrong with a data directory; None if nothing is."""
    disk = f"its disk ({directory.log_dir})"
    if directory.error_code:
        name = error_name(directory.error_code)
        return f"broker {node_id} cannot use {disk}: {name}; its log says why"
    if not 0 <= directory.usable_bytes < ROOM_BYTES_MIN:
        return None
    room = human_bytes(directory.usable_bytes)
    return (
        f"broker {node_id} has {room} left on {disk} and refuses what does not fit "
        "(KAFKA_STORAGE_ERROR): free some space there, and send it again"
    )
