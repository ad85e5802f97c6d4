"""WriteTxnMarkers, API key 27: a coordinator ends a transaction in the partitions that we lead.

v1  the oldest version served: flexible
v2  the transaction's flow: in the new one, the marker has its own epoch (KIP-1228)

Admin clients send it too, to abort a hanging transaction (KIP-664).
"""

from __future__ import annotations

from kafkaesque.broker.partitions.rules.markers import Marker
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.transactions.types import NEW_FLOW
from kafkaesque.model.ids import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def write_txn_markers(
    context: Context, request: WriteTxnMarkersRequest, call: Call
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[await _write(context, marker) for marker in request.markers]
    )


async def _write(context: Context, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    partitions = [
        TopicPartition(topic.name, PartitionIndex(index))
        for topic in asked.topics
        for index in topic.partition_indexes
    ]
    codes = await context.transactions.writer.write(
        ProducerIdentity(ProducerId(asked.producer_id), ProducerEpoch(asked.producer_epoch)),
        Marker(asked.transaction_result, asked.coordinator_epoch),
        partitions,
        is_epoch_new=asked.transaction_version >= NEW_FLOW,
    )
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=codes[TopicPartition(topic.name, PartitionIndex(index))],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


HANDLER = handler(WriteTxnMarkersRequest, versions=(1, 2))(write_txn_markers)
