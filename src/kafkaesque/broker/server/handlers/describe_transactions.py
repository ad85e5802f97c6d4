"""DescribeTransactions, API key 65: the state of transactional ids that are coordinated here."""

from __future__ import annotations

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.transaction_calls import by_topic
from kafkaesque.broker.transactions.types import DescribedTransaction
from kafkaesque.model.errors import KafkaError
from kafkaesque.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def describe_transactions(
    context: Context, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _state(_describe(context, transactional_id))
            for transactional_id in request.transactional_ids
        ]
    )


def _describe(context: Context, transactional_id: str) -> DescribedTransaction:
    try:
        registry = context.transactions.coordinator.of_key(transactional_id).reading()
    except KafkaError as error:
        return DescribedTransaction(transactional_id, error.code)
    return registry.describe(transactional_id)


def _state(one: DescribedTransaction) -> TransactionState:
    return TransactionState(
        error_code=one.error,
        transactional_id=one.transactional_id,
        transaction_state=one.state,
        transaction_timeout_ms=max(one.timeout_ms, 0),
        transaction_start_time_ms=one.started_ms,
        producer_id=one.producer.producer_id,
        producer_epoch=one.producer.epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(one.partitions).items()
        ],
    )


HANDLER = handler(DescribeTransactionsRequest, versions=(0, 0))(describe_transactions)
