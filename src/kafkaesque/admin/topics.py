"""Topics: create, list, describe, add partitions, delete topics and records. Blocking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError, Node, TopicPartition, TopicPartitionInfo
from confluent_kafka.cimpl import OFFSET_END

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import AdminError
from kafkaesque.admin.librdkafka_types import (
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafkaesque.admin.offsets import fetch_bounds
from kafkaesque.admin.rules.offset_reset import Partition

Done = Literal["created", "valid", "exists", "deleted"]


class TopicOutcome(NamedTuple):
    """The outcome of one topic in an operation on several: done, or failed with `error`.

    `reason` is the broker's own text of the error.
    """

    topic: str
    done: Done | None
    error: AdminError | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        if self.error is None:
            return {"topic": self.topic, "result": self.done}
        return {"topic": self.topic, "result": "failed", "error": self.reason}


def create_topics(
    connection: ClusterConnection,
    names: Iterable[str],
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    validate_only: bool = False,
) -> list[TopicOutcome]:
    """Creates topics; None leaves a number to the broker. With `validate_only`, creates nothing."""
    wanted = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            config=dict(settings or {}),
        )
        for name in names
    ]
    futures = connection.admin.create_topics(
        wanted,
        validate_only=validate_only,
        request_timeout=connection.timeout_s,
        operation_timeout=connection.timeout_s,
    )
    done: Done = "valid" if validate_only else "created"
    return _collect(connection, futures, "create", done, may_exist=if_not_exists)


def delete_topics(connection: ClusterConnection, names: Iterable[str]) -> list[TopicOutcome]:
    """Deletes topics and all their records."""
    futures = connection.admin.delete_topics(
        list(names), request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s
    )
    return _collect(connection, futures, "delete", "deleted")


def _collect(
    connection: ClusterConnection,
    futures: Mapping[str, Any],
    verb: str,
    done: Done,
    *,
    may_exist: bool = False,
) -> list[TopicOutcome]:
    """Waits for one operation on several topics."""
    outcomes = []
    for name, future in futures.items():
        error = connection.error_of(future)
        if error is None:
            outcomes.append(TopicOutcome(name, done))
        elif may_exist and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            outcomes.append(TopicOutcome(name, "exists"))
        else:
            failure = connection.admin_error(error, f"{verb} topic '{name}'")
            outcomes.append(TopicOutcome(name, None, failure, error.str()))
    return outcomes


def add_partitions(connection: ClusterConnection, name: str, total: int) -> None:
    """Raises the number of partitions of a topic to `total`."""
    connection.describe_topics([name])
    futures = connection.admin.create_partitions(
        [NewPartitions(name, total)], request_timeout=connection.timeout_s
    )
    connection.wait(futures[name], f"give '{name}' {total} partitions")


def delete_records(
    connection: ClusterConnection,
    partitions: Collection[Partition],
    limits: Mapping[int, int],
) -> list[dict[str, Any]]:
    """Deletes the records before `limits`, by partition; all records where there is no limit.

    Returns the offsets that remain.
    """
    wanted = [
        TopicPartition(topic, index, limits.get(index, OFFSET_END)) for topic, index in partitions
    ]
    futures = connection.admin.delete_records(
        wanted, request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s
    )
    for key, future in futures.items():
        connection.wait(future, f"delete records of {key.topic}-{key.partition}")
    bounds = fetch_bounds(connection, partitions)
    return [
        {"partition": key[1], "earliest": bounds[key].earliest, "latest": bounds[key].end}
        for key in partitions
    ]


def list_topics(
    connection: ClusterConnection, *, internal: bool, details: bool
) -> list[dict[str, Any]]:
    """One row per topic, sorted by name; `details` adds the number of records."""
    topics = connection.metadata().topics
    rows: list[dict[str, Any]] = []
    for name in sorted(topics):
        if name.startswith("__") and not internal:
            continue
        partitions = topics[name].partitions
        replicas = max((len(info.replicas) for info in partitions.values()), default=0)
        rows.append({"topic": name, "partitions": len(partitions), "replication_factor": replicas})
    if details:
        wanted = [(row["topic"], index) for row in rows for index in range(row["partitions"])]
        counts: dict[str, int] = {}
        for (name, _), bounds in fetch_bounds(connection, wanted).items():
            counts[name] = counts.get(name, 0) + bounds.end - bounds.earliest
        for row in rows:
            row["records"] = counts[row["topic"]]
    return rows


def describe_topics(connection: ClusterConnection, names: Iterable[str]) -> list[dict[str, Any]]:
    """Descriptions of topics: identity, partitions with offsets, settings that are not the default."""
    topics = connection.describe_topics(dict.fromkeys(names))
    # Offsets of a partition without a leader cannot be listed.
    led = [
        (name, partition.id)
        for name, topic in topics.items()
        for partition in topic.partitions
        if _leader_id(partition) is not None
    ]
    bounds = fetch_bounds(connection, led)
    settings = _changed_settings(connection, list(topics))
    described = []
    for name, topic in topics.items():
        rows: list[dict[str, Any]] = []
        for partition in sorted(topic.partitions, key=lambda info: info.id):
            here = bounds.get((name, partition.id))
            rows.append(
                {
                    "partition": partition.id,
                    "leader": _leader_id(partition),
                    "replicas": [node.id for node in partition.replicas],
                    "isr": [node.id for node in partition.isr],
                    "earliest": here.earliest if here else None,
                    "latest": here.end if here else None,
                    "records": here.end - here.earliest if here else None,
                }
            )
        described.append(
            {
                "topic": name,
                # librdkafka writes plain base64, Kafka its URL-safe kind.
                "id": str(topic.topic_id).replace("+", "-").replace("/", "_"),
                "internal": topic.is_internal,
                "partition_count": len(rows),
                "replication_factor": max((len(row["replicas"]) for row in rows), default=0),
                "records": sum(row["records"] or 0 for row in rows),
                "configs": settings[name],
                "partitions": rows,
            }
        )
    return described


def _leader_id(partition: TopicPartitionInfo) -> int | None:
    # The stubs promise a Node; a partition that lost its leader has None, or the id -1.
    leader: Node | None = partition.leader
    return leader.id if leader is not None and leader.id >= 0 else None


def _changed_settings(connection: ClusterConnection, names: list[str]) -> dict[str, dict[str, str]]:
    """Settings that were set for the topic itself, by topic."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = connection.admin.describe_configs(resources, request_timeout=connection.timeout_s)
    changed = {}
    for resource, future in futures.items():
        entries = connection.wait(future, f"read the settings of '{resource.name}'")
        changed[resource.name] = {
            entry.name: entry.value
            for entry in sorted(entries.values(), key=lambda entry: entry.name)
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
    return changed
