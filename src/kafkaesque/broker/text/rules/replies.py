"""The replies of the text protocol: OK, ERR, or lines that end with END."""

from __future__ import annotations

from collections.abc import Mapping

from kafkaesque.broker.groups.consumer_protocol import Assignment
from kafkaesque.broker.text.rules.messages import show_message
from kafkaesque.records.codec import Record

GREETING = "OK kafkaesque text protocol; HELP lists the commands"
BYE = "OK bye"


def published(partition: int, offset: int) -> str:
    return f"OK partition={partition} offset={offset}"


def subscribed(subscription: str, assignment: Assignment) -> str:
    names = [f"{topic}-{p}" for topic, found in sorted(assignment.items()) for p in found]
    return f"OK subscription={subscription} partitions={','.join(names) or 'none'}"


def message(topic: str, partition: int, record: Record) -> str:
    text = show_message(record.key, record.value, record.headers)
    return f"MSG topic={topic} partition={partition} offset={record.offset} {text}"


def topic_line(name: str, partition_count: int) -> str:
    return f"TOPIC {name} partitions={partition_count}"


def end(count: int, positions: Mapping[tuple[str, int], int] | None = None) -> str:
    """`positions`: the next offset of each partition that has more."""
    more = ",".join(f"{topic}-{p}:{at}" for (topic, p), at in sorted((positions or {}).items()))
    return f"END count={count}" + (f" more={more}" if more else "")


def error(code: str, text: str) -> str:
    return f"ERR {code} {' '.join(text.split())}"
