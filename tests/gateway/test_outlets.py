"""Live, behind, blocked: whatever the readers and sockets do, everyone gets all of its records once."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import Span
from kafkaesque.edge.protocol.positions import Position
from kafkaesque.gateway.rules.outlets import Board, From, Mode, Outlet
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId

TOPIC = TopicId(UUID(int=1))
P0 = PartitionIndex(0)


class Client:
    """An outlet with room for some events at a time."""

    def __init__(self, key: bytes, wanted: Position | From) -> None:
        self.got: list[int] = []
        self.begin = 0
        self.room = 10**9
        self.replayed: int | None = None
        self.reason: str | None = None
        self.outlet: Outlet[int] = Outlet(key, P0, wanted, self.take, self.joined, self.refused)

    def take(self, event: int) -> bool:
        if self.room == 0:
            return False
        self.room -= 1
        self.got.append(event)
        return True

    def joined(self, replayed: int) -> None:
        assert self.replayed is None
        self.replayed = replayed

    def refused(self, reason: str) -> None:
        self.reason = reason


def at(offset: int, topic: TopicId = TOPIC, partition: int = 0) -> Position:
    return Position(topic, PartitionIndex(partition), Offset(offset))


def board(start: int = 0, end: int = 0, *clients: Client) -> Board[int]:
    made: Board[int] = Board(TOPIC)
    for client in clients:
        made.add(client.outlet)
    if clients:
        made.open(P0, Span(Offset(start), Offset(end)))
    return made


def test_outlet_waits_until_its_partition_is_read_and_begins_now() -> None:
    client = Client(b"a", From.NOW)
    made: Board[int] = Board(TOPIC)
    made.add(client.outlet)
    assert made.unread() == [P0]
    assert client.replayed is None
    made.open(P0, Span(Offset(0), Offset(7)))
    assert client.replayed == 0
    assert made.position_of(client.outlet) == at(6)
    made.live(P0, Offset(7), b"a", 7)
    made.live(P0, Offset(8), b"b", 8)
    assert client.got == [7]


def test_resume_sweeps_up_to_the_live_cursor_and_joins() -> None:
    client = Client(b"a", at(2))
    made = board(0, 6, client)
    assert made.sweeps_due() == {P0: 3}
    for offset in range(3, 6):
        made.swept(P0, Offset(offset), b"a", offset)
    assert not made.sweep_moved(P0, Offset(5))
    assert made.sweep_moved(P0, Offset(6))
    assert (client.got, client.replayed) == ([3, 4, 5], 3)
    made.live(P0, Offset(6), b"a", 6)
    assert client.got == [3, 4, 5, 6]


def test_sweep_that_overtakes_the_live_reader_hands_out_nothing_twice() -> None:
    client = Client(b"a", at(-1))
    made = board(0, 1, client)
    made.sweeps_due()
    for offset in range(3):
        made.swept(P0, Offset(offset), b"a", offset)
    assert made.sweep_moved(P0, Offset(3))
    for offset in range(1, 5):
        made.live(P0, Offset(offset), b"a", offset)
    assert client.got == [0, 1, 2, 3, 4]


def test_one_sweep_serves_all_who_are_behind_and_who_comes_later_waits_or_joins() -> None:
    first, second = Client(b"a", at(0)), Client(b"b", at(4))
    made = board(0, 10, first, second)
    assert made.sweeps_due() == {P0: 1}
    made.sweep_moved(P0, Offset(5))
    early, late = Client(b"c", at(1)), Client(b"d", at(7))
    made.add(early.outlet)
    made.add(late.outlet)
    assert made.sweeps_due() == {}
    assert not made.sweep_moved(P0, Offset(6))
    made.swept(P0, Offset(9), b"d", 9)
    assert made.sweep_moved(P0, Offset(10))
    assert (late.replayed, late.got) == (1, [9])
    assert early.replayed is None
    assert made.sweeps_due() == {P0: 2}


def test_full_socket_keeps_the_offset_and_nothing_else() -> None:
    client = Client(b"a", From.NOW)
    made = board(0, 0, client)
    client.room = 1
    for offset in range(5):
        made.live(P0, Offset(offset), b"a", offset)
        made.moved({P0: Offset(offset + 1)})
    assert client.got == [0]
    assert (client.outlet.mode, client.outlet.next_offset, made.spills) == (Mode.BLOCKED, 1, 1)
    assert made.position_of(client.outlet) == at(0)
    client.room = 100
    made.ready(client.outlet)
    assert made.sweeps_due() == {P0: 1}


@pytest.mark.parametrize(
    "wanted",
    [at(3, TopicId(UUID(int=2))), at(3, partition=1), at(0), at(9)],
    ids=["other topic", "other partition", "gone", "beyond"],
)
def test_position_that_cannot_be_resumed_from_is_refused(wanted: Position) -> None:
    client = Client(b"a", wanted)
    board(3, 8, client)
    assert client.reason is not None
    assert client.replayed is None


def test_position_just_before_the_first_record_that_is_left_is_good() -> None:
    client = Client(b"a", at(2))
    board(3, 8, client)
    assert client.reason is None


def test_position_beyond_the_cursor_of_a_partition_that_is_read_is_doubtful() -> None:
    made = board(0, 5, Client(b"a", From.NOW))
    assert made.is_doubtful(Client(b"b", at(7)).outlet)
    assert not made.is_doubtful(Client(b"b", at(4)).outlet)


def test_retention_that_overtakes_a_sweep_is_told_to_those_it_hits() -> None:
    hit, spared = Client(b"a", at(0)), Client(b"b", at(6))
    made = board(0, 10, hit, spared)
    made.sweeps_due()
    made.lost(P0, Offset(5))
    assert hit.reason is not None
    assert spared.reason is None
    assert made.sweeps_due() == {P0: 7}


def test_partition_is_let_go_once_nobody_wanted_it_for_a_while() -> None:
    client = Client(b"a", From.NOW)
    made = board(0, 0, client)
    assert made.idle(100.0, 60.0) == []
    made.remove(client.outlet, 100.0)
    made.remove(client.outlet, 100.0)
    assert made.idle(159.0, 60.0) == []
    assert made.idle(160.0, 60.0) == [P0]
    made.live(P0, Offset(0), b"a", 0)
    assert client.got == []


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_whatever_happens_everyone_gets_all_its_records_once_and_in_order(
    data: st.DataObject,
) -> None:
    """The log grows, the live reader and sweeps move, sockets fill and drain, readers are made anew."""
    keys = (b"a", b"b")
    log: list[bytes] = [
        data.draw(st.sampled_from(keys)) for _ in range(data.draw(st.integers(0, 8)))
    ]
    made: Board[int] = Board(TOPIC)
    clients: list[Client] = []
    live, sweep = 0, 0

    def step(action: str) -> None:
        nonlocal live, sweep
        if action == "append":
            log.append(data.draw(st.sampled_from(keys)))
        elif action == "join":
            behind = data.draw(st.integers(-1, len(log) - 1))
            clients.append(Client(data.draw(st.sampled_from(keys)), at(behind)))
            clients[-1].begin = behind + 1
            made.add(clients[-1].outlet)
        elif action == "open" and made.unread():
            live = len(log)
            made.open(P0, Span(Offset(0), Offset(live)))
        elif action == "live" and live < len(log) and not made.unread() and clients:
            made.live(P0, Offset(live), log[live], live)
            live += 1
            made.moved({P0: Offset(live)})
        elif action == "sweep":
            due = made.sweeps_due()
            sweep = due.get(P0, Offset(sweep))
            if sweep < len(log):
                made.swept(P0, Offset(sweep), log[sweep], sweep)
                sweep += 1
            made.sweep_moved(P0, Offset(sweep))
        elif action == "fill" and clients:
            data.draw(st.sampled_from(clients)).room = data.draw(st.integers(0, 2))
        elif action == "drain" and clients:
            client = data.draw(st.sampled_from(clients))
            client.room = 10**9
            made.ready(client.outlet)
        elif action == "anew" and clients:
            made.forget_all()

    actions = ("append", "join", "open", "live", "sweep", "fill", "drain", "anew")
    for action in data.draw(st.lists(st.sampled_from(actions), max_size=40)):
        step(action)
    for client in clients:
        client.room = 10**9
        made.ready(client.outlet)
    for _ in range(4 * len(log) + 8):
        for action in ("open", "live", "sweep"):
            step(action)
    for client in clients:
        assert client.outlet.mode is Mode.LIVE
        mine = [n for n, key in enumerate(log) if key == client.outlet.key]
        assert client.got == [n for n in mine if n >= client.begin]
