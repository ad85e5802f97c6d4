from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.cluster.rules.quorum_info import QuorumInfo, QuorumNode, QuorumReplica
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handlers.describe_quorum import describe_quorum, quorum_response
from kafkaesque.model.errors import ErrorCode, NotController
from kafkaesque.model.ids import NodeId, Offset, TimestampMs
from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

METADATA = ("__cluster_metadata", [0])
UNKNOWN = "This server does not host this topic-partition."

QUORUM = QuorumInfo(
    leader_id=NodeId(2),
    epoch=5,
    high_watermark=Offset(70),
    voters=(
        QuorumReplica(NodeId(1)),
        QuorumReplica(NodeId(2), UUID(int=9), Offset(71), TimestampMs(8), TimestampMs(7)),
    ),
    observers=(QuorumReplica(NodeId(6), log_end_offset=Offset(3)),),
    nodes=(QuorumNode(NodeId(1), "one", 9092), QuorumNode(NodeId(2), "two", 9093)),
)


def asked(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name=name, partitions=[PartitionData(partition_index=i) for i in indexes]
            )
            for name, indexes in topics
        ]
    )


@pytest.mark.parametrize("version", every_version(DescribeQuorumRequest))
def test_quorum_is_described_as_far_as_the_version_allows(version: int) -> None:
    wire = memoryview(b"".join(encode(quorum_response(QUORUM), version)))
    answer = decode(DescribeQuorumResponse, wire, version)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, [partition.partition_index]) == METADATA
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 5, 70)
    described = [
        (row.replica_id, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp)
        for row in [*partition.current_voters, *partition.observers]
    ]
    times = (8, 7) if version > 0 else (-1, -1)
    assert described == [(1, -1, -1, -1), (2, 71, *times), (6, 3, -1, -1)]
    directory = UUID(int=9) if version > 1 else UUID(int=0)
    assert partition.current_voters[1].replica_directory_id == directory
    nodes = [
        (node.node_id, listener.name, listener.host, listener.port)
        for node in answer.nodes
        for listener in node.listeners
    ]
    expected = [(1, "CONTROLLER", "one", 9092), (2, "CONTROLLER", "two", 9093)]
    assert nodes == (expected if version > 1 else [])


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("a", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [])],
        [("__cluster_metadata", [0, 1])],
        [METADATA, ("a", [0, 1])],
        [METADATA, ("a", [])],
    ],
)
def test_anything_but_exactly_the_metadata_partition_is_unknown(
    broker: LocalBroker, topics: list[tuple[str, list[int]]]
) -> None:
    """Recorded from Apache Kafka 4.3.1."""
    answer = broker.ask(asked(*topics), 2)
    assert (answer.error_code, answer.error_message, answer.nodes) == (ErrorCode.NONE, "", [])
    described = [
        (topic.topic_name, [row.partition_index for row in topic.partitions])
        for topic in answer.topics
    ]
    assert described == topics
    rows = [row for topic in answer.topics for row in topic.partitions]
    assert all(
        (row.error_code, row.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
        for row in rows
    )


def test_broker_that_does_not_lead_the_controller_says_so() -> None:
    class Follower:
        def describe_quorum(self) -> QuorumInfo:
            raise NotController("elsewhere")

    context = cast(Context, SimpleNamespace(cluster=Follower()))
    answer: Any = describe_quorum(context, asked(METADATA), Call(2, None, ""))
    assert (answer.error_code, answer.error_message, answer.topics) == (
        ErrorCode.NOT_CONTROLLER,
        "elsewhere",
        [],
    )


@pytest.mark.parametrize("version", every_version(DescribeQuorumRequest))
def test_lone_broker_answers_as_kafka_does(broker: LocalBroker, version: int) -> None:
    answer = broker.ask(asked(METADATA), version)
    assert answer.error_code == ErrorCode.NONE
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.observers) == (
        ErrorCode.NONE,
        1,
        [],
    )
    (voter,) = partition.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset >= partition.high_watermark > 0
    assert [node.node_id for node in answer.nodes] == ([1] if version > 1 else [])
