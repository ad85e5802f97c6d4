"""Rows of `kafkaesque broker-admin`: brokers, the controller quorum, reassignments."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkaesque.admin.errors import refusal
from kafkaesque.cli.client import Connection
from kafkaesque.cli.render import Column
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

CONTROLLER_LOG = "__cluster_metadata"

BROKER_COLUMNS = [
    Column("id", "Id", style="bold"),
    Column("host", "Host"),
    Column("port", "Port"),
    Column("rack", "Rack"),
    Column("controller", "Controller"),
    Column("leads", "Leads", "count"),
    Column("replicas", "Replicas", "count"),
    Column("behind", "Not in sync", "count"),
]
QUORUM_COLUMNS = [
    Column("id", "Id", style="bold"),
    Column("role", "Role"),
    Column("end_offset", "End offset", "count"),
    Column("lag", "Lag", "count"),
]
REASSIGNMENT_COLUMNS = [
    Column("topic", "Topic", style="bold"),
    Column("partition", "Partition", "count"),
    Column("replicas", "Replicas"),
    Column("adding", "Adding"),
    Column("removing", "Removing"),
]


def broker_rows(connection: Connection) -> list[dict[str, Any]]:
    """One row for each broker that is up."""
    future = connection.admin.describe_cluster(request_timeout=connection.timeout_s)
    described = connection.wait(future, "describe the cluster")
    racks = {node.id: node.rack for node in described.nodes}
    metadata = connection.metadata()
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            leads[partition.leader] += 1
            replicas.update(partition.replicas)
            behind.update(set(partition.replicas) - set(partition.isrs))
    return [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": racks.get(node.id),
            "controller": node.id == metadata.controller_id,
            "leads": leads[node.id],
            "replicas": replicas[node.id],
            "behind": behind[node.id],
        }
        for node in sorted(metadata.brokers.values(), key=lambda node: node.id)
    ]


def quorum_document(connection: Connection) -> dict[str, Any]:
    doing = "describe the quorum"
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    answer = connection.cluster.call_controller(request, DescribeQuorumResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    (topic,) = answer.topics
    (found,) = topic.partitions
    if found.error_code:
        raise refusal(found.error_code, found.error_message, doing)
    end = max((voter.log_end_offset for voter in found.current_voters), default=0)
    voters = [_member(voter, found.leader_id, "voter", end) for voter in found.current_voters]
    observers = [_member(one, found.leader_id, "observer", end) for one in found.observers]
    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "members": [*voters, *observers],
    }


def _member(replica: ReplicaState, leader: int, role: str, end: int) -> dict[str, Any]:
    offset = replica.log_end_offset
    return {
        "id": replica.replica_id,
        "role": "leader" if replica.replica_id == leader else role,
        "end_offset": offset,
        "lag": end - offset if offset >= 0 else None,
        "last_caught_up_ms": replica.last_caught_up_timestamp,
    }


def reassignment_rows(connection: Connection) -> list[dict[str, Any]]:
    doing = "list reassignments"
    request = ListPartitionReassignmentsRequest(timeout_ms=int(connection.timeout_s * 1000))
    answer = connection.cluster.call_controller(request, ListPartitionReassignmentsResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    return [
        {
            "topic": topic.name,
            "partition": row.partition_index,
            "replicas": list(row.replicas),
            "adding": list(row.adding_replicas),
            "removing": list(row.removing_replicas),
        }
        for topic in answer.topics
        for row in topic.partitions
    ]
