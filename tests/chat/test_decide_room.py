from __future__ import annotations

import pytest
from tests.chat.world import World

from kafkaesque.chat.rules.names import MESSAGES_KEPT_MAX


@pytest.fixture
def world() -> World:
    world = World()
    world.open("ann", "bob")
    world.send("ann", "room.create", "made", room="kafka")
    world.settle()
    return world


def test_creator_is_the_first_member_and_may_subscribe(world: World) -> None:
    assert world.result("ann", "made") == {"ok": True, "room": "kafka"}
    assert world.ask("ann", "room.subscribe", room="kafka")["ok"] is True
    assert world.ask("bob", "room.subscribe", room="kafka")["code"] == "not-a-member"


def test_post_is_written_once_to_the_room(world: World) -> None:
    world.send("bob", "room.join", room="kafka")
    sent = world.send("bob", "room.post", room="kafka", text="hello")
    world.settle()
    assert world.result("bob", sent)["message_id"] == f"bob/{sent}"
    events = world.room_events("kafka")
    assert [event["type"] for event in events] == ["room.joined", "room.message"]
    assert events[1]["body"]["text"] == "hello"
    assert world.inbox("ann", "room.message") == []


@pytest.mark.parametrize(
    ("op", "room", "code"),
    [
        ("room.create", "kafka", "name-taken"),
        ("room.create", "Not A Name", "bad-name"),
        ("room.join", "nowhere", "unknown-room"),
        ("room.leave", "nowhere", "unknown-room"),
    ],
)
def test_room_refuses_invalid_requests(world: World, op: str, room: str, code: str) -> None:
    sent = world.send("bob", op, room=room)
    world.settle()
    assert world.result("bob", sent)["code"] == code


def test_non_members_can_neither_post_nor_read(world: World) -> None:
    sent = world.send("bob", "room.post", room="kafka", text="x")
    world.settle()
    assert world.result("bob", sent)["code"] == "not-a-member"
    asked = world.ask("bob", "conversation.history", **{"with": "#kafka"})
    assert asked["code"] == "not-a-member"


def test_member_who_leaves_can_no_longer_post(world: World) -> None:
    world.send("ann", "room.leave", room="kafka")
    world.settle()
    assert world.ask("ann", "room.subscribe", room="kafka")["code"] == "not-a-member"
    assert world.room_events("kafka")[-1]["type"] == "room.left"


def test_deleted_account_leaves_its_rooms(world: World) -> None:
    world.send("bob", "room.join", room="kafka")
    world.send("bob", "account.delete")
    world.settle()
    assert list(world.homes[world.home_of("kafka")].state.rooms["kafka"].members) == ["ann"]


def test_history_of_a_room_is_answered_by_the_rooms_home(world: World) -> None:
    for number in range(MESSAGES_KEPT_MAX + 5):
        world.send("ann", "room.post", room="kafka", text=f"post {number}")
    body = world.ask("ann", "conversation.history", limit=3, **{"with": "#kafka"})["body"]
    assert [message["text"] for message in body["messages"]] == [
        f"post {MESSAGES_KEPT_MAX + number}" for number in (2, 3, 4)
    ]
    room = world.homes[world.home_of("kafka")].state.rooms["kafka"]
    assert len(room.messages.by_id) == MESSAGES_KEPT_MAX


def test_rooms_are_listed(world: World) -> None:
    world.send("bob", "room.create", room="raft")
    world.settle()
    body = world.ask("ann", "room.list")["body"]
    assert body["rooms"] == [
        {"room": "kafka", "member": True},
        {"room": "raft", "member": False},
    ]
