"""Settings of the real clients, the partitions they use, and what their errors mean."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkaesque.lab.faults.checks.history import Key, Outcome

MESSAGE_TIMEOUT_MS: Final = 20_000
"""After this long without an acknowledgement nobody knows what became of a record."""

SILENT: Final = logging.getLogger("kafkaesque.lab.faults.librdkafka")
"""For what librdkafka would write on the terminal; a fault run expects all of it."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

_QUICK_RETURN: Final = {
    # A gap should be the broker's: the defaults wait up to 10 s before they try again.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 5000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # A broker that stands still does not hang up: without these two a client waits for it for 30 s.
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.timeout.ms": 3000,
    # Its re-bootstrap runs on a timer of one second: 2 to 2.5 s after a broker is back.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

_NEVER_WRITTEN: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
"""Reports of a rule that every earlier attempt would have met as well. Anything else, an unknown
topic or a missing permission too, may follow an attempt that was written and whose answer was lost.
A call of `produce` that raises has failed for certain: the record was never taken."""


class Partitions(NamedTuple):
    """The keys of a run: partitions of its topics, numbered."""

    topics: tuple[str, ...]
    partitions_per_topic: int

    @property
    def keys(self) -> range:
        return range(len(self.topics) * self.partitions_per_topic)

    def place(self, key: Key) -> tuple[str, int]:
        topic, partition = divmod(key, self.partitions_per_topic)
        return self.topics[topic], partition

    def key(self, topic: str, partition: int) -> Key:
        return self.topics.index(topic) * self.partitions_per_topic + partition

    def topic_partition(self, key: Key, offset: int) -> TopicPartition:
        return TopicPartition(*self.place(key), offset)


def outcome_of(error: KafkaError | None) -> Outcome:
    """What a delivery report says about its record."""
    if error is None:
        return Outcome.OK
    return Outcome.FAIL if error.code() in _NEVER_WRITTEN else Outcome.INFO


def error_in(exception: KafkaException) -> KafkaError | None:
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else None


def ignore_error(_error: KafkaError) -> None:
    """librdkafka goes on by itself; what it means for a record comes with its delivery report."""


def producer_settings(bootstrap_servers: str) -> dict[str, Any]:
    return {
        **_QUICK_RETURN,
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "request.timeout.ms": 2000,
        "linger.ms": 2,
        "error_cb": ignore_error,
    }


def admin_settings(bootstrap_servers: str) -> dict[str, Any]:
    return {**_QUICK_RETURN, "bootstrap.servers": bootstrap_servers, "error_cb": ignore_error}


def consumer_settings(bootstrap_servers: str, group_id: str) -> dict[str, Any]:
    return {
        **_QUICK_RETURN,
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 50,
        "error_cb": ignore_error,
    }
