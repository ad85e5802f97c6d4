"""One interface for the admin clients of all libraries that have one."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import confluent_kafka as ck
from confluent_kafka import admin as cka
from tests.conformance.clients.confluent import failure as confluent_failure
from tests.conformance.clients.java import Java39, Java43, JavaClient
from tests.conformance.clients.kafka_python import (
    KafkaError,
    TopicPartition,
    kafka_admin,
    kafka_errors,
    kafka_structs,
)
from tests.conformance.clients.kafka_python import failure as kafka_python_failure

TIMEOUT_S = 30


@dataclass(frozen=True)
class Setting:
    value: str | None
    source: str
    read_only: bool
    sensitive: bool


class Admin(abc.ABC):
    """Errors are raised as ClientFailure with Kafka's error code."""

    name: ClassVar[str]
    lacks: ClassVar[frozenset[str]] = frozenset()

    @abc.abstractmethod
    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    @abc.abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abc.abstractmethod
    def topics(self) -> set[str]: ...

    @abc.abstractmethod
    def partitions(self, topic: str) -> list[tuple[int, int, list[int]]]:
        """(index, leader, replicas) of each partition."""

    @abc.abstractmethod
    def create_partitions(self, topic: str, count: int) -> None: ...

    @abc.abstractmethod
    def delete_records(self, topic: str, offset: int) -> int:
        """Delete records of partition 0; returns the new low watermark."""

    @abc.abstractmethod
    def settings(self, kind: str, name: str) -> dict[str, Setting]:
        """`kind` is "topic" or "broker"."""

    @abc.abstractmethod
    def alter(self, topic: str, key: str, value: str | None) -> None:
        """Set one topic setting; None removes it."""

    @abc.abstractmethod
    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        """Cluster id, controller, and (id, host, port) of each broker."""

    @abc.abstractmethod
    def list_offset(self, topic: str, spec: str | int) -> tuple[int, int]:
        """(offset, timestamp) of partition 0; spec: earliest, latest, max_timestamp or a time."""

    @abc.abstractmethod
    def groups(self) -> dict[str, str]:
        """Group id to state, in lower case without separators."""

    @abc.abstractmethod
    def describe_group(self, group: str) -> tuple[str, list[set[tuple[str, int]]]]:
        """State, and each member's partitions."""

    @abc.abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abc.abstractmethod
    def group_offsets(self, group: str) -> dict[tuple[str, int], int]: ...

    @abc.abstractmethod
    def alter_group_offset(self, group: str, topic: str, offset: int) -> None: ...

    @abc.abstractmethod
    def delete_group_offset(self, group: str, topic: str) -> None: ...

    def log_sizes(self, topic: str) -> dict[int, int]:
        raise NotImplementedError

    @abc.abstractmethod
    def close(self) -> None: ...


def _state(text: str) -> str:
    return text.rpartition(".")[2].replace("_", "").lower()


