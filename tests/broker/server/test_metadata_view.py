from __future__ import annotations

from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.cluster.rules.commands import AddPartitions
from kafkaesque.broker.server.metadata_view import partition_states
from kafkaesque.model.errors import ErrorCode


def test_partition_that_is_not_open_yet_has_no_leader(broker: LocalBroker) -> None:
    broker.create("a")
    tables = broker.context.cluster.tables
    topic = tables.by_name["a"]
    tables.apply(AddPartitions(topic.topic_id, ((1,),)))
    first, second = partition_states(broker.context, topic)
    assert (first.error_code, first.leader_id) == (ErrorCode.NONE, 1)
    assert (second.error_code, second.leader_id, second.leader_epoch) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        -1,
    )
    assert list(second.replicas) == [1]


def test_partitions_in_the_same_state_share_it(broker: LocalBroker) -> None:
    broker.create("a", 3)
    topic = broker.context.cluster.tables.by_name["a"]
    states = partition_states(broker.context, topic)
    assert len(states) == 3
    assert len({id(state) for state in states}) == 1
