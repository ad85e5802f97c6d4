from __future__ import annotations

import pytest
from tests.chat.world import World

from kafkaesque.chat.rules.names import MESSAGES_KEPT_MAX


@pytest.fixture
def world() -> World:
    world = World()
    world.open("ann", "bob")
    return world


def test_account_is_created_once_by_name(world: World) -> None:
    def create(name: str, password_hash: str) -> dict[str, object]:
        return world.ask(
            name, "account.create", anonymous=True, name=name, password_hash=password_hash
        )

    assert create("cat", "$argon2id$1")["ok"] is True
    assert create("cat", "$argon2id$1")["ok"] is True, "the same ask, repeated"
    assert create("cat", "$argon2id$2")["code"] == "name-taken"
    assert create("Cat!", "$argon2id$2")["code"] == "bad-name"
    credentials = world.ask("cat", "account.credentials", anonymous=True, name="cat")
    assert credentials["body"] == {"password_hash": "$argon2id$1"}


def test_credentials_are_for_gateways_and_for_the_claimed_name_only(world: World) -> None:
    asked = world.ask("ann", "account.credentials", name="ann")
    assert asked["code"] == "forbidden"
    asked = world.ask("ann", "account.credentials", anonymous=True, name="bob")
    assert asked["code"] == "forbidden"
    asked = world.ask("eve", "account.credentials", anonymous=True, name="eve")
    assert asked["code"] == "unknown-account"
    asked = world.ask("ann", "account.credentials", anonymous=True, name="ann")
    assert asked["code"] == "no-password"


@pytest.mark.parametrize("op", ["account.list", "conversation.list", "message.send"])
def test_anonymous_connections_may_send_no_other_query(world: World, op: str) -> None:
    assert world.ask("ann", op, anonymous=True)["code"] in ("forbidden", "malformed")


def test_accounts_are_listed_by_pattern_and_page(world: World) -> None:
    world.open("barbara", "barney", "zoe")
    world.online.add("zoe")

    def names(**body: object) -> list[str]:
        rows = world.ask("ann", "account.list", **body)["body"]["accounts"]
        return [row["name"] for row in rows]

    assert names() == ["ann", "barbara", "barney", "bob", "zoe"]
    assert names(pattern="bar*") == ["barbara", "barney"]
    assert names(pattern="b?b") == ["bob"]
    assert names(pattern="nobody*") == []
    assert names(limit=2) == ["ann", "barbara"]
    assert names(limit=2, after="barbara") == ["barney", "bob"]
    rows = world.ask("ann", "account.list", pattern="zoe")["body"]["accounts"]
    assert rows == [{"name": "zoe", "online": True}]


def test_conversations_are_listed_newest_first_with_unread_counts(world: World) -> None:
    world.open("cat")
    world.send("bob", "message.send", to="ann", text="old")
    world.settle()
    world.now_ms += 1000
    for text in ("new", "newer"):
        world.send("cat", "message.send", to="ann", text=text)
    world.settle()
    rows = world.ask("ann", "conversation.list")["body"]["conversations"]
    assert [(row["with"], row["unread"], row["last_text"]) for row in rows] == [
        ("cat", 2, "newer"),
        ("bob", 1, "old"),
    ]
    world.send("ann", "message.read", message_ids=["cat/c5"])
    rows = world.ask("ann", "conversation.list")["body"]["conversations"]
    assert rows[0]["unread"] == 1


def test_history_is_paged_backwards(world: World) -> None:
    sent = [world.send("ann", "message.send", to="bob", text=f"{n}") for n in range(5)]
    world.settle()

    def page(**body: object) -> tuple[list[str], bool]:
        answer = world.ask("bob", "conversation.history", **{"with": "ann", **body})["body"]
        return [message["text"] for message in answer["messages"]], answer["more"]

    assert page(limit=2) == (["3", "4"], True)
    assert page(limit=2, before=f"ann/{sent[3]}") == (["1", "2"], True)
    assert page(limit=2, before=f"ann/{sent[1]}") == (["0"], False)
    assert page(before="ann/unknown") == ([], False)


def test_reply_fits_in_a_record_however_long_the_messages(world: World) -> None:
    for _ in range(60):
        sent = world.send("ann", "message.send", to="bob", text="\u20ac" * 4000)
        world.settle()
        world.send("bob", "message.received", message_ids=[f"ann/{sent}"])
    answer = world.ask("bob", "conversation.history", limit=200, **{"with": "ann"})["body"]
    assert 10 < len(answer["messages"]) < 60


def test_undelivered_messages_of_many_senders_are_paged(world: World) -> None:
    senders = [f"u{number}" for number in range(4)]
    world.open(*senders)
    for sender in senders:
        for _ in range(12):
            world.send(sender, "message.send", to="bob", text="\u20ac" * 4000)
    answer = world.ask("bob", "message.undelivered")["body"]
    assert answer["more"] is True
    assert 10 < len(answer["messages"]) < 48


def test_undelivered_messages_are_returned_until_received(world: World) -> None:
    sent = [world.send("ann", "message.send", to="bob", text=f"{n}") for n in range(3)]
    answer = world.ask("bob", "message.undelivered")["body"]
    assert [message["text"] for message in answer["messages"]] == ["0", "1", "2"]
    world.send("bob", "message.received", message_ids=[f"ann/{one}" for one in sent])
    assert world.ask("bob", "message.undelivered")["body"]["messages"] == []


def test_long_conversation_drops_its_oldest_messages(world: World) -> None:
    for number in range(MESSAGES_KEPT_MAX + 10):
        sent = world.send("ann", "message.send", to="bob", text=f"{number}")
        world.settle()
        world.send("bob", "message.received", message_ids=[f"ann/{sent}"])
    world.settle()
    for user, peer in (("ann", "bob"), ("bob", "ann")):
        conversation = world.homes[world.home_of(user)].state.conversations[user][peer]
        assert len(conversation.messages.by_id) == MESSAGES_KEPT_MAX
        assert next(iter(conversation.messages.by_id.values())).text == "10"


def test_query_of_a_user_without_account_is_refused(world: World) -> None:
    assert world.ask("eve", "account.list")["code"] == "no-account"


def test_reply_to_a_missing_reply_partition_is_dropped(world: World) -> None:
    world.send_bytes("ann", b'{"op":"account.list"}', "q", reply=9999, correlation="q")
    world.settle()
    assert world.waiting() == []
    assert world.records("gw.reply") == []
