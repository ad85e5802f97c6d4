"""EndTxn, API key 26 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Int64, Request, Response, String, f


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: String = f("0+")
    producer_id: Int64 = f("0+")
    producer_epoch: Int16 = f("0+")
    committed: Bool = f("0+")


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    producer_id: Int64 = f("5+", default=-1)
    producer_epoch: Int16 = f("5+", default=-1)
