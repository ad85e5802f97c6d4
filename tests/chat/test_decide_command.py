from __future__ import annotations

import msgspec
import pytest
from tests.chat.world import World

from kafkaesque.chat.rules.names import COMMANDS_REMEMBERED_MAX, UNDELIVERED_MAX


@pytest.fixture
def world() -> World:
    world = World(online={"ann"})
    world.open("ann", "bob")
    return world


def test_message_reaches_the_recipients_inbox_and_the_sender_gets_a_result(world: World) -> None:
    sent = world.send("ann", "message.send", to="bob", text="hello")
    world.settle()
    assert world.bodies("bob", "message.new") == [
        {
            "message_id": f"ann/{sent}",
            "conversation_id": "ann~bob",
            "from": "ann",
            "text": "hello",
            "sent_ms": world.now_ms,
        }
    ]
    result = world.result("ann", sent)
    assert result["ok"] is True
    assert result["message_id"] == f"ann/{sent}"


def test_message_to_an_unknown_account_is_refused(world: World) -> None:
    sent = world.send("ann", "message.send", to="nobody", text="hello")
    world.settle()
    assert world.result("ann", sent)["code"] == "unknown-recipient"
    assert world.inbox("nobody") == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"to": "bob", "text": ""}, "bad-text"),
        ({"to": "bob", "text": "  \n"}, "bad-text"),
        ({"to": "bob", "text": "a\x00b"}, "bad-text"),
        ({"to": "bob", "text": "x" * 4001}, "malformed"),
        ({"to": "Bob!", "text": "x"}, "unknown-recipient"),
        ({"to": "ann", "text": "x"}, "to-yourself"),
        ({"to": 7, "text": "x"}, "malformed"),
        ({"text": "x"}, "malformed"),
        ({"to": "bob", "text": "x", "message_id": "a/b"}, "bad-id"),
    ],
)
def test_message_that_breaks_a_rule_is_refused(
    world: World, body: dict[str, object], code: str
) -> None:
    sent = world.send("ann", "message.send", **body)
    world.settle()
    assert world.result("ann", sent)["code"] == code
    assert world.inbox("bob", "message.new") == []


def test_repeated_command_takes_effect_once(world: World) -> None:
    for _ in range(3):
        world.send("ann", "message.send", "once", to="bob", text="hello")
    world.settle()
    assert len(world.bodies("bob", "message.new")) == 1
    assert world.result("ann", "once")["ok"] is True
    assert world.counts.repeats == 2


def test_repeat_within_the_window_is_known_after_a_crash(world: World) -> None:
    world.send("ann", "message.send", "once", to="bob", text="hello")
    for number in range(COMMANDS_REMEMBERED_MAX - 1):
        world.send("ann", "room.create", f"r{number}", room="Bad Name")
    world.settle()
    world.snapshot(world.home_of("ann"))
    world.crash(world.home_of("ann"))
    world.send("ann", "message.send", "once", to="bob", text="hello")
    world.settle()
    assert len(world.bodies("bob", "message.new")) == 1


def test_the_window_of_command_ids_is_bounded(world: World) -> None:
    for number in range(COMMANDS_REMEMBERED_MAX + 50):
        world.send("ann", "room.create", f"r{number}", room="Bad Name")
    world.settle()
    account = world.homes[world.home_of("ann")].state.accounts["ann"]
    assert len(account.taken) == COMMANDS_REMEMBERED_MAX
    assert f"r{COMMANDS_REMEMBERED_MAX + 49}" in account.taken


def test_the_same_message_id_under_another_command_is_refused(world: World) -> None:
    world.send("ann", "message.send", to="bob", text="hello", message_id="m1")
    again = world.send("ann", "message.send", to="bob", text="hello", message_id="m1")
    world.settle()
    assert world.result("ann", again)["code"] == "repeated-id"
    assert len(world.bodies("bob", "message.new")) == 1


def test_receipts_reach_the_sender_once_each(world: World) -> None:
    sent = [world.send("ann", "message.send", to="bob", text=text) for text in "xy"]
    world.settle()
    ids = [f"ann/{one}" for one in sent]
    for _ in range(2):
        world.send("bob", "message.received", message_ids=ids)
    world.send("bob", "message.read", message_ids=[ids[0], "ann/never", "garbage"])
    world.settle()
    assert [body["message_id"] for body in world.bodies("ann", "message.delivered")] == ids
    assert [body["message_id"] for body in world.bodies("ann", "message.read")] == ids[:1]
    kinds = [kind for kind, one in world.stages() if one == ids[0]]
    assert kinds == [
        "chat.message.sent",
        "chat.message.queued",
        "chat.message.delivered",
        "chat.message.read",
    ]


