"""The operator of the cluster: maintains the intended membership, transfers leaderships, trims logs.

The steps are those of cluster/membership_plan, requested from leaders periodically; Raft refuses
unsafe ones. A broker with a new disk is a new member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from kafkaesque.broker.cluster.rules.membership_plan import (
    TransferLeadership,
    group_of,
    is_reached,
    next_controller_step,
    next_step,
)
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.raft.types import Refused
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.lab.sim.node import SimulatedNode
from kafkaesque.lab.sim.schedule import MILLISECOND_US, EventSchedule
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import CONTROLLER_GROUP, GroupId, MemberId, NodeId, Offset

ROUND_US: Final = 100 * MILLISECOND_US
LAG_ENTRIES_MAX: Final = 5
RECORDS_KEPT: Final = 60
"""Enough that retention never deletes batches that a producer may still retry."""


class Operator:
    """Every node is an intended member of every group, except those in `_excluded`."""

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        groups: Sequence[GroupId],
        coordinator: GroupId | None,
        schedule: EventSchedule,
    ) -> None:
        self._nodes = nodes
        self._groups = groups
        self._partitions = [group for group in groups[1:] if group != coordinator]
        """Groups whose oldest records may be deleted. The coordinator's topic is compacted instead."""
        self._schedule = schedule
        self._excluded: dict[GroupId, NodeId] = {}

    def start(self) -> None:
        self._schedule.after(ROUND_US, self._round)

    def include_all_nodes(self) -> None:
        self._excluded.clear()

    def intended_members(self, group: GroupId) -> list[MemberId]:
        return [node.member for node in self._nodes if node.node_id != self._excluded.get(group)]

    def is_settled(self) -> bool:
        """Whether every group has exactly its intended members, no disk is broken, and every entry is
        committed."""
        is_whole = not any(node.is_broken or node.disk.faults.sync_failures for node in self._nodes)
        if self._excluded or not is_whole:
            return False
        for group in self._groups:
            leader = self.leader(group)
            if leader is None or not is_reached(leader[1].membership, self.intended_members(group)):
                return False
            status = leader[1].status()
            if status.commit_index != status.last_index:
                return False
        return True

    def leader(self, group: GroupId) -> tuple[SimulatedNode, Replica] | None:
        """The replica with the highest term among those that consider themselves leader."""
        found = None
        for node in self._nodes:
            replica = node.replicas.get(group) if node.replicas is not None else None
            if not node.is_responsive or replica is None or not replica.is_leader:
                continue
            if found is None or replica.leadership.term > found[1].leadership.term:
                found = node, replica
        return found

    # Periodic work

    def _round(self) -> None:
        for group in self._groups:
            leader = self.leader(group)
            if leader is not None:
                self._keep_members(group, *leader)
        self._schedule.after(ROUND_US, self._round)

    def _keep_members(self, group: GroupId, node: SimulatedNode, replica: Replica) -> None:
        view = group_of(replica.status(), LAG_ENTRIES_MAX)
        plan = next_controller_step if group == CONTROLLER_GROUP else next_step
        step = plan(view, self.intended_members(group))
        if step is None:
            return
        if isinstance(step, TransferLeadership):
            _request(node, lambda: replica.transfer_leadership(step.to))
        else:
            _request(node, lambda: replica.propose_membership(step))

    # Random actions

    def toggle_membership(self, random: Random) -> None:
        """Removes one node from the intended members of a group, or restores all of them."""
        group = random.choice(self._groups)
        if group in self._excluded:
            del self._excluded[group]
        elif self.is_settled():
            self._excluded[group] = random.choice(self._nodes).node_id

    def transfer(self, random: Random) -> None:
        leader = self.leader(random.choice(self._groups))
        if leader is not None:
            node, replica = leader
            target = random.choice(replica.membership.nodes)
            _request(node, lambda: replica.transfer_leadership(target))

    def resign(self, random: Random) -> None:
        leader = self.leader(random.choice(self._groups))
        if leader is not None:
            _request(leader[0], leader[1].resign)

    def retain(self, random: Random) -> None:
        """Deletes the oldest committed records of one log, on one node or on all (DeleteRecords)."""
        node, group = random.choice(self._nodes), random.choice(self._partitions)
        partition = node.partitions.get(group)
        if partition is None:
            return
        start, limit = partition.log_start_offset, partition.high_watermark - RECORDS_KEPT
        process = node.process
        if limit > start and process is not None:
            offset = Offset(random.randrange(start, limit))
            node.run(lambda: process.trim(partition, offset))

    def save_producers(self, random: Random) -> None:
        """Saves the producers' state, as periodic maintenance does."""
        node, group = random.choice(self._nodes), random.choice(self._groups[1:])
        partition = node.partitions.get(group)
        if partition is not None:
            node.run(lambda: _save(partition))


def _request(node: SimulatedNode, request: Callable[[], object]) -> None:
    """Runs a request. If Raft refuses it, a later round requests it again if it is still needed."""

    def attempt() -> None:
        try:
            request()
        except Refused:
            return

    node.run(attempt)


def _save(partition: Partition) -> None:
    with suppress(StorageFailed):
        partition.save_producers()
