"""Produce, API key 0.

v3   the oldest that is served: record batches of format 2 only
v5   log_start_offset in the answer
v7   zstd allowed
v8   record_errors and error_message in the answer (KIP-467)
v9   flexible
v10  with NOT_LEADER_OR_FOLLOWER the leader and its address (KIP-951)
v11  TRANSACTION_ABORTABLE
v12  the request itself adds its partitions to the transaction (KIP-890)
v13  topics by id

Versions 0 to 2 are advertised and refused, as Apache Kafka 4 does: librdkafka before 2.11.1 takes
a lowest version above 0 as a sign that compression is not supported (KAFKA-18659).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafkaesque.broker.cluster.rules.tables import INTERNAL_TOPICS
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.appended import Appended
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import NOT_PLAIN, Answer, Later, NotPlain, Plain, handler
from kafkaesque.broker.server.leader_hints import leader_hint
from kafkaesque.broker.server.transactional_produce import TransactionalRequest
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    RecordsRefused,
    RequestTimedOut,
    StorageFailed,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
)
from kafkaesque.model.ids import TopicId
from kafkaesque.records.batch import CHECKSUMMED_POSITION, TRANSACTIONAL_BIT, Codec
from kafkaesque.wire.flat import Values
from kafkaesque.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkaesque.wire.native import constructor

ALL_REPLICAS = -1
_ACKS = (ALL_REPLICAS, 0, 1)
_ANSWERED_ACKS = (ALL_REPLICAS, 1)
_NO_TRANSACTIONAL_ID = "A transactional batch in a request without a transactional id"
_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
_CODEC_POSITION = CHECKSUMMED_POSITION + 1


class _Pending(NamedTuple):
    """A row of the answer that is not known yet."""

    row: PartitionProduceResponse
    partition: Partition
    waits_for: asyncio.Task[Appended] | asyncio.Future[None]


# By position, because every request makes these three: 0.5 instead of 3.0 microseconds.
_make_row = constructor(
    PartitionProduceResponse,
    "index",
    "error_code",
    "base_offset",
    "log_append_time_ms",
    "log_start_offset",
)
_make_topic = constructor(TopicProduceResponse, "name", "topic_id", "partition_responses")
_make_response = constructor(ProduceResponse, "responses")


def produce(context: Context, request: ProduceRequest, call: Call) -> Answer | Later:
    """Begin all appends now, so that pipelined requests keep their order; wait for commits if asked."""
    topics: list[TopicProduceResponse] = []
    response = _make_response(topics)
    pending: list[_Pending] = []
    refusal = None if request.acks in _ACKS else _unknown_acks(request.acks)
    transactional = None
    if request.transactional_id is not None:
        transactional = TransactionalRequest(
            context.transactions,
            request.transactional_id,
            call.version,
            context.loop,
            partial(context.transactions.check_writer, call),
        )
    for topic in request.topic_data:
        rows: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if refusal is None:
                rows.append(
                    _begin(
                        context, request.acks, call, topic, data, response, pending, transactional
                    )
                )
            else:
                rows.append(_refused(context, data.index, refusal))
        topics.append(_make_topic(topic.name, topic.topic_id, rows))
    if not pending:
        return response if request.acks != 0 else _answer(0, response)
    return _later(context, request.acks, request.timeout_ms, response, pending)


def produce_plainly(
    context: Context, values: Values, version: int
) -> Values | ProduceResponse | Later | NotPlain:
    """As `produce`, for one batch outside of transactions whose producer waits for an answer."""
    transactional_id, acks, timeout_ms, name, topic_id, index, records = values
    if transactional_id is not None or acks not in _ANSWERED_ACKS or records is None:
        return NOT_PLAIN
    if len(records) <= _CODEC_POSITION or records[_CODEC_POSITION] & TRANSACTIONAL_BIT:
        return NOT_PLAIN
    all_replicas = acks == ALL_REPLICAS
    waits_for: asyncio.Task[Appended] | asyncio.Future[None] | None
    # From here on all errors are told at once: a batch that was refused may have been stamped.
    try:
        partition = _find(context, version, acks, name, topic_id, index)
        if version < _ZSTD_SINCE:
            _check_codec(records)
        appended = partition.append(records, all_replicas=all_replicas)
        if isinstance(appended, asyncio.Task):
            row, waits_for = _make_row(index, 0, -1, -1, -1), appended
        else:
            base_offset, end_offset, append_time_ms, log_start_offset = appended
            context.stats.produced_records_total += end_offset - base_offset
            waits_for = partition.commit(appended, all_replicas=all_replicas)
            if waits_for is None:
                return name, topic_id, index, base_offset, append_time_ms, log_start_offset
            row = _make_row(index, 0, base_offset, append_time_ms, log_start_offset)
    except KafkaError as error:
        row, waits_for = _refused(context, index, error), None
    response = _make_response([_make_topic(name, topic_id, [row])])
    if waits_for is None:
        _hint_leader(context, response, row, name, topic_id)
        return response
    return _later(context, acks, timeout_ms, response, [_Pending(row, partition, waits_for)])


def _find(
    context: Context, version: int, acks: int, name: str, topic_id: UUID, index: int
) -> Partition:
    # What waits for a majority learns from it who leads.
    is_certain = acks != ALL_REPLICAS
    if version >= _TOPIC_IDS_SINCE:
        partition = context.partitions.get_by_id(TopicId(topic_id), index, is_certain=is_certain)
    else:
        partition = context.partitions.get(name, index, is_certain=is_certain)
    if partition.name.topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{partition.name.topic} is written by the broker only")
    return partition


def _begin(
    context: Context,
    acks: int,
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    response: ProduceResponse,
    pending: list[_Pending],
    transactional: TransactionalRequest | None,
) -> PartitionProduceResponse:
    all_replicas = acks == ALL_REPLICAS
    try:
        partition = _find(context, call.version, acks, topic.name, topic.topic_id, data.index)
        records = data.records
        if records is None:
            raise InvalidRecord(
                "A produce request must have exactly one record batch per partition"
            )
        if call.version < _ZSTD_SINCE:
            _check_codec(records)
        if transactional is None:
            if len(records) > _CODEC_POSITION and records[_CODEC_POSITION] & TRANSACTIONAL_BIT:
                raise TransactionalIdAuthorizationFailed(_NO_TRANSACTIONAL_ID)
            appended = partition.append(records, all_replicas=all_replicas)
        else:
            appended = transactional.append(partition, records, all_replicas=all_replicas)
        if isinstance(appended, asyncio.Task):
            row = _make_row(data.index, 0, -1, -1, -1)
            pending.append(_Pending(row, partition, appended))
            return row
        base_offset, end_offset, append_time_ms, log_start_offset = appended
        row = _make_row(data.index, 0, base_offset, append_time_ms, log_start_offset)
        context.stats.produced_records_total += end_offset - base_offset
        commit = partition.commit(appended, all_replicas=all_replicas) if acks else None
        if commit is not None:
            pending.append(_Pending(row, partition, commit))
        return row
    except KafkaError as error:
        row = _refused(context, data.index, error)
        _hint_leader(context, response, row, topic.name, topic.topic_id)
        return row


def _later(
    context: Context,
    acks: int,
    timeout_ms: int,
    response: ProduceResponse,
    pending: list[_Pending],
) -> Later:
    """The answer when every row is decided, at the latest when the client does not wait any more.

    Takes nothing of the request itself: its records lie in a buffer that others wait for.
    """
    if any(isinstance(item.waits_for, asyncio.Task) for item in pending):
        return _finish(context, acks, timeout_ms, response, pending)
    return _Commits(context, acks, timeout_ms, response, pending).answer


def _unknown_acks(acks: int) -> KafkaError:
    return InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {acks}")


def _refused(context: Context, index: int, error: KafkaError) -> PartitionProduceResponse:
    row = _make_row(index, 0, -1, -1, -1)
    _refuse(context, row, error)
    return row


def _check_codec(records: memoryview) -> None:
    if len(records) > _CODEC_POSITION and records[_CODEC_POSITION] & 7 == Codec.ZSTD:
        raise UnsupportedCompressionType(f"zstd needs Produce v{_ZSTD_SINCE}")


class _Commits:
    """The answer to a request whose batches are appended and whose commits are awaited.

    A future with callbacks and no task: acks=all with many producers is bound by what a request
    costs here.
    """

    __slots__ = ("_acks", "_context", "_missing", "_pending", "_response", "_timer", "answer")

    def __init__(
        self,
        context: Context,
        acks: int,
        timeout_ms: int,
        response: ProduceResponse,
        pending: list[_Pending],
    ) -> None:
        self._context = context
        self.answer: asyncio.Future[Answer] = context.loop.create_future()
        self._acks = acks
        self._response = response
        self._pending = pending
        self._missing = len(pending)
        seconds = max(timeout_ms, 0) / 1000
        self._timer = context.loop.call_later(seconds, self._time_out)
        for item in pending:
            item.waits_for.add_done_callback(self._decided)

    def _decided(self, commit: asyncio.Future[Any]) -> None:
        commit.exception()  # looked at here, told below
        self._missing -= 1
        if self._missing == 0:
            self._timer.cancel()
            self._finish()

    def _time_out(self) -> None:
        for row, _, commit in self._pending:
            if not commit.done():
                _refuse(self._context, row, _timed_out())
        self._finish()

    def _finish(self) -> None:
        if self.answer.done():
            return
        for row, partition, commit in self._pending:
            if commit.done() and isinstance(error := commit.exception(), KafkaError):
                _refuse(self._context, row, error)
                _hint_leader(
                    self._context, self._response, row, partition.name.topic, partition.topic_id
                )
        try:
            self.answer.set_result(_answer(self._acks, self._response))
        except CloseConnection as close:
            self.answer.set_exception(close)


async def _finish(
    context: Context,
    acks: int,
    timeout_ms: int,
    response: ProduceResponse,
    pending: list[_Pending],
) -> ProduceResponse | None:
    """Wait until every row is decided, at most as long as the client will."""
    all_replicas = acks == ALL_REPLICAS
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            for row, partition, waits_for in pending:
                try:
                    appended = await waits_for
                    if appended is not None:
                        _fill(row, appended)
                        commit = partition.commit(appended, all_replicas=all_replicas)
                        if commit is not None:
                            await commit
                except KafkaError as error:
                    _refuse(context, row, error)
                    name, topic_id = partition.name.topic, partition.topic_id
                    _hint_leader(context, response, row, name, topic_id)
    except TimeoutError:
        for row, _, waits_for in pending:
            if not waits_for.done() or waits_for.cancelled():
                _refuse(context, row, _timed_out())
    return _answer(acks, response)


def _fill(row: PartitionProduceResponse, appended: Appended) -> None:
    row.base_offset = appended.base_offset
    row.log_append_time_ms = appended.append_time_ms
    row.log_start_offset = appended.log_start_offset


def _timed_out() -> KafkaError:
    return RequestTimedOut("The request timed out before its records were safe")


def _refuse(context: Context, row: PartitionProduceResponse, error: KafkaError) -> None:
    if isinstance(error, StorageFailed):
        context.stats.refused_by_disk(context.clock.monotonic())
    row.error_code = error.code
    row.base_offset = -1
    row.log_append_time_ms = -1
    row.error_message = str(error)
    if isinstance(error, RecordsRefused):
        row.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.records
        ]


def _hint_leader(
    context: Context,
    response: ProduceResponse,
    row: PartitionProduceResponse,
    name: str,
    topic_id: UUID,
) -> None:
    """Say who leads instead, as far as the error is of that kind. (Not in versions before v10.)"""
    hint = leader_hint(context, row.error_code, name, topic_id, row.index)
    if hint is None:
        return
    broker, epoch = hint
    row.current_leader = LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=epoch)
    if all(known.node_id != broker.node_id for known in response.node_endpoints):
        endpoint = NodeEndpoint(
            node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
        )
        response.node_endpoints = [*response.node_endpoints, endpoint]


def _answer(acks: int, response: ProduceResponse) -> ProduceResponse | None:
    if acks != 0:
        return response
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NONE:
                # With acks=0 there is no answer to tell it in: Kafka closes the connection, and the
                # client then refreshes its metadata.
                raise CloseConnection(f"acks=0 produce failed: {row.error_message}")
    return None


_PLAIN = Plain(
    produce_plainly,
    ProduceResponse,
    (
        "responses.name",
        "responses.topic_id",
        "responses.partition_responses.index",
        "responses.partition_responses.base_offset",
        "responses.partition_responses.log_append_time_ms",
        "responses.partition_responses.log_start_offset",
    ),
)

HANDLER = handler(ProduceRequest, versions=(3, 13), advertised_from=0, overlaps=True, plain=_PLAIN)(
    produce
)
