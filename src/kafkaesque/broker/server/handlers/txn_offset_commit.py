"""TxnOffsetCommit, API key 28: offsets that take effect when a transaction commits.

v2  leader epoch (KIP-320)
v3  flexible; member and generation (KIP-447)
v4  TRANSACTION_ABORTABLE
v5  this request itself adds the group's partition to the transaction (KIP-890)
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import CommitRequest, OffsetToCommit, TopicToCommit
from kafkaesque.broker.partitions.group_coordinator import GroupShard
from kafkaesque.broker.partitions.rules.open_transactions import (
    RefusedByCoordinator,
    VerificationGuard,
)
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.transactional_produce import VERIFICATIONS_MAX
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
)
from kafkaesque.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5


async def txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest, call: Call
) -> TxnOffsetCommitResponse:
    topics = tuple(
        TopicToCommit(
            topic.name,
            tuple(
                OffsetToCommit(
                    PartitionIndex(item.partition_index),
                    Offset(item.committed_offset),
                    LeaderEpoch(item.committed_leader_epoch),
                    item.committed_metadata,
                )
                for item in topic.partitions
                if 0 <= item.partition_index < context.partitions.partition_count(topic.name)
            ),
        )
        for topic in request.topics
    )
    codes: dict[tuple[str, int], ErrorCode] = {}
    try:
        if any(topic.partitions for topic in topics):
            codes = await _commit(context, request, call, topics)
    except KafkaError as error:
        codes = {
            (topic.topic, item.partition): _client_error(error.code, call)
            for topic in topics
            for item in topic.partitions
        }
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=item.partition_index,
                        error_code=codes.get((topic.name, item.partition_index), missing),
                    )
                    for item in topic.partitions
                ],
            )
            for topic in request.topics
            # As in OffsetCommit: Kafka includes a topic without partitions only if it is unknown.
            if topic.partitions or not context.partitions.partition_count(topic.name)
        ]
    )


async def _commit(
    context: Context,
    request: TxnOffsetCommitRequest,
    call: Call,
    topics: tuple[TopicToCommit, ...],
) -> dict[tuple[str, int], ErrorCode]:
    producer = ProducerIdentity(
        ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    )
    shard = context.groups.of_group(request.group_id)
    guard = await _verify(context, request, call, producer, shard)
    if call.version < _ADDS_SINCE:
        # Offsets have no sequence numbers: a delayed commit would overwrite a newer one.
        context.transactions.check_committer(producer, shard, call)
    commit = CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
        api_version=call.version,
        producer=producer,
    )
    answer = await shard.commit_in_transaction(commit, guard)
    return {
        (topic.topic, item.partition): item.error
        for topic in answer.topics
        for item in topic.partitions
    }


async def _verify(
    context: Context,
    request: TxnOffsetCommitRequest,
    call: Call,
    producer: ProducerIdentity,
    shard: GroupShard,
) -> VerificationGuard | None:
    """Returns the guard for the first commit of a transaction in the group's partition; None if the
    transaction is open there."""
    guard: VerificationGuard | None = None
    for _ in range(VERIFICATIONS_MAX):
        if not shard.needs_guard(producer):
            return None
        guard = shard.guard(producer)
        code = await context.transactions.put_one(
            request.transactional_id,
            producer,
            shard.partition_name,
            verify_only=call.version < _ADDS_SINCE,
        )
        if code is not ErrorCode.NONE:
            raise RefusedByCoordinator(code)
        if shard.holds(producer, guard):
            break
    return guard


def _client_error(code: ErrorCode, call: Call) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and call.version < _ADDS_SINCE:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return code


HANDLER = handler(TxnOffsetCommitRequest, versions=(0, 5))(txn_offset_commit)
