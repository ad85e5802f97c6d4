"""Fetch, API key 1 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class ReplicaState(Struct):
    replica_id: Int32 = f("15+", default=-1)
    replica_epoch: Int64 = f("15+", default=-1)


class FetchPartition(Struct):
    partition: Int32 = f("0+")
    current_leader_epoch: Int32 = f("9+", default=-1)
    fetch_offset: Int64 = f("0+")
    last_fetched_epoch: Int32 = f("12+", default=-1)
    log_start_offset: Int64 = f("5+", default=-1)
    partition_max_bytes: Int32 = f("0+")
    replica_directory_id: Uuid = f("17+", tag=0, tagged="17+", default=NO_UUID)
    high_watermark: Int64 = f("18+", tag=1, tagged="18+", default=9223372036854775807)


class FetchTopic(Struct):
    topic: String = f("0-12", default="")
    topic_id: Uuid = f("13+", default=NO_UUID)
    partitions: list[FetchPartition] = f("0+")


class ForgottenTopic(Struct):
    topic: String = f("7-12", default="")
    topic_id: Uuid = f("13+", default=NO_UUID)
    partitions: list[Int32] = f("7+")


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    cluster_id: String | None = f("12+", nullable="12+", tag=0, tagged="12+", default=None)
    replica_id: Int32 = f("0-14", default=-1)
    replica_state: ReplicaState | None = f("15+", tag=1, tagged="15+", default=None)
    max_wait_ms: Int32 = f("0+")
    min_bytes: Int32 = f("0+")
    max_bytes: Int32 = f("3+", default=2147483647)
    isolation_level: Int8 = f("4+", default=0)
    session_id: Int32 = f("7+", default=0)
    session_epoch: Int32 = f("7+", default=-1)
    topics: list[FetchTopic] = f("0+")
    forgotten_topics_data: list[ForgottenTopic] = f("7+", default=[])
    rack_id: String = f("11+", default="")


class EpochEndOffset(Struct):
    epoch: Int32 = f("12+", default=-1)
    end_offset: Int64 = f("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = f("12+", default=-1)
    leader_epoch: Int32 = f("12+", default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = f("0+", default=-1)
    epoch: Int32 = f("0+", default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64 = f("4+")
    first_offset: Int64 = f("4+")


class PartitionData(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    high_watermark: Int64 = f("0+")
    last_stable_offset: Int64 = f("4+", default=-1)
    log_start_offset: Int64 = f("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = f("12+", tag=0, tagged="12+", default=None)
    current_leader: LeaderIdAndEpoch | None = f("12+", tag=1, tagged="12+", default=None)
    snapshot_id: SnapshotId | None = f("12+", tag=2, tagged="12+", default=None)
    aborted_transactions: list[AbortedTransaction] | None = f("4+", nullable="4+")
    preferred_read_replica: Int32 = f("11+", default=-1)
    records: Records | None = f("0+", nullable="0+")


class FetchableTopicResponse(Struct):
    topic: String = f("0-12", default="")
    topic_id: Uuid = f("13+", default=NO_UUID)
    partitions: list[PartitionData] = f("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = f("16+")
    host: String = f("16+")
    port: Int32 = f("16+")
    rack: String | None = f("16+", nullable="16+", default=None)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("7+", default=0)
    session_id: Int32 = f("7+", default=0)
    responses: list[FetchableTopicResponse] = f("0+")
    node_endpoints: list[NodeEndpoint] = f("16+", tag=0, tagged="16+", default=[])
