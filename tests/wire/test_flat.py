"""Flat readers and writers against the ordinary ones, whatever the message and the bytes."""

from __future__ import annotations

import random
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.wire.samples import ALL_PAIRS, pair_id, sample
from tests.wire.test_native import HOSTILE, compiled_only, mutated, outcome

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.api import REQUESTS, decode_request_header
from kafkaesque.wire.bounds import LocalProtocolError
from kafkaesque.wire.codec import decode, encode_request_frame, encode_response_frame
from kafkaesque.wire.flat import flat_frame_writer, flat_reader
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkaesque.wire.native import pure
from kafkaesque.wire.table import NO_UUID, Message, Request, Response, Struct, blank

REQUEST_PAIRS = [pair for pair in ALL_PAIRS if issubclass(pair[0], Request)]
RESPONSE_PAIRS = [pair for pair in ALL_PAIRS if issubclass(pair[0], Response)]
PRODUCE_VERSIONS = range(3, 14)
ROUNDS = 6
ROW = "responses.partition_responses."
PRODUCE_LEAVES = (
    "responses.name",
    "responses.topic_id",
    f"{ROW}index",
    f"{ROW}base_offset",
    f"{ROW}log_append_time_ms",
    f"{ROW}log_start_offset",
)


def frame_of(message: Request, version: int, client_id: str | None = "c") -> memoryview:
    pieces = encode_request_frame(message, version, -7, client_id)
    return memoryview(bytearray(b"".join(pieces)))[4:]


def single(struct_: Any, version: int) -> Any:
    """`struct_` with one element in every array of structs and no tagged field, as far as it can."""
    for field in type(struct_).fields:
        if version not in field.versions or field.struct is None:
            continue
        if version in field.tagged:
            setattr(struct_, field.name, [] if field.is_array else None)
            continue
        value = getattr(struct_, field.name)
        if field.is_array:
            one = value[0] if value else sample(field.struct, version, random.Random(1))
            setattr(struct_, field.name, [single(one, version)])
        elif value is not None:
            single(value, version)
    return struct_


def leaves_of(cls: type[Struct], version: int, above: str = "") -> Iterator[str]:
    """Every field that a flat writer can be given."""
    for field in cls.fields:
        path = above + field.name
        if version not in field.versions or version in field.tagged:
            continue
        if field.struct is None or not (field.is_array or version not in field.nullable):
            yield path
        else:
            yield from leaves_of(field.struct, version, f"{path}.")


def value_at(message: Any, leaf: str) -> Any:
    for name in leaf.split("."):
        message = message[0] if isinstance(message, list) else message
        message = getattr(message, name)
    return message


def ordinary_values(cls: type[Message], version: int, frame: memoryview) -> list[Any]:
    """What the flat reader must find, as the ordinary one tells it: leaves that are carried."""
    header = decode_request_header(frame)
    message = decode(cls, frame, version, header.body_position)
    return [value_at(message, leaf) for leaf in leaves_of(cls, version)]


def carried(cls: type[Struct], version: int, values: Iterator[Any]) -> Iterator[Any]:
    """Those of the flat values that are not stand-ins for fields that this version has not."""
    for field in cls.fields:
        is_entered = field.struct is not None and (field.is_array or version not in field.nullable)
        if version not in field.versions or version in field.tagged:
            default = next(values)
            assert default == field.default
        elif is_entered:
            yield from carried(field.struct, version, values)  # type: ignore[arg-type]
        else:
            yield next(values)


@pytest.mark.parametrize(("cls", "version"), REQUEST_PAIRS, ids=pair_id)
def test_flat_values_are_those_of_the_message(cls: type[Request], version: int) -> None:
    read = flat_reader(cls, version)
    chance = random.Random(zlib.crc32(f"flat {cls.__name__} {version}".encode()))
    for round_ in range(ROUNDS):
        message = sample(cls, version, chance)
        frame = frame_of(single(message, version) if round_ % 2 else message, version)
        for found in (read(frame), pure(read)(frame)):
            if found is not None:
                correlation_id, values = found
                assert correlation_id == -7
                left = iter(values)
                assert list(carried(cls, version, left)) == ordinary_values(cls, version, frame)
                assert not list(left)


@compiled_only
@pytest.mark.parametrize(("cls", "version"), REQUEST_PAIRS, ids=pair_id)
def test_hostile_bytes_are_nothing_or_the_same(cls: type[Request], version: int) -> None:
    read = flat_reader(cls, version)
    chance = random.Random(zlib.crc32(f"hostile {cls.__name__} {version}".encode()))
    data = bytes(frame_of(single(sample(cls, version, chance), version), version))
    for _ in range(ROUNDS * 4):
        hostile = memoryview(mutated(data, chance))
        found = read(hostile)
        assert found is None or found == pure(read)(hostile)


