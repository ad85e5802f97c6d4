"""Topic and broker settings: what a topic inherits, and that the declarations are consistent."""

from __future__ import annotations

import pytest

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import Setting
from kafkaesque.model.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    broker_config,
    broker_value,
    check_topic_values,
    inherited,
    topic_config,
    topic_value,
)

ALL = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_default_is_a_legal_value_and_the_setting_is_documented(setting: Setting) -> None:
    shown = setting.show(setting.default)
    assert shown is None or setting.parse(shown) == setting.default
    assert setting.doc.endswith(".")


@pytest.mark.parametrize("setting", TOPIC_SETTINGS.values(), ids=lambda setting: setting.name)
def test_topic_setting_has_a_broker_setting_with_the_same_default(
    setting: Setting,
) -> None:
    assert setting.synonyms
    assert all(name in BROKER_SETTINGS for name in setting.synonyms)
    assert inherited(broker_config({}), setting.name) == setting.default


def test_topic_takes_the_finest_retention_that_its_broker_sets() -> None:
    assert inherited(broker_config({"log.retention.hours": "2"}), "retention.ms") == 7_200_000
    both = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert inherited(broker_config(both), "retention.ms") == 180_000
    assert inherited(broker_config(both | {"log.retention.ms": "4"}), "retention.ms") == 4


def test_retention_of_minus_one_hour_means_for_ever() -> None:
    assert inherited(broker_config({"log.retention.hours": "-1"}), "retention.ms") == -1


def test_topic_value_overrides_the_broker_value() -> None:
    broker = broker_config({"log.segment.bytes": "1000", "message.max.bytes": "2000"})
    config = topic_config({"segment.bytes": "500"}, broker)
    assert (config.segment_bytes, config.max_message_bytes) == (500, 2000)
    assert topic_value(config, "segment.bytes") == 500


def test_topic_without_a_cleanup_policy_neither_deletes_nor_compacts() -> None:
    config = topic_config({"cleanup.policy": ""}, broker_config({}))
    assert not config.deletes_old
    assert not config.is_compacted


def test_unknown_names_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match=r"^Unknown topic config name: nope$"):
        check_topic_values({"nope": "1"})
    with pytest.raises(InvalidConfig, match="nope"):
        broker_config({"nope": "1"})


def test_broker_settings_that_contradict_one_another_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match=r"group\.min\.session"):
        broker_config({"group.min.session.timeout.ms": "2000000"})


def test_broker_config_holds_the_typed_values_of_its_texts() -> None:
    config = broker_config({"num.partitions": "4", "log.cleanup.policy": "compact,delete"})
    assert broker_value(config, "num.partitions") == 4
    assert config.log_cleanup_policy == ("compact", "delete")
