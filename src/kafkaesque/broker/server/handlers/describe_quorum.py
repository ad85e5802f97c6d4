"""DescribeQuorum, API key 55: the controller's Raft group (KIP-595).

v1  when each replica was last in contact and last caught up (KIP-836)
v2  messages, the voters' addresses, each replica's directory id (KIP-853)

Kafka's name for the controller's log maps to our group 0. If a request names anything else, all of
it is answered as unknown, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkaesque.broker.cluster.rules.controller import CLUSTER_METADATA_TOPIC
from kafkaesque.broker.cluster.rules.quorum_info import QuorumInfo, QuorumReplica
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)

LISTENER_NAME: Final = "CONTROLLER"
"""Kafka's usual name. Our controller has no port of its own; it uses the broker's."""


def describe_quorum(
    context: Context, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    if not _is_for_controller(request.topics):
        return _unknown(request.topics)
    try:
        quorum = context.cluster.describe_quorum()
    except KafkaError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])
    return quorum_response(quorum)


def quorum_response(quorum: QuorumInfo) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(replica) for replica in quorum.voters],
        observers=[_replica(replica) for replica in quorum.observers],
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=node.node_id,
                listeners=[Listener(name=LISTENER_NAME, host=node.host, port=node.port)],
            )
            for node in quorum.nodes
        ],
    )


def _is_for_controller(topics: Sequence[TopicData]) -> bool:
    asked = [
        (topic.topic_name, item.partition_index) for topic in topics for item in topic.partitions
    ]
    return len(topics) == 1 and asked == [(CLUSTER_METADATA_TOPIC, 0)]


def _replica(replica: QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _unknown(topics: Sequence[TopicData]) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=item.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[],
                        observers=[],
                    )
                    for item in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


HANDLER = handler(DescribeQuorumRequest, versions=(0, 2), at_controller=True)(describe_quorum)
