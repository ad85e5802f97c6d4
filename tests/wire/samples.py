"""Random messages generated from the tables, for the tests of this package and the fuzzer."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.api import REQUESTS, RESPONSES
from kafkaesque.wire.table import Field, Message, blank

ERROR_CODES = [int(code) for code in ErrorCode]
BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}

ALL_MESSAGES: list[type[Message]] = [*REQUESTS.values(), *RESPONSES.values()]
ALL_PAIRS = [
    (cls, version)
    for cls in ALL_MESSAGES
    for version in range(cls.VERSIONS.low, cls.VERSIONS.high + 1)
]


def pair_id(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


def sample(cls: type[Any], version: int, chance: random.Random) -> Any:
    """A random instance of `cls` whose fields outside `version` have their defaults."""
    values = {
        field.name: _value(field, version, chance)
        for field in cls.fields
        if version in field.versions
    }
    for field in cls.fields:
        if field.required and field.name not in values:
            values[field.name] = field.default
    return cls(**values)


def _value(field: Field, version: int, chance: random.Random) -> Any:
    if version in field.tagged and chance.random() < 0.4:
        return [] if isinstance(field.default, list) else field.default
    if version in field.nullable and chance.random() < 0.25:
        return None
    if field.is_array:
        return [_one(field, version, chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    return _one(field, version, chance)


def _one(field: Field, version: int, chance: random.Random) -> Any:
    if field.struct is None:
        return scalar(field.scalar, field.name, chance)
    # A tagged struct that equals its default is not written and comes back as "not there".
    while True:
        value = sample(field.struct, version, chance)
        if field.is_array or version not in field.tagged or value != blank(field.struct):
            return value


def scalar(kind: str, name: str, chance: random.Random) -> Any:
    if kind == "UInt16":
        return chance.getrandbits(16)
    if kind in BITS:
        return _integer(kind, name, chance)
    if kind == "Bool":
        return chance.random() < 0.5
    if kind == "Uuid":
        return UUID(int=chance.getrandbits(128))
    if kind == "String":
        length = chance.choice((0, 1, 3, 12, 126, 127, 128, 300))
        return "".join(chance.choice("abcdefghij-._é漢🙂") for _ in range(length))
    data = chance.randbytes(chance.choice((0, 1, 126, 127, 1000, 20_000)))
    return memoryview(data) if kind == "Records" else data


def _integer(kind: str, name: str, chance: random.Random) -> int:
    # kio reads error codes, durations and times as Python's types: stay within what those can say.
    if name.endswith("error_code"):
        return chance.choice(ERROR_CODES)
    if kind == "Int64" and (name.endswith("_ms") or "timestamp" in name):
        return chance.randrange(0, 4 * 10**12)
    bits: int = BITS[kind]
    if chance.random() < 0.2:
        return chance.choice((0, -1, 1, (1 << bits - 1) - 1, -(1 << bits - 1)))
    return chance.getrandbits(bits) - (1 << bits - 1)
