"""A blocking client of the raw protocol: sends exactly the given requests, returns raw answers."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import iter_batches
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.wire.api import RESPONSES
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)


class WireClient:
    def __init__(self, address: str, timeout_seconds: float = 20.0) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_seconds)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        frame = encode_request_frame(request, version, self._correlation_id, "wire-client")
        self.socket.sendall(b"".join(frame))

    def receive(self, response: type[R], version: int) -> R:
        (size_bytes,) = struct.unpack(">i", self.read(4))
        return decode_response(response, memoryview(self.read(size_bytes)), version)

    def read(self, size_bytes: int) -> bytes:
        """Reads exactly `size_bytes` bytes; ConnectionError if the broker closes first."""
        data = bytearray()
        while len(data) < size_bytes:
            part = self.socket.recv(size_bytes - len(data))
            if not part:
                raise ConnectionError(f"closed after {len(data)} of {size_bytes} bytes")
            data += part
        return bytes(data)

    def call(self, request: Request, version: int) -> Response:
        self.send(request, version)
        return self.receive(RESPONSES[request.API_KEY], version)

    # -- what most tests need ---------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        answer = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    def produce(
        self, topic: str, values: list[bytes], *, acks: int = -1, partition: int = 0
    ) -> PartitionProduceResponse:
        answer = self.call(produce_request(topic, values, acks=acks, partition=partition), 9)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> PartitionData:
        answer = self.call(
            fetch_request(topic, offset, partition=partition, max_bytes=max_bytes, wait_ms=wait_ms),
            12,
        )
        assert isinstance(answer, FetchResponse)
        return answer.responses[0].partitions[0]

    def read_all(self, topic: str, partition: int = 0) -> list[Record]:
        """Every committed record from the start of the log."""
        records: list[Record] = []
        offset = 0
        while True:
            row = self.fetch(topic, offset, partition=partition)
            assert row.error_code == ErrorCode.NONE, row
            if not row.records:
                return records
            for position, _ in iter_batches(row.records):
                records += decode_batch(row.records, position)
            offset = records[-1].offset + 1


def produce_request(
    topic: str, values: list[bytes], *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    batch = encode_batch([Record(Offset(0), TimestampMs(1_000), None, value) for value in values])
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, wait_ms: int = 0
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
