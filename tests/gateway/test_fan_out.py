"""Fan-out: each subscriber receives all of its records once and in order, for any behaviour of readers
and sockets."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import Span
from kafkaesque.edge.protocol.positions import Position
from kafkaesque.gateway.rules.fan_out import FanOut, Mode, StartFrom, Subscriber
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId

TOPIC = TopicId(UUID(int=1))
P0 = PartitionIndex(0)


class Client:
    """A subscriber with room for some events at a time."""

    def __init__(self, key: bytes, start_at: Position | StartFrom) -> None:
        self.got: list[int] = []
        self.begin = 0
        self.room = 10**9
        self.replayed: int | None = None
        self.reason: str | None = None
        self.subscriber: Subscriber[int] = Subscriber(
            key, P0, start_at, self.deliver, self.on_live, self.on_refused
        )

    def deliver(self, event: int) -> bool:
        if self.room == 0:
            return False
        self.room -= 1
        self.got.append(event)
        return True

    def on_live(self, replayed: int) -> None:
        assert self.replayed is None
        self.replayed = replayed

    def on_refused(self, reason: str) -> None:
        self.reason = reason


def at(offset: int, topic: TopicId = TOPIC, partition: int = 0) -> Position:
    return Position(topic, PartitionIndex(partition), Offset(offset))


def fan_out(start: int = 0, end: int = 0, *clients: Client) -> FanOut[int]:
    made: FanOut[int] = FanOut(TOPIC)
    for client in clients:
        made.add(client.subscriber)
    if clients:
        made.open(P0, Span(Offset(start), Offset(end)))
    return made


def test_a_subscriber_waits_until_its_partition_is_read_and_starts_now() -> None:
    client = Client(b"a", StartFrom.NOW)
    made: FanOut[int] = FanOut(TOPIC)
    made.add(client.subscriber)
    assert made.unopened() == [P0]
    assert client.replayed is None
    made.open(P0, Span(Offset(0), Offset(7)))
    assert client.replayed == 0
    assert made.position_of(client.subscriber) == at(6)
    made.deliver_live(P0, Offset(7), b"a", 7)
    made.deliver_live(P0, Offset(8), b"b", 8)
    assert client.got == [7]


def test_a_resume_catches_up_to_the_live_cursor() -> None:
    client = Client(b"a", at(2))
    made = fan_out(0, 6, client)
    assert made.start_catch_ups() == {P0: 3}
    for offset in range(3, 6):
        made.deliver_catch_up(P0, Offset(offset), b"a", offset)
    assert not made.catch_up_advanced(P0, Offset(5))
    assert made.catch_up_advanced(P0, Offset(6))
    assert (client.got, client.replayed) == ([3, 4, 5], 3)
    made.deliver_live(P0, Offset(6), b"a", 6)
    assert client.got == [3, 4, 5, 6]


def test_a_catch_up_that_overtakes_the_live_reader_delivers_nothing_twice() -> None:
    client = Client(b"a", at(-1))
    made = fan_out(0, 1, client)
    made.start_catch_ups()
    for offset in range(3):
        made.deliver_catch_up(P0, Offset(offset), b"a", offset)
    assert made.catch_up_advanced(P0, Offset(3))
    for offset in range(1, 5):
        made.deliver_live(P0, Offset(offset), b"a", offset)
    assert client.got == [0, 1, 2, 3, 4]


def test_one_catch_up_serves_all_that_are_behind_and_later_ones_join_or_wait() -> None:
    first, second = Client(b"a", at(0)), Client(b"b", at(4))
    made = fan_out(0, 10, first, second)
    assert made.start_catch_ups() == {P0: 1}
    made.catch_up_advanced(P0, Offset(5))
    early, late = Client(b"c", at(1)), Client(b"d", at(7))
    made.add(early.subscriber)
    made.add(late.subscriber)
    assert made.start_catch_ups() == {}
    assert not made.catch_up_advanced(P0, Offset(6))
    made.deliver_catch_up(P0, Offset(9), b"d", 9)
    assert made.catch_up_advanced(P0, Offset(10))
    assert (late.replayed, late.got) == (1, [9])
    assert early.replayed is None
    assert made.start_catch_ups() == {P0: 2}


def test_for_a_full_socket_only_the_offset_is_kept() -> None:
    client = Client(b"a", StartFrom.NOW)
    made = fan_out(0, 0, client)
    client.room = 1
    for offset in range(5):
        made.deliver_live(P0, Offset(offset), b"a", offset)
        made.live_advanced({P0: Offset(offset + 1)})
    assert client.got == [0]
    assert (client.subscriber.mode, client.subscriber.next_offset, made.spills) == (
        Mode.BLOCKED,
        1,
        1,
    )
    assert made.position_of(client.subscriber) == at(0)
    client.room = 100
    made.unblock(client.subscriber)
    assert made.start_catch_ups() == {P0: 1}


@pytest.mark.parametrize(
    "wanted",
    [at(3, TopicId(UUID(int=2))), at(3, partition=1), at(0), at(9)],
    ids=["other topic", "other partition", "gone", "beyond"],
)
def test_a_position_that_cannot_be_resumed_from_is_refused(wanted: Position) -> None:
    client = Client(b"a", wanted)
    fan_out(3, 8, client)
    assert client.reason is not None
    assert client.replayed is None


def test_a_position_just_before_the_first_remaining_record_is_accepted() -> None:
    client = Client(b"a", at(2))
    fan_out(3, 8, client)
    assert client.reason is None


def test_a_position_beyond_the_live_cursor_needs_an_end_check() -> None:
    made = fan_out(0, 5, Client(b"a", StartFrom.NOW))
    assert made.needs_end_check(Client(b"b", at(7)).subscriber)
    assert not made.needs_end_check(Client(b"b", at(4)).subscriber)


def test_retention_that_overtakes_a_catch_up_refuses_only_those_it_affects() -> None:
    hit, spared = Client(b"a", at(0)), Client(b"b", at(6))
    made = fan_out(0, 10, hit, spared)
    made.start_catch_ups()
    made.truncated(P0, Offset(5))
    assert hit.reason is not None
    assert spared.reason is None
    assert made.start_catch_ups() == {P0: 7}


def test_a_partition_without_subscribers_is_closed_after_a_while() -> None:
    client = Client(b"a", StartFrom.NOW)
    made = fan_out(0, 0, client)
    assert made.close_idle(100.0, 60.0) == []
    made.remove(client.subscriber, 100.0)
    made.remove(client.subscriber, 100.0)
    assert made.close_idle(159.0, 60.0) == []
    assert made.close_idle(160.0, 60.0) == [P0]
    made.deliver_live(P0, Offset(0), b"a", 0)
    assert client.got == []


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_every_subscriber_receives_all_its_records_once_and_in_order(
    data: st.DataObject,
) -> None:
    """The log grows, the live reader and catch-ups advance, sockets fill and drain, readers are reopened."""
    keys = (b"a", b"b")
    log: list[bytes] = [
        data.draw(st.sampled_from(keys)) for _ in range(data.draw(st.integers(0, 8)))
    ]
    made: FanOut[int] = FanOut(TOPIC)
    clients: list[Client] = []
    live, catch_up = 0, 0

    def step(action: str) -> None:
        nonlocal live, catch_up
        if action == "append":
            log.append(data.draw(st.sampled_from(keys)))
        elif action == "join":
            behind = data.draw(st.integers(-1, len(log) - 1))
            clients.append(Client(data.draw(st.sampled_from(keys)), at(behind)))
            clients[-1].begin = behind + 1
            made.add(clients[-1].subscriber)
        elif action == "open" and made.unopened():
            live = len(log)
            made.open(P0, Span(Offset(0), Offset(live)))
        elif action == "live" and live < len(log) and not made.unopened() and clients:
            made.deliver_live(P0, Offset(live), log[live], live)
            live += 1
            made.live_advanced({P0: Offset(live)})
        elif action == "catch up":
            due = made.start_catch_ups()
            catch_up = due.get(P0, Offset(catch_up))
            if catch_up < len(log):
                made.deliver_catch_up(P0, Offset(catch_up), log[catch_up], catch_up)
                catch_up += 1
            made.catch_up_advanced(P0, Offset(catch_up))
        elif action == "fill" and clients:
            data.draw(st.sampled_from(clients)).room = data.draw(st.integers(0, 2))
        elif action == "drain" and clients:
            client = data.draw(st.sampled_from(clients))
            client.room = 10**9
            made.unblock(client.subscriber)
        elif action == "reopen" and clients:
            made.reset_readers()

    actions = ("append", "join", "open", "live", "catch up", "fill", "drain", "reopen")
    for action in data.draw(st.lists(st.sampled_from(actions), max_size=40)):
        step(action)
    for client in clients:
        client.room = 10**9
        made.unblock(client.subscriber)
    for _ in range(4 * len(log) + 8):
        for action in ("open", "live", "catch up"):
            step(action)
    for client in clients:
        assert client.subscriber.mode is Mode.LIVE
        mine = [n for n, key in enumerate(log) if key == client.subscriber.key]
        assert client.got == [n for n in mine if n >= client.begin]
