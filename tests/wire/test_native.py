"""Compiled and generated codecs behave the same for every message and any bytes."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.samples import ALL_PAIRS, pair_id, sample

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire import native
from kafkaesque.wire.api import REQUESTS, RequestHeader, decode_request_header
from kafkaesque.wire.bounds import uvarint
from kafkaesque.wire.codec import _make_frame_writer, _make_reader, _make_writer, encode
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkaesque.wire.native import constructor, pure
from kafkaesque.wire.reader import compile_reader
from kafkaesque.wire.table import NO_UUID, Message, Response
from kafkaesque.wire.writer import compile_writer

compiled_only = pytest.mark.skipif(
    pure(decode_request_header) is decode_request_header,
    reason="nothing is compiled: apt install gcc python3-dev, then make clean setup",
)

RESPONSE_PAIRS = [pair for pair in ALL_PAIRS if issubclass(pair[0], Response)]
ROUNDS = 6
HOSTILE = (b"\xff", b"\x80", b"\x7f", b"\x00", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff")


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    try:
        value = function(*arguments)
    except Exception as error:  # noqa: BLE001 - whichever it is, both must raise it
        return type(error), *error.args
    return type(value), value


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` cut, or lengthened, or with a length or a string of it changed."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + chance.randbytes(chance.randrange(1, 4))
    part = chance.choice(HOSTILE) if kind == 2 else chance.randbytes(1)
    return data[:at] + part + data[at + len(part) :]


@compiled_only
@pytest.mark.parametrize(("cls", "version"), ALL_PAIRS, ids=pair_id)
def test_every_message_is_read_and_written_alike(cls: type[Message], version: int) -> None:
    flexible = version >= cls.FLEXIBLE_SINCE
    read, write = _make_reader(cls, version), _make_writer(cls, version)
    read_pure = compile_reader(cls, version, flexible)
    write_pure = compile_writer(cls, version, flexible)
    chance = random.Random(zlib.crc32(f"{cls.__name__} {version}".encode()))
    for _ in range(ROUNDS):
        message = sample(cls, version, chance)
        data = b"".join(write_pure(message))
        assert b"".join(write(message)) == data
        assert outcome(read, memoryview(data), 0) == outcome(read_pure, memoryview(data), 0)
        for _ in range(ROUNDS):
            hostile = memoryview(mutated(data, chance))
            assert outcome(read, hostile, 0) == outcome(read_pure, hostile, 0)


@compiled_only
@pytest.mark.parametrize(("cls", "version"), RESPONSE_PAIRS, ids=pair_id)
def test_every_response_is_framed_alike(cls: type[Response], version: int) -> None:
    write = _make_frame_writer(cls, version)
    message = sample(cls, version, random.Random(version))
    buffers, size_bytes = write(message, -5)
    expected, expected_bytes = pure(write)(message, -5)
    assert b"".join(buffers) == b"".join(expected)
    assert size_bytes == expected_bytes == len(b"".join(buffers))


def produced(records: memoryview | None) -> ProduceRequest:
    row = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[row])]
    )


@compiled_only
def test_the_common_case_does_not_need_the_generated_functions() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("the generated function was asked")

    request = produced(memoryview(b"r" * 300))
    buffers = native.writer(lambda *_: never, ProduceRequest, 9, True)(request)
    data = memoryview(bytearray(b"".join(buffers)))
    read = native.reader(lambda *_: never, ProduceRequest, 9, True)(data, 0)
    assert read == request
    assert read.topic_data[0].partition_data[0].records.obj is data.obj
    assert not read.topic_data[0].partition_data[0].records.readonly
    response = ProduceResponse(responses=[])
    frame = native.frame_writer(never, ProduceResponse, 9, True, True)(response, 7)
    assert frame == ([struct.pack(">iix", 11, 7) + b"\1" + bytes(5)], 15)


@compiled_only
def test_records_are_sent_as_they_are_between_the_pieces() -> None:
    records = memoryview(b"r" * 300)
    write = _make_writer(ProduceRequest, 9)
    pieces = write(produced(records))
    assert [type(piece) for piece in pieces] == [bytes, memoryview, bytes]
    assert pieces[1] is records
    assert pieces == pure(write)(produced(records))
    assert write(produced(memoryview(b""))) == pure(write)(produced(memoryview(b"")))
    assert write(produced(None)) == pure(write)(produced(None))


@compiled_only
@pytest.mark.parametrize(
    "change",
    [
        {"acks": 2**15},
        {"acks": None},
        {"acks": 1.5},
        {"acks": True},
        {"timeout_ms": -(2**31) - 1},
        {"timeout_ms": 2**70},
        {"transactional_id": "x" * 40_000},
        {"transactional_id": "\ud800"},
        {"transactional_id": 3},
        {"topic_data": None},
        {"topic_data": ()},
        {"topic_data": [None]},
        {"topic_data": [TopicProduceResponse(name="t", partition_responses=[])]},
        {"topic_data": [TopicProduceData(name="t", partition_data=[None])]},  # type: ignore[list-item]
    ],
)
@pytest.mark.parametrize("version", [8, 9])
def test_what_cannot_be_written_is_rejected_alike(change: dict[str, Any], version: int) -> None:
    request = produced(memoryview(b"r"))
    for name, value in change.items():
        setattr(request, name, value)
    write = _make_writer(ProduceRequest, version)
    assert outcome(write, request) == outcome(pure(write), request)


@compiled_only
def test_object_without_all_its_fields_is_rejected_alike() -> None:
    request = object.__new__(ProduceRequest)
    write = _make_writer(ProduceRequest, 9)
    assert outcome(write, request) == outcome(pure(write), request)


@compiled_only
@pytest.mark.parametrize("length", [0x7FFF, 0x8000])
def test_long_string_is_read_or_rejected_alike(length: int) -> None:
    data = uvarint(length + 1) + b"x" * length + b"\0\1\0\0\0\5\1\0"
    read = _make_reader(ProduceRequest, 9)
    result = outcome(read, memoryview(data), 0)
    assert result == outcome(pure(read), memoryview(data), 0)
    assert (result[0] is ProtocolError) is (length > 0x7FFF)


@compiled_only
def test_count_beyond_the_budget_is_rejected() -> None:
    hostile = memoryview(b"\0\0\1\0\0\0\5" + b"\xff\xff\xff\x7f" + bytes(100))
    with pytest.raises(ProtocolError, match="topic_data"):
        _make_reader(ProduceRequest, 9)(hostile, 0)


@compiled_only
@pytest.mark.parametrize("position", [-1, 10**6, 2**70])
def test_position_outside_the_data_is_rejected_alike(position: int) -> None:
    data = memoryview(b"".join(encode(produced(None), 9)))
    read = _make_reader(ProduceRequest, 9)
    assert outcome(read, data, position) == outcome(pure(read), data, position)


@compiled_only
@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from([*REQUESTS, -1, 127, 32_767]),
    st.integers(-1, 20),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-2, 12),
    st.one_of(st.just(bytes(14)), st.binary(max_size=14), st.text(max_size=6).map(str.encode)),
)
def test_header_of_a_request_is_read_or_rejected_alike(
    key: int, version: int, correlation_id: int, length: int, rest: bytes
) -> None:
    frame = struct.pack(">hhih", key, version, correlation_id, length) + rest
    for size in (len(frame), 9):
        view = memoryview(frame)[:size]
        result = outcome(decode_request_header, view)
        assert result == outcome(pure(decode_request_header), view)
        assert result[0] is RequestHeader or issubclass(result[0], ProtocolError)


NAMES = ("index", "error_code", "base_offset")


@pytest.mark.parametrize("make", [constructor(PartitionProduceResponse, *NAMES)])
def test_constructor_by_position_makes_what_keywords_make(make: Callable[..., Any]) -> None:
    for construct in (make, pure(make)):
        made = construct(1, 2, 3)
        assert made == PartitionProduceResponse(index=1, error_code=2, base_offset=3)
        assert made.record_errors is not construct(1, 2, 3).record_errors
        with pytest.raises(ValueError, match="zip"):
            construct(1, 2)


def test_constructor_gives_defaults_to_what_is_not_named() -> None:
    made = constructor(TopicProduceResponse, "partition_responses")([])
    assert (made.name, made.topic_id, made.partition_responses) == ("", NO_UUID, [])
