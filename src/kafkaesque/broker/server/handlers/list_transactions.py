"""ListTransactions, API key 66: the transactional ids that are coordinated here.

v1  only transactions that have run for longer than a duration (KIP-994)

v2 has a pattern in RE2 syntax (KIP-1152), whose cost is linear. Python's regular expressions have
no such bound, and a client's pattern must not block the broker: v2 is not supported.
"""

from __future__ import annotations

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.transactions.types import TransactionState as State
from kafkaesque.model.errors import CoordinatorLoading, ErrorCode
from kafkaesque.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = frozenset(state.title for state in State) | {"Dead", "PrepareEpochFence"}


def list_transactions(
    context: Context, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in _STATES]
    wanted = [name for name in request.state_filters if name in _STATES]
    found = []
    if wanted or not unknown:
        try:
            for shard in context.transactions.coordinator:
                found += shard.reading().list_transactions(
                    wanted,
                    request.producer_id_filters,
                    request.duration_filter,
                    context.clock.wall_ms(),
                )
        except CoordinatorLoading as error:
            return ListTransactionsResponse(
                error_code=error.code, unknown_state_filters=[], transaction_states=[]
            )
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer.producer_id,
                transaction_state=one.state,
            )
            for one in found
        ],
    )


HANDLER = handler(ListTransactionsRequest, versions=(0, 1))(list_transactions)
