"""DescribeTransactions, API key 65 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: list[String] = f("0+")


class TopicData(Struct):
    topic: String = f("0+")
    partitions: list[Int32] = f("0+")


class TransactionState(Struct):
    error_code: Int16 = f("0+")
    transactional_id: String = f("0+")
    transaction_state: String = f("0+")
    transaction_timeout_ms: Int32 = f("0+")
    transaction_start_time_ms: Int64 = f("0+")
    producer_id: Int64 = f("0+")
    producer_epoch: Int16 = f("0+")
    topics: list[TopicData] = f("0+")


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    transaction_states: list[TransactionState] = f("0+")
