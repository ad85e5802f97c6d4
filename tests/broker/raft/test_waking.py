"""Quiesced groups: which node wakes which."""

from __future__ import annotations

from tests.broker.raft.group import Group


def test_follower_woken_by_its_driver_hears_the_leader_before_it_may_vote() -> None:
    """The quiesced leader relies on its not voting: it must send a heartbeat before the timeout."""
    group = Group(quiesce_after_ticks=10)
    leader = group.elect(0)
    for _ in range(20):
        for node in group.nodes:
            node.tick()
        group.settle()
    follower = group.nodes[1]
    assert leader.raft.is_quiesced
    assert follower.raft.is_quiesced
    follower.raft.wake()
    group.settle()

    assert not leader.raft.is_quiesced, "it was woken and sends heartbeats again"
    for _ in range(5):
        follower.tick()
        leader.tick()
        group.settle()
    assert follower.raft._state.clock.since_leader_ticks < 5
