"""Changes of settings (AlterConfigs, IncrementalAlterConfigs): from current values to new ones.

Values are texts as the client sent them; `model.settings` parses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kafkaesque.model.errors import InvalidConfig, InvalidRequest, KafkaError
from kafkaesque.model.setting import Scope, Setting, SettingType
from kafkaesque.model.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    broker_value,
    check_topic_values,
    inherited,
)


class ConfigOperation(IntEnum):
    """IncrementalAlterConfigs (KIP-339)."""

    UNKNOWN = -1
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3

    @classmethod
    def _missing_(cls, value: object) -> ConfigOperation:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None


def given_topic_configs(values: Mapping[str, str | None]) -> dict[str, str]:
    """Checks the settings of a new topic."""
    for name, text in values.items():
        if text is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
    configs = {name: text for name, text in values.items() if text is not None}
    check_topic_values(configs)
    return configs


def changed_topic_configs(
    current: Mapping[str, str], changes: Sequence[ConfigChange], broker: BrokerConfig
) -> dict[str, str]:
    """All or nothing: one bad change rejects all."""
    _refuse_malformed(changes)
    configs = dict(current)
    for change in changes:
        known = TOPIC_SETTINGS.get(change.name)
        default = known.show(inherited(broker, change.name)) if known else None
        _apply_change(configs, known, change, default)
    check_topic_values(configs)
    return configs


def changed_broker_configs(
    current: Mapping[str, str], changes: Sequence[ConfigChange], broker: BrokerConfig
) -> dict[str, str]:
    _refuse_malformed(changes)
    _refuse_read_only(changes)
    configs = dict(current)
    for change in changes:
        known = BROKER_SETTINGS.get(change.name)
        default = known.show(broker_value(broker, change.name)) if known else None
        _apply_change(configs, known, change, default)
    # Older versions stored values that are invalid now. They must not block other changes.
    names = {change.name for change in changes}
    _check_broker_values({name: text for name, text in configs.items() if name in names})
    return configs


def _refuse_malformed(changes: Sequence[ConfigChange]) -> None:
    if any(change.operation is ConfigOperation.UNKNOWN for change in changes):
        raise KafkaError("Unknown config operation")  # as in Kafka: UNKNOWN_SERVER_ERROR
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [
        change.name
        for change in changes
        if change.value is None and change.operation is not ConfigOperation.DELETE
    ]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def _refuse_read_only(changes: Sequence[ConfigChange]) -> None:
    """A read-only setting may be deleted: it was never set dynamically, so nothing changes."""
    refused = sorted(
        change.name
        for change in changes
        if change.operation is not ConfigOperation.DELETE
        and change.name in BROKER_SETTINGS
        and BROKER_SETTINGS[change.name].scope is Scope.READ_ONLY
    )
    if refused:
        raise InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(refused)}]")


def _check_broker_values(values: Mapping[str, str]) -> None:
    """Kafka silently accepts an unknown name; we reject settings that have no effect."""
    for name, text in values.items():
        known = BROKER_SETTINGS.get(name)
        if known is None:
            raise InvalidConfig(f"Unknown broker config name: {name}")
        try:
            known.parse(text)
        except InvalidConfig as error:
            if known.can_lock_out:
                raise  # our own rule: Kafka accepts max.connections=0
            # Kafka's code for a bad broker value; it differs from that for a bad topic value.
            raise InvalidRequest(str(error)) from None


def _apply_change(
    configs: dict[str, str], known: Setting | None, change: ConfigChange, default: str | None
) -> None:
    """`default` is the list to append to if none is set yet. Names are checked later."""
    if change.operation is ConfigOperation.DELETE:
        configs.pop(change.name, None)
        return
    value = change.value or ""
    if change.operation is ConfigOperation.SET:
        configs[change.name] = value
        return
    if known is None or known.type is not SettingType.LIST:
        raise InvalidConfig(
            f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
        )
    current = _items(configs.get(change.name, default or ""))
    given = _items(value)
    if change.operation is ConfigOperation.APPEND:
        current += [item for item in given if item not in current]
    else:
        current = [item for item in current if item not in given]
    configs[change.name] = ",".join(current)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
