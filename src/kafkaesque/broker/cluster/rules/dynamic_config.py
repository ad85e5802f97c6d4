"""The settings of this broker, dynamic ones included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.ids import NodeId
from kafkaesque.model.setting import SettingValue
from kafkaesque.model.settings import (
    BROKER_SETTINGS,
    BrokerConfig,
    broker_config_attribute,
    broker_value,
)


class DynamicConfig:
    """`static` has the settings that the process was started with, `current` those in force now."""

    __slots__ = ("current", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static

    def load(self, dynamic: Mapping[NodeId | None, Mapping[str, str]]) -> list[str]:
        """Sets `current` from the dynamic settings in the tables, by broker (None: all brokers).
        Returns why stored values were ignored.

        Precedence as in Kafka: this broker's dynamic value, then the cluster's, then the static one.
        The exception is `static_wins`. A stored value that is invalid (an older version accepted it)
        is ignored: it must not stop the broker or lock out its clients."""
        values: dict[str, SettingValue] = {}
        ignored: list[str] = []
        for node_id in (None, NodeId(self.static.node_id)):
            for name, text in dynamic.get(node_id, {}).items():
                try:
                    value = stored_value(name, text)
                except InvalidConfig as error:
                    ignored.append(str(error))
                    continue
                if not self.static_wins(name):
                    values[broker_config_attribute(name)] = value
        self.current = replace(self.static, **values)  # type: ignore[arg-type]
        return ignored

    def static_wins(self, name: str) -> bool:
        """Whether the value given at start overrides dynamic ones. This is so for settings that can
        lock everybody out: a restart with `--set max.connections=1000` must let people in again."""
        known, static = BROKER_SETTINGS[name], self.static
        is_given = name in static.given or broker_value(static, name) != known.default
        return known.can_lock_out and is_given


def stored_value(name: str, text: str) -> SettingValue:
    """Parses a dynamic value from the tables. Raises InvalidConfig if this version rejects it."""
    if name not in BROKER_SETTINGS:
        raise InvalidConfig(f"Unknown broker config name: {name}")
    return BROKER_SETTINGS[name].parse(text)
