"""One live replica as the checkers see it."""

from __future__ import annotations

from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.lab.sim.ground_truth import GroupTruth, ReplicaTruth
from kafkaesque.model.ids import MemberId, NodeId


class ReplicaView:
    """One replica, from its opening to its end."""

    __slots__ = ("entries", "group", "member", "node", "raft", "seen", "truth")

    def __init__(
        self,
        node: NodeId,
        member: MemberId,
        group: GroupTruth,
        truth: ReplicaTruth,
        entries: EntryLog,
        raft: Raft,
    ) -> None:
        self.node = node
        self.member = member
        self.group = group
        self.truth = truth
        self.entries = entries
        self.raft = raft
        self.seen: object = None
        """Term, leader and commit index as the checkers last saw them."""

    @property
    def state(self) -> State:
        """The internal state of the rules, which only the simulation may access."""
        return self.raft._state

    def __str__(self) -> str:
        return f"node {self.node} group {self.group.group}"
