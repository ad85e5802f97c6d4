"""The settings of topics and brokers, with Kafka's name, meaning, type and default where it has one.

A setting that is not here is rejected, never ignored, so everything that DescribeConfigs lists is in
effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model import limits
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import (
    INT32_MAX,
    INT64_MAX,
    Scope,
    Setting,
    SettingType,
    SettingValue,
    attributes_of,
    setting,
    settings_of,
)

BOOLEAN, STRING, LIST = SettingType.BOOLEAN, SettingType.STRING, SettingType.LIST
INT, LONG, DOUBLE = SettingType.INT, SettingType.LONG, SettingType.DOUBLE
READ_ONLY = Scope.READ_ONLY


COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
DAY_MS = 24 * 3600 * 1000
INDEX_BYTES_MIN = 32
"""Space for one entry of `storage.index`, which is larger than Kafka's (its minimum is 4)."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective settings of one topic: its own values, then the broker's defaults."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", LIST, ("delete",),
        "What happens to old segments: `delete` deletes them by age and size; `compact` requires a key "
        "in every record and keeps at least the newest record of each key.",
        choices=("compact", "delete"), synonyms=("log.cleanup.policy",),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", STRING, "producer",
        "The codec of stored records. `producer` keeps batches as the producer sent them; with any "
        "other value the broker recompresses them.",
        choices=COMPRESSIONS, synonyms=("compression.type",),
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", LONG, DAY_MS,
        "How long a compacted topic keeps a tombstone (a record without a value) after it was first "
        "cleaned. A consumer that reads the topic from its start within that time sees the deletion.",
        at_least=0, synonyms=("log.cleaner.delete.retention.ms",),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", LONG, INT64_MAX,
        "Sync the log after this many records, before the last of them is acknowledged. Only relevant "
        "with `flush=never`: the default syncs before every acks=all response.",
        at_least=1, synonyms=("log.flush.interval.messages",),
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", LONG, INT64_MAX,
        "Sync the log when its oldest unsynced record is this old. Only relevant with `flush=never`.",
        at_least=0, synonyms=("log.flush.interval.ms",),
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", INT, 4096,
        "Approximate number of log bytes between two entries of the sparse index.",
        at_least=0, synonyms=("log.index.interval.bytes",),
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", LONG, INT64_MAX,
        "Longest time that a record of a compacted topic stays uncompacted, whatever the dirty ratio.",
        at_least=1, synonyms=("log.cleaner.max.compaction.lag.ms",),
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", INT, 1048588,
        "The largest record batch (after compression) that the topic accepts.",
        at_least=0, at_most=limits.BATCH_SIZE_BYTES_MAX, synonyms=("message.max.bytes",),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", LONG, 3600000,
        "How far a record's timestamp may be ahead of the broker's clock (CreateTime topics).",
        at_least=0, synonyms=("log.message.timestamp.after.max.ms",),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", LONG, INT64_MAX,
        "How old a record's timestamp may be by the broker's clock (CreateTime topics).",
        at_least=0, synonyms=("log.message.timestamp.before.max.ms",),
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", STRING, "CreateTime",
        "Whether a record keeps its producer's timestamp or gets the broker's append time.",
        choices=("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5,
        "A compacted log is cleaned when its uncleaned part reaches this ratio of its size.",
        at_least=0, at_most=1, synonyms=("log.cleaner.min.cleanable.ratio",),
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", LONG, 0,
        "Shortest time that a record of a compacted topic is kept, even if a newer one has its key.",
        at_least=0, synonyms=("log.cleaner.min.compaction.lag.ms",),
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", INT, 1,
        "How many replicas must hold a record before acks=all is acknowledged. With fewer replicas "
        "alive, the producer gets NOT_ENOUGH_REPLICAS.",
        at_least=1, synonyms=("min.insync.replicas",),
    )  # fmt: skip
    retention_bytes: int = setting(
        "retention.bytes", LONG, -1,
        "Delete the oldest segments when a partition is larger than this; -1 for no limit.",
        at_least=-1, synonyms=("log.retention.bytes",),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", LONG, 7 * DAY_MS,
        "Delete segments whose newest record is older than this; -1 for no limit.",
        at_least=-1, synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )  # fmt: skip
    # Kafka 4.3 raised the minimum to 1 MiB. Ours is lower: small segments are cheap here, and tests
    # of retention and rolling need not write megabytes.
    segment_bytes: int = setting(
        "segment.bytes", INT, 1073741824,
        "The size at which a partition starts a new segment file.",
        at_least=14, synonyms=("log.segment.bytes",),
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", INT, 10485760,
        "The index size at which a partition starts a new segment file.",
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


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker. Later sources win: file, KAFKAESQUE_* environment, flags, AlterConfigs.
    Exception: AlterConfigs cannot override a setting that `can_lock_out` if it was given at start."""

    node_id: int = setting("node.id", INT, 0, "This broker's id.", at_least=0, scope=READ_ONLY)
    log_dirs: str = setting("log.dirs", STRING, "", "The data directory (one).", scope=READ_ONLY)
    listeners: str = setting(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092",
        "Address to listen on, as PLAINTEXT://HOST:PORT; port 0 picks a free port.", scope=READ_ONLY,
    )  # fmt: skip
    advertised_listeners: str = setting(
        "advertised.listeners", STRING, "",
        "Address that clients are given, as PLAINTEXT://HOST:PORT; empty for the address of `listeners`.",
        scope=READ_ONLY,
    )  # fmt: skip
    http_listener: str = setting(
        "http.listener", STRING, "127.0.0.1:0",
        "HOST:PORT of /metrics, /healthz and /readyz; port 0 picks a free port, empty disables it.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    coordination_listener: str = setting(
        "coordination.listener", STRING, "",
        "HOST:PORT of the ZooKeeper-compatible coordination service; port 0 picks a free port, empty "
        "accepts no clients on this broker. Every broker replicates the tree either way.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    text_listener: str = setting(
        "text.listener", STRING, "",
        "HOST:PORT of the text protocol (PUBS, SUBS, CONS); port 0 picks a free port, empty disables "
        "it.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, True,
        "Create a missing topic when a client that allows it requests its metadata.", scope=READ_ONLY,
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", STRING, "producer", "Default of the topic setting `compression.type`.",
        choices=COMPRESSIONS,
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", LONG, 600000,
        "Close a connection that sent nothing for this long.", at_least=1000, scope=READ_ONLY,
    )  # fmt: skip
    default_replication_factor: int = setting(
        "default.replication.factor", INT, 1,
        "Replication factor of topics created without one.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, True, "Whether topics may be deleted.", scope=READ_ONLY
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", INT, limits.FETCH_RESPONSE_BYTES_MAX,
        "Maximum size of a Fetch response, whatever the client requests.", at_least=1024,
        scope=READ_ONLY,
    )  # fmt: skip
    flush: str = setting(
        "flush", STRING, "always",
        "`always`: sync a record to disk before acks=all is acknowledged and before a consumer sees "
        "it. `never`: rely on the page cache, as Apache Kafka does by default.",
        choices=("always", "never"), scope=READ_ONLY, ours=True,
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, 3000,
        "How long an empty group waits for more members before its first rebalance.", at_least=0,
        scope=READ_ONLY,
    )  # fmt: skip
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", INT, 1800000, "Longest session timeout a member may request.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    group_max_size: int = setting(
        "group.max.size", INT, INT32_MAX, "Maximum members of one consumer group.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", INT, 6000, "Shortest session timeout a member may request.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    insecure: bool = setting(
        "insecure", BOOLEAN, False,
        "Allow a plaintext listener on an address that other machines can reach.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    join: tuple[str, ...] = setting(
        "join", LIST, (),
        "HOST:PORT of one or more brokers of the cluster to join; empty to start a new cluster. Used "
        "when the data directory is new, and to find the other brokers if their addresses changed.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", LONG, 10,
        "How often leadership is moved back to preferred leaders.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", BOOLEAN, True,
        "Whether leadership is moved back to preferred leaders automatically.", scope=READ_ONLY,
    )  # fmt: skip
    broker_rack: str | None = setting(
        "broker.rack", STRING, None, "The rack of this broker; replicas are spread over racks.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", LONG, 15000,
        "How long the cleaner sleeps when no log needs cleaning.", at_least=0,
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, 128 * limits.MIB,
        "Memory for the keys of one cleaning; a log with more keys is cleaned in several passes.",
        at_least=limits.MIB,
    )  # fmt: skip
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", LONG, 86400000,
        "Default of the topic setting `delete.retention.ms`.", at_least=0,
    )  # fmt: skip
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether compacted topics are cleaned.",
        scope=READ_ONLY,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308,
        "Rate limit of the cleaner's reads and writes together.", at_least=1,
    )  # fmt: skip
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", LONG, INT64_MAX,
        "Default of the topic setting `max.compaction.lag.ms`.", at_least=1,
    )  # fmt: skip
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5,
        "Default of the topic setting `min.cleanable.dirty.ratio`.", at_least=0, at_most=1,
    )  # fmt: skip
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", LONG, 0,
        "Default of the topic setting `min.compaction.lag.ms`.", at_least=0,
    )  # fmt: skip
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", LIST, ("delete",), "Default of the topic setting `cleanup.policy`.",
        choices=("compact", "delete"),
    )  # fmt: skip
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", LONG, INT64_MAX, "Default of the topic setting `flush.messages`.",
        at_least=1,
    )  # fmt: skip
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms", LONG, None, "Default of the topic setting `flush.ms`; unset: never.",
    )  # fmt: skip
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes", INT, 4096, "Default of the topic setting `index.interval.bytes`.",
        at_least=0,
    )  # fmt: skip
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", INT, 10485760, "Default of the topic setting `segment.index.bytes`.",
        at_least=INDEX_BYTES_MIN,
    )  # fmt: skip
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", LONG, 3600000,
        "Default of the topic setting `message.timestamp.after.max.ms`.", at_least=0,
    )  # fmt: skip
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", LONG, INT64_MAX,
        "Default of the topic setting `message.timestamp.before.max.ms`.", at_least=0,
    )  # fmt: skip
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", STRING, "CreateTime",
        "Default of the topic setting `message.timestamp.type`.",
        choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        LONG,
        -1,
        "Default of the topic setting `retention.bytes`.",
        at_least=-1,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, 300000, "How often logs are checked for old segments.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    log_retention_hours: int = setting(
        "log.retention.hours", INT, 168, "Retention in hours, unless set in minutes or milliseconds.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_retention_minutes: int | None = setting(
        "log.retention.minutes", INT, None, "Retention in minutes, unless log.retention.ms is set.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_retention_ms: int | None = setting(
        "log.retention.ms", LONG, None, "Default of the topic setting `retention.ms`.", at_least=-1
    )
    log_roll_hours: int = setting(
        "log.roll.hours", INT, 168, "Roll age in hours, unless log.roll.ms is set.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    log_roll_ms: int | None = setting(
        "log.roll.ms", LONG, None, "Default of the topic setting `segment.ms`.", at_least=1
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes", INT, 1073741824, "Default of the topic setting `segment.bytes`.",
        at_least=14,
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", INT, limits.CONNECTIONS_DEFAULT,
        "Maximum open connections; further ones are closed (Kafka's default is no limit). A value given "
        "at start overrides AlterConfigs.",
        at_least=limits.CONNECTIONS_MIN, can_lock_out=True,
    )  # fmt: skip
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT, INT32_MAX,
        "Maximum open connections from one address. A value given at start overrides AlterConfigs.",
        at_least=limits.CONNECTIONS_MIN, can_lock_out=True,
    )  # fmt: skip
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", INT, limits.FETCH_SESSIONS_MAX,
        "Maximum number of incremental fetch sessions.", at_least=0, scope=READ_ONLY,
    )  # fmt: skip
    max_partitions: int = setting(
        "max.partitions", INT, 20000, "Maximum number of partitions in the cluster.", at_least=1,
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    max_requests_in_flight_per_connection: int = setting(
        "max.requests.in.flight.per.connection", INT, 64,
        "Maximum requests in flight on one connection; its socket is not read beyond that.", at_least=1,
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    message_max_bytes: int = setting(
        "message.max.bytes", INT, 1048588, "Default of the topic setting `max.message.bytes`.",
        at_least=0, at_most=limits.BATCH_SIZE_BYTES_MAX,
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", INT, 1, "Default of the topic setting of the same name.", at_least=1
    )
    num_partitions: int = setting(
        "num.partitions", INT, 1, "Partitions of topics created without a count.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", INT, limits.OFFSET_METADATA_LENGTH_MAX,
        "Maximum length of the metadata of a committed offset.", at_least=0, scope=READ_ONLY,
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, 600000, "How often offsets are checked for expiry.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", INT, 10080,
        "How long the offsets of a group without members are kept.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, 50,
        "Partitions of __consumer_offsets; fixed when the topic is created.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", INT, 3,
        "Replicas of __consumer_offsets, limited to the number of brokers when it is created.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", INT, 104857600, "Segment size of __consumer_offsets.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    open_files_max: int = setting(
        "open.files.max", INT, 0,
        "Maximum open segment and index files; 0 for a quarter of the process's limit, at most 4096.",
        at_least=0, scope=READ_ONLY, ours=True,
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, 86400000,
        "How long a partition keeps an idempotent producer's state after its last record.", at_least=1,
    )  # fmt: skip
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", LONG, 256 * limits.MIB,
        "Maximum bytes of queued requests over all connections; beyond it sockets are not read. "
        "Incomplete requests have the same limit; beyond it the connections that hold most are "
        "closed (Kafka's default is no limit).", at_least=limits.MIB, scope=READ_ONLY,
    )  # fmt: skip
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, limits.REQUEST_SIZE_BYTES_DEFAULT,
        "Maximum request size; a larger request closes the connection.", at_least=1024, scope=READ_ONLY,
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", INT, 900000,
        "Longest transaction timeout a producer may request.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", INT, 2,
        "min.insync.replicas of __transaction_state, limited to its number of replicas.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, 50,
        "Partitions of __transaction_state; fixed when the topic is created.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", INT, 3,
        "Replicas of __transaction_state, limited to the number of brokers when it is created.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", INT, 104857600, "Segment size of __transaction_state.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", INT, 604800000,
        "How long an unused transactional id is kept.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    validation: str = setting(
        "validation", STRING, "header",
        "`header`: validate a batch's header and checksum. `full`: validate every record, as Apache "
        "Kafka does. Compacted topics are always fully validated.",
        choices=("header", "full"), scope=READ_ONLY, ours=True,
    )  # fmt: skip
    given: frozenset[str] = frozenset()
    """Names of the settings that were given at start, even those with the default value."""


TOPIC_SETTINGS: Mapping[str, Setting] = settings_of(TopicConfig)
BROKER_SETTINGS: Mapping[str, Setting] = settings_of(BrokerConfig)
_TOPIC_ATTRIBUTES = attributes_of(TopicConfig)
_BROKER_ATTRIBUTES = attributes_of(BrokerConfig)

_MS_PER_UNIT = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
}


def broker_config(values: Mapping[str, str]) -> BrokerConfig:
    """Parses the settings of a broker. InvalidConfig names the setting that is wrong."""
    typed: dict[str, SettingValue] = {}
    for name, text in values.items():
        known = BROKER_SETTINGS.get(name)
        if known is None:
            raise InvalidConfig(
                f"Unknown broker setting {name!r}: `kafkaesque config list` lists all settings"
            )
        typed[_BROKER_ATTRIBUTES[name]] = known.parse(text)
    config = BrokerConfig(**typed, given=frozenset(values))  # type: ignore[arg-type]
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise InvalidConfig("group.min.session.timeout.ms exceeds group.max.session.timeout.ms")
    return config


def broker_value(config: BrokerConfig, name: str) -> SettingValue:
    value: SettingValue = getattr(config, _BROKER_ATTRIBUTES[name])
    return value


def broker_config_attribute(name: str) -> str:
    """The attribute of BrokerConfig that holds the setting `name`."""
    return _BROKER_ATTRIBUTES[name]


def topic_value(config: TopicConfig, name: str) -> SettingValue:
    value: SettingValue = getattr(config, _TOPIC_ATTRIBUTES[name])
    return value


def inherited(config: BrokerConfig, name: str) -> SettingValue:
    """The value of `name` for a topic that does not set it, from the broker's settings."""
    for synonym in TOPIC_SETTINGS[name].synonyms:
        value = broker_value(config, synonym)
        if value is None:
            continue
        scale = _MS_PER_UNIT.get(synonym)
        if scale is not None and isinstance(value, int):
            return -1 if value < 0 else value * scale
        return value
    return TOPIC_SETTINGS[name].default


def check_topic_values(values: Mapping[str, str]) -> None:
    """Raises InvalidConfig unless every name is a topic setting with a valid value."""
    for name, text in values.items():
        known = TOPIC_SETTINGS.get(name)
        if known is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        known.parse(text)
    shortest, longest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )


def topic_config(values: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The effective settings of a topic: its own `values`, then the defaults of `broker`."""
    typed = {
        _TOPIC_ATTRIBUTES[name]: known.parse(values[name])
        if name in values
        else inherited(broker, name)
        for name, known in TOPIC_SETTINGS.items()
    }
    return TopicConfig(**typed)  # type: ignore[arg-type]
