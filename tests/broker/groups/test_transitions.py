from __future__ import annotations

import pytest

from kafkaesque.broker.groups.transitions import (
    CAN_REBALANCE,
    HEARTBEAT_ANSWERS,
    TABLE,
    GroupEvent,
    GroupState,
    next_state,
)
from kafkaesque.model.errors import InvariantBroken

MISSING = [(s, e) for s in GroupState for e in GroupEvent if (s, e) not in TABLE]

# ClassicGroupState.validPreviousStates in Kafka 4.3, without the moves to Dead: we delete only
# groups without members, and a registry that is dropped needs no states.
KAFKA_PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {GroupState.EMPTY},
}


def test_table_allows_the_same_transitions_as_kafka() -> None:
    seen: dict[GroupState, set[GroupState]] = {state: set() for state in GroupState}
    for (before, _), after in TABLE.items():
        seen[after].add(before)
    assert seen == KAFKA_PREVIOUS_STATES


@pytest.mark.parametrize(("state", "event"), MISSING)
def test_event_without_a_row_is_a_broken_invariant(state: GroupState, event: GroupEvent) -> None:
    with pytest.raises(InvariantBroken, match=state.value):
        next_state(state, event)


def test_every_state_but_dead_answers_heartbeats() -> None:
    assert set(HEARTBEAT_ANSWERS) == set(GroupState) - {GroupState.DEAD}


def test_a_rebalance_can_begin_in_every_live_state_but_preparing_rebalance() -> None:
    assert set(GroupState) - {GroupState.DEAD, GroupState.PREPARING_REBALANCE} == CAN_REBALANCE
