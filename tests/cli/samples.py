"""A record like confluent-kafka's Message, without a broker; settings of property tests."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline: other processes share the machine, so elapsed time means nothing."""


@dataclass(frozen=True)
class SampleRecord:
    value_: bytes | None = b"value"
    key_: bytes | None = b"key"
    headers_: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_: tuple[int, int] = (1, 1_767_225_600_123)
    offset_: int = 7
    topic_: str = "orders"

    def topic(self) -> str | None:
        return self.topic_

    def partition(self) -> int | None:
        return 2

    def offset(self) -> int | None:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> object:
        return list(self.headers_) or None

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_
