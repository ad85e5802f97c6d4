"""The manual clock: retention and expiry of a broker without waiting."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from kafkaesque.testing import Broker, ManualClock
from kafkaesque.testing.client import SharedClient

HOUR_S = 3600


def test_clock_does_not_move_until_advanced() -> None:
    clock = ManualClock(start_ms=1_000)
    assert (clock.wall_ms(), clock.monotonic()) == (1_000, 0.0)
    clock.advance(1.5)
    assert (clock.wall_ms(), clock.monotonic()) == (2_500, 1.5)


def test_clock_starts_at_the_real_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    assert before_ms <= ManualClock().wall_ms() <= time.time_ns() // 1_000_000


def test_clock_cannot_be_moved_back() -> None:
    with pytest.raises(ValueError, match="forward"):
        ManualClock().advance(-1)


def test_retention_follows_the_clock() -> None:
    clock = ManualClock()
    with Broker(clock=clock) as broker, SharedClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", retention_ms=HOUR_S * 1000)
        client.produce("t", [{"value": "a"}, {"value": "b"}], within_s=10)
        clock.advance(HOUR_S / 2)
        broker.run_maintenance()
        assert watermarks(broker, "t") == (0, 2)
        clock.advance(HOUR_S)
        broker.run_maintenance()
        assert watermarks(broker, "t") == (2, 2)
        client.produce("t", [{"value": "c", "timestamp": clock.wall_ms()}], within_s=10)
        assert watermarks(broker, "t") == (2, 3)


def watermarks(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "w"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    finally:
        consumer.close()


def test_offsets_of_a_group_without_members_expire_by_the_clock() -> None:
    clock = ManualClock()
    settings = {"offsets.retention.minutes": 60}
    with Broker(settings=settings, clock=clock) as broker:
        broker.create_topic("t")
        commit(broker, "g", 7)
        assert committed(broker, "g") == 7
        clock.advance(HOUR_S + 1)
        broker.run_maintenance()
        assert committed(broker, "g") is None


def commit(broker: Broker, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: Broker, group: str) -> int | None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    offsets = {item.topic: item.offset for item in asked[group].result(10).topic_partitions}
    return offsets.get("t")


def test_group_forms_while_the_clock_is_stopped() -> None:
    with Broker(clock=ManualClock()) as broker, SharedClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        client.produce("t", [{"value": "a"}], within_s=10)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"a"
        consumer.close()


def test_silent_member_of_a_group_times_out_by_the_clock() -> None:
    clock = ManualClock()
    with Broker(clock=clock) as broker:
        broker.create_topic("t")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 40_000,
            }
        )
        joined = threading.Event()
        consumer.subscribe(["t"], on_assign=lambda _, partitions: joined.set())
        while not joined.is_set():
            consumer.poll(0.05)
        clock.advance(44)
        broker.run_maintenance()
        assert group_state(broker, "g") == ConsumerGroupState.STABLE
        clock.advance(2)
        broker.run_maintenance()
        assert group_state(broker, "g") == ConsumerGroupState.EMPTY
        consumer.close()


def group_state(broker: Broker, group: str) -> ConsumerGroupState:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    state: ConsumerGroupState = admin.describe_consumer_groups([group])[group].result(10).state
    return state
