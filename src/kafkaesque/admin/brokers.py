"""Brokers, the controller quorum, leader elections and partition reassignments. Blocking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkaesque.admin.cluster import BlockingAdmin
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import AdminError, refusal
from kafkaesque.admin.rules.offset_reset import Partition
from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkaesque.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkaesque.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

CONTROLLER_LOG: Final = "__cluster_metadata"
PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1
"""Types of elections (KIP-460)."""


class PartitionOutcome(NamedTuple):
    """The outcome of one partition in an operation on several: `result`, or failed with `error`.

    `reason` is the broker's own text of the error, or the error's name.
    """

    topic: str
    partition: int
    result: str
    error: AdminError | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        place = {"topic": self.topic, "partition": self.partition}
        if self.error is None:
            return {**place, "result": self.result}
        return {**place, "result": "failed", "error": self.reason}


def list_brokers(connection: ClusterConnection) -> list[dict[str, Any]]:
    """One row for each broker that is up, with the number of its leaders and replicas."""
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


def describe_quorum(cluster: BlockingAdmin) -> dict[str, Any]:
    """The controller quorum: leader, epoch, high watermark, and the lag of each member."""
    doing = "describe the quorum"
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    answer = cluster.call_controller(request, DescribeQuorumResponse, doing)
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


def list_reassignments(cluster: BlockingAdmin) -> list[dict[str, Any]]:
    """One row for each partition that is being moved."""
    doing = "list reassignments"
    request = ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(cluster))
    answer = cluster.call_controller(request, ListPartitionReassignmentsResponse, doing)
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


def elect_leaders(
    cluster: BlockingAdmin, topics: Mapping[str, Sequence[int]] | None, *, unclean: bool = False
) -> list[PartitionOutcome]:
    """Elects the preferred leader of each partition, or, if `unclean`, any replica (may lose records).

    None means all partitions of all topics.
    """
    asked = None
    if topics is not None:
        asked = [
            TopicPartitions(topic=name, partitions=list(indexes))
            for name, indexes in topics.items()
        ]
    request = ElectLeadersRequest(
        election_type=UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION,
        topic_partitions=asked,
        timeout_ms=_timeout_ms(cluster),
    )
    doing = "elect leaders"
    answer = cluster.call_controller(request, ElectLeadersResponse, doing)
    if answer.error_code and not answer.replica_election_results:
        raise refusal(answer.error_code, None, doing)
    return [
        _outcome(topic.topic, row.partition_id, row.error_code, row.error_message, "elected", doing)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


def reassign_partitions(
    cluster: BlockingAdmin, wanted: Mapping[Partition, Sequence[int] | None]
) -> list[PartitionOutcome]:
    """Starts to move partitions to the given brokers; None cancels a move in progress."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        partition = ReassignablePartition(
            partition_index=index, replicas=None if replicas is None else list(replicas)
        )
        topics.setdefault(topic, []).append(partition)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_timeout_ms(cluster),
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    doing = "reassign partitions"
    answer = cluster.call_controller(request, AlterPartitionReassignmentsResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    return [
        _outcome(topic.name, row.partition_index, row.error_code, row.error_message, "begun", doing)
        for topic in answer.responses
        for row in topic.partitions
    ]


def _outcome(
    topic: str, partition: int, code: int, message: str | None, done: str, doing: str
) -> PartitionOutcome:
    if code == ErrorCode.ELECTION_NOT_NEEDED:
        return PartitionOutcome(topic, partition, "as it should be")
    if not code:
        return PartitionOutcome(topic, partition, done)
    error = refusal(code, message, f"{doing}: {topic}:{partition}")
    return PartitionOutcome(topic, partition, "failed", error, message or error_name(code))


def unregister_broker(cluster: BlockingAdmin, broker_id: int) -> None:
    """Removes a broker that will not return from the cluster."""
    doing = f"unregister broker {broker_id}"
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = cluster.call_controller(request, UnregisterBrokerResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)


def _timeout_ms(cluster: BlockingAdmin) -> int:
    return int(cluster.timeout_s * 1000)
