"""Helpers over the raw client: produce a batch, fetch, look up offsets."""

from __future__ import annotations

from typing import Any

from tests.conformance.raw import RawClient


def fetch(
    raw: RawClient,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    version: int = 12,
    partition_max_bytes: int = 10_000_000,
    **request: Any,
) -> dict[str, Any]:
    """The one partition's part of a Fetch answer."""
    values: dict[str, Any] = {"max_wait": 100, "min_bytes": 1, "max_bytes": 50_000_000}
    row = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
    }
    values |= {"topics": [{"topic": topic, "partitions": [row]}]} | request
    answer = raw.call("fetch", version, **values)
    found: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return found


def produce(
    raw: RawClient,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    version: int = 9,
    acks: int = -1,
) -> dict[str, Any]:
    """The one partition's part of a Produce answer."""
    answer = raw.call(
        "produce",
        version,
        acks=acks,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )
    found: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return found


def list_offset(
    raw: RawClient, topic: str, timestamp: int, *, partition: int = 0, version: int = 9, **row: Any
) -> dict[str, Any]:
    """The one partition's part of a ListOffsets answer."""
    asked = {"partition_index": partition, "timestamp": timestamp} | row
    answer = raw.call(
        "list_offsets", version, replica_id=-1, topics=[{"name": topic, "partitions": [asked]}]
    )
    found: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return found
