"""A node is lost: which of its followers campaigns, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.broker.partitions.rig import ME, OTHER, PEER, Rig, open_rig

from kafkaesque.broker.raft.messages import Heartbeat, Message, PreVote
from kafkaesque.broker.raft.types import LogIndex, Role, Round, Term
from kafkaesque.broker.replication.replica import Blob
from kafkaesque.broker.replication.succession import FIRST_SECONDS, TURN_SECONDS, Succession
from kafkaesque.model.ids import GroupId, MemberId, NodeId

LOST = NodeId(2)


class RecordingOutbox:
    """Records what this node sends, and its timers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def send(
        self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob] = ()
    ) -> None:
        self.messages.append(message)

    def lease_until(self, node: NodeId) -> float:
        return 0.0

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append((seconds, call))

    @property
    def requested_votes(self) -> int:
        return sum(isinstance(message, PreVote) for message in self.messages)


def follow(rig: Rig, leader: MemberId) -> None:
    """Make the node of the rig, which leads, a follower of `leader`."""
    replica = rig.partition.replica
    term = Term(replica.leadership.term + 1)
    replica.step(Heartbeat(leader, ME, term, LogIndex(0), Round(1), False))
    replica.process()
    assert replica.leadership[:3] == (Role.FOLLOWER, term, leader)


def play(
    directory: Path, story: Callable[[Rig, RecordingOutbox, Succession], None], *, up: bool
) -> RecordingOutbox:
    outbox = RecordingOutbox()

    async def main() -> None:
        async with open_rig(directory, members=(ME, PEER, OTHER), outbox=outbox) as rig:
            outbox.messages.clear()
            replicas = rig.partition._env.replicas
            story(rig, outbox, Succession(replicas, lambda _: up, outbox.call_later))

    run(main())
    return outbox


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_follower_of_a_lost_node_campaigns_in_its_turn_and_again(tmp_path: Path) -> None:
    def story(rig: Rig, outbox: RecordingOutbox, succession: Succession) -> None:
        follow(rig, PEER)
        succession.lost(LOST)
        assert outbox.requested_votes == 0
        first, second, *_ = sorted(seconds for seconds, _ in outbox.calls)
        # Two are left: one campaigns after 0, 2 and 6 turns, the other after 1, 4 and 10.
        turn = round((first - FIRST_SECONDS) / TURN_SECONDS)
        assert round((second - FIRST_SECONDS) / TURN_SECONDS) == {0: 2, 1: 4}[turn]
        outbox.calls[0][1]()
        rig.partition.replica.process()
        assert outbox.requested_votes == 2

    play(tmp_path, story, up=False)


def test_no_member_campaigns_when_the_node_is_back(tmp_path: Path) -> None:
    def story(rig: Rig, outbox: RecordingOutbox, succession: Succession) -> None:
        follow(rig, PEER)
        succession.lost(LOST)
        for _, call in outbox.calls:
            call()
        rig.partition.replica.process()

    assert play(tmp_path, story, up=True).requested_votes == 0


def test_group_that_another_node_leads_is_left_alone(tmp_path: Path) -> None:
    def story(rig: Rig, outbox: RecordingOutbox, succession: Succession) -> None:
        follow(rig, OTHER)
        succession.lost(LOST)

    assert play(tmp_path, story, up=False).calls == []


def test_group_that_found_a_leader_meanwhile_is_left_alone(tmp_path: Path) -> None:
    def story(rig: Rig, outbox: RecordingOutbox, succession: Succession) -> None:
        follow(rig, PEER)
        succession.lost(LOST)
        follow(rig, OTHER)
        for _, call in outbox.calls:
            call()
        rig.partition.replica.process()

    assert play(tmp_path, story, up=False).requested_votes == 0
