"""Which leader may serve reads: one that a majority of members has answered in its term. A link
to a member's node is not enough."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.replication.replica_rig import MEMBERS, RigNode, Trio

from kafkaesque.model.ids import NodeId

LEADER, OTHER, AWAY = 0, 1, 2


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Led by a node that was elected while another was away."""
    trio = Trio(tmp_path)
    trio.cut_off.add(AWAY)
    trio.elect(LEADER)
    trio.append()
    yield trio
    trio.close()


def linked(node: RigNode, *peers: int) -> None:
    """The links to these are up, to the others they are not."""

    def lease_until(peer: NodeId) -> float:
        return math.inf if peer in peers else 0.0

    node.lease_until = lease_until  # type: ignore[method-assign]


def may_serve(trio: Trio) -> bool:
    node = trio.nodes[LEADER]
    assert node.replica.is_leader
    return node.replicas.may_serve(node.replica)


def test_leader_serves_while_a_majority_that_answered_it_is_linked(trio: Trio) -> None:
    linked(trio.nodes[LEADER], OTHER)
    assert may_serve(trio)


def test_link_to_a_member_that_was_away_at_the_election_proves_nothing(trio: Trio) -> None:
    """That member may have helped to elect another leader since. A leader that was paused and
    continues finds its links re-established before it learns that (found by simulation)."""
    linked(trio.nodes[LEADER], AWAY)
    assert not may_serve(trio)
    trio.cut_off.clear()
    trio.tick(5)
    assert may_serve(trio), "it has answered in this term now"


def test_link_to_a_member_that_was_lost_proves_nothing_until_it_answers(trio: Trio) -> None:
    linked(trio.nodes[LEADER], OTHER)
    trio.nodes[LEADER].replica.peer_unreachable(MEMBERS[OTHER])
    assert not may_serve(trio)
    trio.tick(5)
    assert may_serve(trio)


def test_heartbeats_since_is_old_when_ticks_are_late(trio: Trio) -> None:
    """Leases count from there (`liveness`): a heartbeat is due every three ticks, however long those
    take, and a follower's timeout does not run by its leader's ticks."""
    node = trio.nodes[LEADER]
    sent_at: list[float] = []
    for _ in range(12):
        node.clock.advance(0.3)
        before = len(trio.frames)
        node.replicas.tick()
        while node.work():
            pass
        if len(trio.frames) > before:
            sent_at.append(node.clock.monotonic())
        assert node.replicas.heartbeats_since() <= sent_at[-1] if sent_at else True
    assert len(sent_at) >= 3
    assert node.replicas.heartbeats_since() == pytest.approx(node.clock.monotonic() - 0.9)
