"""Transactions: list, describe, abort, and find hanging ones (KIP-664). Blocking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafkaesque.admin.cluster import BlockingAdmin, BrokerNode
from kafkaesque.admin.errors import AdminError, BrokerUnavailable, ResourceNotFound, refusal
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kafkaesque.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafkaesque.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataResponse
from kafkaesque.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTION_KEY = 1
FENCING_TIMEOUT_MS = 60_000
"""Transaction timeout of the producer that fences. It never begins a transaction."""
RETRY_PAUSE_S = 0.05
_ONGOING_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_RETRIABLE = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)


def list_transactions(
    cluster: BlockingAdmin, states: Sequence[str], duration_ms: int
) -> list[dict[str, Any]]:
    """Transactions of all coordinators, sorted by transactional id."""
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=[], duration_filter=duration_ms
    )
    doing = "list transactions"
    rows = []
    unavailable = 0
    brokers = cluster.brokers()
    for broker in brokers:
        try:
            answer = cluster.call_broker(broker, request, ListTransactionsResponse, doing)
        except BrokerUnavailable:
            # Metadata lists a dead broker for a while. Its transactions have moved to another.
            unavailable += 1
            if unavailable == len(brokers):
                raise
            continue
        if answer.error_code:
            raise refusal(answer.error_code, None, doing)
        rows += [
            {
                "transactional_id": one.transactional_id,
                "state": one.transaction_state,
                "producer_id": one.producer_id,
                "coordinator": broker.id,
            }
            for one in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def describe(cluster: BlockingAdmin, transactional_id: str) -> dict[str, Any]:
    """The state of one transactional id at its coordinator."""
    doing = f"show {transactional_id}"
    coordinator = _coordinator(cluster, transactional_id, doing)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = cluster.call_broker(coordinator, request, DescribeTransactionsResponse, doing)
    (found,) = answer.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise ResourceNotFound(
            f"there is no transactional id {transactional_id}",
            "`kafkaesque transaction ls` lists the transactional ids",
        )
    if found.error_code:
        raise refusal(found.error_code, None, doing)
    return {
        "transactional_id": transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started_ms": found.transaction_start_time_ms,
        "coordinator": coordinator.id,
        "partitions": [
            f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions
        ],
    }


def fence(cluster: BlockingAdmin, transactional_id: str) -> dict[str, Any]:
    """Aborts the transaction of an id and fences its producer, by initializing a new producer."""
    doing = f"abort {transactional_id}"
    describe(cluster, transactional_id)
    coordinator = _coordinator(cluster, transactional_id, doing)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
    )
    deadline = time.monotonic() + cluster.timeout_s
    while True:
        answer = cluster.call_broker(coordinator, request, InitProducerIdResponse, doing)
        if answer.error_code not in _RETRIABLE or time.monotonic() > deadline:
            break
        time.sleep(RETRY_PAUSE_S)
    if answer.error_code:
        raise refusal(answer.error_code, None, doing)
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def open_transactions(cluster: BlockingAdmin, topic: str, partition: int) -> list[dict[str, Any]]:
    """Open transactions of a partition according to its leader, oldest first."""
    return _open_transactions(cluster, cluster.metadata(), topic, partition)


def _open_transactions(
    cluster: BlockingAdmin, metadata: MetadataResponse, topic: str, partition: int
) -> list[dict[str, Any]]:
    doing = f"read the producers of {topic}-{partition}"
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    leader = _leader(metadata, topic, partition)
    answer = cluster.call_broker(leader, request, DescribeProducersResponse, doing)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise refusal(found.error_code, found.error_message, doing)
    rows = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "start_offset": one.current_txn_start_offset,
            "last_written_ms": one.last_timestamp,
        }
        for one in found.active_producers
        if one.current_txn_start_offset >= 0
    ]
    return sorted(rows, key=lambda row: row["start_offset"])


def find_hanging(cluster: BlockingAdmin, topic: str | None) -> list[dict[str, Any]]:
    """Transactions that are open in a partition but not at any coordinator (KIP-664)."""
    metadata = cluster.metadata()
    partitions = sorted(
        (found.name or "", row.partition_index)
        for found in metadata.topics
        if topic in (None, found.name)
        for row in found.partitions
    )
    if topic is not None and not partitions:
        raise ResourceNotFound(
            f"there is no topic {topic}", "`kafkaesque topic list` lists the topics"
        )
    open_rows = [
        {"topic": name, "partition": partition, **row}
        for name, partition in partitions
        for row in _open_transactions(cluster, metadata, name, partition)
    ]
    # Coordinators are read after the partitions: a transaction that was open in a partition then, and is
    # not hanging, is at its coordinator by now.
    running = {row["producer_id"] for row in list_transactions(cluster, _ONGOING_STATES, -1)}
    return [row for row in open_rows if row["producer_id"] not in running]


def abort_hanging(
    cluster: BlockingAdmin, topic: str, partition: int, producer_id: int | None
) -> dict[str, Any]:
    """Aborts a hanging transaction in one partition only (KIP-664)."""
    doing = f"abort in {topic}-{partition}"
    metadata = cluster.metadata()
    rows = _open_transactions(cluster, metadata, topic, partition)
    chosen = [row for row in rows if producer_id in (None, row["producer_id"])]
    if not chosen:
        raise ResourceNotFound(
            f"no such transaction is open in {topic}-{partition}",
            f"`kafkaesque transaction show --topic {topic} --partition {partition}` lists those that are",
        )
    if len(chosen) > 1:
        producers = ", ".join(str(row["producer_id"]) for row in chosen)
        raise AdminError(
            f"cannot {doing}: {len(chosen)} transactions are open",
            f"select one by its producer id: {producers}",
        )
    (row,) = chosen
    marker = WritableTxnMarker(
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(row["coordinator_epoch"], 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    leader = _leader(metadata, topic, partition)
    answer = cluster.call_broker(leader, request, WriteTxnMarkersResponse, doing)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise refusal(code, None, doing)
    return row


def _coordinator(cluster: BlockingAdmin, transactional_id: str, doing: str) -> BrokerNode:
    request = FindCoordinatorRequest(
        key=transactional_id, key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id]
    )
    deadline = time.monotonic() + cluster.timeout_s
    while True:
        answer = cluster.call_any(request, FindCoordinatorResponse, doing)
        # Version 4 answers for several keys at once.
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code not in _RETRIABLE or time.monotonic() > deadline:
            break
        time.sleep(RETRY_PAUSE_S)
    if found.error_code:
        raise refusal(found.error_code, None, doing)
    return BrokerNode(found.node_id, found.host, found.port)


def _leader(metadata: MetadataResponse, topic: str, partition: int) -> BrokerNode:
    for found in metadata.topics:
        for row in found.partitions:
            if (found.name, row.partition_index) == (topic, partition):
                for item in metadata.brokers:
                    if item.node_id == row.leader_id:
                        return BrokerNode(item.node_id, item.host, item.port)
                raise AdminError(
                    f"{topic}-{partition} has no leader",
                    "start a broker that has a replica: `kafkaesque topic describe` lists them",
                )
    raise ResourceNotFound(
        f"there is no partition {topic}-{partition}",
        "`kafkaesque topic list` lists the topics, `kafkaesque topic describe` the partitions",
    )
