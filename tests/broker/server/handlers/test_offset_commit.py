"""The topics that an answer names. Tests of the offsets are in tests/broker/groups and
tests/conformance."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.wire.messages import offset_commit as plain
from kafkaesque.wire.messages import txn_offset_commit as transactional

UNKNOWN_ID = UUID(int=7)
IDS_SINCE = 10


@pytest.mark.parametrize("version", every_version(plain.OffsetCommitRequest))
def test_known_topic_without_partitions_is_left_out_of_the_answer(
    broker: LocalBroker, version: int
) -> None:
    broker.create("t")
    topic_id = broker.partition("t").topic_id
    row = plain.OffsetCommitRequestPartition(
        partition_index=9, committed_offset=3, committed_metadata=""
    )
    request = plain.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            plain.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[]),
            plain.OffsetCommitRequestTopic(name="missing", topic_id=UNKNOWN_ID, partitions=[]),
            plain.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[row]),
        ],
    )
    answer = broker.ask(request, version)
    named = [topic.name or topic.topic_id for topic in answer.topics]
    assert named == ([UNKNOWN_ID, topic_id] if version >= IDS_SINCE else ["missing", "t"])


@pytest.mark.parametrize("version", every_version(transactional.TxnOffsetCommitRequest))
def test_the_same_in_a_transaction(broker: LocalBroker, version: int) -> None:
    broker.create("t")
    request = transactional.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            transactional.TxnOffsetCommitRequestTopic(name="t", partitions=[]),
            transactional.TxnOffsetCommitRequestTopic(name="missing", partitions=[]),
        ],
    )
    assert [topic.name for topic in broker.ask(request, version).topics] == ["missing"]