class ConfluentAdmin(Admin):
    name: ClassVar[str] = "confluent-kafka"
    lacks: ClassVar[frozenset[str]] = frozenset({"log dirs", "delete group offsets"})

    def __init__(self, bootstrap: str) -> None:
        self._admin = cka.AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        del self._admin

    @staticmethod
    def _one(answers: Mapping[Any, Any]) -> Any:
        (future,) = answers.values()
        try:
            return future.result(TIMEOUT_S)
        except ck.KafkaException as error:
            raise confluent_failure(error.args[0]) from error

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        if assignments is not None:
            wanted = cka.NewTopic(topic, len(assignments), replica_assignment=assignments)
        else:
            wanted = cka.NewTopic(topic, partitions, 1, config=dict(configs or {}))
        self._one(self._admin.create_topics([wanted], validate_only=validate_only))

    def delete_topic(self, topic: str) -> None:
        self._one(self._admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def partitions(self, topic: str) -> list[tuple[int, int, list[int]]]:
        found = self._one(self._admin.describe_topics(ck.TopicCollection([topic])))
        return [(p.id, p.leader.id, [r.id for r in p.replicas]) for p in found.partitions]

    def create_partitions(self, topic: str, count: int) -> None:
        self._one(self._admin.create_partitions([cka.NewPartitions(topic, count)]))

    def delete_records(self, topic: str, offset: int) -> int:
        found = self._one(self._admin.delete_records([ck.TopicPartition(topic, 0, offset)]))
        return int(found.low_watermark)

    def settings(self, kind: str, name: str) -> dict[str, Setting]:
        resource = cka.ConfigResource(cka.ConfigResource.Type[kind.upper()], name)
        found = self._one(self._admin.describe_configs([resource]))
        return {
            entry.name: Setting(
                entry.value,
                cka.ConfigSource(entry.source).name,
                entry.is_read_only,
                entry.is_sensitive,
            )
            for entry in found.values()
        }

    def alter(self, topic: str, key: str, value: str | None) -> None:
        kinds = cka.AlterConfigOpType
        entry = cka.ConfigEntry(
            key, value, incremental_operation=kinds.DELETE if value is None else kinds.SET
        )
        resource = cka.ConfigResource(
            cka.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
        )
        self._one(self._admin.incremental_alter_configs([resource]))

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        found = self._admin.describe_cluster().result(TIMEOUT_S)
        nodes = [(node.id, node.host, node.port) for node in found.nodes]
        return found.cluster_id, found.controller.id, nodes

    def list_offset(self, topic: str, spec: str | int) -> tuple[int, int]:
        specs: dict[str, Callable[[], Any]] = {
            "earliest": cka.OffsetSpec.earliest,
            "latest": cka.OffsetSpec.latest,
            "max_timestamp": cka.OffsetSpec.max_timestamp,
        }
        wanted = specs[spec]() if isinstance(spec, str) else cka.OffsetSpec.for_timestamp(spec)
        found = self._one(self._admin.list_offsets({ck.TopicPartition(topic, 0): wanted}))
        return int(found.offset), int(found.timestamp)

    def groups(self) -> dict[str, str]:
        found = self._admin.list_consumer_groups().result(TIMEOUT_S)
        return {row.group_id: _state(str(row.state)) for row in found.valid}

    def describe_group(self, group: str) -> tuple[str, list[set[tuple[str, int]]]]:
        found = self._one(self._admin.describe_consumer_groups([group]))
        members = [
            {(tp.topic, tp.partition) for tp in member.assignment.topic_partitions}
            for member in found.members
        ]
        return _state(str(found.state)), members

    def delete_group(self, group: str) -> None:
        self._one(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        request = [ck.ConsumerGroupTopicPartitions(group)]
        found = self._one(self._admin.list_consumer_group_offsets(request))
        return {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions}

    def alter_group_offset(self, group: str, topic: str, offset: int) -> None:
        wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, offset)])
        found = self._one(self._admin.alter_consumer_group_offsets([wanted]))
        for tp in found.topic_partitions:
            if tp.error is not None:
                raise confluent_failure(tp.error)

    def delete_group_offset(self, group: str, topic: str) -> None:
        raise NotImplementedError


