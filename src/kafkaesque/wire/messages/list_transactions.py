"""ListTransactions, API key 66 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: list[String] = f("0+")
    producer_id_filters: list[Int64] = f("0+")
    duration_filter: Int64 = f("1+", default=-1)
    transactional_id_pattern: String | None = f("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: String = f("0+")
    producer_id: Int64 = f("0+")
    transaction_state: String = f("0+")


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    unknown_state_filters: list[String] = f("0+")
    transaction_states: list[TransactionState] = f("0+")
