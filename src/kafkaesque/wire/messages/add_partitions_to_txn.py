"""AddPartitionsToTxn, API key 24 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Int64, Request, Response, String, Struct, f


class AddPartitionsToTxnTopic(Struct):
    name: String = f("0+")
    partitions: list[Int32] = f("0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = f("4+")
    producer_id: Int64 = f("4+")
    producer_epoch: Int16 = f("4+")
    verify_only: Bool = f("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = f("4+")


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = f("4+", default=[])
    v3_and_below_transactional_id: String = f("0-3", default="")
    v3_and_below_producer_id: Int64 = f("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = f("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = f("0-3", default=[])


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = f("0+")
    partition_error_code: Int16 = f("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: String = f("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = f("0+")


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = f("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = f("4+")


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = f("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = f("0-3", default=[])
