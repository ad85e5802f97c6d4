"""DeleteRecords, API key 21: move the start of a partition's log forward (KIP-107).

v2  flexible

An offset of -1 means the high watermark. If a partition is named twice, the last one counts.
"""

from __future__ import annotations

from typing import Final

from kafkaesque.broker.cluster.rules.tables import INTERNAL_TOPICS
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, InvalidTopic, KafkaError, PolicyViolation
from kafkaesque.model.ids import NO_OFFSET, Offset
from kafkaesque.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1


async def delete_records(
    context: Context, request: DeleteRecordsRequest, call: Call
) -> DeleteRecordsResponse:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((item.partition_index, item.offset) for item in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    await _delete(context, name, index, offset) for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted.items()
        ]
    )


async def _delete(
    context: Context, topic: str, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    low_watermark, code = NO_OFFSET, ErrorCode.NONE
    try:
        low_watermark = await _low_watermark(context, topic, index, offset)
    except KafkaError as error:
        code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )


async def _low_watermark(context: Context, topic: str, index: int, offset: int) -> Offset:
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
    partition = context.partitions.get(topic, index)
    if partition.config.is_compacted and not partition.config.deletes_old:
        raise PolicyViolation(
            f"Records of partition {partition.name} can not be deleted due to the configured policy"
        )
    if offset == HIGH_WATERMARK:
        return await partition.delete_before(partition.high_watermark)
    return await partition.delete_before(Offset(offset))


HANDLER = handler(DeleteRecordsRequest, versions=(0, 2))(delete_records)
