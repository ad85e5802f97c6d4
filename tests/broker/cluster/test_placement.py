"""Where replicas go: never twice on a broker, spread over racks, brokers and leaderships."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.cluster.rules.placement import PlacementCandidate, majority_is_live, place
from kafkaesque.model.errors import InvalidReplicationFactor
from kafkaesque.model.ids import NodeId

RACKS = st.sampled_from([None, "a", "b", "c"])


def brokers(*racks: str | None) -> list[PlacementCandidate]:
    return [PlacementCandidate(NodeId(index + 1), rack) for index, rack in enumerate(racks)]


def plain(count: int) -> list[PlacementCandidate]:
    return brokers(*[None] * count)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[PlacementCandidate], int]:
    """Brokers, at least one of them up, and a replication factor for which a majority can be up."""
    nodes = draw(st.lists(st.tuples(RACKS, st.booleans()), min_size=1, max_size=8))
    candidates = [
        PlacementCandidate(NodeId(index), rack, is_live or index == 0)
        for index, (rack, is_live) in enumerate(nodes)
    ]
    live_count = sum(candidate.is_live for candidate in candidates)
    factor = draw(st.integers(1, min(len(candidates), 2 * live_count - 1)))
    return draw(st.permutations(candidates)), factor


@settings(deadline=None)
@given(clusters(), st.integers(1, 40), st.integers(0, 100))
def test_any_placement_is_legal_and_spread(
    cluster: tuple[list[PlacementCandidate], int], count: int, start: int
) -> None:
    candidates, factor = cluster
    by_id = {candidate.node_id: candidate for candidate in candidates}
    placed = place(candidates, count, factor, start)
    assert len(placed) == count
    live = [candidate for candidate in candidates if candidate.is_live]
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert by_id[replicas[0]].is_live
        chosen = [by_id[node] for node in replicas]
        assert sum(candidate.is_live for candidate in chosen) == min(factor, len(live))
        if factor <= len(live):
            racks = Counter(candidate.rack for candidate in chosen)
            available = Counter(candidate.rack for candidate in live)
            assert len(racks) == min(factor, len(available))
    leaders = Counter({candidate.node_id: 0 for candidate in live})
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@settings(deadline=None)
@given(st.integers(1, 8), st.data())
def test_replicas_of_brokers_without_racks_are_even(broker_count: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, broker_count))
    count = data.draw(st.integers(1, 40))
    placed = place(plain(broker_count), count, factor, data.draw(st.integers(0, 50)))
    loads = Counter({candidate.node_id: 0 for candidate in plain(broker_count)})
    loads.update(node for replicas in placed for node in replicas)
    assert max(loads.values()) - min(loads.values()) <= 2


def test_small_topic_is_spread_over_as_many_brokers_as_possible() -> None:
    placed = place(plain(4), 2, 2, start=0)
    assert {node for replicas in placed for node in replicas} == {1, 2, 3, 4}


def test_leaders_go_from_rack_to_rack() -> None:
    placed = place(brokers("a", "a", "b", "b"), 4, 2, start=0)
    assert [replicas[0] for replicas in placed] == [1, 3, 2, 4]


def test_topics_of_one_partition_are_led_by_one_broker_after_the_other() -> None:
    placed = [place(plain(3), 1, 2, start) for start in range(6)]
    assert Counter(replicas[0] for (replicas,) in placed) == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("topics", [1, 12])
def test_leaderships_of_a_dead_broker_fall_to_all_others_alike(topics: int) -> None:
    """As one topic with many partitions and as many topics with one."""
    each = 12 // topics
    placed = [
        replicas
        for topic in range(topics)
        for replicas in place(plain(4), each, 3, start=topic * each)
    ]
    heirs = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert heirs == {2: 1, 3: 1, 4: 1}


def test_rack_with_one_broker_gets_a_replica_of_every_partition() -> None:
    placed = place(brokers("a", "a", "a", "b"), 9, 2, start=0)
    assert all(4 in replicas for replicas in placed)


def test_broker_that_is_down_is_the_last_choice_and_never_leads() -> None:
    candidates = [*plain(2), PlacementCandidate(NodeId(3), None, is_live=False)]
    assert all(3 not in replicas for replicas in place(candidates, 6, 2, start=0))
    assert all(replicas[2] == 3 for replicas in place(candidates, 6, 3, start=0))


@pytest.mark.parametrize(
    ("up", "down", "factor", "message"),
    [
        (
            1,
            0,
            2,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot "
            "be reached because only 1 broker(s) are registered.",
        ),
        (
            0,
            2,
            1,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced or in "
            "controlled shutdown.",
        ),
        (
            1,
            2,
            3,
            "Unable to replicate the partition 3 time(s): Only 1 of the 3 broker(s) registered are "
            "up, and a majority of the replicas must be.",
        ),
    ],
)
def test_too_few_brokers_are_refused(up: int, down: int, factor: int, message: str) -> None:
    candidates = [
        PlacementCandidate(NodeId(index), None, is_live=index < up) for index in range(up + down)
    ]
    with pytest.raises(InvalidReplicationFactor) as refused:
        place(candidates, 1, factor, 0)
    assert str(refused.value) == message


def test_half_is_no_majority() -> None:
    up, down = PlacementCandidate(NodeId(1)), PlacementCandidate(NodeId(2), None, is_live=False)
    assert not majority_is_live([up, down])
    assert majority_is_live([up, up, down])
