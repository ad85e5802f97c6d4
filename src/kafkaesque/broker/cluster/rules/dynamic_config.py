"""The settings of this broker, dynamic ones included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkaesque.model.ids import NodeId
from kafkaesque.model.setting import SettingValue
from kafkaesque.model.settings import BROKER_SETTINGS, BrokerConfig, broker_config_attribute


class DynamicConfig:
    """`static` has the settings that the process was started with, `current` those in force now."""

    __slots__ = ("current", "static")

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static

    def load(self, dynamic: Mapping[NodeId | None, Mapping[str, str]]) -> None:
        """Sets `current` from the dynamic settings in the tables, by broker (None: all brokers).
        Precedence as in Kafka: this broker's dynamic value, then the cluster's, then the static
        one."""
        values: dict[str, SettingValue] = {}
        for node_id in (None, NodeId(self.static.node_id)):
            for name, text in dynamic.get(node_id, {}).items():
                values[broker_config_attribute(name)] = BROKER_SETTINGS[name].parse(text)
        self.current = replace(self.static, **values)  # type: ignore[arg-type]