class KafkaPythonAdmin(Admin):
    name: ClassVar[str] = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._admin = kafka_admin.KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def _call(self, method: str, *values: Any, **options: Any) -> Any:
        try:
            return getattr(self._admin, method)(*values, **options)
        except KafkaError as error:
            raise kafka_python_failure(error) from error

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        row: dict[str, Any] = {"num_partitions": partitions, "configs": dict(configs or {})}
        if assignments is not None:
            row = {"assignments": dict(enumerate(assignments))}
        self._call("create_topics", {topic: row}, validate_only=validate_only)

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topics", [topic])

    def topics(self) -> set[str]:
        return set(self._call("list_topics"))

    def partitions(self, topic: str) -> list[tuple[int, int, list[int]]]:
        (row,) = self._call("describe_topics", [topic])
        return [
            (p["partition_index"], p["leader_id"], p["replica_nodes"]) for p in row["partitions"]
        ]

    def create_partitions(self, topic: str, count: int) -> None:
        self._call("create_partitions", {topic: count})

    def delete_records(self, topic: str, offset: int) -> int:
        (row,) = self._call("delete_records", {TopicPartition(topic, 0): offset}).values()
        return int(row["low_watermark"])

    def settings(self, kind: str, name: str) -> dict[str, Setting]:
        resource = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType[kind.upper()], name)
        found = self._call("describe_configs", [resource], config_filter="all")[kind][name]
        return {
            key: Setting(row["value"], row["config_source"], row["read_only"], row["is_sensitive"])
            for key, row in found.items()
        }

    def alter(self, topic: str, key: str, value: str | None) -> None:
        change = ("DELETE", None) if value is None else ("SET", value)
        resource = kafka_admin.ConfigResource(
            kafka_admin.ConfigResourceType.TOPIC, topic, {key: change}
        )
        answer = self._call("alter_configs", [resource], raise_on_unknown=False)
        self._check(answer["topic"][topic])

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        row = self._call("describe_cluster")
        nodes = [(node["broker_id"], node["host"], node["port"]) for node in row["brokers"]]
        return row["cluster_id"], row["controller_id"], nodes

    def list_offset(self, topic: str, spec: str | int) -> tuple[int, int]:
        wanted = spec if isinstance(spec, int) else kafka_admin.OffsetSpec[spec.upper()]
        (row,) = self._call("list_partition_offsets", {TopicPartition(topic, 0): wanted}).values()
        return int(row.offset), int(row.timestamp)

    def groups(self) -> dict[str, str]:
        return {row["group_id"]: _state(row["group_state"]) for row in self._call("list_groups")}

    def describe_group(self, group: str) -> tuple[str, list[set[tuple[str, int]]]]:
        row = self._call("describe_groups", [group])[group]
        members = []
        for member in row["members"]:
            shares = member["member_assignment"]["assigned_partitions"]
            members.append({(s["topic"], index) for s in shares for index in s["partitions"]})
        return _state(row["group_state"]), members

    def delete_group(self, group: str) -> None:
        (outcome,) = self._call("delete_groups", [group]).values()
        self._check(outcome)

    @staticmethod
    def _check(outcome: str) -> None:
        """Some calls return "OK" or the name of the error class, alone or within a sentence."""
        if outcome != "OK":
            (kind,) = re.findall(r"\w+Error\b", outcome)
            raise kafka_python_failure(getattr(kafka_errors, kind)(outcome))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        found = self._call("list_group_offsets", group)[group]
        return {(tp.topic, tp.partition): row.offset for tp, row in found.items()}

    def alter_group_offset(self, group: str, topic: str, offset: int) -> None:
        row = kafka_structs.OffsetAndMetadata(offset, "", -1)
        (outcome,) = self._call(
            "alter_group_offsets", group, {TopicPartition(topic, 0): row}
        ).values()
        if outcome.errno != 0:
            raise kafka_python_failure(outcome())

    def delete_group_offset(self, group: str, topic: str) -> None:
        (outcome,) = self._call("delete_group_offsets", group, [TopicPartition(topic, 0)]).values()
        if outcome.errno != 0:
            raise kafka_python_failure(outcome())

    def log_sizes(self, topic: str) -> dict[int, int]:
        (broker,) = self._call("describe_log_dirs", [topic])
        return {
            row["partition_index"]: row["partition_size"]
            for directory in broker["log_dirs"]
            for named in directory["topics"]
            if named["name"] == topic
            for row in named["partitions"]
        }


