from __future__ import annotations

from tests.pipeline.jobs.conftest import MINUTE_MS, NOON_MS, at

from kafkaesque.pipeline.jobs import chat

HOUR_MS = 60 * MINUTE_MS


def event(kind: str, message: str, time_ms: int, sent_ms: int | None = None, **more) -> dict:
    body = {
        "message_id": message,
        "conversation_id": more.get("conversation", "c1"),
        "sender": more.get("sender", "ann"),
        "recipient": more.get("recipient", "bob"),
        "sent_ms": time_ms if sent_ms is None else sent_ms,
    }
    stage = kind.rpartition(".")[2]
    if stage != "sent":
        body[f"{stage}_ms"] = time_ms
    return {
        "id": f"{message}#{stage}",
        "kind": kind,
        "version": 1,
        "time_ms": time_ms,
        "source": "chat",
        "body": body,
    }


def stages_of(records, events: list[dict]):
    return chat.stages(chat.parse_chat(records([(item, item["time_ms"]) for item in events])))


def test_messages_and_people_are_counted_by_the_minute(records) -> None:
    events = [
        event(chat.SENT, "1", NOON_MS, sender="ann"),
        event(chat.SENT, "1", NOON_MS, sender="ann"),
        event(chat.SENT, "2", NOON_MS + 1000, sender="bob", conversation="c2"),
        event(chat.SENT, "3", NOON_MS + MINUTE_MS, sender="ann"),
        event(chat.READ, "3", NOON_MS + MINUTE_MS),
    ]
    rows = chat.per_minute(stages_of(records, events)).orderBy("minute").collect()
    assert [tuple(row) for row in rows] == [
        (at(NOON_MS), 2, 2, 2),
        (at(NOON_MS + MINUTE_MS), 1, 1, 1),
    ]


def test_latency_of_delivery_and_reading_needs_no_join(records) -> None:
    events = [
        event(chat.DELIVERED, "1", NOON_MS + 100, NOON_MS),
        event(chat.DELIVERED, "2", NOON_MS + 300, NOON_MS),
        event(chat.DELIVERED, "3", NOON_MS + 10, NOON_MS + 500),
        event(chat.READ, "1", NOON_MS + 5000, NOON_MS),
    ]
    rows = chat.latencies(stages_of(records, events)).orderBy("stage").collect()
    assert [(r["stage"], r["events"], r["clock_behind"], r["latency_p50_ms"], r["latency_max_ms"])
            for r in rows] == [("delivery", 3, 1, 100, 300), ("read", 1, 0, 5000, 5000)]  # fmt: skip


def test_silence_ends_a_session(records) -> None:
    events = [
        event(chat.SENT, "1", NOON_MS),
        event(chat.SENT, "2", NOON_MS + 10 * MINUTE_MS, sender="bob"),
        event(chat.SENT, "3", NOON_MS + 2 * HOUR_MS),
    ]
    rows = chat.sessions(stages_of(records, events)).orderBy("started_at").collect()
    assert [(row["messages"], row["speakers"], row["started_at"]) for row in rows] == [
        (2, 2, at(NOON_MS)),
        (1, 1, at(NOON_MS + 2 * HOUR_MS)),
    ]


def test_backlog_lists_messages_neither_delivered_nor_deleted(records) -> None:
    events = [
        event(chat.SENT, "1", NOON_MS),
        event(chat.SENT, "2", NOON_MS + 1000),
        event(chat.SENT, "3", NOON_MS),
        event(chat.SENT, "4", NOON_MS),
        event(chat.DELIVERED, "3", NOON_MS + 5, NOON_MS),
        event(chat.DELETED, "4", NOON_MS + 5, NOON_MS),
    ]
    states = chat.message_states(stages_of(records, events))
    rows = chat.undelivered(states, at(NOON_MS + MINUTE_MS)).collect()
    assert [tuple(row) for row in rows] == [("bob", 2, at(NOON_MS), 60.0)]


def test_messages_unread_for_a_day_are_listed(records) -> None:
    events = [
        event(chat.SENT, "old", NOON_MS),
        event(chat.DELIVERED, "old", NOON_MS + 5, NOON_MS),
        event(chat.SENT, "read", NOON_MS),
        event(chat.READ, "read", NOON_MS + 9, NOON_MS),
        event(chat.SENT, "fresh", NOON_MS + HOUR_MS),
    ]
    states = chat.message_states(stages_of(records, events))
    rows = chat.unread(states, at(NOON_MS + 24 * HOUR_MS + 1)).collect()
    assert [row["message_id"] for row in rows] == ["old"]
