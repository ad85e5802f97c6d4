"""Commits offsets to a consumer group without being a member: so that Kafka's tools see our lag.

Spark keeps its own place in the checkpoint and never reads this back.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkaesque.client.wire.address import Address
from kafkaesque.client.wire.errors import ConnectionLost, error_name
from kafkaesque.model.errors import ErrorCode
from kafkaesque.pipeline.errors import KafkaRefused
from kafkaesque.pipeline.kafka.cluster import PASSING, Cluster, Partition, Passing
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

NO_GENERATION = -1
OFFSET_COMMIT_VERSION_MAX = 9
"""The last version that names topics."""


class GroupOffsets:
    """One consumer group, whose coordinator is looked up when it is not known."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator: Address | None = None

    def commit(self, offsets: Mapping[Partition, int], note: str) -> None:
        """KafkaUnreachable or KafkaRefused if it cannot be done in the cluster's deadline."""
        if offsets:
            self._cluster.persist(
                f"commit to group '{self._group}'", lambda: self._commit(offsets, note)
            )

    def _commit(self, offsets: Mapping[Partition, int], note: str) -> None:
        address = self._coordinator or self._find()
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in sorted(offsets.items()):
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=note
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in by_topic.items()
            ],
        )
        try:
            answer = self._cluster.connection(address).call(
                request, OffsetCommitResponse, version_max=OFFSET_COMMIT_VERSION_MAX
            )
        except ConnectionLost:
            self._coordinator = None
            raise
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                self._check(row.error_code, f"{topic_answer.name}-{row.partition_index}")

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        self._coordinator = None
        if code in PASSING:
            raise Passing(f"{what}: {error_name(code)}")
        raise KafkaRefused(f"group '{self._group}' takes no offset of {what}: {error_name(code)}")

    def _find(self) -> Address:
        cluster = self._cluster
        answer = cluster.bootstrap_call(
            # Version 4 asks for several at once; both fields are filled for either.
            FindCoordinatorRequest(key=self._group, key_type=0, coordinator_keys=[self._group]),
            FindCoordinatorResponse,
        )
        row = answer.coordinators[0] if answer.coordinators else answer
        self._check(row.error_code, "its coordinator")
        self._coordinator = Address(row.host, row.port)
        return self._coordinator
