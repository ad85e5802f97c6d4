"""InitProducerId, API key 22 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, f


class InitProducerIdRequest(Request, key=22, versions="0-5", flexible="2+"):
    transactional_id: String | None = f("0+", nullable="0+")
    transaction_timeout_ms: Int32 = f("0+")
    producer_id: Int64 = f("3+", default=-1)
    producer_epoch: Int16 = f("3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    producer_id: Int64 = f("0+", default=-1)
    producer_epoch: Int16 = f("0+")
