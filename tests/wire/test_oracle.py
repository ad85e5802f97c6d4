"""Comparison with kio, an independent implementation generated from Kafka's schemas."""

from __future__ import annotations

import importlib
import io
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer
from tests.wire.samples import ALL_MESSAGES, ALL_PAIRS, pair_id, sample

from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.table import Message, Request

ROUNDS = 8


def kio_class(cls: type[Message], version: int) -> type[Any]:
    side = "Request" if issubclass(cls, Request) else "Response"
    api = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix(side)).lower()
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side.lower()}")
    found: type[Any] = getattr(module, cls.__name__)
    return found


def test_version_ranges_are_those_of_kafka() -> None:
    unstable = {"InitProducerIdRequest": 6, "InitProducerIdResponse": 6}
    for cls in ALL_MESSAGES:
        package = importlib.import_module(kio_class(cls, cls.VERSIONS.low).__module__)
        versions = {
            int(path.name.removeprefix("v"))
            for path in Path(str(package.__file__)).parents[1].glob("v[0-9]*")
        }
        versions.discard(unstable.get(cls.__name__, -1))

        assert (min(versions), max(versions)) == cls.VERSIONS, cls


def test_keys_and_flexible_versions_are_those_of_kafka() -> None:
    for cls, version in ALL_PAIRS:
        theirs = kio_class(cls, version)

        assert theirs.__flexible__ is (version >= cls.FLEXIBLE_SINCE), (cls, version)
        assert theirs.__api_key__ == cls.API_KEY


@pytest.mark.parametrize(("cls", "version"), ALL_PAIRS, ids=pair_id)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(
    cls: type[Message], version: int
) -> None:
    theirs = kio_class(cls, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    chance = random.Random(zlib.crc32(f"{cls.__name__}{version}".encode()))
    for _ in range(ROUNDS):
        message = sample(cls, version, chance)
        ours = b"".join(encode(message, version))

        entity, size = read(ours, 0)
        assert size == len(ours)
        buffer = io.BytesIO()
        write(buffer, entity)

        assert buffer.getvalue() == ours
        assert decode(cls, memoryview(buffer.getvalue()), version) == message