def test_users_cannot_mark_messages_of_others(world: World) -> None:
    sent = world.send("ann", "message.send", to="bob", text="x")
    world.settle()
    world.send("ann", "message.read", message_ids=[f"ann/{sent}"])
    world.settle()
    assert world.inbox("ann", "message.read") == []


def test_message_to_a_connected_user_is_not_queued(world: World) -> None:
    world.send("bob", "message.send", to="ann", text="x")
    world.settle()
    assert [kind for kind, _ in world.stages()] == ["chat.message.sent"]


def test_deleting_an_account_notifies_senders_of_undelivered_messages(world: World) -> None:
    world.open("cat")
    kept = world.send("ann", "message.send", to="bob", text="received")
    lost = world.send("ann", "message.send", to="bob", text="never received")
    other = world.send("cat", "message.send", to="bob", text="never received")
    world.settle()
    world.send("bob", "message.received", message_ids=[f"ann/{kept}"])
    deleted = world.send("bob", "account.delete")
    world.settle()
    assert world.result("bob", deleted)["ok"] is True
    assert len(world.inbox("bob", "account.deleted")) == 1
    undeliverable = world.bodies("ann", "message.undeliverable")
    assert [(body["message_id"], body["code"]) for body in undeliverable] == [
        (f"ann/{lost}", "account-deleted")
    ]
    assert [b["message_id"] for b in world.bodies("cat", "message.undeliverable")] == [
        f"cat/{other}"
    ]
    history = world.ask("ann", "conversation.history", **{"with": "bob"})["body"]["messages"]
    assert [message["stage"] for message in history] == ["delivered", "failed"]


def test_message_to_a_deleted_account_is_refused(world: World) -> None:
    world.send("bob", "account.delete")
    world.settle()
    sent = world.send("ann", "message.send", to="bob", text="x")
    world.settle()
    assert world.result("ann", sent)["code"] == "unknown-recipient"


def test_name_of_a_deleted_account_is_never_given_again(world: World) -> None:
    world.send("bob", "account.delete")
    again = world.send("bob", "account.open")
    world.settle()
    assert world.result("bob", again)["code"] == "name-taken"


def test_repeated_deletion_has_one_result(world: World) -> None:
    for _ in range(2):
        world.send("bob", "account.delete", "bye")
    world.settle()
    assert world.result("bob", "bye")["ok"] is True


def test_user_without_account_gets_an_error_and_leaves_no_state(world: World) -> None:
    sent = world.send("eve", "message.send", to="bob", text="x")
    world.settle()
    assert world.result("eve", sent)["code"] == "no-account"
    assert "eve" not in world.homes[world.home_of("eve")].state.accounts


def test_full_mailbox_refuses_messages(world: World) -> None:
    sent = [
        world.send("ann", "message.send", to="bob", text="x") for _ in range(UNDELIVERED_MAX + 1)
    ]
    world.settle()
    assert world.result("ann", sent[-2])["ok"] is True
    assert world.result("ann", sent[-1])["code"] == "mailbox-full"


def test_typing_reaches_connected_users_only(world: World) -> None:
    world.send("bob", "typing", to="ann")
    world.send("ann", "typing", to="bob")
    world.settle()
    assert [body["from"] for body in world.bodies("ann", "typing")] == ["bob"]
    assert world.inbox("bob", "typing") == []


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[" * 5000, "malformed"),
        (b'{"op": "no.such"}', "unknown-op"),
        (b'{"op": "conversation.list"}', "forbidden"),
        (b'{"op": "account.create", "body": {"name": "x", "password_hash": "y"}}', "forbidden"),
        (b'{"op": "message.received", "body": {"message_ids": "x"}}', "malformed"),
    ],
)
def test_malformed_command_gets_an_error_and_others_are_unaffected(
    world: World, value: bytes, code: str
) -> None:
    world.send_bytes("ann", value, "bad")
    after = world.send("ann", "message.send", to="bob", text="still here")
    world.settle()
    assert world.result("ann", "bad")["code"] == code
    assert world.result("ann", after)["ok"] is True


def test_failing_rule_gives_an_internal_error_and_processing_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("kafkaesque.chat.rules.decide_command._send", fails)
        sent = world.send("ann", "message.send", to="bob", text="x")
        world.settle()
    assert world.result("ann", sent)["code"] == "internal-error"
    assert world.counts.poison == 1


def test_unreadable_handover_is_skipped(world: World) -> None:
    from kafkaesque.client.ports import Record

    world.append(Record("chat.handover", b"ann", msgspec.json.encode({"kind": "of a later build"})))
    world.append(Record("chat.handover", b"ann", None))
    sent = world.send("ann", "message.send", to="bob", text="x")
    world.settle()
    assert world.result("ann", sent)["ok"] is True
