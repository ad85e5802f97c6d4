"""Placement of new replicas on brokers.

The goals are those of Kafka's StripedReplicaPlacer, in this order: the replicas of a partition are on
different brokers, on brokers that are up, in different racks; leaders and replicas are spread evenly;
and when a broker dies, many others take over its leaderships rather than one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkaesque.model.errors import InvalidReplicationFactor
from kafkaesque.model.ids import NodeId


class PlacementCandidate(NamedTuple):
    """A broker that may get replicas. Brokers without a rack share one, as in Kafka."""

    node_id: NodeId
    rack: str | None = None
    is_live: bool = True


def place(
    candidates: Sequence[PlacementCandidate],
    partition_count: int,
    replication_factor: int,
    start: int,
) -> tuple[tuple[NodeId, ...], ...]:
    """Returns the replicas of each new partition, the preferred leader first.

    Leaders rotate over the brokers that are up, from rack to rack, from the `start`-th on. With the
    number of partitions ever created as `start`, many small topics spread as well as a large one.
    """
    _refuse_too_few(candidates, replication_factor)
    order = _striped(candidates)
    live = [candidate for candidate in order if candidate.is_live]
    leaders = [live[(start + index) % len(live)] for index in range(partition_count)]
    loads = Counter(leader.node_id for leader in leaders)
    placed = []
    for index, leader in enumerate(leaders):
        cycle = start // len(live) + index // len(live)
        chosen = _followed(order, leader, replication_factor, cycle, loads)
        loads.update(candidate.node_id for candidate in chosen[1:])
        placed.append(tuple(candidate.node_id for candidate in chosen))
    return tuple(placed)


def majority_is_live(candidates: Iterable[PlacementCandidate]) -> bool:
    """A new group needs this to elect its first leader."""
    states = [candidate.is_live for candidate in candidates]
    return sum(states) > len(states) // 2


def _refuse_too_few(candidates: Sequence[PlacementCandidate], replication_factor: int) -> None:
    live_count = sum(candidate.is_live for candidate in candidates)
    reason = None
    if replication_factor > len(candidates):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered."
        )
    elif not live_count:
        reason = "All brokers are currently fenced or in controlled shutdown."
    elif live_count <= replication_factor // 2:
        reason = (
            f"Only {live_count} of the {len(candidates)} broker(s) registered are up, and a "
            "majority of the replicas must be."
        )
    if reason is not None:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): {reason}"
        )


def _striped(candidates: Sequence[PlacementCandidate]) -> list[PlacementCandidate]:
    """The first of each rack, then the second of each, and so on."""
    racks: defaultdict[str, list[PlacementCandidate]] = defaultdict(list)
    for candidate in sorted(candidates):
        racks[candidate.rack or ""].append(candidate)
    depth = {
        candidate: (position, rack)
        for rack, members in racks.items()
        for position, candidate in enumerate(members)
    }
    return sorted(candidates, key=depth.__getitem__)


def _followed(
    order: Sequence[PlacementCandidate],
    leader: PlacementCandidate,
    replication_factor: int,
    cycle: int,
    loads: Counter[NodeId],
) -> list[PlacementCandidate]:
    """`leader` and its followers. Each cycle over the leaders pairs them with other followers."""
    position = order.index(leader)
    others = [*order[position + 1 :], *order[:position]]
    if others:
        shift = cycle % len(others)
        others = others[shift:] + others[:shift]
    chosen = [leader]
    while len(chosen) < replication_factor:
        racks = Counter(candidate.rack for candidate in chosen)
        # `min` takes the first of equals, so the order of `others` decides last.
        best = min(
            others,
            key=lambda other: (not other.is_live, racks[other.rack], loads[other.node_id]),
        )
        others.remove(best)
        chosen.append(best)
    return chosen
