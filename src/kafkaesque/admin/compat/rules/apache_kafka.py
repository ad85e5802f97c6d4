"""Requests and topic settings of Apache Kafka 4.x. Data only.

Versions and settings are those of Apache Kafka 4.3.1; tests/cli/test_compat.py compares them with a
real one. A release of the 4.x line may add to them but removes none (KIP-896, KIP-724).
"""

from __future__ import annotations

from typing import Final

from kafkaesque.wire.table import Versions

APACHE_NAME: Final = "Apache Kafka 4.x (known ranges)"

API_NAMES: Final = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit",
    9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup",
    14: "SyncGroup", 15: "DescribeGroups", 16: "ListGroups", 18: "ApiVersions",
    19: "CreateTopics", 20: "DeleteTopics", 21: "DeleteRecords", 22: "InitProducerId",
    23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    28: "TxnOffsetCommit", 29: "DescribeAcls", 30: "CreateAcls", 32: "DescribeConfigs",
    37: "CreatePartitions", 42: "DeleteGroups", 44: "IncrementalAlterConfigs",
    48: "DescribeClientQuotas", 49: "AlterClientQuotas", 50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials", 60: "DescribeCluster", 68: "ConsumerGroupHeartbeat",
    76: "ShareGroupHeartbeat", 78: "ShareFetch", 79: "ShareAcknowledge",
    88: "StreamsGroupHeartbeat",
}  # fmt: skip

CLIENT_APIS: Final = frozenset(
    {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 32, 37, 42, 44, 60}
)
"""Requests that any client or admin tool may send, whatever features are in use."""

APACHE_APIS: Final = {
    key: Versions(low, high)
    for key, low, high in (
        (0, 0, 13), (1, 4, 18), (2, 1, 11), (3, 0, 13), (8, 2, 10), (9, 1, 10), (10, 0, 6),
        (11, 0, 9), (12, 0, 4), (13, 0, 5), (14, 0, 5), (15, 0, 6), (16, 0, 5), (18, 0, 4),
        (19, 2, 7), (20, 1, 6), (21, 0, 2), (22, 0, 5), (23, 2, 4), (24, 0, 5), (25, 0, 4),
        (26, 0, 5), (28, 0, 5), (29, 1, 3), (30, 1, 3), (32, 1, 4), (37, 0, 3), (42, 0, 2),
        (44, 0, 1), (48, 0, 1), (49, 0, 1), (50, 0, 0), (51, 0, 0), (60, 0, 2), (68, 0, 1),
        (76, 1, 1), (78, 1, 2), (79, 1, 2), (88, 0, 0),
    )
}  # fmt: skip

APACHE_TOPIC_SETTINGS: Final = frozenset(
    (
        "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
        "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms",
        "flush.messages", "flush.ms", "follower.replication.throttled.replicas",
        "index.interval.bytes", "leader.replication.throttled.replicas",
        "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms",
        "max.message.bytes", "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms", "message.timestamp.type",
        "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas",
        "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable", "retention.bytes", "retention.ms", "segment.bytes",
        "segment.index.bytes", "segment.jitter.ms", "segment.ms",
        "unclean.leader.election.enable",
    )
)  # fmt: skip
