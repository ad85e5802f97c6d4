"""Kafka requests by a bare socket: what a client library hides or lacks, without its retries.

`doctor` needs to see one address answer or fail, and librdkafka has no OffsetDelete for Python.
Plaintext only. Only the few request versions that every Kafka from 2.4 to 4.x accepts.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import MIB

T = TypeVar("T")

RESPONSE_SIZE_BYTES_MAX = 16 * MIB
API_VERSIONS, METADATA, DESCRIBE_CONFIGS, OFFSET_DELETE = 18, 3, 32, 47
UNSUPPORTED_VERSION = 35
BROKER_RESOURCE = 4


class Reader:
    """A cursor over one response; every read past its end is a ProtocolError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise ProtocolError("the answer ends too early")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._position)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def varint(self) -> int:
        result = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
        raise ProtocolError("a varint does not end")

    def string(self) -> str:
        return self.take(self.int16()).decode(errors="replace")

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self.take(size).decode(errors="replace")

    def compact_string(self) -> str:
        return self.take(self.varint() - 1).decode(errors="replace")

    def array(self, element: Callable[[], T]) -> list[T]:
        return [element() for _ in range(self._count(self.int32()))]

    def compact_array(self, element: Callable[[], T]) -> list[T]:
        return [element() for _ in range(self._count(self.varint() - 1))]

    def tags(self) -> dict[int, Reader]:
        found = {}
        for _ in range(self._count(self.varint())):
            tag = self.varint()
            found[tag] = Reader(self.take(self.varint()))
        return found

    def _count(self, count: int) -> int:
        if count > len(self._data) - self._position:
            raise ProtocolError("the answer counts more elements than it has bytes")
        return max(count, 0)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _compact_string(text: str) -> bytes:
    # One byte of length is enough for the short constants that are sent.
    data = text.encode()
    return bytes([len(data) + 1]) + data


class VersionRange(NamedTuple):
    lowest: int
    highest: int


@dataclass(frozen=True)
class ApiVersions:
    """What a broker says it speaks."""

    apis: Mapping[int, VersionRange]
    features: Mapping[str, VersionRange] = field(default_factory=dict)


class Node(NamedTuple):
    """A broker as it advertises itself."""

    id: int
    host: str
    port: int


class RawKafka:
    """One plaintext connection. Raises OSError or ProtocolError."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def call(self, api: int, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        """Send one request, read its answer past the correlation id."""
        self._correlation += 1
        head = struct.pack(">hhi", api, version, self._correlation) + _string("kafkaesque-cli")
        frame = head + (b"\0" if flexible else b"") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 4 <= size <= RESPONSE_SIZE_BYTES_MAX:
            raise ProtocolError(f"the answer claims {size} bytes: this is not Kafka's protocol")
        reader = Reader(self._receive(size))
        if reader.int32() != self._correlation:
            raise ProtocolError("the answer belongs to another request")
        return reader

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(min(count - len(data), 65536))
            if not piece:
                raise ProtocolError("the connection was closed instead of an answer")
            data += piece
        return bytes(data)

    def api_versions(self) -> ApiVersions:
        """ApiVersions v3; a broker that knows only older ones answers in v0 form (KIP-511)."""
        body = _compact_string("kafkaesque") + _compact_string("cli") + b"\0"
        reader = self.call(API_VERSIONS, 3, body, flexible=True)
        error = reader.int16()
        if error == UNSUPPORTED_VERSION:
            reader = self.call(API_VERSIONS, 0, b"")
            reader.int16()
            rows = reader.array(lambda: (reader.int16(), reader.int16(), reader.int16()))
            return ApiVersions({key: VersionRange(low, high) for key, low, high in rows})
        if error:
            raise ProtocolError(f"the broker refused ApiVersions with error {error}")

        def api() -> tuple[int, VersionRange]:
            key, versions = reader.int16(), VersionRange(reader.int16(), reader.int16())
            reader.tags()
            return key, versions

        apis = dict(reader.compact_array(api))
        reader.int32()
        supported = reader.tags().get(0)
        return ApiVersions(apis, _features(supported) if supported else {})

    def brokers(self) -> list[Node]:
        """The advertised brokers, by Metadata v1 for no topic at all."""
        reader = self.call(METADATA, 1, struct.pack(">i", 0))

        def node() -> Node:
            found = Node(reader.int32(), reader.string(), reader.int32())
            reader.nullable_string()
            return found

        return reader.array(node)

    def has_setting(self, broker_id: int, name: str) -> bool:
        """Whether the broker knows a setting of this name, by DescribeConfigs v1."""
        body = struct.pack(">ib", 1, BROKER_RESOURCE) + _string(str(broker_id))
        body += struct.pack(">i", 1) + _string(name) + b"\0"
        reader = self.call(DESCRIBE_CONFIGS, 1, body)
        reader.int32()
        if reader.int32() != 1:
            return False
        error = reader.int16()
        reader.nullable_string()
        reader.take(1)
        reader.string()
        return error == 0 and reader.int32() > 0

    def delete_offsets(
        self, group: str, topics: Mapping[str, Sequence[int]]
    ) -> tuple[int, dict[tuple[str, int], int]]:
        """OffsetDelete v0: the error of the group, and of each partition."""
        body = _string(group) + struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            body += _string(topic) + struct.pack(
                f">i{len(partitions)}i", len(partitions), *partitions
            )
        reader = self.call(OFFSET_DELETE, 0, body)
        error = reader.int16()
        reader.int32()
        errors: dict[tuple[str, int], int] = {}
        for _ in range(reader.int32()):
            topic = reader.string()
            for index, code in reader.array(lambda: (reader.int32(), reader.int16())):
                errors[topic, index] = code
        return error, errors


def _features(reader: Reader) -> dict[str, VersionRange]:
    def feature() -> tuple[str, VersionRange]:
        name, versions = reader.compact_string(), VersionRange(reader.int16(), reader.int16())
        reader.tags()
        return name, versions

    return dict(reader.compact_array(feature))
