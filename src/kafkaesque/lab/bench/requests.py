"""The requests of the load, encoded ahead of time, and checks of their answers.

Each API has one fixed version that all peers support, so that all of them do the same work.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafkaesque.client.wire.blocking import BlockingConnection, receive_into
from kafkaesque.client.wire.protocol import LENGTH_BYTES
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.model.address import Address
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaesque.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaesque.wire.table import Request, Response

CLIENT_ID = "bench"
API_VERSIONS_VERSION = 0
PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 4
DELETE_TOPICS_VERSION = 3

TIMEOUT_S = 60.0
RECORD_OVERHEAD_BYTES = 10
"""Overhead of a record without key and headers in a full batch: lengths, deltas, attributes."""

_OFFSET_MARK = 0x1122_3344_5566_7788

R = TypeVar("R", bound=Response)


def connect(host: str, port: int) -> socket.socket:
    """A socket for load, after ApiVersions: brokers limit the size of a connection's first frame.

    Load generators have their own loops, which send pre-encoded frames and count responses without
    decoding them. Otherwise the client's work would be measured together with the broker's.
    """
    return _open(host, port).detach()


def call(host: str, port: int, request: Request, version: int, answer: type[R]) -> R:
    """One request over a connection of its own."""
    with _open(host, port) as connection:
        return connection.call(request, answer, version=version)


def _open(host: str, port: int) -> BlockingConnection:
    connection = BlockingConnection(
        Address(host, port), timeout_s=TIMEOUT_S, client_id=CLIENT_ID, negotiates=False
    )
    connection.call(ApiVersionsRequest(), ApiVersionsResponse, version=API_VERSIONS_VERSION)
    return connection


def request_frame(request: Request, version: int) -> bytes:
    return b"".join(encode_request_frame(request, version, 1, CLIENT_ID))


def read_frame(sock: socket.socket) -> bytes:
    deadline = time.monotonic() + TIMEOUT_S
    prefix = bytearray(LENGTH_BYTES)
    receive_into(sock, memoryview(prefix), deadline)
    frame = bytearray(int.from_bytes(prefix))
    receive_into(sock, memoryview(frame), deadline)
    return bytes(frame)


def create_topic(
    host: str,
    port: int,
    name: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    *,
    replication_factor: int = 1,
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=v) for key, v in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
    answer = call(host, port, request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
    if answer.topics[0].error_code:
        raise LoadFailed(f"creating {name}: error {answer.topics[0].error_code}")


def delete_topic(host: str, port: int, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(TIMEOUT_S * 1000))
    answer = call(host, port, request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
    if answer.responses[0].error_code:
        raise LoadFailed(f"deleting {name}: error {answer.responses[0].error_code}")


def make_batch(record_bytes: int, batch_bytes: int, first_offset: int = 0) -> tuple[bytes, int]:
    """A sealed batch of equal records that fills `batch_bytes` (at least one record).

    Its timestamps are current: retention would delete week-old records in the middle of a run.
    """
    count = max(1, batch_bytes // (record_bytes + RECORD_OVERHEAD_BYTES))
    value = bytes(index * 7 % 251 for index in range(record_bytes))
    record = Record(Offset(0), TimestampMs(time.time_ns() // 1_000_000), None, value)
    return bytes(encode_batch([record] * count, base_offset=Offset(first_offset))), count


def produce_frame(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    return produce_many_frame(topic, [partition], batch, acks=acks)


def produce_many_frame(
    topic: str,
    partitions: Iterable[int],
    batch: bytes,
    *,
    acks: int,
    timeout_ms: int = int(TIMEOUT_S * 1000),
) -> bytes:
    """A frame with the same batch for each of `partitions`, which one broker leads."""
    rows = [PartitionProduceData(index=one, records=memoryview(batch)) for one in partitions]
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )
    return request_frame(request, PRODUCE_VERSION)


def produce_error(answer: bytes) -> int:
    """The first error of an answer; 0 if there is none."""
    return next((error for error in produce_errors(answer).values() if error), 0)


def produce_errors(answer: bytes) -> dict[int, int]:
    """Error codes by partition, including zeros."""
    decoded = decode_response(ProduceResponse, memoryview(answer), PRODUCE_VERSION)
    return {row.index: row.error_code for row in decoded.responses[0].partition_responses}


def check_produced(answers: Iterable[bytes]) -> None:
    """Called after the clock stopped. Raises LoadFailed for any error: the figures would be useless."""
    for answer in answers:
        error = produce_error(answer)
        if error:
            raise LoadFailed(f"a Produce request was answered with error {error}")


def fetch_frame(topic: str, partition: int, *, partition_bytes_max: int) -> tuple[bytearray, int]:
    """A consumer's Fetch with Java's limits, and the position of the fetch offset in the frame."""
    wanted = FetchPartition(
        partition=partition, fetch_offset=_OFFSET_MARK, partition_max_bytes=partition_bytes_max
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    frame = bytearray(request_frame(request, FETCH_VERSION))
    position = frame.index(_OFFSET_MARK.to_bytes(8))
    frame[position : position + 8] = bytes(8)
    return frame, position


def fetch_overhead_bytes(topic: str) -> int:
    """Size of a FetchResponse v12 frame with one partition, without its records (under 2 MiB)."""
    before_error = _fetch_error_position(topic)
    return 4 + before_error + struct.calcsize(">hqqqxi") + 3 + 3


def _fetch_error_position(topic: str) -> int:
    """After correlation id, tags, throttle, error, session; topic count, name; partition count, index."""
    return 4 + 1 + 10 + 1 + (1 + len(topic)) + 1 + 4


def check_fetched(topic: str, heads: Iterable[bytes]) -> None:
    at = _fetch_error_position(topic)
    for head in heads:
        (whole,), (partition,) = (struct.unpack_from(">h", head, place) for place in (9, at))
        if whole or partition:
            raise LoadFailed(f"a Fetch request was answered with error {whole or partition}")
