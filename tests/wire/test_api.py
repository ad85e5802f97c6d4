"""API keys and the request header."""

from __future__ import annotations

import struct

import pytest

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.api import (
    REQUESTS,
    RESPONSES,
    ApiKey,
    RequestHeader,
    UnknownApiKey,
    UnsupportedVersion,
    decode_request_header,
)
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest
from kafkaesque.wire.messages.produce import ProduceRequest, ProduceResponse

SERVED = "0 1 2 3 8 9 10 11 12 13 14 15 16 18 19 20 21 22 23 24 25 26 27 28 32 33 35 37 42 43 44 45 46 47 55 60 61 64 65 66 75"


def header(
    key: int, version: int, client_id: bytes | None = b"me", tail: bytes = b""
) -> memoryview:
    length = -1 if client_id is None else len(client_id)
    return memoryview(struct.pack(">hhih", key, version, 5, length) + (client_id or b"") + tail)


def test_every_api_of_the_broker_has_tables() -> None:
    served = [int(key) for key in SERVED.split()]

    assert sorted(REQUESTS) == sorted(RESPONSES) == served
    assert REQUESTS[ApiKey.PRODUCE] is ProduceRequest
    assert RESPONSES[ApiKey.PRODUCE] is ProduceResponse
    assert REQUESTS[ApiKey.API_VERSIONS] is ApiVersionsRequest


def test_names_of_keys_are_those_of_the_classes() -> None:
    for key, cls in REQUESTS.items():
        assert ApiKey(key).name.replace("_", "").lower() + "request" == cls.__name__.lower()


def test_old_header_ends_with_the_client_id() -> None:
    frame = header(ApiKey.PRODUCE, 8, tail=b"body")

    assert decode_request_header(frame) == RequestHeader(0, 8, 5, "me", 12)
    assert frame[12:].tobytes() == b"body"


def test_flexible_header_ends_with_tags() -> None:
    frame = header(ApiKey.PRODUCE, 9, tail=b"\0body")

    assert decode_request_header(frame) == RequestHeader(0, 9, 5, "me", 13)


def test_null_client_id_is_none() -> None:
    assert decode_request_header(header(ApiKey.PRODUCE, 8, None)).client_id is None


def test_unknown_tags_of_the_header_are_skipped() -> None:
    frame = header(ApiKey.PRODUCE, 9, tail=b"\x02\x00\x01x\x07\x00body")

    assert frame[decode_request_header(frame).body_position :].tobytes() == b"body"


@pytest.mark.parametrize("key", [-1, 4, 99, 32767])
def test_unknown_key_is_told_apart(key: int) -> None:
    with pytest.raises(UnknownApiKey, match=str(key)) as caught:
        decode_request_header(header(key, 0))

    assert caught.value.api_key == key


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_unsupported_version_keeps_what_an_answer_needs(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match="API_VERSIONS") as caught:
        decode_request_header(header(ApiKey.API_VERSIONS, version))

    error = caught.value
    assert (error.api_key, error.api_version, error.correlation_id) == (18, version, 5)


def test_unsupported_version_is_told_even_if_its_header_has_an_unknown_form() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_request_header(memoryview(struct.pack(">hhih", 18, 99, 5, 1000)))


@pytest.mark.parametrize(
    ("case", "frame"),
    [
        ("empty", memoryview(b"")),
        ("fixed part cut", header(0, 9)[:9]),
        ("client id cut", header(0, 8)[:11]),
        ("flexible client id cut", header(0, 9)[:11]),
        ("tags missing", header(0, 9)),
        ("tag cut", header(0, 9, tail=b"\x01\x00\x05abc")),
        ("tag header cut", header(0, 9, tail=b"\x01\x00")),
        ("client id length below -1", memoryview(struct.pack(">hhih", 0, 9, 5, -2) + b"\0")),
        ("client id not UTF-8", header(0, 9, b"\xff\xfe", b"\0")),
        ("too many tags", header(0, 9, tail=b"\x41" + b"\0\0" * 65)),
        ("a million tags", header(0, 9, tail=b"\xc0\x84\x3d" + b"\0\0" * 1_000_000)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_header_is_rejected(case: str, frame: memoryview) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(frame)
