"""A broker that was coordinator for a long time starts quickly: its own topics are compacted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.broker.server.local_broker import LocalBroker
from tests.waiting import until

from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kafkaesque.wire.messages.describe_transactions import DescribeTransactionsRequest
from kafkaesque.wire.messages.end_txn import EndTxnRequest
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaesque.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

COMMITS = 200
TRANSACTIONS = 60
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "1000",
    "log.cleaner.backoff.ms": "3600000",
}


async def commit(broker: LocalBroker, offset: int) -> None:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(name="a", partitions=[row])],
    )
    answer = await broker.answer(request, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def transact(broker: LocalBroker) -> None:
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
    )
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    while code != ErrorCode.NONE:
        (row,) = (await broker.answer(add, 3)).results_by_topic_v3_and_below
        code = row.results_by_partition[0].partition_error_code
        # CONCURRENT_TRANSACTIONS while the markers of the last transaction are written.
        assert code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
    end = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, committed=True)
    assert (await broker.answer(end, 3)).error_code == ErrorCode.NONE


async def work(broker: LocalBroker) -> None:
    for number in range(COMMITS):
        await commit(broker, number)
    for _ in range(TRANSACTIONS):
        await transact(broker)


async def loaded(broker: LocalBroker) -> None:
    hosts: list[Any] = [*broker.context.groups, *broker.context.transactions.coordinator]
    await until(lambda: all(host.registry is not None for host in hosts))


def test_start_reads_the_current_state_and_not_all_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalBroker(tmp_path / "data", SETTINGS) as broker:
        broker.create("a")
        for kind, name in ((0, "g"), (1, "tx")):
            broker.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
        init = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        assert broker.ask(init, 5).producer_id == 0
        broker.run(work(broker))
        topics = ("__consumer_offsets", "__transaction_state")
        before = {topic: broker.partition(topic).log.size_bytes for topic in topics}
        broker.run(broker.context.cleaner.round())
        for topic in topics:
            assert broker.partition(topic).log.size_bytes < before[topic] / 4, topic

    counts: Counter[type] = Counter()
    for registry in (GroupRegistry, TransactionRegistry):
        monkeypatch.setattr(registry, "replay", counting(counts, registry, registry.replay))
    with LocalBroker(tmp_path / "data", SETTINGS) as broker:
        broker.run(loaded(broker))
        assert 0 < counts[GroupRegistry] < COMMITS / 4
        assert 0 < counts[TransactionRegistry] < TRANSACTIONS
        fetch = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
        )
        assert broker.ask(fetch, 7).topics[0].partitions[0].committed_offset == COMMITS - 1
        describe = DescribeTransactionsRequest(transactional_ids=["tx"])
        (found,) = broker.ask(describe, 0).transaction_states
        assert found.transaction_state == "CompleteCommit"


def counting(counts: Counter[type], registry: type, replay: Any) -> Any:
    def counted(self: Any, *record: Any) -> None:
        counts[registry] += 1
        replay(self, *record)

    return counted
