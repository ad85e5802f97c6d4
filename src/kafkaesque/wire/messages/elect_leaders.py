"""ElectLeaders, API key 43 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int8, Int16, Int32, Request, Response, String, Struct, f


class TopicPartitions(Struct):
    topic: String = f("0+")
    partitions: list[Int32] = f("0+")


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = f("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = f("0+", nullable="0+")
    timeout_ms: Int32 = f("0+", default=60000)


class PartitionResult(Struct):
    partition_id: Int32 = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: String = f("0+")
    partition_result: list[PartitionResult] = f("0+")


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = f("0+")
