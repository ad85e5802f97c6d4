"""Leadership goes back to the preferred leaders: to those that could take it, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.broker.replication.replica_rig import GROUP, Trio

from kafkaesque.broker.cluster.members import Members
from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG
from kafkaesque.model.ids import GroupId, NodeId

TOPIC_ID = UUID(int=7)
PREFERRED = 2


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Led by node 0."""
    trio = Trio(tmp_path)
    trio.elect(0)
    trio.append()
    yield trio
    trio.close()


@pytest.fixture
def tables() -> Tables:
    """One partition, whose first replica is on the node that should lead it."""
    tables = Tables()
    for node in range(3):
        tables.apply(commands.RegisterBroker(node, UUID(int=100 + node), "host", 9092))
    tables.apply(commands.CreateTopic("t", TOPIC_ID, ((PREFERRED, 0, 1),)))
    assert tables.by_name["t"].partitions[0].group_id == GROUP
    return tables


def prefer(trio: Trio, tables: Tables, *, up: tuple[int, ...] = (0, 1, 2)) -> None:
    """As each node does it now and then."""

    async def complete(group: GroupId, target: tuple[NodeId, ...]) -> None:
        raise AssertionError(f"nothing is moved here, not {group} to {target}")

    for node in trio.nodes:
        Members(node.replicas, tables, lambda one: one in up, complete).prefer()
    trio.settle()


def test_leadership_goes_back_to_the_first_replica(trio: Trio, tables: Tables) -> None:
    term = trio.term
    prefer(trio, tables)
    assert (trio.leader, trio.term) == (PREFERRED, term + 1)
    prefer(trio, tables)
    assert (trio.leader, trio.term) == (PREFERRED, term + 1)


def test_preferred_leader_that_is_not_up_is_left_alone(trio: Trio, tables: Tables) -> None:
    prefer(trio, tables, up=(0, 1))
    assert trio.leader == 0


def test_preferred_leader_gets_it_when_it_has_caught_up(trio: Trio, tables: Tables) -> None:
    trio.cut_off.add(PREFERRED)
    trio.append(RAFT_CONFIG.promotion_lag_entries_max + 1)
    prefer(trio, tables)
    assert not trio.nodes[0].replica.raft.is_transferring
    trio.cut_off.clear()
    trio.tick(10)
    assert trio.leader == 0
    prefer(trio, tables)
    assert trio.leader == PREFERRED


def test_partition_on_its_way_to_other_brokers_keeps_its_leader(trio: Trio, tables: Tables) -> None:
    tables.apply(commands.SetReassignments((commands.Reassignment(TOPIC_ID, 0, (PREFERRED, 1)),)))
    prefer(trio, tables)
    assert trio.leader == 0


def test_group_of_a_topic_that_is_gone_keeps_its_leader(trio: Trio, tables: Tables) -> None:
    tables.apply(commands.DeleteTopic(TOPIC_ID))
    prefer(trio, tables)
    assert trio.leader == 0
