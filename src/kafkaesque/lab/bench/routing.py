"""Partition leaders from the Metadata of a cluster, for load generators and the harness."""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.lab.bench import requests
from kafkaesque.model.address import parse_address
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

METADATA_VERSION = 9


class PartitionRow(NamedTuple):
    """One partition as reported by one broker; `leader` is an address, empty if there is none."""

    leader: str
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def partitions_of(address: str, topic: str) -> list[PartitionRow]:
    """The partitions of a topic as reported by the broker at `address`; empty for an unknown topic."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answer = requests.call(*parse_address(address), request, METADATA_VERSION, MetadataResponse)
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    return [
        PartitionRow(brokers.get(row.leader_id, ""), tuple(row.replica_nodes), tuple(row.isr_nodes))
        for row in sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)
    ]
