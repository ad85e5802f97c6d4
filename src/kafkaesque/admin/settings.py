"""Settings of topics and brokers: describe and change. Blocking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import ResourceNotFound
from kafkaesque.admin.librdkafka_types import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafkaesque.model.settings import BROKER_SETTINGS, TOPIC_SETTINGS

ResourceKind = Literal["topic", "broker"]

DOCUMENTED: Final = {"topic": TOPIC_SETTINGS, "broker": BROKER_SETTINGS}
"""The settings that a Kafkaesque broker has."""
_RESOURCE_TYPES: Final = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "cluster",
    ConfigSource.STATIC_BROKER_CONFIG.value: "start-up",
    ConfigSource.DEFAULT_CONFIG.value: "default",
    ConfigSource.GROUP_CONFIG.value: "group",
}
_MILLISECONDS: Final = {"hours": 3_600_000, "minutes": 60_000}


def check_exists(connection: ClusterConnection, kind: ResourceKind, name: str) -> None:
    """Raises ResourceNotFound unless the topic or the broker exists."""
    if kind == "topic":
        connection.describe_topics([name])
        return
    ids = sorted(connection.metadata().brokers)
    if name not in map(str, ids):
        raise ResourceNotFound(
            f"there is no broker '{name}'", f"the brokers are {', '.join(map(str, ids))}"
        )


def describe_settings(
    connection: ClusterConnection, kind: ResourceKind, name: str
) -> list[dict[str, Any]]:
    """One row for each setting: its value, where it comes from, and its default."""
    futures = connection.admin.describe_configs(
        [ConfigResource(_RESOURCE_TYPES[kind], name)], request_timeout=connection.timeout_s
    )
    (future,) = futures.values()
    entries = connection.wait(future, f"read the settings of {kind} '{name}'")
    return [_row(kind, entry) for _, entry in sorted(entries.items())]


def _row(kind: ResourceKind, entry: Any) -> dict[str, Any]:
    defaults = [
        _in_unit_of(entry.name, synonym.name, synonym.value)
        for synonym in entry.synonyms.values()
        if synonym.source == ConfigSource.DEFAULT_CONFIG.value
    ]
    documented = DOCUMENTED[kind].get(entry.name)
    source = _SOURCES.get(entry.source, "unknown")
    return {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive and entry.value is None else entry.value,
        "source": source,
        "default": defaults[0] if defaults else (entry.value if source == "default" else None),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "doc": documented.doc if documented else None,
    }


def _in_unit_of(name: str, synonym: str, value: str) -> str:
    """A synonym's value in the unit of `name`: Kafka reports log.retention.hours=168 in hours."""
    factor = _MILLISECONDS.get(synonym.rpartition(".")[2])
    return str(int(value) * factor) if factor and name.endswith(".ms") else value


def alter_settings(
    connection: ClusterConnection,
    kind: ResourceKind,
    name: str,
    sets: Mapping[str, str],
    unsets: Iterable[str],
) -> None:
    """Changes settings of a topic or broker in one request (IncrementalAlterConfigs)."""
    set_op, delete_op = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    entries = [ConfigEntry(key, sets[key], incremental_operation=set_op) for key in sets]
    entries += [ConfigEntry(key, None, incremental_operation=delete_op) for key in unsets]
    resource = ConfigResource(_RESOURCE_TYPES[kind], name, incremental_configs=entries)
    futures = connection.admin.incremental_alter_configs(
        [resource], request_timeout=connection.timeout_s
    )
    for future in futures.values():
        connection.wait(future, f"change settings of {kind} '{name}'")
