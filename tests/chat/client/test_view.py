from __future__ import annotations

from typing import Any

from kafkaesque.chat.client.rules.view import FRESH_MS, TYPING_MS, ChatView, OutgoingCommand

NOW_MS = 1_790_000_000_000


def new(sender: str, number: int, text: str = "hello") -> dict[str, Any]:
    return {
        "message_id": f"{sender}/{number}",
        "conversation_id": "x",
        "from": sender,
        "text": text,
        "sent_ms": NOW_MS + number,
    }


def take(
    view: ChatView, kind: str, body: dict[str, Any], re: str | None = None
) -> list[OutgoingCommand]:
    return view.apply_event(kind, body, re, NOW_MS)


def test_message_counts_as_unread_until_its_thread_is_opened() -> None:
    view = ChatView("ann")
    assert take(view, "message.new", new("bob", 1)) == [
        OutgoingCommand("message.received", {"message_ids": ["bob/1"]})
    ]
    assert view.unread == 1
    assert view.choose("bob") == [OutgoingCommand("message.read", {"message_ids": ["bob/1"]})]
    assert view.unread == 0


def test_message_in_the_open_thread_is_read_at_once() -> None:
    view = ChatView("ann")
    view.choose("bob")
    says = take(view, "message.new", new("bob", 1))
    assert [say.op for say in says] == ["message.received", "message.read"]
    assert view.unread == 0


def test_notification_alerts_a_user_in_another_thread_and_adds_no_message() -> None:
    view = ChatView("ann")
    notice = {"message_id": "bob/1", "conversation_id": "x", "from": "bob", "sent_ms": NOW_MS}
    take(view, "message.new", new("bob", 1))
    assert take(view, "notification", notice) == []
    assert view.notices == ["bob wrote to you"]
    assert (len(view.threads["bob"].lines), view.unread) == (1, 1)
    view.choose("bob")
    take(view, "notification", notice)
    view.choose("eve")
    take(view, "notification", {**notice, "sent_ms": NOW_MS - FRESH_MS})
    assert view.notices == ["bob wrote to you"]


def test_duplicate_message_is_shown_and_counted_once() -> None:
    view = ChatView("ann")
    take(view, "message.new", new("bob", 1))
    assert take(view, "message.new", new("bob", 1)) == []
    assert len(view.threads["bob"].lines) == 1
    assert view.unread == 1


def test_sent_message_is_shown_at_once_and_its_stage_follows() -> None:
    view = ChatView("ann")
    view.sent("c1", "bob", "hi", NOW_MS)
    line = view.threads["bob"].lines["ann/c1"]
    stages = [line.stage]
    take(view, "result", {"ok": True, "message_id": "ann/c1"}, "c1")
    stages.append(line.stage)
    for kind in ("message.read", "message.delivered"):
        take(view, kind, {"message_id": "ann/c1", "by": "bob"})
        stages.append(line.stage)
    assert stages == ["sending", "queued", "read", "read"]


def test_refused_message_is_marked_with_a_notice() -> None:
    view = ChatView("ann")
    view.sent("c1", "nobody", "hi", NOW_MS)
    body = {"ok": False, "code": "unknown-recipient", "message": "there is no account nobody"}
    take(view, "result", body, "c1")
    line = view.threads["nobody"].lines["ann/c1"]
    assert (line.stage, line.note) == ("failed", "unknown-recipient")
    assert view.notices == ["there is no account nobody"]


def test_undeliverable_message_is_marked_with_a_notice() -> None:
    view = ChatView("ann")
    view.sent("c1", "bob", "hi", NOW_MS)
    take(view, "message.undeliverable", {"message_id": "ann/c1", "to": "bob", "code": "x"})
    assert view.threads["bob"].lines["ann/c1"].stage == "failed"
    assert "bob" in view.notices[-1]


def test_typing_ends_after_a_while_and_with_the_message() -> None:
    view = ChatView("ann")
    take(view, "typing", {"from": "bob", "at_ms": NOW_MS})
    thread = view.threads["bob"]
    assert thread.is_typing(NOW_MS + TYPING_MS - 1)
    assert not thread.is_typing(NOW_MS + TYPING_MS)
    take(view, "message.new", new("bob", 1))
    assert not thread.is_typing(NOW_MS)


def test_history_is_placed_before_newer_messages() -> None:
    view = ChatView("ann")
    take(view, "message.new", new("bob", 5))
    rows = [
        {"message_id": f"bob/{n}", "from": "bob", "text": "x", "sent_ms": n, "stage": stage}
        for n, stage in ((3, "read"), (4, "queued"), (5, "delivered"))
    ]
    says = view.load_history({"with": "bob", "messages": rows, "more": False})
    assert list(view.threads["bob"].lines) == ["bob/3", "bob/4", "bob/5"]
    assert says == [OutgoingCommand("message.received", {"message_ids": ["bob/4"]})]


def test_conversations_with_the_newest_message_come_first() -> None:
    view = ChatView("ann")
    view.load_conversations(
        [
            {"with": "old", "unread": 2, "last_ms": 1},
            {"with": "new", "unread": 0, "last_ms": 2},
        ]
    )
    assert [thread.name for thread in view.ordered] == ["new", "old"]
    view.step(1)
    assert view.current == "new"
    view.step(1)
    assert (view.current, view.unread) == ("old", 0)


def test_post_in_a_room_is_counted_but_never_received_or_read() -> None:
    view = ChatView("ann")
    body = {**new("bob", 1), "room": "kafka"}
    assert take(view, "room.message", body) == []
    take(view, "room.message", {**new("ann", 2), "room": "kafka"})
    assert view.threads["#kafka"].unread == 1
    assert view.choose("#kafka") == []


def test_account_deletion_ends_the_view_and_unknown_events_are_ignored() -> None:
    view = ChatView("ann")
    assert take(view, "of.a.later.build", {"x": 1}) == []
    take(view, "account.deleted", {"name": "ann"})
    assert view.ended is not None
