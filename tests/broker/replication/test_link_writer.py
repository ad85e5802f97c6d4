"""The sending half of a link: the order of messages while the other side is slow to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kafkaesque.broker.raft.messages import Heartbeat, HeartbeatResponse, Message
from kafkaesque.broker.raft.types import LogIndex, Round, Term
from kafkaesque.broker.replication.link_writer import LinkWriter
from kafkaesque.broker.replication.rules.peer_codec import (
    Blob,
    Part,
    PeerPing,
    PeerPong,
    decode_frame,
)
from kafkaesque.model.ids import GroupId, MemberId

GROUP = GroupId(16)
HEARTBEAT = Heartbeat(MemberId(1), MemberId(2), Term(1), LogIndex(1), Round(1), False)
STALE = HeartbeatResponse(
    MemberId(1), MemberId(2), Term(2), Round(0), received_index=LogIndex(0), match_index=LogIndex(0)
)
"""The answer with which a follower informs a leader that there is a newer one."""


class Turn:
    """Replaces the event loop: callbacks of `call_soon` run when the test says so."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self._due.append(work)

    def end(self) -> None:
        while self._due:
            self._due.pop(0)()


class Wire:
    """A transport that records what is written."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def writelines(self, buffers: Iterable[Blob]) -> None:
        data = memoryview(b"".join(buffers))
        while data:
            end = 4 + int.from_bytes(data[:4])
            self.parts += decode_frame(data[4:end])
            data = data[end:]


class Rig:
    def __init__(self) -> None:
        self.turn, self.wire = Turn(), Wire()
        self.now = 0
        loop: Any = self.turn
        transport: Any = self.wire
        self.writer = LinkWriter(loop, 1_000_000, lambda: self.now, lambda: None)
        self.writer.open(transport)
        self.turn.end()

    def say(self, message: Message) -> None:
        self.writer.add_message(GROUP, message, ())


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.writer.close()


def test_ping_does_not_overtake_the_heartbeats_that_it_covers(rig: Rig) -> None:
    """A peer that answers a ping counts as having read every heartbeat sent before it, and as not
    electing another leader for the length of the lease. Once, pings kept a lease alive over a link
    on which the heartbeats waited after megabytes of entries, while the follower, which received
    none, voted for another."""
    rig.writer.pause()
    rig.say(HEARTBEAT)
    rig.now = 7
    rig.writer.ping()
    rig.turn.end()
    assert rig.wire.parts == [], "the other side does not read"
    rig.writer.resume()

    assert rig.wire.parts == [(GROUP, HEARTBEAT), PeerPing(7)]


def test_pong_does_not_overtake_answers_to_heartbeats(rig: Rig) -> None:
    """The lease of a leader must not outlive the news that there is another leader."""
    rig.writer.pause()
    rig.say(STALE)
    rig.writer.pong(7)
    rig.turn.end()
    rig.writer.resume()

    assert rig.wire.parts == [(GROUP, STALE), PeerPong(7)]


def test_queued_ping_counts_from_when_it_was_created(rig: Rig) -> None:
    rig.writer.pause()
    rig.writer.ping()
    rig.say(HEARTBEAT)
    for rig.now in (1, 2, 3):
        rig.writer.ping()
    rig.writer.resume()

    assert rig.wire.parts == [PeerPing(0), (GROUP, HEARTBEAT)], "one waits, however long"
    rig.writer.ping()
    rig.turn.end()
    assert rig.wire.parts[2:] == [PeerPing(3)]


def test_only_the_newest_of_many_pings_is_answered_and_in_its_own_place(rig: Rig) -> None:
    rig.writer.pause()
    rig.writer.pong(1)
    rig.say(STALE)
    rig.writer.pong(2)
    rig.writer.pong(3)
    rig.writer.resume()

    assert rig.wire.parts == [PeerPong(1), (GROUP, STALE), PeerPong(3)]


def test_pulses_take_no_room_from_messages(rig: Rig) -> None:
    """A batch above the bound fits when nothing else is queued."""
    rig.writer.pause()
    rig.writer.ping()
    rig.writer.pong(1)
    rig.writer.add_message(GROUP, HEARTBEAT, [bytes(2_000_000)])

    assert rig.writer.sent.dropped_messages == 0


def test_flush_before_a_close_sends_what_is_queued(rig: Rig) -> None:
    rig.writer.pause()
    rig.writer.pong(1)
    rig.say(STALE)
    rig.writer.pong(2)
    rig.writer.flush_all()

    assert rig.wire.parts == [PeerPong(1), (GROUP, STALE), PeerPong(2)]
