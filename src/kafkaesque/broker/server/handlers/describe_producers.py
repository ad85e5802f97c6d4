"""DescribeProducers, API key 61: the producers and open transactions of a partition (KIP-664)."""

from __future__ import annotations

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_OFFSET
from kafkaesque.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(
    context: Context, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(context, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        producers = _producers(context.partitions.get(topic, index))
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index,
            error_code=error.code,
            error_message=str(error),
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=index, error_code=ErrorCode.NONE, active_producers=producers
    )


def _producers(partition: Partition) -> list[ProducerState]:
    transactions = partition.producers.transactions
    rows = []
    for producer_id, known in partition.producers.items():
        first_offset = transactions.first_offset(producer_id)
        rows.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.last_seen_ms,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
            )
        )
    return rows


HANDLER = handler(DescribeProducersRequest, versions=(0, 0))(describe_producers)
