"""Rows of `topic list` and `topic describe`, and their output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Node, TopicPartitionInfo

from kafkaesque.cli.admin_types import ConfigResource, ConfigSource, ResourceType
from kafkaesque.cli.client import Connection
from kafkaesque.cli.offsets import fetch_bounds
from kafkaesque.cli.render import Column, Screen

_PARTITION_COLUMNS = [
    Column("partition", "Partition", "count"),
    Column("leader", "Leader"),
    Column("replicas", "Replicas"),
    Column("isr", "In sync"),
    Column("earliest", "Earliest", "count"),
    Column("latest", "Latest", "count"),
    Column("records", "Records", "count"),
]


def list_rows(connection: Connection, *, internal: bool, details: bool) -> list[dict[str, Any]]:
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


def describe_rows(connection: Connection, names: Iterable[str]) -> list[dict[str, Any]]:
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


def _changed_settings(connection: Connection, names: list[str]) -> dict[str, dict[str, str]]:
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


def show_descriptions(screen: Screen, topics: list[dict[str, Any]]) -> None:
    for number, topic in enumerate(topics):
        if number:
            screen.line()
        screen.heading(topic["topic"])
        pairs = [
            ("id", topic["id"]),
            ("partitions", topic["partition_count"]),
            ("replicas", topic["replication_factor"]),
            ("records", topic["records"]),
        ]
        if topic["internal"]:
            pairs.append(("internal", True))
        settings = [f"{name}={value}" for name, value in topic["configs"].items()]
        pairs += [("config" if index == 0 else "", text) for index, text in enumerate(settings)]
        screen.fields(pairs)
        screen.line()
        screen.table(_PARTITION_COLUMNS, topic["partitions"])
