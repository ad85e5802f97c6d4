"""WriteTxnMarkers, API key 27 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    f,
)


class WritableTxnMarkerTopic(Struct):
    name: String = f("0+")
    partition_indexes: list[Int32] = f("0+")


class WritableTxnMarker(Struct):
    producer_id: Int64 = f("0+")
    producer_epoch: Int16 = f("0+")
    transaction_result: Bool = f("0+")
    topics: list[WritableTxnMarkerTopic] = f("0+")
    coordinator_epoch: Int32 = f("0+")
    transaction_version: Int8 = f("2+", default=0)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = f("0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")


class WritableTxnMarkerTopicResult(Struct):
    name: String = f("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = f("0+")


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = f("0+")
    topics: list[WritableTxnMarkerTopicResult] = f("0+")


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = f("0+")
