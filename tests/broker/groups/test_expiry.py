"""Corners of offset expiry; the stories are in tests/scripts/groups/offset_expiry.txt."""

from __future__ import annotations

from dataclasses import replace

from tests.broker.groups.consumer_protocol import subscription
from tests.broker.groups.driver import Driver
from tests.broker.groups.test_log_format import EMPTY

from kafkaesque.broker.groups.log_format import GroupKey, encode_group
from kafkaesque.broker.groups.types import Protocol
from kafkaesque.model.ids import NO_TIMESTAMP, TimestampMs

WEEK_MS = 7 * 24 * 3600 * 1000


def expired(driver: Driver, later_ms: int) -> int:
    now_ms = TimestampMs(driver.now.wall_ms + later_ms)
    return len(driver.registry.expire_offsets(now_ms).records)


def test_offset_expires_at_its_retention_and_not_before() -> None:
    driver = Driver()
    driver.commit("t", 1)
    assert expired(driver, WEEK_MS - 1) == 0
    assert expired(driver, WEEK_MS) == 2


def test_offset_with_a_commit_on_its_way_does_not_expire() -> None:
    driver = Driver()
    driver.commit("t", 1)
    commit = driver.registry.commit_offsets(driver.commit_request("t", 2), 90, driver.now)
    assert expired(driver, WEEK_MS) == 0
    driver.finish(commit)
    assert expired(driver, WEEK_MS) == 2


def test_nothing_of_a_rebalancing_group_expires() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a")
    driver.commit("t", 1, member_id=members[0], generation_id=generation_id)
    driver.join(client_id="b")
    assert expired(driver, 2 * WEEK_MS) == 0


def test_nothing_of_a_group_with_unreadable_subscriptions_expires() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a")
    driver.commit("t", 1, member_id=members[0], generation_id=generation_id)
    assert expired(driver, 2 * WEEK_MS) == 0


def test_unsubscribed_topic_of_a_working_group_expires() -> None:
    driver = Driver()
    protocols = (Protocol("range", subscription(["t"], {})),)
    members, generation_id = driver.stable_group("a", protocols=protocols)
    for topic in ("t", "old"):
        driver.commit(topic, 1, member_id=members[0], generation_id=generation_id)
    assert expired(driver, WEEK_MS) == 1


def test_empty_group_of_an_old_record_ages_by_commits() -> None:
    driver = Driver()
    value = replace(EMPTY, protocol_type="consumer", state_since_ms=NO_TIMESTAMP)
    driver.log.append(encode_group(GroupKey("g"), value))
    driver.restart()
    driver.commit("t", 1)
    assert expired(driver, WEEK_MS - 1) == 0
    assert expired(driver, WEEK_MS) == 2


def test_nothing_of_a_working_group_of_another_protocol_expires() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", protocol_type="connect")
    driver.commit("t", 1, member_id=members[0], generation_id=generation_id)
    assert expired(driver, 2 * WEEK_MS) == 0
