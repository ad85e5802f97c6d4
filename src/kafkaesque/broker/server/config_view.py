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
from kafkaesque.broker.cluster.rules.dynamic_config import stored_value
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.ids import NodeId
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


_DYNAMIC_FIRST: Final = (
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
    ConfigSource.DEFAULT,
)
"""The sources of a broker setting, strongest first."""
_STATIC_FIRST: Final = (
    ConfigSource.STATIC_BROKER,
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.DEFAULT,
)
"""The same for `DynamicConfig.static_wins`."""


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
    stored = cluster.tables.broker_configs.get(None, {})
    changed = {name: text for name, text in stored.items() if name in BROKER_SETTINGS}
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
    static_wins = cluster.settings.static_wins(name)
    for source in _STATIC_FIRST if static_wins else _DYNAMIC_FIRST:
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
            return _stored(cluster, cluster.node_id, name)
        case ConfigSource.DYNAMIC_DEFAULT_BROKER:
            return _stored(cluster, None, name)
        case ConfigSource.STATIC_BROKER:
            value = broker_value(cluster.settings.static, name)
            is_default = value == setting.default and not cluster.settings.static_wins(name)
            return None if is_default else setting.show(value)
        case _:
            return setting.show(setting.default)


def _stored(cluster: Cluster, node_id: NodeId | None, name: str) -> str | None:
    """The dynamic value of `name`, unless it is ignored (`DynamicConfig.load`)."""
    text = cluster.tables.broker_configs.get(node_id, {}).get(name)
    if text is not None:
        try:
            stored_value(name, text)
        except InvalidConfig:
            return None
    return text
