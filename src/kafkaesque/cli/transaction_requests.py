"""Requests about transactions that librdkafka does not have for Python, to any Kafka. Plaintext only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkaesque.cli.client import Connection
from kafkaesque.cli.cluster_requests import Broker, ask_broker, refusal
from kafkaesque.cli.failures import CannotConnect, Failure, NotFound
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
from kafkaesque.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTION_KEY = 1
TIMEOUT_MS = 60_000
"""Of the producer that fences; it never begins a transaction."""
PAUSE_S = 0.05
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")
_TRY_AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)


class Coordinator(NamedTuple):
    """A Broker, as FindCoordinator has it."""

    id: int
    host: str
    port: int


def list_transactions(
    connection: Connection, states: Sequence[str], duration_ms: int
) -> list[dict[str, Any]]:
    """Of all coordinators."""
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=[], duration_filter=duration_ms
    )
    doing = "list transactions"
    rows = []
    silent: list[CannotConnect] = []
    nodes = connection.metadata().brokers.values()
    for node in nodes:
        try:
            answer = ask_broker(connection, node, request, ListTransactionsResponse, doing)
        except CannotConnect as problem:
            # One that died is named for a while; what it coordinated is elsewhere by now.
            silent.append(problem)
            if len(silent) == len(nodes):
                raise
            continue
        if answer.error_code:
            raise refusal(answer.error_code, None, doing)
        rows += [
            {
                "transactional_id": one.transactional_id,
                "state": one.transaction_state,
                "producer_id": one.producer_id,
                "coordinator": node.id,
            }
            for one in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def describe(connection: Connection, transactional_id: str) -> dict[str, Any]:
    doing = f"show {transactional_id}"
    node = _coordinator(connection, transactional_id, doing)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = ask_broker(connection, node, request, DescribeTransactionsResponse, doing)
    (found,) = answer.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise NotFound(f"there is no transactional id {transactional_id}")
    if found.error_code:
        raise refusal(found.error_code, None, doing)
    return {
        "transactional_id": transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started_ms": found.transaction_start_time_ms,
        "coordinator": node.id,
        "partitions": [
            f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions
        ],
    }


def fence(connection: Connection, transactional_id: str) -> dict[str, Any]:
    """Begin as a new producer of the id would: its transaction is aborted, whoever had it is fenced."""
    doing = f"abort {transactional_id}"
    describe(connection, transactional_id)
    node = _coordinator(connection, transactional_id, doing)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
    )
    deadline = time.monotonic() + connection.timeout_s
    while True:
        answer = ask_broker(connection, node, request, InitProducerIdResponse, doing)
        if answer.error_code not in _TRY_AGAIN or time.monotonic() > deadline:
            break
        time.sleep(PAUSE_S)
    if answer.error_code:
        raise refusal(answer.error_code, None, doing)
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def open_transactions(connection: Connection, topic: str, partition: int) -> list[dict[str, Any]]:
    """What is open in a partition, as its leader sees it; the oldest first."""
    doing = f"look into {topic}-{partition}"
    node = _leader(connection, topic, partition)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    answer = ask_broker(connection, node, request, DescribeProducersResponse, doing)
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


def find_hanging(connection: Connection, topic: str | None) -> list[dict[str, Any]]:
    """What is open in a partition although no coordinator knows it to be (KIP-664)."""
    known = connection.metadata().topics
    places = [
        (name, partition)
        for name, found in sorted(known.items())
        if topic in (None, name)
        for partition in sorted(found.partitions)
    ]
    if topic is not None and not places:
        raise NotFound(f"there is no topic {topic}")
    open_rows = [
        {"topic": name, "partition": partition, **row}
        for name, partition in places
        for row in open_transactions(connection, name, partition)
    ]
    # After the partitions: whoever is at work there now is known to a coordinator by now.
    running = {row["producer_id"] for row in list_transactions(connection, _UNDER_WAY, -1)}
    return [row for row in open_rows if row["producer_id"] not in running]


def abort_hanging(
    connection: Connection, topic: str, partition: int, producer_id: int | None
) -> dict[str, Any]:
    """End what is open in a partition, there only (KIP-664)."""
    doing = f"abort in {topic}-{partition}"
    rows = open_transactions(connection, topic, partition)
    chosen = [row for row in rows if producer_id in (None, row["producer_id"])]
    if not chosen:
        raise NotFound(f"no such transaction is open in {topic}-{partition}")
    if len(chosen) > 1:
        raise Failure(f"cannot {doing}: {len(chosen)} are open; say which by --producer-id")
    (row,) = chosen
    marker = WritableTxnMarker(
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(row["coordinator_epoch"], 0),
    )
    node = _leader(connection, topic, partition)
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = ask_broker(connection, node, request, WriteTxnMarkersResponse, doing)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise refusal(code, None, doing)
    return row


def _coordinator(connection: Connection, transactional_id: str, doing: str) -> Broker:
    metadata = connection.metadata()
    request = FindCoordinatorRequest(
        key=transactional_id, key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id]
    )
    some = next(iter(metadata.brokers.values()))
    deadline = time.monotonic() + connection.timeout_s
    while True:
        answer = ask_broker(connection, some, request, FindCoordinatorResponse, doing)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code not in _TRY_AGAIN or time.monotonic() > deadline:
            break
        time.sleep(PAUSE_S)
    if found.error_code:
        raise refusal(found.error_code, None, doing)
    return Coordinator(found.node_id, found.host, found.port)


def _leader(connection: Connection, topic: str, partition: int) -> Broker:
    metadata = connection.metadata()
    known = metadata.topics.get(topic)
    if known is None or partition not in known.partitions:
        raise NotFound(f"there is no partition {topic}-{partition}")
    leader = metadata.brokers.get(known.partitions[partition].leader)
    if leader is None:
        raise Failure(f"nobody leads {topic}-{partition} at the moment")
    node: Broker = leader
    return node
