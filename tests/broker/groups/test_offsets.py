"""Corners of offsets; the stories are in tests/scripts/groups."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.broker.groups.driver import JOIN, Driver

from kafkaesque.broker.groups.log_format import OffsetKey, OffsetValue
from kafkaesque.broker.groups.offsets import OffsetTable
from kafkaesque.broker.groups.types import (
    CommitAnswer,
    DeleteOffsetsRequest,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import (
    NO_OFFSET,
    NO_TOPIC_ID,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
)

P0 = PartitionIndex(0)
ID_1, ID_2 = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def fetched(driver: Driver, topic: str = "t", topic_id: TopicId = NO_TOPIC_ID) -> int:
    (found,) = driver.registry.fetch_offsets("g", (TopicToFetch(topic, (P0,), topic_id),))
    return found.partitions[0].offset


def error_of(answer: object) -> ErrorCode:
    assert isinstance(answer, CommitAnswer)
    return answer.topics[0].partitions[0].error


def test_offset_is_visible_only_after_replay() -> None:
    driver = Driver()
    effects = driver.registry.commit_offsets(driver.commit_request("t", 5), 1, driver.now)
    assert fetched(driver) == NO_OFFSET
    assert list(driver.registry.group_ids()) == []
    driver.finish(effects)
    assert fetched(driver) == 5
    assert list(driver.registry.group_ids()) == ["g"]


def test_deleting_a_group_covers_commits_on_their_way() -> None:
    driver = Driver()
    driver.commit("t", 1)
    commit = driver.registry.commit_offsets(driver.commit_request("u", 2), 90, driver.now)
    deletion = driver.registry.delete_groups(("g",), 91, driver.now)
    driver.finish(commit)
    driver.finish(deletion)
    assert driver.registry.fetch_offsets("g", None) == []
    assert list(driver.registry.group_ids()) == []
    driver.restart()
    assert list(driver.registry.group_ids()) == []


def test_group_made_anew_while_its_deletion_is_on_the_way_survives_it() -> None:
    driver = Driver()
    driver.commit("t", 1)
    deletion = driver.registry.delete_groups(("g",), 90, driver.now)
    token = driver.new_token()
    effects = driver.registry.join(JOIN, token, driver.now)
    driver.finish(deletion)
    driver.finish(effects)
    assert [group.state for group in driver.registry.list_groups()] == ["PreparingRebalance"]
    driver.restart()
    assert list(driver.registry.group_ids()) == ["g"]


@pytest.mark.parametrize(
    ("stored", "asked", "offset"),
    [
        (NO_TOPIC_ID, NO_TOPIC_ID, 5),
        (ID_1, ID_1, 5),
        (ID_1, NO_TOPIC_ID, 5),
        (NO_TOPIC_ID, ID_1, 5),
        (ID_1, ID_2, -1),
    ],
)
def test_offset_of_a_deleted_topic_of_the_same_name_is_not_found(
    stored: TopicId, asked: TopicId, offset: int
) -> None:
    driver = Driver()
    topics = (TopicToCommit("t", (OffsetToCommit(P0, Offset(5)),), stored),)
    driver.commit("t", 5, topics=topics)
    driver.restart()
    assert fetched(driver, "t", asked) == offset


def test_commit_time_is_now_unless_the_client_says_otherwise() -> None:
    driver = Driver()
    driver.commit("t", 5)
    given = OffsetToCommit(P0, Offset(6), commit_timestamp_ms=TimestampMs(77))
    driver.commit("u", 6, topics=(TopicToCommit("u", (given,)),))
    offsets = driver.registry.committed_offsets("g")
    assert offsets["t"][P0].commit_timestamp_ms == driver.now.wall_ms
    assert offsets["u"][P0].commit_timestamp_ms == 77


def test_endless_retention_stays_within_a_timestamp() -> None:
    driver = Driver()
    driver.commit("t", 5, retention_ms=2**63 - 1)
    assert driver.registry.committed_offsets("g")["t"][P0].expire_timestamp_ms == 2**63 - 1


@pytest.mark.parametrize("topic", ["", "x" * 250])
def test_topic_that_cannot_exist_is_unknown(topic: str) -> None:
    assert error_of(Driver().commit(topic, 5)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_group_id_that_the_log_cannot_hold_is_invalid() -> None:
    answer = Driver().commit("t", 5, group_id="é" * 20_000)
    assert error_of(answer) is ErrorCode.INVALID_GROUP_ID


def test_metadata_is_measured_in_characters() -> None:
    driver = Driver()
    for text, error in (
        ("é" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ):
        topics = (TopicToCommit("t", (OffsetToCommit(P0, Offset(1), metadata=text),)),)
        assert error_of(driver.commit("t", 1, topics=topics)) is error


def test_table_counts_offsets_through_changes() -> None:
    table = OffsetTable()
    value = OffsetValue(Offset(1), "", TimestampMs(0))
    keys = [OffsetKey("g", "t", PartitionIndex(number)) for number in (0, 1)]
    for key in (*keys, keys[0]):
        table.replay(key, value)
    assert len(table) == 2
    table.replay(keys[0], None)
    table.replay(keys[0], None)
    table.replay(OffsetKey("x", "t", P0), None)
    assert len(table) == 1
    table.replay(keys[1], None)
    assert (len(table), table.keys_of_group("g")) == (0, [])


def test_deleting_an_offset_covers_a_commit_on_its_way() -> None:
    driver = Driver()
    driver.commit("t", 1)
    commit = driver.registry.commit_offsets(driver.commit_request("u", 2), 90, driver.now)
    request = DeleteOffsetsRequest(group_id="g", topics=(TopicToFetch("u", (P0,)),))
    deletion = driver.registry.delete_offsets(request, 91, driver.now)
    driver.finish(commit)
    assert fetched(driver, "u") == 2
    driver.finish(deletion)
    assert fetched(driver, "u") == NO_OFFSET


def test_deleting_a_topic_covers_a_commit_on_its_way() -> None:
    driver = Driver()
    driver.commit("t", 1)
    driver.commit("u", 1)
    commit = driver.registry.commit_offsets(
        driver.commit_request("t", 2, group_id="other"), 90, driver.now
    )
    deletion = driver.registry.topics_deleted(["t"])
    driver.finish(commit)
    driver.finish(deletion)
    assert [fetched(driver, topic) for topic in ("t", "u")] == [NO_OFFSET, 1]
    assert driver.registry.fetch_offsets("other", None) == []
