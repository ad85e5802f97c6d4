"""Links that are slow, lose, repeat, reorder and break."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import TimeoutNow
from kafkaesque.broker.raft.types import Term
from kafkaesque.lab.sim.network import (
    SILENCE_US,
    WATCH_US,
    LinkQuality,
    NetworkCallbacks,
    PeerEnvelope,
    SimulatedNetwork,
)
from kafkaesque.lab.sim.schedule import SECOND_US, EventSchedule, random_stream
from kafkaesque.model.ids import GroupId, MemberId, NodeId


class Rig:
    """Three nodes that record what they receive."""

    def __init__(self, link_quality: LinkQuality | None = None) -> None:
        self.schedule = EventSchedule()
        self.network = SimulatedNetwork(
            self.schedule, random_stream(1, "net"), [NodeId(n) for n in range(3)]
        )
        self.network.link_quality = link_quality or LinkQuality()
        self.down: set[NodeId] = set()
        self.received: list[int] = []
        self.changes: list[tuple[str, int, int]] = []
        self.network.connect(
            NetworkCallbacks(
                lambda node: node not in self.down,
                lambda envelope: self.received.append(envelope.message.term),
                lambda node, peer: self.changes.append(("lost", node, peer)),
                lambda node, peer: self.changes.append(("found", node, peer)),
            )
        )

    def send(self, number: int, sender: int = 0, to: int = 1) -> None:
        message = TimeoutNow(MemberId(sender), MemberId(to), Term(number))
        self.network.send(PeerEnvelope(NodeId(sender), NodeId(to), GroupId(0), message, ()))

    def run(self, time_us: int = SECOND_US) -> None:
        self.schedule.run_until(self.schedule.now_us + time_us)


def test_ordered_link_delivers_everything_once_and_in_order() -> None:
    rig = Rig(LinkQuality(latency_us_max=50_000))
    for number in range(100):
        rig.send(number)
    rig.run()
    assert rig.received == list(range(100))


def test_bad_links_lose_repeat_and_reorder() -> None:
    rig = Rig(LinkQuality(loss=20, repeat=20, slow=20, is_ordered=False))
    for number in range(500):
        rig.send(number)
    rig.run()
    assert 0 < len(set(rig.received)) < 500
    assert len(rig.received) > len(set(rig.received))
    assert rig.received != sorted(rig.received)


def test_one_way_cut_passes_the_other_direction_until_silence_breaks_the_link() -> None:
    rig = Rig()
    rig.network.cuts.add((NodeId(0), NodeId(1)))
    rig.send(1)
    rig.send(2, sender=1, to=0)
    rig.run(SILENCE_US // 2)
    assert rig.received == [2]
    rig.run(SILENCE_US)
    assert rig.changes == [("lost", 0, 1), ("lost", 1, 0)]
    rig.send(3, sender=1, to=0)
    rig.run()
    assert rig.received == [2]
    rig.network.cuts.clear()
    rig.run(2 * WATCH_US)
    assert rig.changes[2:] == [("found", 0, 1), ("found", 1, 0)]
    rig.send(4)
    rig.run()
    assert rig.received == [2, 4]


def test_dead_process_resets_its_links_at_once_unless_they_are_cut() -> None:
    rig = Rig()
    rig.network.cuts |= {(NodeId(0), NodeId(2)), (NodeId(2), NodeId(0))}
    rig.down.add(NodeId(0))
    rig.network.reset_links(NodeId(0))
    assert rig.changes == [("lost", 0, 1), ("lost", 1, 0)]
    rig.run(2 * SILENCE_US)
    assert rig.changes[2:] == [("lost", 0, 2), ("lost", 2, 0)]


def test_message_in_flight_when_the_link_breaks_is_lost() -> None:
    rig = Rig(LinkQuality(latency_us_max=1_000))
    rig.send(1)
    rig.network.reset_links(NodeId(0))
    rig.run(1_500)
    assert rig.received == []
