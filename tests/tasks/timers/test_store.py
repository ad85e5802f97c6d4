from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import CronRule, TaskMessage, TimerMessage
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs
from kafkaesque.tasks.timers.store import (
    OTHER_TASKS,
    TASKS_MAX,
    PendingTimer,
    RefusedRecord,
    TimerStore,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def timer(
    due_ms: int, cron: CronRule | None = None, args: bytes = b"{}", queue: str = "q"
) -> bytes:
    call = protocol.encode_message(TaskMessage("i", "t", msgspec.Raw(args), TimestampMs(1)))
    message = TimerMessage(TimestampMs(due_ms), f"tasks.{queue}", msgspec.Raw(call), cron=cron)
    return protocol.encode_message(message)


def record(offset: int, name: str, value: bytes | None, fired: str | None = None) -> Received:
    headers = () if fired is None else ((protocol.FIRED, fired.encode()),)
    return Received(
        protocol.TIMERS.name, PartitionIndex(0), Offset(offset), name.encode(), value, headers
    )


def store_of(*records: Received, path: Path | None = None) -> TimerStore:
    store = TimerStore.open(path, "topic-1", NOW_MS)
    if records:
        store.apply(records, records[-1].offset + 1, NOW_MS)
    return store


def ids(pending: list[PendingTimer]) -> list[str]:
    return [one.id for one in pending]


def test_due_timers_are_ordered_by_time_and_limited() -> None:
    store = store_of(*(record(n, f"t{n}", timer(NOW_MS - 10 + n)) for n in (3, 1, 2)),
                     record(9, "later", timer(NOW_MS + 1)))  # fmt: skip
    assert ids(store.due(NOW_MS, 2)) == ["t1", "t2"]
    assert store.pending == 4
    store.fired(store.due(NOW_MS, 10), [])
    assert (store.pending, store.next_due_ms()) == (1, NOW_MS + 1)
    store.close()


def test_a_tombstone_cancels_and_the_last_time_set_counts() -> None:
    store = store_of(
        record(0, "a", timer(NOW_MS)), record(1, "b", timer(NOW_MS)), record(2, "a", None, "cancel"),
        record(3, "b", timer(NOW_MS + HOUR_MS)), record(4, "unknown", None),
    )  # fmt: skip
    assert ids(store.due(NOW_MS, 10)) == []
    assert ids(store.due(NOW_MS + HOUR_MS, 10)) == ["b"]
    assert store.pending == 1
    store.close()


def test_a_timer_set_again_while_it_fired_is_kept_and_written_again() -> None:
    store = store_of(record(0, "a", timer(NOW_MS)))
    fired = store.due(NOW_MS, 10)
    store.apply([record(1, "a", timer(NOW_MS + HOUR_MS))], 2, NOW_MS)
    store.fired(fired, [])
    store.apply([record(2, "a", None, "0")], 3, NOW_MS)
    assert ids(store.due(NOW_MS + HOUR_MS, 10)) == ["a"]
    (again,) = store.take_unsettled()
    assert isinstance(again, PendingTimer)
    assert again.due_ms == NOW_MS + HOUR_MS
    assert store.take_unsettled() == []
    store.close()


def test_a_file_continues_where_it_was_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = store_of(record(0, "a", timer(NOW_MS)), record(1, "b", timer(NOW_MS)), path=path)
    again = TimerStore.open(path, "topic-1", NOW_MS)  # the first was never closed
    assert (again.next_offset, again.pending) == (2, 2)
    again.close()
    store.close()


@pytest.mark.parametrize(
    ("topic_id", "now_ms"),
    [("topic-2", NOW_MS), ("topic-1", NOW_MS + 13 * HOUR_MS), ("topic-1", NOW_MS - 13 * HOUR_MS)],
)
def test_a_file_of_another_topic_or_too_old_for_tombstones_is_rebuilt(
    tmp_path: Path, topic_id: str, now_ms: int
) -> None:
    path = tmp_path / "t.db"
    store_of(record(0, "a", timer(NOW_MS)), path=path).close()
    again = TimerStore.open(path, topic_id, now_ms)
    assert (again.next_offset, again.pending) == (0, 0)
    again.close()


def test_timers_are_counted_by_task_and_the_counts_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    records = [record(n, f"t{n}", timer(NOW_MS)) for n in range(3)]
    store = store_of(*records, record(3, "t0", None, "cancel"), path=path)
    (name,) = store.tasks
    assert (store.tasks[name], store.cancelled[name]) == (2, 1)
    assert {one.task for one in store.due(NOW_MS, 10)} == {name}
    store.fired(store.due(NOW_MS, 1), [])
    store.close()
    again = TimerStore.open(path, "topic-1", NOW_MS)
    assert again.tasks == {name: 1}
    again.close()


def test_task_names_beyond_the_limit_are_counted_together() -> None:
    store = store_of(
        *(record(n, str(n), timer(NOW_MS, queue=f"q{n}")) for n in range(TASKS_MAX + 5))
    )
    assert store.tasks[OTHER_TASKS] == 5
    assert len(store.tasks) == TASKS_MAX + 1
    store.close()


def test_a_file_of_an_older_format_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(
            "CREATE TABLE timers (id TEXT PRIMARY KEY, due_ms INTEGER NOT NULL, offset INTEGER NOT"
            " NULL, value BLOB NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
            "INSERT INTO facts VALUES ('topic', 'topic-1'), ('format', '1'), ('next_offset', '9');"
        )
    store = store_of(record(0, "a", timer(NOW_MS)), path=path)
    assert ids(store.due(NOW_MS, 10)) == ["a"]
    store.close()


def test_a_damaged_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"no database" * 1000)
    store = TimerStore.open(path, "topic-1", NOW_MS)
    assert store.next_offset == 0
    store.close()


