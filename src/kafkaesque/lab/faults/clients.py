"""Settings of the confluent-kafka clients, their partitions, and the meaning of their errors."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkaesque.lab.faults.checks.history import Key, OperationOutcome

MESSAGE_TIMEOUT_MS: Final = 20_000
"""After this long without an acknowledgement the outcome of a record is unknown."""

SILENT: Final = logging.getLogger("kafkaesque.lab.faults.librdkafka")
"""Swallows librdkafka's log output, all of which is expected in a fault run."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

_FAST_RECONNECT: Final = {
    # Gaps should be the brokers': with the defaults a client waits up to 10 s before it reconnects.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 5000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # A paused broker keeps its connections open: without these two a client waits 30 s for it.
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.timeout.ms": 3000,
    # Re-bootstrapping runs on a one-second timer: 2 to 2.5 s after a broker has restarted.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

_NEVER_WRITTEN: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
"""Errors that every earlier attempt would have met as well. Any other error, even an unknown topic or a
missing permission, may follow an attempt that was written and whose answer was lost. If `produce` itself
raises, the record was never accepted."""


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


def outcome_of(error: KafkaError | None) -> OperationOutcome:
    """The outcome of a record, from its delivery report."""
    if error is None:
        return OperationOutcome.OK
    return OperationOutcome.FAIL if error.code() in _NEVER_WRITTEN else OperationOutcome.INFO


def error_in(exception: KafkaException) -> KafkaError | None:
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else None


def ignore_error(_error: KafkaError) -> None:
    """librdkafka retries by itself; the delivery report of a record has its outcome."""


def producer_settings(bootstrap_servers: str) -> dict[str, Any]:
    return {
        **_FAST_RECONNECT,
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "request.timeout.ms": 2000,
        "linger.ms": 2,
        "error_cb": ignore_error,
    }


def admin_settings(bootstrap_servers: str) -> dict[str, Any]:
    return {**_FAST_RECONNECT, "bootstrap.servers": bootstrap_servers, "error_cb": ignore_error}


def consumer_settings(bootstrap_servers: str, group_id: str) -> dict[str, Any]:
    return {
        **_FAST_RECONNECT,
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
