"""Whole frames: lengths, headers, round trips of both sides, versions."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.samples import ALL_PAIRS, pair_id, sample

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.api import REQUESTS, decode_request_header
from kafkaesque.wire.bounds import LocalProtocolError
from kafkaesque.wire.codec import (
    decode,
    decode_correlation_id,
    decode_response,
    encode,
    encode_request_frame,
    encode_response_frame,
)
from kafkaesque.wire.messages.api_versions import ApiVersionsResponse
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaesque.wire.table import Message, Request, Response


def body_of(frame: bytes) -> memoryview:
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    return memoryview(frame)[4:]


@pytest.mark.parametrize(("cls", "version"), ALL_PAIRS, ids=pair_id)
def test_frame_of_every_message_and_version_comes_back_equal(
    cls: type[Message], version: int
) -> None:
    chance = random.Random(version)
    message = sample(cls, version, chance)
    if issubclass(cls, Response):
        frame = body_of(b"".join(encode_response_frame(message, version, 77)[0]))
        assert decode_correlation_id(frame) == 77
        assert decode_response(cls, frame, version) == message
    else:
        assert issubclass(cls, Request)
        frame = body_of(b"".join(encode_request_frame(message, version, 77, "me")))
        header = decode_request_header(frame)
        assert header[:4] == (cls.API_KEY, version, 77, "me")
        assert decode(cls, frame, version, header.body_position) == message


def test_response_header_is_flexible_with_its_version() -> None:
    response = HeartbeatResponse(error_code=0)

    assert encode_response_frame(response, 3, 9) == ([struct.pack(">iiih", 10, 9, 0, 0)], 14)
    assert encode_response_frame(response, 4, 9) == ([struct.pack(">iixihx", 12, 9, 0, 0)], 16)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_response_has_header_v0_in_every_version(version: int) -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])

    frame = b"".join(encode_response_frame(response, version, 9)[0])

    assert frame[8:] == b"".join(encode(response, version))
    assert decode_response(ApiVersionsResponse, body_of(frame), version) == response


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "käfer"])
@pytest.mark.parametrize("version", [3, 4])
def test_client_id_survives_both_request_headers(client_id: str | None, version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

    frame = body_of(b"".join(encode_request_frame(request, version, 1, client_id)))

    assert decode_request_header(frame).client_id == client_id


def test_client_id_beyond_the_protocol_is_our_own_error() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

    with pytest.raises(LocalProtocolError, match="client_id"):
        encode_request_frame(request, 4, 1, "x" * 32768)


def test_version_that_a_message_does_not_have_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError, match="versions 0 to 4, not 5"):
        encode(HeartbeatResponse(error_code=0), 5)
    with pytest.raises(LocalProtocolError, match="versions 0 to 4, not 5"):
        decode(HeartbeatResponse, memoryview(b""), 5)


@pytest.mark.parametrize("size", range(5))
def test_response_header_cut_short_is_rejected(size: int) -> None:
    frame = memoryview(bytes(size))

    with pytest.raises(ProtocolError):
        decode_response(HeartbeatResponse, frame, 4)


def test_correlation_id_cut_short_is_rejected() -> None:
    with pytest.raises(ProtocolError):
        decode_correlation_id(memoryview(b"\0\0\0"))


def test_compiled_functions_are_kept_per_class_and_version() -> None:
    response = HeartbeatResponse(error_code=0)
    encode(response, 4)
    writer = HeartbeatResponse.compiled_writers[4]

    encode(response, 4)
    encode(response, 3)

    assert HeartbeatResponse.compiled_writers[4] is writer
    assert HeartbeatResponse.compiled_writers[3] is not writer


PAIRS = st.sampled_from([pair for pair in ALL_PAIRS if issubclass(pair[0], Request)])


@settings(deadline=None, max_examples=400)
@given(PAIRS, st.integers(0, 2**32), st.data())
def test_mutated_request_decodes_or_is_rejected_and_nothing_else(
    pair: tuple[type[Message], int], seed: int, data: st.DataObject
) -> None:
    cls, version = pair
    body = bytearray(b"".join(encode(sample(cls, version, random.Random(seed)), version)))
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            position = data.draw(st.integers(0, len(body) - 1))
            body[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)) | st.just(len(body)))
    try:
        message = decode(cls, memoryview(body)[:cut], version)
    except ProtocolError:
        return
    # What was accepted can be said again, and means the same.
    again = b"".join(encode(message, version))
    assert decode(cls, memoryview(again), version) == message


@settings(deadline=None, max_examples=300)
@given(PAIRS, st.binary(max_size=200))
def test_random_bytes_decode_or_are_rejected_and_nothing_else(
    pair: tuple[type[Message], int], data: bytes
) -> None:
    cls, version = pair
    try:
        decode(cls, memoryview(data), version)
    except ProtocolError:
        return


def test_every_request_class_has_the_key_it_is_found_by() -> None:
    assert all(key == cls.API_KEY for key, cls in REQUESTS.items())
