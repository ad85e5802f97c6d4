from __future__ import annotations

import os
from typing import Any

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.server.handlers import describe_log_dirs
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset
from kafkaesque.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

Sizes = dict[tuple[str, int], int]


def ask(
    broker: LocalBroker, *asked: tuple[str, list[int]], all_topics: bool = False, version: int = 5
) -> Any:
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in asked]
    request = DescribeLogDirsRequest(topics=None if all_topics else topics)
    answer = broker.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    (directory,) = answer.results
    return directory


def sizes(directory: Any) -> Sizes:
    rows = [(topic.name, item) for topic in directory.topics for item in topic.partitions]
    assert all((item.offset_lag, item.is_future_key) == (0, False) for _, item in rows)
    found = {(name, item.partition_index): item.partition_size for name, item in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("version", every_version(DescribeLogDirsRequest))
def test_all_partitions_are_listed_with_their_sizes(broker: LocalBroker, version: int) -> None:
    broker.create("a", 2)
    broker.create("b")
    broker.append("a", 1, 2, 3)
    directory = ask(broker, all_topics=True, version=version)
    assert directory.error_code == ErrorCode.NONE
    assert os.path.isabs(directory.log_dir)
    size_bytes = broker.partition("a").log.size_bytes
    assert size_bytes > 0
    assert sizes(directory) == {("a", 0): size_bytes, ("a", 1): 0, ("b", 0): 0}


def test_volume_size_is_reported_since_v4(broker: LocalBroker) -> None:
    directory = ask(broker, version=4)
    assert directory.total_bytes >= directory.usable_bytes > 0
    assert ask(broker, version=3).total_bytes == -1


def test_only_requested_partitions_that_exist_are_listed(broker: LocalBroker) -> None:
    broker.create("a", 3)
    directory = ask(broker, ("a", [0, 0, 7]), ("a", [1]), ("nope", [0]))
    assert sizes(directory) == {("a", 0): 0, ("a", 1): 0}


def test_empty_questions_have_empty_answers(broker: LocalBroker) -> None:
    broker.create("a")
    assert ask(broker).topics == []
    assert ask(broker, ("a", [])).topics == []


def test_lag_is_from_the_end_of_the_replica_to_where_its_leader_is(broker: LocalBroker) -> None:
    """Simulates a follower: the test supplies the end offset of a leader that is ahead."""
    broker.create("a", 2)
    broker.append("a", 1, 2, 3)
    partitions = [broker.partition("a", index) for index in range(2)]
    (topic,) = describe_log_dirs._topics(partitions, {partitions[0].name: Offset(10)})
    assert [item.offset_lag for item in topic.partitions] == [7, 0]
    (topic,) = describe_log_dirs._topics(partitions, {partitions[0].name: Offset(2)})
    assert [item.offset_lag for item in topic.partitions] == [0, 0]
