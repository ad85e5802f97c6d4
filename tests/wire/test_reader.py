"""What a reader accepts and rejects, and that rejecting is cheap."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from kafkaesque.wire.bounds import uvarint
from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkaesque.wire.messages.fetch import FetchRequest, FetchResponse
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaesque.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkaesque.wire.messages.metadata import MetadataRequest
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafkaesque.wire.table import Message


def produce(records: bytes | None, version: int) -> bytearray:
    view = None if records is None else memoryview(records)
    partition = PartitionProduceData(index=7, records=view)
    topic = TopicProduceData(name="topic", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    return bytearray(b"".join(encode(request, version)))


def refusal(cls: type[Message], data: bytes, version: int) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode(cls, memoryview(data), version)
    return str(caught.value)


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_a_writable_slice_of_the_frame(version: int) -> None:
    frame = produce(b"batch of records", version)

    records = decode(ProduceRequest, memoryview(frame), version).topic_data[0].partition_data[0]

    assert records.records is not None
    assert records.records.tobytes() == b"batch of records"
    records.records[0:5] = b"BATCH"
    assert b"BATCH of records" in frame


@pytest.mark.parametrize("version", [3, 9])
def test_null_records_are_none(version: int) -> None:
    request = decode(ProduceRequest, memoryview(produce(None, version)), version)

    assert request.topic_data[0].partition_data[0].records is None


def test_position_says_where_the_body_starts() -> None:
    body = produce(b"abc", 9)

    assert decode(ProduceRequest, memoryview(b"header" + body), 9, 6) == decode(
        ProduceRequest, memoryview(body), 9
    )


@pytest.mark.parametrize("version", [0, 6])
def test_bytes_fields_do_not_keep_the_frame_alive(version: int) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"topics")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    frame = bytearray(b"".join(encode(request, version)))

    back = decode(JoinGroupRequest, memoryview(frame), version)

    assert back.protocols[0].metadata == b"topics"
    frame.extend(b"x")  # raises BufferError while a view of it lives


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    body = produce(b"abc", 9)
    assert body.endswith(b"abc\0\0\0")
    body[-3:] = b"\x01\x63\x02hi" * 3

    request = decode(ProduceRequest, memoryview(body), 9)

    assert request.topic_data[0].partition_data[0].index == 7


def test_known_tagged_fields_are_read_in_any_order() -> None:
    features = b"\x02\x06share\x00\x01\x00\x02\x00"
    tags = [
        b"\x03\x01\x01",
        b"\x01\x08" + (77).to_bytes(8, "big"),
        b"\x02" + bytes([len(features)]),
    ]
    fixed = b"\0\0" + b"\x01" + b"\0\0\0\0"
    body = fixed + b"\x03" + tags[0] + tags[1] + tags[2] + features

    response = decode(ApiVersionsResponse, memoryview(body), 3)

    assert response.zk_migration_ready is True
    assert response.finalized_features[0].name == "share"
    assert response.finalized_features_epoch == 77


def test_tagged_struct_with_its_defaults_is_the_same_as_none() -> None:
    fixed = struct.pack(">iibiiiBBB", 0, 0, 0, 0, 0, -1, 1, 1, 1)
    explicit = fixed + b"\x01\x01\x0d" + b"\xff" * 12 + b"\0"
    assert decode(FetchRequest, memoryview(fixed + b"\0"), 15).replica_state is None

    assert decode(FetchRequest, memoryview(explicit), 15).replica_state is None


@pytest.mark.parametrize("version", [3, 9])
def test_every_truncation_is_rejected(version: int) -> None:
    body = produce(b"batch", version)

    for size in range(len(body)):
        refusal(ProduceRequest, bytes(body[:size]), version)


def test_bytes_behind_a_response_are_rejected() -> None:
    body = b"".join(encode(HeartbeatResponse(error_code=0), 4))
    assert "2 bytes after" in refusal(HeartbeatResponse, body + b"\0\0", 4)


def test_bytes_behind_a_request_mean_nothing() -> None:
    """librdkafka 2.16 asks for all topics by Metadata v13 with three bytes too many."""
    sent = bytes.fromhex("00000000010000")
    assert decode(MetadataRequest, memoryview(sent), 13).topics is None


@pytest.mark.parametrize(
    ("case", "cls", "version", "data"),
    [
        ("old string", HeartbeatRequest, 0, struct.pack(">h", -1)),
        ("old string below -1", MetadataRequest, 4, struct.pack(">ih", 1, -2)),
        ("nullable string below -1", ProduceRequest, 3, struct.pack(">h", -2)),
        ("compact string", HeartbeatRequest, 4, b"\0"),
        ("old array", ProduceRequest, 3, struct.pack(">hhii", -1, 1, 1, -1)),
        ("nullable array below -1", MetadataRequest, 4, struct.pack(">i", -2)),
        ("compact array", ProduceRequest, 9, b"\0" + struct.pack(">hi", 1, 1) + b"\0"),
        ("bytes", JoinGroupRequest, 0, b"\0\1g\0\0\0\1\0\0\0\1x\0\0\0\1\0\1p\xff\xff\xff\xff"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_negative_length_is_rejected(
    case: str, cls: type[Message], version: int, data: bytes
) -> None:
    assert "not allowed" in refusal(cls, data + bytes(32), version), case


@pytest.mark.parametrize(
    ("case", "cls", "version", "data"),
    [
        ("string", HeartbeatRequest, 0, struct.pack(">h", 33)),
        ("compact string", HeartbeatRequest, 4, uvarint(34)),
        ("records", ProduceRequest, 3, produce(b"", 3)[:-4] + struct.pack(">i", 33)),
        ("compact records", ProduceRequest, 9, produce(b"", 9)[:-4] + uvarint(34)),
        ("array", MetadataRequest, 4, struct.pack(">i", 17)),
        ("compact array", ProduceRequest, 9, b"\0" + struct.pack(">hi", 1, 1) + uvarint(12)),
        ("compact length of 32 bits", HeartbeatRequest, 4, uvarint(2**32 - 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_length_beyond_the_data_is_rejected(
    case: str, cls: type[Message], version: int, data: bytes
) -> None:
    assert "does not fit" in refusal(cls, data + bytes(32), version), case


def test_compact_string_above_kafkas_limit_is_rejected_even_if_its_bytes_are_there() -> None:
    assert "does not fit" in refusal(HeartbeatRequest, uvarint(32769) + b"x" * 40_000, 4)


def test_overlong_varint_is_rejected() -> None:
    assert "varint" in refusal(HeartbeatRequest, b"\xff\xff\xff\xff\x1f" + bytes(40), 4)


def test_string_that_is_not_utf8_is_rejected() -> None:
    assert "UTF-8" in refusal(ApiVersionsRequest, b"\x03\xc3\x28\x01\x00", 3)


def test_surrogates_in_utf8_are_rejected() -> None:
    assert "UTF-8" in refusal(ApiVersionsRequest, b"\x04\xed\xa0\x80\x01\x00", 3)


def test_claimed_count_allocates_nothing() -> None:
    """Room for the two thousand million names claimed would take 16 GiB."""
    data = struct.pack(">i", 2**31 - 1) + bytes(64)
    refusal(MetadataRequest, data, 4)  # decoder compiled, modules imported, regexes cached
    tracemalloc.start()
    try:
        refusal(MetadataRequest, data, 4)
        by_file = tracemalloc.take_snapshot().statistics("filename")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 1024 * 1024, by_file[:10]


def test_elements_beyond_the_budget_of_a_message_are_rejected() -> None:
    empty_names = bytes(2 * (ARRAY_ELEMENTS_MAX + 1))
    data = struct.pack(">i", ARRAY_ELEMENTS_MAX + 1) + empty_names + b"\1"

    assert "elements" in refusal(MetadataRequest, data, 4)


def test_budget_is_shared_by_all_arrays_of_a_message() -> None:
    # Two forgotten topics of half a million partitions each, and the two topics themselves.
    half = struct.pack(">hi", 0, ARRAY_ELEMENTS_MAX // 2) + bytes(4 * (ARRAY_ELEMENTS_MAX // 2))
    data = struct.pack(">iiiibiii", -1, 0, 0, 0, 0, 0, 0, 0) + struct.pack(">i", 2) + half * 2

    assert "elements" in refusal(FetchRequest, data, 7)


@pytest.mark.parametrize(
    ("cls", "version", "fixed"),
    [
        (ApiVersionsRequest, 3, b"\x01\x01"),
        (FetchResponse, 16, bytes(4) + bytes(2) + bytes(4) + b"\x01"),
    ],
)
def test_too_many_tagged_fields_are_rejected(
    cls: type[Message], version: int, fixed: bytes
) -> None:
    data = fixed + uvarint(TAGGED_FIELDS_MAX + 1) + b"\x70\x00" * (TAGGED_FIELDS_MAX + 1)

    assert "tagged fields" in refusal(cls, data, version)
    allowed = fixed + uvarint(TAGGED_FIELDS_MAX) + b"\x70\x00" * TAGGED_FIELDS_MAX
    decode(cls, memoryview(allowed), version)


def test_tagged_field_with_a_wrong_size_is_rejected() -> None:
    fixed = b"\0\0" + b"\x01" + b"\0\0\0\0"
    short = b"\x01\x01\x07" + bytes(8)
    beyond = b"\x01\x01\x7f" + bytes(8)

    assert "stated size" in refusal(ApiVersionsResponse, fixed + short, 3)
    assert "does not fit" in refusal(ApiVersionsResponse, fixed + beyond, 3)


def test_null_struct_is_one_negative_byte() -> None:
    data = b"\x01" + bytes(4) + b"\xff" + b"\0"

    assert decode(DescribeTopicPartitionsRequest, memoryview(data), 0).cursor is None


def test_any_byte_but_zero_is_true() -> None:
    assert decode(MetadataRequest, memoryview(b"\0\0\0\0\x02"), 4).allow_auto_topic_creation is True
