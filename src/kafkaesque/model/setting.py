"""How a setting is declared (name, type, default, bounds, help text), parsed and formatted.

`settings.py` declares the settings of topics and brokers, each once, as a field of a typed dataclass.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, TypeVar

from kafkaesque.model.errors import InvalidConfig

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")

T = TypeVar("T")

SettingValue = bool | int | float | str | tuple[str, ...] | None


class SettingType(IntEnum):
    """Kafka's config types, with the numbers that DescribeConfigs v3+ carries."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Scope(IntEnum):
    """When a changed value takes effect."""

    READ_ONLY = 0
    """At the next start only; AlterConfigs cannot change it."""
    CLUSTER_WIDE = 1
    """Immediately, on every broker, by AlterConfigs."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: SettingValue
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    scope: Scope = Scope.CLUSTER_WIDE
    synonyms: tuple[str, ...] = ()
    """For a topic setting: the broker settings that supply its default, most specific first."""
    ours: bool = False
    """True if Apache Kafka has no setting of this name."""
    can_lock_out: bool = False
    """True if a wrong value keeps everybody from connecting, so that AlterConfigs cannot correct it.
    The value given at start then wins over a dynamic one (Kafka: the dynamic value wins)."""

    def parse(self, text: str) -> SettingValue:
        """Returns the typed value of `text`. InvalidConfig says what was expected."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self._invalid(text, self._expected_type()) from None
        self._check(value)
        return value

    def _check(self, value: SettingValue) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.at_least is not None and value < self.at_least:
                raise self._invalid(value, f"Value must be at least {self.at_least}")
            if self.at_most is not None and value > self.at_most:
                raise self._invalid(value, f"Value must be no more than {self.at_most}")
        if self.choices:
            # An empty list is valid, as in Kafka: a topic without a cleanup policy keeps everything.
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise self._invalid(item, f"String must be one of: {', '.join(self.choices)}")

    def _expected_type(self) -> str:
        if self.type is SettingType.BOOLEAN:
            return "Expected value to be either true or false"
        return f"Not a number of type {self.type.name}"

    def _invalid(self, shown: object, why: str) -> InvalidConfig:
        """An error with the text of Kafka's ConfigException, which scripts and tests search for."""
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {why}")

    def show(self, value: SettingValue) -> str | None:
        """Formats `value` as Kafka does in DescribeConfigs."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return str(value).upper().replace("E+", "E")
        return str(value)


def _parse_boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError(text)


def _parse_integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # int() alone would accept Python's 1_000 and non-ASCII digits.
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: Mapping[SettingType, Callable[[str], SettingValue]] = {
    SettingType.BOOLEAN: _parse_boolean,
    SettingType.STRING: str,
    SettingType.INT: _parse_integer(-INT32_MAX - 1, INT32_MAX),
    SettingType.SHORT: _parse_integer(-(2**15), 2**15 - 1),
    SettingType.LONG: _parse_integer(-INT64_MAX - 1, INT64_MAX),
    SettingType.DOUBLE: float,
    SettingType.LIST: _parse_list,
}


def setting(name: str, type_: SettingType, default: SettingValue, doc: str, **more: Any) -> Any:
    """Declares a setting as a field of a settings dataclass."""
    declared = Setting(name=name, type=type_, default=default, doc=doc, **more)
    return field(default=default, metadata={"setting": declared})


def settings_of(cls: type) -> Mapping[str, Setting]:
    """The settings declared by the fields of `cls`, by name."""
    declared = (item.metadata["setting"] for item in fields(cls) if "setting" in item.metadata)
    return {item.name: item for item in declared}


def attributes_of(cls: type) -> Mapping[str, str]:
    """Maps setting names to the attributes of `cls` that hold them."""
    return {
        item.metadata["setting"].name: item.name
        for item in fields(cls)
        if "setting" in item.metadata
    }


def typed_settings(cls: type[T], texts: Mapping[str, str]) -> T:
    """Builds a `cls` from `texts`, with defaults for the rest.

    InvalidConfig names the setting that is unknown or has an invalid value.
    """
    declared, attributes = settings_of(cls), attributes_of(cls)
    given = {}
    for name, text in texts.items():
        if name not in declared:
            raise unknown_setting(name, declared)
        given[attributes[name]] = declared[name].parse(text)
    return cls(**given)


def unknown_setting(name: str, known: Iterable[str]) -> InvalidConfig:
    """An error that suggests the closest name, or lists all names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    return InvalidConfig(f"there is no setting '{name}'; {hint}")


def environment_texts(
    known: Iterable[str], environment: Mapping[str, str], prefix: str
) -> dict[str, str]:
    """Settings from the environment: PREFIX_NUM_PARTITIONS=4 is num.partitions=4.

    Ignores other variables with the prefix.
    """
    variables = {name: prefix + name.upper().replace(".", "_") for name in known}
    return {name: environment[key] for name, key in variables.items() if key in environment}
