"""Elections after the loss of a node: the remaining members campaign at once, one after the other.

A broken link shows that its node is gone long before Raft's timeouts do, and clients ask for the new
leaders within milliseconds. So members do not wait for a tick. They take turns, because two that
campaign together each vote for themselves, and nothing happens for a second or two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kafkaesque.broker.raft.types import Role
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.ids import NodeId, node_of

FIRST_SECONDS: Final = 0.02
"""Delay of the first campaign: a member that has not noticed the loss would reject it."""
TURN_SECONDS: Final = 0.1
"""Delay between two campaigns: long enough for an election on a reasonably fast disk."""
ROUNDS: Final = 3
"""How often every member campaigns. One that lacks entries is rejected, and the next one's turn comes.
After that, Raft's own timeouts apply."""

CallLater = Callable[[float, Callable[[], None]], object]


class Succession:
    """`is_up` returns whether a node is reachable (again)."""

    __slots__ = ("_call_later", "_is_up", "_replicas")

    def __init__(
        self, replicas: ReplicaSet, is_up: Callable[[NodeId], bool], call_later: CallLater
    ) -> None:
        self._replicas = replicas
        self._is_up = is_up
        self._call_later = call_later

    def lost(self, node: NodeId) -> None:
        """Make the groups that `node` led elect another leader."""
        by_turn: dict[tuple[int, int], list[Replica]] = {}
        for replica in self._replicas:
            leader = replica.leadership.leader_id
            if leader is not None and node_of(leader) == node:
                left = [member for member in replica.membership.voters if member != leader]
                if self._replicas.member in left:
                    # Each group starts with another member, so that they share what the lost node led.
                    turn = (left.index(self._replicas.member) + replica.group) % len(left)
                    by_turn.setdefault((turn, len(left)), []).append(replica)
        for (turn, count), replicas in by_turn.items():
            for again in range(ROUNDS):
                # Each round is twice as slow: a disk that is slow now makes every vote wait.
                turns = turn * 2**again + count * (2**again - 1)
                stand = partial(self._stand, node, replicas, again == ROUNDS - 1)
                self._call_later(FIRST_SECONDS + turns * TURN_SECONDS, stand)

    def _stand(self, node: NodeId, replicas: list[Replica], is_last: bool) -> None:
        if not self._is_up(node):
            for replica in replicas:
                if self._is_orphan(replica, node, is_last):
                    replica.campaign()

    def _is_orphan(self, replica: Replica, node: NodeId, is_last: bool) -> bool:
        """Whether no live node leads it. A running election is left alone, but not in the last round:
        two candidates may have kept each other from winning."""
        role, _, leader, _ = replica.leadership
        if role is Role.LEADER or (role is Role.CANDIDATE and not is_last):
            return False
        is_led = leader is not None and node_of(leader) != node
        return not is_led and self._replicas.get(replica.group) is replica
