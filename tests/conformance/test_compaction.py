"""Compacted topics as clients see them: newest records, gaps, tombstones, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.conformance.conftest import Topics
from tests.waiting import eventually_passes

PATIENCE_S = 120.0
NOW_MS = int(time.time() * 1000) - 10_000_000
STEP_MS = 2000
"""The time between two records: more than segment.ms, so each begins a segment."""
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "1000",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "100",
}
Row = tuple[int, bytes, bytes | None]


class Log:
    """A compacted partition that one client writes and another reads from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._clock_ms = NOW_MS
        self.producer = self.new_producer(**{"enable.idempotence": True})

    def new_producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, **settings})

    def put(self, key: bytes | None, value: bytes | None, producer: Producer | None = None) -> None:
        """Write one record in a batch and a segment of its own."""
        failed: list[KafkaError] = []
        self._clock_ms += STEP_MS
        writer = producer or self.producer
        writer.produce(
            self.topic,
            value,
            key,
            0,
            timestamp=self._clock_ms,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert writer.flush(30) == 0
        if failed:
            raise KafkaException(failed[0])

    def rows(self, isolation: str = "read_uncommitted") -> list[Row]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "compaction",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[Row] = []
        try:
            while True:
                message = consumer.poll(30)
                assert message is not None, f"nothing came after {found[-1:]}"
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, message.key() or b"", message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
        finally:
            consumer.close()

    def end(self) -> int:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "compaction"})
        _, high = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), 30)
        consumer.close()
        return int(high)


@pytest.fixture
def new_log(bootstrap: str, topics: Topics) -> Callable[..., Log]:
    return lambda **configs: Log(bootstrap, topics.create(**{**COMPACTED, **configs}))


def wait_for_rows(log: Log, expected: list[Row]) -> None:
    eventually_passes(lambda: _same(log.rows(), expected), PATIENCE_S)


def _same(found: list[Row], expected: list[Row]) -> None:
    assert found == expected


def test_newest_of_each_key_stays_at_its_offset(new_log: Callable[..., Log]) -> None:
    log = new_log()
    for number in range(12):
        log.put(b"k%d" % (number % 3), b"v%d" % number)
    log.put(b"last", b"in the segment that is written to")
    end = log.end()
    wait_for_rows(
        log,
        [
            (9, b"k0", b"v9"),
            (10, b"k1", b"v10"),
            (11, b"k2", b"v11"),
            (12, b"last", b"in the segment that is written to"),
        ],
    )
    assert log.end() == end


def test_active_segment_is_not_cleaned(new_log: Callable[..., Log]) -> None:
    log = new_log(segment_ms="100000000")
    for number in range(5):
        log.put(b"k", b"v%d" % number)
    other = new_log()
    for number in range(3):
        other.put(b"k", b"v%d" % number)
    other.put(b"end", b"0")
    wait_for_rows(other, [(2, b"k", b"v2"), (3, b"end", b"0")])
    assert len(log.rows()) == 5


def test_tombstone_removes_its_key_and_is_removed_later(new_log: Callable[..., Log]) -> None:
    log = new_log()
    log.put(b"gone", b"1")
    log.put(b"here", b"1")
    log.put(b"gone", None)
    log.put(b"end", b"0")

    def is_gone() -> None:
        log.put(b"end", b"again")
        assert [row for row in log.rows() if row[1] != b"end"] == [(1, b"here", b"1")]

    eventually_passes(is_gone, PATIENCE_S)


def test_tombstone_is_visible_to_timely_readers(new_log: Callable[..., Log]) -> None:
    log = new_log(delete_retention_ms="86400000")
    log.put(b"gone", b"1")
    log.put(b"gone", None)
    log.put(b"end", b"0")
    wait_for_rows(log, [(1, b"gone", None), (2, b"end", b"0")])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_cleaned_too(new_log: Callable[..., Log], codec: str) -> None:
    log = new_log()
    producer = log.new_producer(**{"compression.type": codec})
    for number in range(4):
        log.put(b"k", b"x" * 500 + b"%d" % number, producer)
    log.put(b"end", b"0", producer)
    wait_for_rows(log, [(3, b"k", b"x" * 500 + b"3"), (4, b"end", b"0")])


def test_older_records_of_a_key_are_removed_within_a_batch(new_log: Callable[..., Log]) -> None:
    log = new_log()
    producer = log.new_producer(**{"linger.ms": 1000, "compression.type": "lz4"})
    for number in range(30):
        producer.produce(log.topic, b"%d" % number, b"k%d" % (number % 3), 0, timestamp=NOW_MS)
    assert producer.flush(30) == 0
    log.put(b"roll", b"0")
    expected = [(27, b"k0", b"27"), (28, b"k1", b"28"), (29, b"k2", b"29"), (30, b"roll", b"0")]
    wait_for_rows(log, expected)


def test_record_without_key_is_refused(new_log: Callable[..., Log]) -> None:
    log = new_log()
    with pytest.raises(KafkaException) as refused:
        log.put(None, b"v")
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


def test_aborted_records_are_removed_and_committed_ones_kept(new_log: Callable[..., Log]) -> None:
    log = new_log()
    log.put(b"a", b"old")
    producer = log.new_producer(**{"transactional.id": log.topic, "transaction.timeout.ms": 30000})
    producer.init_transactions(30)
    producer.begin_transaction()
    log.put(b"a", b"void", producer)
    producer.abort_transaction(30)
    producer.begin_transaction()
    log.put(b"b", b"true", producer)
    producer.commit_transaction(30)
    log.put(b"end", b"0")
    log.put(b"end", b"1")

    def is_clean() -> None:
        seen = [row[1:] for row in log.rows() if row[1] != b"end"]
        assert seen == [(b"a", b"old"), (b"b", b"true")]

    eventually_passes(is_clean, PATIENCE_S)
    assert [row[1:] for row in log.rows("read_committed") if row[1] != b"end"] == [
        (b"a", b"old"),
        (b"b", b"true"),
    ]


def test_idempotent_producer_continues_after_its_records_were_cleaned(
    new_log: Callable[..., Log],
) -> None:
    log = new_log()
    quiet = log.new_producer(**{"enable.idempotence": True})
    log.put(b"k", b"0", quiet)
    for number in range(1, 5):
        log.put(b"k", b"%d" % number)
    log.put(b"end", b"0")
    wait_for_rows(log, [(4, b"k", b"4"), (5, b"end", b"0")])
    log.put(b"k", b"6", quiet)
    log.put(b"end", b"1", quiet)
    eventually_passes(
        lambda: _same(log.rows()[-2:], [(6, b"k", b"6"), (7, b"end", b"1")]), PATIENCE_S
    )


def test_settings_of_compaction_have_kafkas_names_and_defaults(
    bootstrap: str, topics: Topics
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topics.create())
    configs = eventually_passes(lambda: admin.describe_configs([resource])[resource].result(30))
    assert {key: configs[key].value for key in sorted(configs) if key in DEFAULTS} == DEFAULTS


DEFAULTS = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
}
