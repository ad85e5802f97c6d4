"""Conversion between our values and librdkafka's."""

from __future__ import annotations

from kafkaesque.client.kafka_reader import commit_points, library_points
from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition


def test_commit_point_comes_back_with_and_without_metadata() -> None:
    points = {
        TopicPartition("t", PartitionIndex(0)): CommitPoint(Offset(3), "mine"),
        TopicPartition("t", PartitionIndex(1)): CommitPoint(Offset(4)),
    }
    assert commit_points(library_points(points)) == points
