"""Moves the groups that this node leads towards the membership in the tables, step by step."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kafkaesque.broker.cluster.rules.membership_plan import (
    PlannedGroup,
    Step,
    TransferLeadership,
    group_of,
    is_reached,
    next_controller_step,
    next_step,
    preferred_leader_step,
)
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.cluster.rules.topology import ReplicaAssignment
from kafkaesque.broker.raft.types import Refused
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG, ReplicaSet
from kafkaesque.model.ids import CONTROLLER_GROUP, COORDINATION_GROUP, GroupId, NodeId

logger = logging.getLogger(__name__)

Complete = Callable[[GroupId, tuple[NodeId, ...]], Awaitable[None]]


class Members:
    """Takes the steps that `rules.membership_plan` plans.

    `is_up`: whether a broker is reachable now. `complete` reports to the controller that a group has
    the members of its target.
    """

    __slots__ = ("_complete", "_is_up", "_replicas", "_tables")

    def __init__(
        self,
        replicas: ReplicaSet,
        tables: Tables,
        is_up: Callable[[NodeId], bool],
        complete: Complete,
    ) -> None:
        self._replicas = replicas
        self._tables = tables
        self._is_up = is_up
        self._complete = complete

    async def advance(self) -> None:
        """Takes one step for each group whose membership differs from the tables."""
        for replica in self._replicas:
            if not replica.is_leader:
                continue
            if replica.group in (CONTROLLER_GROUP, COORDINATION_GROUP):
                self._advance_group_of_all(replica)
                continue
            assignment = self._tables.assignment_of(replica.group)
            if assignment is not None:
                await self._advance_partition(replica, assignment)

    def _advance_group_of_all(self, replica: Replica) -> None:
        """For the groups of which every broker is a member."""
        registered = self._tables.members(self._tables.brokers)
        if not registered:
            return
        if set(registered) != set(replica.membership.voters) or replica.membership.learners:
            self._take(replica, next_controller_step(_group(replica), registered))

    async def _advance_partition(self, replica: Replica, assignment: ReplicaAssignment) -> None:
        wanted = self._tables.members(assignment.wanted)
        if not is_reached(replica.membership, wanted):
            self._take(replica, next_step(_group(replica), wanted))
        elif assignment.target is not None:
            await self._complete(replica.group, assignment.target)

    def prefer(self) -> None:
        """Transfers leadership to preferred leaders that are in sync and up."""
        for replica in self._replicas:
            if not replica.is_leader or replica.group == CONTROLLER_GROUP:
                continue
            assignment = self._tables.assignment_of(replica.group)
            if assignment is None or assignment.target is not None:
                continue
            first = assignment.replicas[0]
            if self._is_up(first):
                (preferred,) = self._tables.members([first])
                self._take(replica, preferred_leader_step(_group(replica), preferred))

    def _take(self, replica: Replica, step: Step | None) -> None:
        """Raft refuses while the previous step is in progress: the next round tries again."""
        with suppress(Refused):
            if isinstance(step, TransferLeadership):
                replica.transfer_leadership(step.to)
            elif step is not None:
                replica.propose_membership(step)
                logger.info("group %d: %s %d", replica.group, step.kind.value, step.node_id)


def _group(replica: Replica) -> PlannedGroup:
    return group_of(replica.status(), RAFT_CONFIG.promotion_lag_entries_max)
