from __future__ import annotations

from kafkaesque.edge.client_state import (
    BACKOFF_SECONDS_MAX,
    Addresses,
    ClientState,
    Credentials,
    backoff_s,
)
from kafkaesque.edge.protocol.messages import Auth, Hello, Resume, Send, Sub


def state(credentials: Credentials | None = None) -> ClientState:
    return ClientState(credentials or Credentials(token="t"), "v1", None, "me")


def test_opening_resumes_after_the_last_event() -> None:
    client = state()
    client.reached("p7", None)
    assert client.opening("c", 10) == [
        Hello("v1", "c", 10),
        Auth(token="t"),
        Resume("p7"),
    ]


def test_unanswered_requests_are_repeated_in_order_with_their_ids() -> None:
    client = state()
    first = client.request(lambda new: Send(new, "a"))
    second = client.request(lambda new: Send(new, "b"))
    third = client.request(lambda new: Send(new, "c"))
    client.done(second.id)
    assert client.welcomed(None) == [first, third]


def test_room_subscriptions_are_renewed_from_their_positions() -> None:
    client = state()
    client.rooms["lobby"] = "r1"
    client.reached("r9", "lobby")
    client.reached("x", "a room that was left")
    [again] = client.welcomed(None)
    assert isinstance(again, Sub)
    assert (again.room, again.position) == ("lobby", "r9")


def test_password_is_used_without_a_token_and_after_a_rejected_token() -> None:
    client = state(Credentials(name="alice", password="pw", register=True))
    assert client.opening("", None)[1] == Auth(name="alice", password="pw", register=True)
    client.welcomed("fresh")
    client.registered()
    assert client.opening("", None)[1] == Auth(token="fresh")
    assert client.refused()
    assert client.opening("", None)[1] == Auth(name="alice", password="pw")
    assert not client.refused()


def test_addresses_rotate_after_the_goaway_targets() -> None:
    addresses = Addresses(["ws://a:1/chat", "ws://b:2/chat"])
    assert [addresses.next() for _ in range(3)] == [
        "ws://a:1/chat",
        "ws://b:2/chat",
        "ws://a:1/chat",
    ]
    addresses.prefer(["c:3", "d:4"])
    assert [addresses.next() for _ in range(3)] == [
        "ws://c:3/chat",
        "ws://d:4/chat",
        "ws://b:2/chat",
    ]
    plain = Addresses(["a:1"])
    plain.next()
    plain.prefer(["c:3"])
    assert plain.next() == "c:3"


def test_backoff_grows_to_its_limit_and_is_spread() -> None:
    assert backoff_s(0, 1.0) < backoff_s(3, 1.0) < backoff_s(100, 1.0) == BACKOFF_SECONDS_MAX
    assert backoff_s(100, 0.0) == 0.0
