"""Produce, API key 0.

v3   the oldest version served: record batches of format 2 only
v5   log_start_offset in the response
v7   zstd allowed
v8   record_errors and error_message in the response (KIP-467)
v9   flexible
v10  NOT_LEADER_OR_FOLLOWER comes with the leader and its address (KIP-951)
v11  TRANSACTION_ABORTABLE
v12  the request itself adds its partitions to the transaction (KIP-890)
v13  topics by id

Versions 0 to 2 are advertised and rejected, as in Apache Kafka 4: librdkafka before 2.11.1 takes a
lowest version above 0 as a sign that compression is not supported (KAFKA-18659).

Every batch is appended before the handler returns, so that pipelined requests keep their order. The
response waits for the commits that `acks` asks for.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any
from uuid import UUID

from kafkaesque.broker.cluster.rules.tables import INTERNAL_TOPICS
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import Answer, Later, handler
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
from kafkaesque.records.batch import Codec
from kafkaesque.records.layout import CHECKSUMMED_POSITION, TRANSACTIONAL_BIT
from kafkaesque.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkaesque.wire.native import constructor

logger = logging.getLogger(__name__)

ALL_REPLICAS = -1
_ACKS = (ALL_REPLICAS, 0, 1)
_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
_CODEC_POSITION = CHECKSUMMED_POSITION + 1
_ZSTD = int(Codec.ZSTD)  # every request is compared with it, and an enum's member is a slow lookup


# Built by position because every request builds all three: 0.5 instead of 3.0 microseconds.
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
    transactional = None
    if request.transactional_id is not None:
        transactional = TransactionalRequest(
            context.transactions,
            request.transactional_id,
            call.version,
            context.loop,
            partial(context.transactions.check_writer, call),
        )
    appends = _Appends(context, request.acks, call, transactional)
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        rows = [appends.append(name, topic_id, data) for data in topic.partition_data]
        appends.response.responses.append(_make_topic(name, topic_id, rows))
    return appends.answer_within(request.timeout_ms)


class _PendingRow:
    """A row of the response whose outcome is not known yet."""

    __slots__ = ("partition", "row", "waits_for")

    def __init__(
        self,
        row: PartitionProduceResponse,
        partition: Partition,
        waits_for: asyncio.Task[Appended] | asyncio.Future[None],
    ) -> None:
        self.row = row
        self.partition = partition
        self.waits_for = waits_for
        """The append, if the batch has to be inspected first; then the commit."""


class _Appends:
    """The batches of one request, and the response that reports what became of each.

    Waits with callbacks instead of a task: with acks=all and many producers, this code is most of
    what a request costs. Keeps no reference to the request, whose records lie in a pooled buffer.
    """

    __slots__ = (
        "_acks",
        "_all_replicas",
        "_answer",
        "_call",
        "_context",
        "_pending",
        "_timer",
        "_transactional",
        "response",
    )

    def __init__(
        self,
        context: Context,
        acks: int,
        call: Call,
        transactional: TransactionalRequest | None,
    ) -> None:
        self._context = context
        self._acks = acks
        self._all_replicas = acks == ALL_REPLICAS
        self._call = call
        self._transactional = transactional
        self.response = _make_response([])
        self._pending: set[_PendingRow] = set()
        self._answer: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def append(
        self, name: str, topic_id: UUID, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Append one batch. Its row may be completed later, see `answer_within`."""
        row = _make_row(data.index, 0, -1, -1, -1)
        try:
            records = data.records
            partition = self._find(name, topic_id, data.index)
            self._check(records)
            if self._transactional is None:
                appended = partition.append(records, all_replicas=self._all_replicas)  # type: ignore[arg-type]
            else:
                appended = self._transactional.append(
                    partition,
                    records,  # type: ignore[arg-type]
                    all_replicas=self._all_replicas,
                )
            if isinstance(appended, Appended):
                commit = self._appended(row, partition, appended)
                if commit is not None:
                    self._pending.add(_PendingRow(row, partition, commit))
            else:
                self._pending.add(_PendingRow(row, partition, appended))
        except KafkaError as error:
            self._reject(row, error, name, topic_id)
        return row

    def answer_within(self, timeout_ms: int) -> Answer | Later:
        """The response: now if every row is decided, otherwise when the last one is, or when the
        time that the client waits is over."""
        if not self._pending:
            return self._decided()
        loop = self._context.loop
        self._answer = loop.create_future()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for pending in self._pending:
            pending.waits_for.add_done_callback(partial(self._decide, pending))
        return self._answer

    # -- before the append ------------------------------------------------------------------------

    def _find(self, name: str, topic_id: UUID, index: int) -> Partition:
        if self._acks not in _ACKS:
            raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {self._acks}")
        # A batch that waits for a majority learns from the majority whether this node leads.
        is_certain = not self._all_replicas
        partitions = self._context.partitions
        if self._call.version >= _TOPIC_IDS_SINCE:
            partition = partitions.get_by_id(TopicId(topic_id), index, is_certain=is_certain)
        else:
            partition = partitions.get(name, index, is_certain=is_certain)
        if partition.name.topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"{partition.name.topic} is written by the broker only")
        return partition

    def _check(self, records: memoryview | None) -> None:
        """Reject what the partition cannot judge because it does not see the request."""
        if records is None:
            raise InvalidRecord(
                "A produce request must have exactly one record batch per partition"
            )
        if len(records) <= _CODEC_POSITION:
            return  # too short for a batch: the partition says so
        attributes = records[_CODEC_POSITION]
        if attributes & 7 == _ZSTD and self._call.version < _ZSTD_SINCE:
            raise UnsupportedCompressionType(f"zstd needs Produce v{_ZSTD_SINCE}")
        if attributes & TRANSACTIONAL_BIT and self._transactional is None:
            raise TransactionalIdAuthorizationFailed(
                "A transactional batch in a request without a transactional id"
            )

    # -- after the append -------------------------------------------------------------------------

    def _appended(
        self, row: PartitionProduceResponse, partition: Partition, appended: Appended
    ) -> asyncio.Future[None] | None:
        """Fill in where the batch is; the commit that its acknowledgement waits for, if any."""
        base_offset, end_offset, append_time_ms, log_start_offset = appended
        row.base_offset = base_offset
        row.log_append_time_ms = append_time_ms
        row.log_start_offset = log_start_offset
        self._context.stats.produced_records_total += end_offset - base_offset
        if self._acks == 0:
            return None
        return partition.commit(appended, all_replicas=self._all_replicas)

    def _decide(self, pending: _PendingRow, done: asyncio.Future[Any]) -> None:
        """The append or the commit that a row waits for has ended."""
        error = _timed_out() if done.cancelled() else done.exception()
        if pending not in self._pending:
            # Too late: the response has left. The batch may have been appended all the same, as in
            # Kafka. A defect must still be seen.
            if error is not None and not isinstance(error, KafkaError):
                logger.error("an append failed after its response", exc_info=error)
            return
        if isinstance(error, KafkaError):
            self._reject_pending(pending, error)
        elif error is not None:
            self._finish(error)
            return
        elif (appended := done.result()) is not None:
            commit = self._appended(pending.row, pending.partition, appended)
            if commit is not None:
                pending.waits_for = commit
                commit.add_done_callback(partial(self._decide, pending))
                return
        self._pending.discard(pending)
        if not self._pending:
            self._finish()

    def _time_out(self) -> None:
        for pending in tuple(self._pending):
            if pending.waits_for.done():
                self._decide(
                    pending, pending.waits_for
                )  # in this turn of the loop, before its callback
        for pending in self._pending:
            self._reject_pending(pending, _timed_out())
        self._finish()

    def _finish(self, error: BaseException | None = None) -> None:
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is None or self._answer.done():
            return  # the client is gone
        try:
            if error is not None:
                raise error
            self._answer.set_result(self._decided())
        except Exception as failure:  # noqa: BLE001 - the connection closes for it
            self._answer.set_exception(failure)

    def _decided(self) -> Answer:
        """The response; none with acks=0. Kafka then closes the connection to report an error, and
        the client refreshes its metadata."""
        if self._acks != 0:
            return self.response
        for topic in self.response.responses:
            for row in topic.partition_responses:
                if row.error_code != ErrorCode.NONE:
                    raise CloseConnection(f"acks=0 produce failed: {row.error_message}")
        return None

    # -- errors -----------------------------------------------------------------------------------

    def _reject_pending(self, pending: _PendingRow, error: KafkaError) -> None:
        partition = pending.partition
        self._reject(pending.row, error, partition.name.topic, partition.topic_id)

    def _reject(
        self, row: PartitionProduceResponse, error: KafkaError, name: str, topic_id: UUID
    ) -> None:
        context = self._context
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
        self._hint_leader(row, name, topic_id)

    def _hint_leader(self, row: PartitionProduceResponse, name: str, topic_id: UUID) -> None:
        """Name the leader if the error says that this node is not it. (Encoded from v10 on.)"""
        hint = leader_hint(self._context, row.error_code, name, topic_id, row.index)
        if hint is None:
            return
        broker, epoch = hint
        row.current_leader = LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=epoch)
        endpoints = self.response.node_endpoints
        if all(known.node_id != broker.node_id for known in endpoints):
            endpoint = NodeEndpoint(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            self.response.node_endpoints = [*endpoints, endpoint]


def _timed_out() -> KafkaError:
    return RequestTimedOut("The request timed out before its records were committed")


HANDLER = handler(ProduceRequest, versions=(3, 13), advertised_from=0, overlaps=True)(produce)
