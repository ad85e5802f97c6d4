"""The settings of a topic: Kafka's name, meaning, type and default wherever Kafka has one.

`settings` has those of a broker, and how the two go together.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model import limits
from kafkaesque.model.setting import INT64_MAX, SettingType, setting

STRING, INT, LONG, LIST, DOUBLE = (
    SettingType.STRING,
    SettingType.INT,
    SettingType.LONG,
    SettingType.LIST,
    SettingType.DOUBLE,
)

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
DAY_MS = 24 * 3600 * 1000
INDEX_BYTES_MIN = 32
"""Room for an entry of `storage.index`, which is larger than Kafka's (its minimum is 4)."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings in force for one topic, after its own values and the broker's defaults."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", LIST, ("delete",),
        "What happens to old segments: `delete` discards them by age and size, `compact` demands a "
        "key in every record and keeps at least the newest record of each.",
        choices=("compact", "delete"), synonyms=("log.cleanup.policy",),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", STRING, "producer",
        "The codec records are stored with; `producer` keeps the batch as the producer sent it, any "
        "other value has the broker compress it again.",
        choices=COMPRESSIONS, synonyms=("compression.type",),
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", LONG, DAY_MS,
        "How long a compacted topic keeps a record without value after the first cleaning that met "
        "it: who reads the topic from its start within that time learns of the deletion.",
        at_least=0, synonyms=("log.cleaner.delete.retention.ms",),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", LONG, INT64_MAX,
        "Sync the log after this many records, before the last of them is acknowledged. Matters with "
        "`flush=never`: our default syncs before every acknowledgement of acks=all.",
        at_least=1, synonyms=("log.flush.interval.messages",),
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", LONG, INT64_MAX,
        "Sync the log when its oldest unsynced record is this old. Matters with `flush=never`.",
        at_least=0, synonyms=("log.flush.interval.ms",),
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", INT, 4096,
        "About how many bytes of log lie between two entries of its sparse indexes.",
        at_least=0, synonyms=("log.index.interval.bytes",),
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", LONG, INT64_MAX,
        "How long a record of a compacted topic may wait for a cleaning, whatever the dirty ratio.",
        at_least=1, synonyms=("log.cleaner.max.compaction.lag.ms",),
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", INT, 1048588,
        "The largest record batch (after compression) that the topic takes.",
        at_least=0, at_most=limits.BATCH_SIZE_BYTES_MAX, synonyms=("message.max.bytes",),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", LONG, 3600000,
        "How far a record's timestamp may lie in the broker's future (CreateTime topics).",
        at_least=0, synonyms=("log.message.timestamp.after.max.ms",),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", LONG, INT64_MAX,
        "How far a record's timestamp may lie in the broker's past (CreateTime topics).",
        at_least=0, synonyms=("log.message.timestamp.before.max.ms",),
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", STRING, "CreateTime",
        "Whether a record keeps its producer's timestamp or gets the time of its append.",
        choices=("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5,
        "A compacted topic is cleaned when this share of it was not cleaned before.",
        at_least=0, at_most=1, synonyms=("log.cleaner.min.cleanable.ratio",),
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", LONG, 0,
        "How long every record of a compacted topic stays, superseded or not.",
        at_least=0, synonyms=("log.cleaner.min.compaction.lag.ms",),
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", INT, 1,
        "How many replicas must hold a record before acks=all is answered; with fewer alive the "
        "producer gets NOT_ENOUGH_REPLICAS.",
        at_least=1, synonyms=("min.insync.replicas",),
    )  # fmt: skip
    retention_bytes: int = setting(
        "retention.bytes", LONG, -1,
        "Old segments go when a partition is larger than this; -1 for no bound.",
        at_least=-1, synonyms=("log.retention.bytes",),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", LONG, 7 * DAY_MS,
        "Segments go when their newest record is older than this; -1 for never.",
        at_least=-1, synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )  # fmt: skip
    # Kafka 4.3 raised the minimum to 1 MiB. Ours stays low: small segments cost us little, and tests
    # of retention and rolling need not write megabytes.
    segment_bytes: int = setting(
        "segment.bytes", INT, 1073741824,
        "The size at which a partition starts a new segment file.",
        at_least=14, synonyms=("log.segment.bytes",),
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", INT, 10485760,
        "The size at which a full index makes the log start a new segment.",
        at_least=INDEX_BYTES_MIN, synonyms=("log.index.size.max.bytes",),
    )  # fmt: skip
    segment_ms: int = setting(
        "segment.ms", LONG, 7 * DAY_MS,
        "The age at which a partition starts a new segment file, full or not.",
        at_least=1, synonyms=("log.roll.ms", "log.roll.hours"),
    )  # fmt: skip

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def uses_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