class JavaAdmin(Admin):
    kind: ClassVar[type[JavaClient]]

    def __init__(self, bootstrap: str) -> None:
        self._client = self.kind(bootstrap)
        self._call = self._client.program.call

    def close(self) -> None:
        self._client.close()

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: list[list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        values: dict[str, Any] = {"partitions": partitions, "configs": dict(configs or {})}
        if assignments is not None:
            values = {"assignments": {str(n): row for n, row in enumerate(assignments)}}
        answer = self._call("create_topic", topic=topic, validate_only=validate_only, **values)
        assert answer["partitions"] == (partitions if assignments is None else len(assignments))
        assert answer["replication_factor"] == 1
        assert {name: answer[name] for name in configs or {}} == dict(configs or {})

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def topics(self) -> set[str]:
        return set(self._call("list_topics"))

    def partitions(self, topic: str) -> list[tuple[int, int, list[int]]]:
        # Pages of two partitions: DescribeTopicPartitions with its cursor.
        rows = self._call("describe_topic", topic=topic, page=2)["partitions"]
        assert all(row["isr"] == row["replicas"] for row in rows)
        return [(row["index"], row["leader"], row["replicas"]) for row in rows]

    def create_partitions(self, topic: str, count: int) -> None:
        self._call("create_partitions", topic=topic, count=count)

    def delete_records(self, topic: str, offset: int) -> int:
        return int(self._call("delete_records", topic=topic, partition=0, offset=offset))

    def settings(self, kind: str, name: str) -> dict[str, Setting]:
        rows = self._call("describe_configs", type=kind.upper(), name=name)
        assert all(row["documented"] for row in rows.values())
        return {
            key: Setting(row["value"], row["source"], row["read_only"], row["sensitive"])
            for key, row in rows.items()
        }

    def alter(self, topic: str, key: str, value: str | None) -> None:
        change = "DELETE" if value is None else "SET"
        self._call("alter_config", type="TOPIC", name=topic, key=key, value=value, change=change)

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        row = self._call("describe_cluster")
        nodes = [(node["id"], node["host"], node["port"]) for node in row["nodes"]]
        return row["cluster_id"], row["controller"], nodes

    def list_offset(self, topic: str, spec: str | int) -> tuple[int, int]:
        row = self._call("list_offsets", topic=topic, partition=0, spec=spec)
        return row["offset"], row["timestamp"]

    def groups(self) -> dict[str, str]:
        return {group: _state(state) for group, state in self._call("list_groups").items()}

    def describe_group(self, group: str) -> tuple[str, list[set[tuple[str, int]]]]:
        row = self._call("describe_group", group=group)
        members = [{(t, p) for t, p in member["partitions"]} for member in row["members"]]
        return _state(row["state"]), members

    def delete_group(self, group: str) -> None:
        self._call("delete_group", group=group)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        return {(row[0], row[1]): row[2] for row in self._call("group_offsets", group=group)}

    def alter_group_offset(self, group: str, topic: str, offset: int) -> None:
        self._call("alter_group_offset", group=group, topic=topic, partition=0, offset=offset)

    def delete_group_offset(self, group: str, topic: str) -> None:
        self._call("delete_group_offset", group=group, topic=topic, partition=0)

    def log_sizes(self, topic: str) -> dict[int, int]:
        (row,) = self._call("describe_log_dirs", topic=topic)
        assert not row["failed"]
        assert row["total_bytes"] > row["usable_bytes"] > 0
        return {int(index): size for index, size in row["sizes"].items()}


class JavaAdmin43(JavaAdmin):
    name: ClassVar[str] = Java43.name
    kind: ClassVar[type[JavaClient]] = Java43


class JavaAdmin39(JavaAdmin):
    name: ClassVar[str] = Java39.name
    kind: ClassVar[type[JavaClient]] = Java39


_KINDS: tuple[type[Admin], ...] = (ConfluentAdmin, KafkaPythonAdmin, JavaAdmin43, JavaAdmin39)
ADMINS = tuple(kind.name for kind in _KINDS)


def open_admin(name: str, bootstrap: str) -> Admin:
    """The admin client `name`; raises `Unavailable`, which names what to install."""
    (kind,) = (kind for kind in _KINDS if kind.name == name)
    # Each class takes the bootstrap address.
    return kind(bootstrap)  # type: ignore[call-arg]
