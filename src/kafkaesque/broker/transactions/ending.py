"""Which EndTxn moves a transaction, which is a retry, and which is too late.

In the old flow the producer's epoch is the same from one transaction to the next, so a retry is told
by the state alone. In the new one (KIP-890) every end raises the epoch: an EndTxn of the epoch
before is a retry, one of the epoch now belongs to the next transaction, any other is fenced.
"""

from __future__ import annotations

from kafkaesque.broker.transactions.states import TransactionState
from kafkaesque.broker.transactions.transaction import Transaction
from kafkaesque.broker.transactions.types import EPOCH_EXHAUSTED, NEW_FLOW, EndRequest
from kafkaesque.model.errors import ErrorCode

_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE


def judge_end(one: Transaction, request: EndRequest) -> ErrorCode | None:
    """None to end the transaction now; NONE if a retry finds it ended; else the refusal."""
    if request.flow >= NEW_FLOW:
        return _judge_new(one, request)
    if one.producer.producer_id != request.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if one.producer.epoch != request.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if one.state is TransactionState.ONGOING:
        return None
    return _judge_retry(one, is_commit=request.is_commit)


def _judge_new(one: Transaction, request: EndRequest) -> ErrorCode | None:
    producer_id, epoch = request.producer
    is_next_id = (
        one.previous_producer_id == producer_id
        and epoch == EPOCH_EXHAUSTED
        and one.producer.epoch == 0
    )
    if one.producer.producer_id != producer_id and not is_next_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_retry = is_next_id or one.producer.epoch == epoch + 1
    is_current = one.producer.epoch == epoch and one.producer.producer_id == producer_id
    match one.state:
        case TransactionState.ONGOING:
            return None if is_current else ErrorCode.PRODUCER_FENCED
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            if not is_retry:
                return ErrorCode.PRODUCER_FENCED
        case TransactionState.EMPTY:
            if not is_current:
                return ErrorCode.PRODUCER_FENCED
            return _INVALID if request.is_commit else None
        case _:
            if not is_retry and not is_current:
                return ErrorCode.PRODUCER_FENCED
            if is_current and not is_retry:
                # Nothing of this transaction arrived: there is nothing to commit, but an abort
                # shuts out what may yet arrive.
                return _INVALID if request.is_commit else None
    return _judge_retry(one, is_commit=request.is_commit)


def _judge_retry(one: Transaction, *, is_commit: bool) -> ErrorCode:
    """The end was asked for before; a different one is an error."""
    match one.state:
        case TransactionState.PREPARE_COMMIT:
            return _CONCURRENT if is_commit else _INVALID
        case TransactionState.PREPARE_ABORT:
            return _INVALID if is_commit else _CONCURRENT
        case TransactionState.COMPLETE_COMMIT:
            return ErrorCode.NONE if is_commit else _INVALID
        case TransactionState.COMPLETE_ABORT:
            return _INVALID if is_commit else ErrorCode.NONE
        case _:
            return _INVALID
