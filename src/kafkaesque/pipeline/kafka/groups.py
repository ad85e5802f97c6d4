"""Commits offsets to a consumer group without being a member, so that Kafka's tools show the lag.

Spark keeps its offsets in the checkpoint and never reads these.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkaesque.client.wire.errors import ConnectionLost, error_name
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.pipeline.errors import KafkaRefused
from kafkaesque.pipeline.kafka.cluster import (
    RETRIABLE_ERRORS,
    ClusterClient,
    RetriableError,
)
from kafkaesque.pipeline.rules.offsets import Partition
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
    """The offsets of one consumer group. The coordinator is looked up when it is unknown."""

    def __init__(self, cluster: ClusterClient, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator: Address | None = None

    def commit(self, offsets: Mapping[Partition, int], note: str) -> None:
        """Raises KafkaUnreachable or KafkaRefused if it fails within the cluster's deadline."""
        if offsets:
            self._cluster.retry(
                f"commit to group '{self._group}'", lambda: self._commit(offsets, note)
            )

    def _commit(self, offsets: Mapping[Partition, int], note: str) -> None:
        address = self._coordinator or self._find_coordinator()
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
        if code in RETRIABLE_ERRORS:
            raise RetriableError(f"{what}: {error_name(code)}")
        raise KafkaRefused(f"cannot commit {what} to group '{self._group}': {error_name(code)}")

    def _find_coordinator(self) -> Address:
        cluster = self._cluster
        answer = cluster.bootstrap_call(
            # Version 4 and later take a list of keys; both fields are set to support all versions.
            FindCoordinatorRequest(key=self._group, key_type=0, coordinator_keys=[self._group]),
            FindCoordinatorResponse,
        )
        row = answer.coordinators[0] if answer.coordinators else answer
        self._check(row.error_code, "its coordinator")
        self._coordinator = Address(row.host, row.port)
        return self._coordinator
