from __future__ import annotations

from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.cluster.rules.commands import SetBrokerConfigs
from kafkaesque.broker.server.config_view import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    topic_entries,
)

Synonyms = list[tuple[str, str | None, int]]


def synonyms(entry: ConfigEntry) -> Synonyms:
    return [(item.name, item.value, item.source) for item in entry.synonyms]


def broker_entry(broker: LocalBroker, name: str) -> ConfigEntry:
    (entry,) = broker_entries(broker.context.cluster, [name])
    return entry


def topic_entry(broker: LocalBroker, name: str, **configs: str) -> ConfigEntry:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    (entry,) = topic_entries(broker.context.cluster, named, [name])
    return entry


def test_sources_are_in_kafkas_order(make_broker: MakeBroker) -> None:
    broker = make_broker(log_segment_bytes="400")
    tables = broker.context.cluster.tables
    tables.apply(SetBrokerConfigs(None, {"log.segment.bytes": "300"}))
    tables.apply(SetBrokerConfigs(1, {"log.segment.bytes": "200"}))
    expected = [
        ("log.segment.bytes", "200", ConfigSource.DYNAMIC_BROKER),
        ("log.segment.bytes", "300", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "400", ConfigSource.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    assert synonyms(broker_entry(broker, "log.segment.bytes")) == expected
    entry = topic_entry(broker, "segment.bytes", segment_bytes="100")
    assert synonyms(entry) == [("segment.bytes", "100", ConfigSource.TOPIC), *expected]
    assert entry.source is ConfigSource.TOPIC


def test_connection_limit_given_at_start_precedes_dynamic_values(make_broker: MakeBroker) -> None:
    broker = make_broker(max_connections="20000")
    broker.context.cluster.tables.apply(SetBrokerConfigs(1, {"max.connections": "5"}))
    entry = broker_entry(broker, "max.connections")
    assert (entry.value, entry.source) == ("20000", ConfigSource.STATIC_BROKER)
    assert synonyms(entry) == [
        ("max.connections", "20000", ConfigSource.STATIC_BROKER),
        ("max.connections", "5", ConfigSource.DYNAMIC_BROKER),
        ("max.connections", "20000", ConfigSource.DEFAULT),
    ]


def test_stored_value_that_is_ignored_is_no_source(broker: LocalBroker) -> None:
    broker.context.cluster.tables.apply(SetBrokerConfigs(None, {"max.connections": "0"}))
    entry = broker_entry(broker, "max.connections")
    assert (entry.value, entry.source) == ("20000", ConfigSource.DEFAULT)
    assert synonyms(entry) == [("max.connections", "20000", ConfigSource.DEFAULT)]


def test_setting_without_a_value_has_no_synonyms_and_counts_as_default(
    broker: LocalBroker,
) -> None:
    entry = broker_entry(broker, "log.retention.ms")
    assert (entry.value, synonyms(entry), entry.source) == (None, [], ConfigSource.DEFAULT)
    entry = topic_entry(broker, "retention.ms")
    assert (entry.value, synonyms(entry)) == ("604800000", [])


def test_family_of_a_setting_follows_its_own_value(make_broker: MakeBroker) -> None:
    broker = make_broker(log_retention_ms="5")
    expected = [
        ("log.retention.ms", "5", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert synonyms(broker_entry(broker, "log.retention.ms")) == expected
    assert synonyms(topic_entry(broker, "retention.ms")) == expected
    assert synonyms(broker_entry(broker, "log.retention.hours")) == expected[1:]


def test_coarser_setting_speaks_for_a_topic_without_being_its_synonym(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(log_retention_hours="1")
    entry = topic_entry(broker, "retention.ms")
    assert (entry.value, synonyms(entry)) == ("3600000", [])