def one_partition(records: memoryview | None = None, **changes: Any) -> ProduceRequest:
    row = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="", topic_id=NO_UUID, partition_data=[row])
    request = ProduceRequest(acks=-1, timeout_ms=500, topic_data=[topic])
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_with_one_partition_is_flat(version: int) -> None:
    request = one_partition(memoryview(b"r" * 300))
    frame = frame_of(request, version)
    found = flat_reader(ProduceRequest, version)(frame)
    assert found is not None
    assert found[1][:6] == (None, -1, 500, "", NO_UUID, 3)
    records = found[1][6]
    assert (bytes(records), records.readonly) == (b"r" * 300, False)
    assert records.obj is frame.obj


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("count", [0, 2])
def test_other_than_one_topic_or_partition_is_not_flat(version: int, count: int) -> None:
    read = flat_reader(ProduceRequest, version)
    (topic,) = one_partition().topic_data
    rows = TopicProduceData(partition_data=topic.partition_data * count)
    for request in (one_partition(topic_data=[topic] * count), one_partition(topic_data=[rows])):
        frame = frame_of(request, version)
        assert read(frame) is None
        assert pure(read)(frame) is None


def test_client_ids_are_passed_by_or_left_to_the_ordinary_reader() -> None:
    read = flat_reader(ProduceRequest, 9)
    for client_id in (None, "", "c" * 300):
        assert read(frame_of(one_partition(), 9, client_id)) is not None
    name = frame_of(one_partition(), 9, "é")
    assert read(name) in (None, pure(read)(name))
    broken = frame_of(one_partition(), 9, "cc")
    broken[10:12] = b"\xff\xff"
    assert read(broken) is None
    assert pure(read)(broken) is None


def test_request_of_another_api_or_version_is_not_read() -> None:
    read = flat_reader(ProduceRequest, 9)
    other = frame_of(one_partition(), 8)
    for frame in (other, frame_of(blank(REQUESTS[18]), 3), memoryview(b""), memoryview(b"\0" * 4)):
        assert read(frame) is None
        assert pure(read)(frame) is None


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_cut_of_a_frame_is_left_to_the_ordinary_reader(version: int) -> None:
    read = flat_reader(ProduceRequest, version)
    frame = frame_of(one_partition(memoryview(b"r" * 40)), version)
    for size in range(len(frame)):
        assert read(frame[:size]) is None
        assert pure(read)(frame[:size]) is None


@compiled_only
@pytest.mark.parametrize(("cls", "version"), RESPONSE_PAIRS, ids=pair_id)
def test_flat_frame_is_that_of_the_message(cls: type[Response], version: int) -> None:
    leaves = tuple(leaves_of(cls, version))
    write = flat_frame_writer(cls, version, leaves)
    chance = random.Random(zlib.crc32(f"frame {cls.__name__} {version}".encode()))
    for _ in range(ROUNDS):
        message = single(sample(cls, version, chance), version)
        values = tuple(value_at(message, leaf) for leaf in leaves)
        assert write(-9, values) == pure(write)(-9, values)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_answer_from_values_is_that_from_structs(version: int) -> None:
    row = PartitionProduceResponse(
        index=3, error_code=0, base_offset=2**40, log_append_time_ms=-1, log_start_offset=5
    )
    topic = TopicProduceResponse(name="tö", topic_id=NO_UUID, partition_responses=[row])
    pieces, _ = encode_response_frame(ProduceResponse(responses=[topic]), version, 2**31 - 1)
    write = flat_frame_writer(ProduceResponse, version, PRODUCE_LEAVES)
    values = ("tö", NO_UUID, 3, 2**40, -1, 5)
    assert write(2**31 - 1, values) == b"".join(pieces)
    assert pure(write)(2**31 - 1, values) == b"".join(pieces)


@pytest.mark.parametrize(
    ("number", "value"),
    [(0, 2**31), (0, None), (1, "x" * 40_000), (1, "\ud800"), (1, 3), (3, 2**31), (4, 1.5)],
)
def test_what_cannot_be_written_is_refused_as_by_the_ordinary_writer(
    number: int, value: Any
) -> None:
    write = flat_frame_writer(ProduceResponse, 9, PRODUCE_LEAVES)
    given: list[Any] = [1, "t", NO_UUID, 3, 7, -1, 5]
    given[number] = value
    correlation_id, *values = given
    result = outcome(write, correlation_id, tuple(values))
    assert result == outcome(pure(write), correlation_id, tuple(values))
    assert issubclass(result[0], LocalProtocolError | struct.error)


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        flat_frame_writer(ProduceResponse, 9, PRODUCE_LEAVES)(1, ("t",))


@compiled_only
def test_nothing_is_kept_of_what_was_read_or_written() -> None:
    read = flat_reader(ProduceRequest, 9)
    write = flat_frame_writer(ProduceResponse, 9, PRODUCE_LEAVES)
    frame = frame_of(one_partition(memoryview(b"r" * 300)), 9)
    name = "topic" * 10
    hostile = [memoryview(bytes(frame[:-n]) + part) for n in (1, 20, 310) for part in HOSTILE]
    held = [frame.obj, name, None, 500, NO_UUID]

    def work() -> list[int]:
        for _ in range(300):
            read(frame)
            write(1, (name, NO_UUID, 3, 7, -1, 5))
            for part in hostile:
                read(part)
        return [sys.getrefcount(thing) for thing in held]

    before = work()
    assert all(abs(now - then) < 20 for now, then in zip(work(), before, strict=True))


def test_pure_reader_of_a_frame_that_cannot_be_read_says_nothing() -> None:
    frame = frame_of(one_partition(), 9)
    with pytest.raises(ProtocolError):
        decode(ProduceRequest, frame[:-2], 9, 12)
    assert pure(flat_reader(ProduceRequest, 9))(frame[:-2]) is None
