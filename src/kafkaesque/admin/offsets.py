"""Offsets of partitions, from ListOffsets: earliest, end, and the offset at a time."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka import IsolationLevel, KafkaError, TopicPartition

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import AdminError
from kafkaesque.admin.librdkafka_types import OffsetSpec as AdminOffsetSpec
from kafkaesque.admin.rules.offset_reset import Bounds, OffsetSpec, Partition

SETTLING_S_MAX = 3.0
SETTLING_PAUSE_S = 0.1
_SETTLING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors of brokers whose metadata does not have a new topic or leader yet. Callers have seen the
partition in the metadata, so it exists."""

_EARLIEST: AdminOffsetSpec = AdminOffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: AdminOffsetSpec = AdminOffsetSpec.latest()  # type: ignore[no-untyped-call]


def fetch_bounds(
    connection: ClusterConnection,
    partitions: Collection[Partition],
    spec: OffsetSpec | None = None,
    *,
    committed_only: bool = False,
) -> dict[Partition, Bounds]:
    """Earliest and end offset of each partition, and the offset at the time of `spec` if it is one.

    With `committed_only` the end is the last stable offset, where a read_committed consumer stops.
    """
    earliest = _list_offsets(connection, partitions, _EARLIEST, committed_only)
    end = _list_offsets(connection, partitions, _LATEST, committed_only)
    at_time: Mapping[Partition, int] = {}
    if spec is not None and spec.kind == "time":
        wanted = AdminOffsetSpec.for_timestamp(max(spec.number, 0))
        at_time = _list_offsets(connection, partitions, wanted, committed_only)
    return {
        key: Bounds(earliest[key], end[key], at_time[key] if at_time.get(key, -1) >= 0 else None)
        for key in partitions
    }


def _list_offsets(
    connection: ClusterConnection,
    partitions: Collection[Partition],
    spec: AdminOffsetSpec,
    committed_only: bool,
) -> dict[Partition, int]:
    """Retries transient errors: a broker may not have the metadata of a new partition or leader yet."""
    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    found: dict[Partition, int] = {}
    deadline = time.monotonic() + min(connection.timeout_s, SETTLING_S_MAX)
    while wanted := [key for key in partitions if key not in found]:
        futures = connection.admin.list_offsets(
            {TopicPartition(topic, index): spec for topic, index in wanted},
            isolation_level=level,
            request_timeout=connection.timeout_s,
        )
        for key, future in futures.items():
            error = connection.error_of(future)
            if error is None:
                found[key.topic, key.partition] = future.result().offset
            elif error.code() not in _SETTLING or time.monotonic() > deadline:
                raise connection.admin_error(
                    error, f"read the offsets of {key.topic}-{key.partition}"
                )
        if len(found) < len(partitions):
            time.sleep(SETTLING_PAUSE_S)
    return found


def partitions_of(
    connection: ClusterConnection, topics: Collection[str], only: Collection[int] = ()
) -> list[Partition]:
    """All partitions of `topics`, or those numbered `only`. Raises AdminError for a number that does not exist."""
    found: list[Partition] = []
    for name, topic in connection.describe_topics(topics).items():
        existing = [partition.id for partition in topic.partitions]
        absent = sorted(set(only) - set(existing))
        if absent:
            raise AdminError(
                f"topic '{name}' has no partition {absent[0]}",
                f"it has {len(existing)} partitions, numbered from 0",
            )
        found += [(name, index) for index in sorted(only or existing)]
    return found
