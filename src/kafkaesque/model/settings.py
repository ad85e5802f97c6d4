"""Every setting that we honour: Kafka's name, meaning, type and default wherever Kafka has one.

A setting that is not here is refused, never ignored: what DescribeConfigs lists is what holds.
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
from kafkaesque.model.topic_settings import COMPRESSIONS, INDEX_BYTES_MIN, TopicConfig

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "TopicConfig",
    "broker_config",
    "broker_config_attribute",
    "broker_value",
    "check_topic_values",
    "inherited",
    "topic_config",
    "topic_value",
]

BOOLEAN, STRING, INT, SHORT = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.SHORT,
)
LONG, LIST, DOUBLE = SettingType.LONG, SettingType.LIST, SettingType.DOUBLE
READ_ONLY = Scope.READ_ONLY


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker: file, KAFKAESQUE_* environment, flags and AlterConfigs, in that order."""

    node_id: int = setting("node.id", INT, 0, "This broker's id.", at_least=0, scope=READ_ONLY)
    log_dirs: str = setting("log.dirs", STRING, "", "The data directory (one).", scope=READ_ONLY)
    listeners: str = setting(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens, as PLAINTEXT://HOST:PORT; port 0 takes a free one.", scope=READ_ONLY,
    )  # fmt: skip
    advertised_listeners: str = setting(
        "advertised.listeners", STRING, "",
        "The address told to clients, as PLAINTEXT://HOST:PORT; empty: the real address of `listeners`.",
        scope=READ_ONLY,
    )  # fmt: skip
    http_listener: str = setting(
        "http.listener", STRING, "127.0.0.1:0",
        "HOST:PORT of /metrics, /healthz and /readyz; port 0 takes a free one, empty turns it off.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    coordination_listener: str = setting(
        "coordination.listener", STRING, "",
        "HOST:PORT of the ZooKeeper-compatible coordination service; port 0 takes a free one, empty: "
        "no clients here. Every broker keeps the tree either way.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    text_listener: str = setting(
        "text.listener", STRING, "",
        "HOST:PORT of the text protocol (PUBS, SUBS, CONS); port 0 takes a free one, empty turns it "
        "off.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, True,
        "Create a topic when a client that permits it asks for its metadata.", scope=READ_ONLY,
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
        "The most bytes one Fetch answer holds, whatever the client asks for.", at_least=1024,
        scope=READ_ONLY,
    )  # fmt: skip
    flush: str = setting(
        "flush", STRING, "always",
        "`always`: a record is synced to disk before acks=all is answered and before a consumer sees "
        "it. `never`: the page cache is trusted, which is Apache Kafka's own default.",
        choices=("always", "never"), scope=READ_ONLY, ours=True,
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, 3000,
        "How long an empty group waits for more members before its first rebalance.", at_least=0,
        scope=READ_ONLY,
    )  # fmt: skip
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", INT, 1800000, "Longest session timeout a member may ask for.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    group_max_size: int = setting(
        "group.max.size", INT, INT32_MAX, "Most members of one consumer group.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", INT, 6000, "Shortest session timeout a member may ask for.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    insecure: bool = setting(
        "insecure", BOOLEAN, False,
        "Allow a plaintext listener on an address that other machines can reach.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    join: tuple[str, ...] = setting(
        "join", LIST, (),
        "HOST:PORT of brokers of the cluster to join, any of them; none: the first of a new cluster. "
        "Read when the data directory is new, and to find the others when they have moved.",
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", LONG, 10,
        "How often leadership is handed back to preferred leaders.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", BOOLEAN, True,
        "Whether leadership is handed back to preferred leaders by itself.", scope=READ_ONLY,
    )  # fmt: skip
    broker_rack: str | None = setting(
        "broker.rack", STRING, None, "Where this broker stands: replicas are spread over racks.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", LONG, 15000,
        "How long the cleaner rests when no log is worth cleaning.", at_least=0,
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, 128 * limits.MIB,
        "Memory for the keys of one cleaning; a log with more is cleaned in several.",
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
        "The most that the cleaner reads and writes, taken together.", at_least=1,
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
        "log.flush.interval.ms", LONG, None, "Default of the topic setting `flush.ms`; none: never.",
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
        "log.retention.check.interval.ms", LONG, 300000, "How often old segments are looked for.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    log_retention_hours: int = setting(
        "log.retention.hours", INT, 168, "Retention in hours, where neither finer setting is given.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_retention_minutes: int | None = setting(
        "log.retention.minutes", INT, None, "Retention in minutes, where log.retention.ms is not given.",
        scope=READ_ONLY,
    )  # fmt: skip
    log_retention_ms: int | None = setting(
        "log.retention.ms", LONG, None, "Default of the topic setting `retention.ms`.", at_least=-1
    )
    log_roll_hours: int = setting(
        "log.roll.hours", INT, 168, "Roll age in hours, where log.roll.ms is not given.", at_least=1,
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
        "Most connections at once; further ones are closed (Kafka's default is no bound).", at_least=0,
    )  # fmt: skip
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT, INT32_MAX, "Most connections at once from one address.",
        at_least=0,
    )  # fmt: skip
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", INT, limits.FETCH_SESSIONS_MAX,
        "Most incremental fetch sessions kept.", at_least=0, scope=READ_ONLY,
    )  # fmt: skip
    max_partitions: int = setting(
        "max.partitions", INT, 20000, "Most partitions this cluster will create.", at_least=1,
        scope=READ_ONLY, ours=True,
    )  # fmt: skip
    max_requests_in_flight_per_connection: int = setting(
        "max.requests.in.flight.per.connection", INT, 64,
        "Requests of one connection taken in before its socket is no longer read.", at_least=1,
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
        "Longest metadata text of a committed offset.", at_least=0, scope=READ_ONLY,
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, 600000, "How often expired offsets are looked for.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", INT, 10080,
        "How long the offsets of a group without members are kept.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, 50,
        "Partitions of __consumer_offsets; fixed when it is first created.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", INT, 3,
        "Replicas of __consumer_offsets, at most as many as there are brokers when it is created.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", INT, 104857600, "Segment size of __consumer_offsets.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    open_files_max: int = setting(
        "open.files.max", INT, 0,
        "Most segment and index files held open; 0: half of the process's limit, at most 4096.",
        at_least=0, scope=READ_ONLY, ours=True,
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, 86400000,
        "How long a partition remembers an idempotent producer after its last record.", at_least=1,
    )  # fmt: skip
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", LONG, 256 * limits.MIB,
        "Bytes of requests held in memory over all connections before sockets are no longer read; as "
        "many of incomplete requests, then those that hold most are closed (Kafka's default is no "
        "bound).", at_least=limits.MIB, scope=READ_ONLY,
    )  # fmt: skip
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, limits.REQUEST_SIZE_BYTES_DEFAULT,
        "The largest request; a longer one closes the connection.", at_least=1024, scope=READ_ONLY,
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", INT, 900000,
        "The longest transaction timeout a producer may ask for.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", INT, 2,
        "min.insync.replicas of __transaction_state, at most as many as it has replicas.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, 50,
        "Partitions of __transaction_state; fixed when it is first created.", at_least=1,
        scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", INT, 3,
        "Replicas of __transaction_state, at most as many as there are brokers when it is created.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", INT, 104857600, "Segment size of __transaction_state.",
        at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", INT, 604800000,
        "How long a transactional id that nobody uses is remembered.", at_least=1, scope=READ_ONLY,
    )  # fmt: skip
    validation: str = setting(
        "validation", STRING, "header",
        "`header`: a batch is checked by its header and checksum. `full`: every record is walked, as "
        "Apache Kafka does; compacted topics always are.",
        choices=("header", "full"), scope=READ_ONLY, ours=True,
    )  # fmt: skip


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
    """The typed settings of a broker from their texts; InvalidConfig names what is wrong."""
    typed: dict[str, SettingValue] = {}
    for name, text in values.items():
        known = BROKER_SETTINGS.get(name)
        if known is None:
            raise InvalidConfig(
                f"Unknown broker setting {name!r}: `kafkaesque config list` names them all"
            )
        typed[_BROKER_ATTRIBUTES[name]] = known.parse(text)
    config = BrokerConfig(**typed)  # type: ignore[arg-type]
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
    """What a topic that does not set `name` itself gets from its broker."""
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
    """InvalidConfig unless every name is a topic setting with a legal value."""
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
    """The settings in force for a topic with its own `values` on `broker`."""
    typed = {
        _TOPIC_ATTRIBUTES[name]: known.parse(values[name])
        if name in values
        else inherited(broker, name)
        for name, known in TOPIC_SETTINGS.items()
    }
    return TopicConfig(**typed)  # type: ignore[arg-type]
