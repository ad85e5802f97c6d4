"""The common interface of all client libraries: settings, records, results and errors."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

Headers = Sequence[tuple[str, bytes | None]]

CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Unavailable(Exception):
    """The client or its toolchain is not on this machine; the text names what to install."""


class ClientFailure(Exception):
    """An error that the library reported: Kafka's error code, or None for an error of its own."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True)
class Message:
    """A record to produce; without a timestamp the library sets one."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True)
class Received:
    """A record that was consumed."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int = field(default=CREATE_TIME, compare=False)


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """Settings of a consumer by common names; `lacks` of a library names those it does not have."""

    group: str | None = None
    instance_id: str | None = None
    strategy: str = "range"
    reset: str = "earliest"
    max_partition_fetch_bytes: int | None = None
    fetch_min_bytes: int | None = None
    fetch_max_wait_ms: int = 200
    session_timeout_ms: int = 10_000
    allow_auto_create: bool = True


class Consumer(abc.ABC):
    """One consumer, subscribed in a group or assigned by hand."""

    @abc.abstractmethod
    def poll(self, timeout_s: float) -> list[Received]:
        """The available records, after at most `timeout_s`."""

    @abc.abstractmethod
    def assignment(self) -> set[tuple[str, int]]: ...

    @abc.abstractmethod
    def commit(self) -> None:
        """Commit the positions after all polled records, and wait for the answer."""

    @abc.abstractmethod
    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    @abc.abstractmethod
    def position(self, topic: str, partition: int) -> int: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    def take(self, count: int, timeout_s: float = 30) -> list[Received]:
        """Poll until `count` records have arrived; fewer at the deadline fail the test."""
        got: list[Received] = []
        deadline = time.monotonic() + timeout_s
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} records in {timeout_s} s"
            got += self.poll(0.25)
        return got


class Client(abc.ABC):
    """One library in one version, connected to one bootstrap address."""

    name: ClassVar[str]
    codecs: ClassVar[frozenset[str]] = frozenset({"none", "gzip", "snappy", "lz4", "zstd"})
    lacks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abc.abstractmethod
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        bootstrap: str | None = None,
        batch_bytes: int | None = None,
    ) -> list[int]:
        """Produce in order with one producer; returns the offsets (-1 with acks=0)."""

    @abc.abstractmethod
    def subscribe(self, topics: Sequence[str], options: ConsumerOptions) -> Consumer: ...

    @abc.abstractmethod
    def assign(
        self, partitions: Sequence[tuple[str, int]], options: ConsumerOptions
    ) -> Consumer: ...

    @abc.abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The library's time lookup; None if there is no such record."""

    @abc.abstractmethod
    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Beginning and end offset by the library's own calls."""

    def read_all(self, topic: str, count: int, partitions: int = 1) -> list[Received]:
        """The first `count` records from the beginning, in order within each partition."""
        consumer = self.assign([(topic, index) for index in range(partitions)], ConsumerOptions())
        try:
            for index in range(partitions):
                consumer.seek(topic, index, 0)
            return consumer.take(count)
        finally:
            consumer.close()

    def close(self) -> None:  # noqa: B027 - most clients keep nothing
        """Release the resources that the client keeps for the session."""
