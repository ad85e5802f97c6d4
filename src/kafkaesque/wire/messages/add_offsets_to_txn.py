"""AddOffsetsToTxn, API key 25 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, f


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: String = f("0+")
    producer_id: Int64 = f("0+")
    producer_epoch: Int16 = f("0+")
    group_id: String = f("0+")


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
