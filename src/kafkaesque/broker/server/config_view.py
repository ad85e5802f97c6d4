"""Settings as clients see them: the effective value, its source, and its synonyms.

The order of sources and the choice of synonyms follow Kafka's ConfigHelper, quirks included,
because tools compare them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.model.setting import Scope, Setting
from kafkaesque.model.settings import BROKER_SETTINGS, TOPIC_SETTINGS, broker_value, inherited


class ResourceType(IntEnum):
    """The resources that a config request may name. Kafka has more: loggers (8), metrics clients
    (16), groups (32)."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value was set (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that is in effect, or would be without the synonyms before it."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    setting: Setting
    value: str | None
    read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    name: setting.synonyms for setting in TOPIC_SETTINGS.values() for name in setting.synonyms
}
"""Broker settings that are alternatives for each other (log.retention.ms, .minutes, .hours), finest
first."""


def topic_entries(
    cluster: Cluster, configs: Mapping[str, str], names: Collection[str] = ()
) -> list[ConfigEntry]:
    """Returns every setting of a topic that overrides `configs`, by name; with `names`, only
    those."""
    entries = []
    for name in _chosen(TOPIC_SETTINGS, names):
        setting = TOPIC_SETTINGS[name]
        synonyms = tuple(_broker_synonyms(cluster, setting.synonyms[0]))
        value = configs.get(name)
        if value is None:
            value = setting.show(inherited(cluster.settings.current, name))
        else:
            synonyms = (Synonym(name, value, ConfigSource.TOPIC), *synonyms)
        entries.append(ConfigEntry(setting, value, read_only=False, synonyms=synonyms))
    return entries


def broker_entries(cluster: Cluster, names: Collection[str] = ()) -> list[ConfigEntry]:
    """Returns every setting of this broker, by name; with `names`, only those."""
    return [
        ConfigEntry(
            BROKER_SETTINGS[name],
            BROKER_SETTINGS[name].show(broker_value(cluster.settings.current, name)),
            read_only=BROKER_SETTINGS[name].scope is Scope.READ_ONLY,
            synonyms=tuple(_broker_synonyms(cluster, name)),
        )
        for name in _chosen(BROKER_SETTINGS, names)
    ]


def broker_default_entries(cluster: Cluster, names: Collection[str] = ()) -> list[ConfigEntry]:
    """Returns only the settings that were changed for all brokers at once."""
    changed = cluster.tables.broker_configs.get(None, {})
    return [
        ConfigEntry(
            BROKER_SETTINGS[name],
            changed[name],
            read_only=False,
            synonyms=(Synonym(name, changed[name], ConfigSource.DYNAMIC_DEFAULT_BROKER),),
        )
        for name in _chosen(changed, names)
    ]


def _chosen(known: Collection[str], names: Collection[str]) -> list[str]:
    """Unknown names are ignored, as in Kafka."""
    return sorted(name for name in known if not names or name in names)


def _broker_synonyms(cluster: Cluster, name: str) -> Iterator[Synonym]:
    """Yields all values of `name` and its alternatives, strongest first, from the first value of
    `name` itself on.

    So log.retention.ms with its default, null, has no synonyms, although log.retention.hours is in
    effect.
    """
    started = False
    for source in (
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ):
        for member in _FAMILIES.get(name, (name,)):
            value = _broker_value_of(cluster, member, source)
            if value is not None:
                started = started or member == name
                if started:
                    yield Synonym(member, value, source)


def _broker_value_of(cluster: Cluster, name: str, source: ConfigSource) -> str | None:
    setting = BROKER_SETTINGS[name]
    match source:
        case ConfigSource.DYNAMIC_BROKER:
            return cluster.tables.broker_configs.get(cluster.node_id, {}).get(name)
        case ConfigSource.DYNAMIC_DEFAULT_BROKER:
            return cluster.tables.broker_configs.get(None, {}).get(name)
        case ConfigSource.STATIC_BROKER:
            value = broker_value(cluster.settings.static, name)
            return None if value == setting.default else setting.show(value)
        case _:
            return setting.show(setting.default)
