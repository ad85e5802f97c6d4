from __future__ import annotations

import msgspec
import pytest

from kafkaesque.events import tasks as words
from kafkaesque.events.envelope import EVENT_SIZE_BYTES_MAX
from kafkaesque.events.tasks import (
    CronRule,
    MalformedTask,
    ResultMessage,
    TaskMessage,
    TimerMessage,
)
from kafkaesque.model.ids import TimestampMs


def test_call_round_trips_and_omits_defaults() -> None:
    message = TaskMessage("a", "greet", msgspec.Raw(b'{"name":"ann"}'), TimestampMs(5))
    data = words.encode_message(message)
    assert data == b'{"id":"a","task":"greet","args":{"name":"ann"},"sent_ms":5}'
    assert words.decode_task(data) == message


def test_timer_carries_the_call_unchanged() -> None:
    raw = msgspec.Raw(b'{"id":"a","task":"t","args":{},"sent_ms":5}')
    timer = TimerMessage(TimestampMs(9), "tasks.q", raw, "k", {"a": "b"}, CronRule("* * * * *"))
    again = words.decode_timer(words.encode_message(timer))
    assert bytes(again.message) == bytes(raw)
    assert (again.due_ms, again.key, again.headers, again.cron) == (9, "k", {"a": "b"}, timer.cron)


def test_result_may_be_any_json() -> None:
    for value in (b"null", b"7", b'{"a":[1]}'):
        result = ResultMessage("a", "t", True, TimestampMs(1), msgspec.Raw(value))
        assert bytes(words.decode_result(words.encode_message(result)).value) == value


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b'{"id":1}', b"\xff\xfe", b"[" * 100_000])
def test_invalid_call_is_refused(data: bytes | None) -> None:
    with pytest.raises(MalformedTask):
        words.decode_task(data)
    with pytest.raises(MalformedTask):
        words.decode_timer(data or b"")
    with pytest.raises(MalformedTask):
        words.decode_result(data)


def test_call_too_large_for_a_default_kafka_is_refused() -> None:
    raw = msgspec.Raw(b'"' + b"x" * EVENT_SIZE_BYTES_MAX + b'"')
    with pytest.raises(MalformedTask, match="at most 900000"):
        words.encode_message(TaskMessage("a", "t", raw, TimestampMs(1)))


def test_topic_names_of_a_queue_round_trip() -> None:
    topics = [spec.name for spec in words.queue_topics("mail")]
    assert topics == [
        "tasks.mail", "tasks.mail.retry.5s", "tasks.mail.retry.1m", "tasks.mail.retry.10m",
        "tasks.mail.retry.1h", "tasks.mail.dead",
    ]  # fmt: skip
    assert {words.queue_of(topic) for topic in topics} == {"mail"}
    assert [words.tier_of(topic) for topic in topics] == [None, "5s", "1m", "10m", "1h", None]


def test_queue_and_its_delays_have_the_same_number_of_partitions() -> None:
    specs = words.queue_topics("q", 3)
    assert {spec.partitions for spec in specs if not spec.name.endswith(".dead")} == {3}
