"""Which brokers may register with which node id."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRegistration,
)
from kafkaesque.broker.cluster.rules.registration import NewBroker, registration, unregistration
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.model.ids import NODE_ID_MAX, NodeId

OLD, NEW = UUID(int=1), UUID(int=2)
ONE = NewBroker(NodeId(1), OLD, "host", 9092, "rack", 7)


def registered(wanted: NewBroker = ONE) -> Tables:
    tables = Tables()
    command = registration(tables, wanted, (), is_old_gone=False)
    assert command is not None
    tables.apply(command)
    return tables


def test_broker_is_registered_with_all_that_it_says() -> None:
    command = registration(Tables(), ONE, (), is_old_gone=False)
    assert command == commands.RegisterBroker(1, OLD, "host", 9092, "rack", 7)


def test_repeated_registration_writes_nothing() -> None:
    assert registration(registered(), ONE, [NodeId(1)], is_old_gone=False) is None


def test_restarted_or_moved_broker_is_registered_anew_though_it_seems_up() -> None:
    moved = NewBroker(NodeId(1), OLD, "elsewhere", 9092, "rack", 8)
    assert registration(registered(), moved, [NodeId(1)], is_old_gone=False) is not None


def test_second_broker_with_the_node_id_of_one_that_is_up_is_refused() -> None:
    twin = NewBroker(NodeId(1), NEW, "other", 9093)
    with pytest.raises(DuplicateBrokerRegistration) as refused:
        registration(registered(), twin, [NodeId(1)], is_old_gone=False)
    assert str(refused.value).startswith("Another broker is registered with that broker id: 1 at ")
    assert "host:9092" in str(refused.value)
    assert "node.id" in str(refused.value)


@pytest.mark.parametrize(("live", "is_old_gone"), [([], False), ([NodeId(1)], True)])
def test_broker_with_a_new_disk_replaces_one_that_is_down_or_known_to_be_gone(
    live: list[NodeId], is_old_gone: bool
) -> None:
    wiped = NewBroker(NodeId(1), NEW, "host", 9092)
    assert registration(registered(), wiped, live, is_old_gone=is_old_gone) is not None


def test_copy_of_another_brokers_disk_is_refused() -> None:
    copy = NewBroker(NodeId(2), OLD, "host", 9092)
    with pytest.raises(InvalidRegistration, match="Broker 1 is already registered with directory"):
        registration(registered(), copy, (), is_old_gone=True)


@pytest.mark.parametrize("node_id", [-1, NODE_ID_MAX + 1])
def test_node_id_that_fits_no_member_id_is_refused(node_id: int) -> None:
    with pytest.raises(InvalidRegistration):
        registration(Tables(), NewBroker(NodeId(node_id), OLD, "h", 1), (), is_old_gone=False)


def test_only_registered_brokers_can_be_unregistered() -> None:
    assert unregistration(registered(), 1) == commands.UnregisterBroker(1)
    with pytest.raises(BrokerIdNotRegistered, match="Broker ID 9 is not currently registered"):
        unregistration(registered(), 9)