def test_a_record_that_is_not_a_timer_is_refused_unless_a_later_one_settles_it() -> None:
    store = store_of(
        record(0, "bad", b"\xff"), record(1, "worse", b"{}"), record(2, "good", timer(NOW_MS)),
        record(3, "worse", None, "1"), record(4, f"{protocol.OWNER_KEY}0", b"mark"),
        record(5, "odd", timer(NOW_MS, CronRule("never"))),
    )  # fmt: skip
    refused = store.take_unsettled()
    assert [one.record.offset for one in refused if isinstance(one, RefusedRecord)] == [0, 5]
    assert ids(store.due(NOW_MS, 10)) == ["good"]
    store.close()


def test_a_cron_declared_again_keeps_its_time_and_a_changed_one_gets_a_new_one() -> None:
    hourly = CronRule("0 * * * *")
    store = store_of(record(0, "cron/a/x", timer(0, hourly)))
    (first,) = store.take_unsettled()
    assert isinstance(first, PendingTimer)
    assert first.message.cron is not None
    assert first.message.cron.after_ms == NOW_MS
    later_ms = NOW_MS + 5 * HOUR_MS
    store.apply([record(1, "cron/a/x", timer(0, hourly))], 2, later_ms)
    (same,) = store.take_unsettled()
    assert isinstance(same, PendingTimer)
    assert same.due_ms == first.due_ms
    store.apply([record(2, "cron/a/x", timer(0, CronRule("30 * * * *")))], 3, later_ms)
    (changed,) = store.take_unsettled()
    assert isinstance(changed, PendingTimer)
    assert changed.due_ms > later_ms
    store.close()


def test_a_cron_record_of_the_owner_read_late_does_not_turn_back_time() -> None:
    rule = CronRule("0 * * * *", after_ms=TimestampMs(NOW_MS))
    store = store_of(record(0, "cron/a/x", timer(NOW_MS + HOUR_MS, rule)))
    (due,) = store.due(NOW_MS + HOUR_MS, 1)
    moved = CronRule("0 * * * *", after_ms=TimestampMs(NOW_MS + HOUR_MS))
    message = msgspec.structs.replace(due.message, due_ms=NOW_MS + 2 * HOUR_MS, cron=moved)
    store.fired([], [PendingTimer(due.id, NOW_MS + 2 * HOUR_MS, due.offset, message)])
    store.apply([record(1, "cron/a/x", timer(NOW_MS + HOUR_MS, rule))], 2, NOW_MS)
    assert store.next_due_ms() == NOW_MS + 2 * HOUR_MS
    assert store.pending == 1
    store.close()
