"""The states of a classic group and every transition between them, as data.

Compare with Kafka's ClassicGroupState. An event without a row in `TABLE` is a bug of ours, never a
client's mistake.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Final

from kafkaesque.model.errors import ErrorCode, InvariantBroken


class GroupState(Enum):
    """The values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    REBALANCE_BEGAN = "a member joined, changed, left or failed"
    JOIN_PHASE_ENDED = "the members of the next generation are known"
    LAST_MEMBER_GONE = "the join phase ended without members"
    ASSIGNMENT_STORED = "the leader's assignment arrived"
    REMOVED = "the group was deleted or expired"


TABLE: Final = MappingProxyType(
    {
        (GroupState.EMPTY, GroupEvent.REBALANCE_BEGAN): GroupState.PREPARING_REBALANCE,
        (GroupState.STABLE, GroupEvent.REBALANCE_BEGAN): GroupState.PREPARING_REBALANCE,
        (
            GroupState.COMPLETING_REBALANCE,
            GroupEvent.REBALANCE_BEGAN,
        ): GroupState.PREPARING_REBALANCE,
        (
            GroupState.PREPARING_REBALANCE,
            GroupEvent.JOIN_PHASE_ENDED,
        ): GroupState.COMPLETING_REBALANCE,
        (GroupState.PREPARING_REBALANCE, GroupEvent.LAST_MEMBER_GONE): GroupState.EMPTY,
        (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNMENT_STORED): GroupState.STABLE,
        (GroupState.EMPTY, GroupEvent.REMOVED): GroupState.DEAD,
    }
)

CAN_REBALANCE: Final = frozenset(
    state for state, event in TABLE if event is GroupEvent.REBALANCE_BEGAN
)

HEARTBEAT_ANSWERS: Final = MappingProxyType(
    {
        GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        # A consumer may heartbeat as soon as it has its join answer, before it has an assignment.
        GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
        GroupState.STABLE: ErrorCode.NONE,
    }
)
"""The answer to a heartbeat with the right member and generation. Dead groups are not in the
registry, so their members are unknown."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`. Raises InvariantBroken for an event without a row."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise InvariantBroken(
            f"a group in {state.value} has no transition for {event.name}"
        ) from None
