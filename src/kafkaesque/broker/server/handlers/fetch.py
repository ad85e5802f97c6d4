"""Fetch, API key 1.

v4   the oldest version served: isolation level
v5   log_start_offset
v7   incremental fetch sessions (KIP-227)
v9   current leader epoch (KIP-320)
v11  rack id
v12  flexible
v13  topics by id
v15  replica state moved to a tag
v16  NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH come with the leader's address (KIP-951)
v17  replica directory id
v18  high watermark of the follower

Only committed data is returned, in whole batches. The first partition with data returns at least
one batch, whatever its size. If less than min_bytes can be read, the request first waits until
enough bytes are committed or max_wait_ms is over; then it reads, once. Data that is not in the page
cache is loaded by a worker thread first, so that a slow disk delays only the client that asked for
it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.open_transactions import AbortedIndex
from kafkaesque.broker.partitions.waiting import BytesAwaited
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.leader_hints import leader_hint
from kafkaesque.broker.server.rules.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    PartitionKey,
)
from kafkaesque.broker.storage.open_files import FileRange, Place
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.ids import NO_EPOCH, Offset, TopicId
from kafkaesque.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kafkaesque.wire.native import constructor

IDS_SINCE = 13
_HINTS_SINCE = 16
READ_COMMITTED = 1
_EMPTY = memoryview(b"")

# Built by position because every request builds all three.
_make_row = constructor(
    PartitionData,
    "partition_index",
    "error_code",
    "high_watermark",
    "aborted_transactions",
    "records",
)
_make_topic = constructor(FetchableTopicResponse, "topic", "topic_id", "partitions")
_make_response = constructor(FetchResponse, "session_id", "responses")


class Asked(Protocol):
    """What a client asks of a partition, in this request or remembered by its session."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int


Wanted: TypeAlias = Iterable[tuple[PartitionKey, Asked]]
Rows: TypeAlias = list[tuple[PartitionKey, PartitionData]]


def fetch(
    context: Context, request: FetchRequest, call: Call
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    try:
        session, is_incremental = _session_of(context, request, call)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    return _Fetch(context, request, call, session, is_incremental).answer()


class _Fetch:
    """One request: waits, loads, reads and answers."""

    __slots__ = (
        "_call",
        "_context",
        "_is_incremental",
        "_loading",
        "_request",
        "_session",
        "_stable_only",
        "_wanted",
    )

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        call: Call,
        session: FetchSession | None,
        is_incremental: bool,
    ) -> None:
        self._context = context
        self._request = request
        self._call = call
        self._session = session
        self._is_incremental = is_incremental
        """The response may leave out partitions that have not changed."""
        self._wanted: Wanted = (
            _asked(request) if session is None else list(session.partitions.items())
        )
        self._stable_only = request.isolation_level == READ_COMMITTED
        self._loading = _Loading()

    def answer(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        if self._missing_bytes() > 0:
            return self._wait_and_read()
        rows, _, has_failed = self._read()
        if self._loading.missing:
            return self._load_and_read()
        return self._respond(rows, has_failed)

    def _missing_bytes(self, watcher: BytesAwaited | None = None) -> int:
        """How many more bytes must be committed before the response is due; 0 if it is due now.
        `watcher` is attached to the partitions, in the same step, so that it misses no commit."""
        request = self._request
        if request.max_wait_ms <= 0 or not self._wanted:
            return 0
        missing_bytes = request.min_bytes
        try:
            for key, asked in self._wanted:
                partition = self._find(key, asked)
                if watcher is not None:
                    watcher.watch(partition)
                missing_bytes -= partition.readable_bytes(
                    Offset(asked.fetch_offset), stable_only=self._stable_only
                )
                if missing_bytes <= 0:
                    return 0
        except KafkaError:
            return 0  # the read reports it
        return missing_bytes

    async def _wait_and_read(self) -> FetchResponse:
        request = self._request
        watcher = BytesAwaited(request.min_bytes, self._context.loop, stable_only=self._stable_only)
        try:
            # Checked again: this coroutine starts after other callbacks, which may have committed
            # more.
            watcher.missing_bytes = self._missing_bytes(watcher)
            if watcher.missing_bytes > 0:
                await watcher.wait(request.max_wait_ms / 1000)
        finally:
            watcher.unwatch_all()
        rows, _, has_failed = self._read()
        if self._loading.missing:
            return await self._load_and_read()
        return self._respond(rows, has_failed)

    async def _load_and_read(self) -> FetchResponse:
        """Load what is not in memory, then read. As soon as there is anything to return, what is
        still missing is left to the next request. This ends: for each partition the index is
        loaded, then the range that it points to, and nothing else."""
        loading, size_bytes = self._loading, 0
        while loading.missing and size_bytes == 0:
            missing, loading.missing = loading.missing, []
            await self._context.pages.load(missing)
            loading.tried.update(found.start for found in missing)
            rows, size_bytes, has_failed = self._read()
        return self._respond(rows, has_failed)

    # -- reading ----------------------------------------------------------------------------------

    def _find(self, key: PartitionKey, asked: Asked) -> Partition:
        name, topic_id, index = key
        if self._call.version >= IDS_SINCE:
            partition = self._context.partitions.get_by_id(TopicId(topic_id), index)
        else:
            partition = self._context.partitions.get(name, index)
        if asked.current_leader_epoch != NO_EPOCH:
            partition.check_epoch(asked.current_leader_epoch)
        return partition

    def _read(self) -> tuple[Rows, int, bool]:
        """Rows in the order asked, the size of their records, and whether any of them failed.

        A read that would wait for the disk is added to `_loading` instead, as far as it fits into
        the response. Before anything has been loaded, nothing after it is read either: it all
        would be read again.
        """
        context, request, loading = self._context, self._request, self._loading
        room_bytes = min(
            request.max_bytes, context.config.fetch_max_bytes, context.unsent_room_bytes()
        )
        rows: Rows = []
        total_bytes = missing_bytes = 0
        has_failed = False
        stable_only = self._stable_only
        for key, asked in self._wanted:
            max_bytes = min(asked.partition_max_bytes, room_bytes - total_bytes - missing_bytes)
            row = _make_row(key[2], 0, -1, [] if stable_only else None, _EMPTY)
            rows.append((key, row))
            try:
                partition = self._find(key, asked)
                if max_bytes > 0 or total_bytes + missing_bytes == 0:
                    offset, max_bytes = Offset(asked.fetch_offset), max(max_bytes, 0)
                    is_first = total_bytes == 0
                    missing_bytes += loading.look(partition, offset, max_bytes, is_first)
                    if loading.lets_read:
                        records, next_offset = partition.read(
                            offset, max_bytes, at_least_one=is_first, stable_only=stable_only
                        )
                        row.records = records
                        total_bytes += len(records)
                        if stable_only and len(aborted := partition.aborted_transactions):
                            row.aborted_transactions = _aborted(aborted, offset, next_offset)
                row.high_watermark = partition.high_watermark
                row.last_stable_offset = partition.stable_offset
                row.log_start_offset = partition.log_start_offset
            except KafkaError as error:
                has_failed = True
                row.error_code = error.code
        return rows, total_bytes, has_failed

    # -- answering --------------------------------------------------------------------------------

    def _respond(self, rows: Rows, has_failed: bool) -> FetchResponse:
        session, session_id = self._session, NO_SESSION
        if session is not None:
            session_id = session.session_id
            rows = _changed_rows(session, self._is_incremental, rows)
        response = _make_response(session_id, _by_topic(rows))
        if has_failed and self._call.version >= _HINTS_SINCE:
            _hint_leaders(self._context, response)
        return response


class _Loading:
    """The file ranges that a request needs and that are not in memory."""

    __slots__ = ("lets_read", "missing", "tried")

    def __init__(self) -> None:
        self.missing: list[FileRange] = []
        self.tried: set[Place] = set()
        """Where something was loaded already. Nothing is loaded twice."""
        self.lets_read = True
        """Whether the partition looked at last may be read now."""

    def look(self, partition: Partition, offset: Offset, max_bytes: int, at_least_one: bool) -> int:
        """Returns how many bytes must be loaded before a read of `partition` does not wait."""
        if at_least_one:
            max_bytes = max(max_bytes, partition.config.max_message_bytes)
        found = partition.missing_in_memory(offset, max_bytes, self.tried)
        if found is None:
            self.lets_read = bool(self.tried) or not self.missing
            return 0
        self.missing.append(found)
        self.lets_read = False
        return max(found.size_bytes, 1)


def _aborted(index: AbortedIndex, offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
    """Transactions whose records in the range the consumer must skip."""
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in index.between(offset, end_offset)
    ]


def _by_topic(rows: Rows) -> list[FetchableTopicResponse]:
    if len(rows) == 1:
        # Hashing a topic id costs more than the rest of this function.
        ((name, topic_id, _), row) = rows[0]
        return [_make_topic(name, topic_id, [row])]
    topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for (name, topic_id, _), row in rows:
        topic = topics.get((name, topic_id))
        if topic is None:
            topics[name, topic_id] = _make_topic(name, topic_id, [row])
        else:
            topic.partitions.append(row)
    return list(topics.values())


# -- sessions -----------------------------------------------------------------------------------


def _session_of(
    context: Context, request: FetchRequest, call: Call
) -> tuple[FetchSession | None, bool]:
    """The session of this request, if any, and whether the response is incremental."""
    uses_ids = call.version >= IDS_SINCE
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            context.fetch_sessions.close(request.session_id)
        return None, False
    if request.session_epoch == INITIAL_EPOCH:
        context.fetch_sessions.close(request.session_id)
        session = context.fetch_sessions.create(uses_ids) if request.topics else None
        if session is not None:
            for key, asked in _asked(request):
                session.partitions[key] = _remembered(asked)
        return session, False
    session = context.fetch_sessions.take(request.session_id, request.session_epoch, uses_ids)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
    for key, asked in _asked(request):
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = _remembered(asked)
        else:
            known.fetch_offset = asked.fetch_offset
            known.partition_max_bytes = asked.partition_max_bytes
            known.current_leader_epoch = asked.current_leader_epoch
            known.last_fetched_epoch = asked.last_fetched_epoch
    return session, True


def _asked(request: FetchRequest) -> list[tuple[PartitionKey, FetchPartition]]:
    return [
        ((topic.topic, topic.topic_id, asked.partition), asked)
        for topic in request.topics
        for asked in topic.partitions
    ]


def _remembered(asked: FetchPartition) -> FetchedPartition:
    return FetchedPartition(
        asked.fetch_offset,
        asked.partition_max_bytes,
        asked.current_leader_epoch,
        asked.last_fetched_epoch,
    )


def _changed_rows(session: FetchSession, is_incremental: bool, rows: Rows) -> Rows:
    """The rows that the client of this session has not seen yet; none that it has forgotten
    since."""
    partitions = session.partitions
    changed: Rows = []
    for key, row in rows:
        known = partitions.get(key)
        if known is None:
            continue
        has_news = _has_news(known, row)
        if has_news or not is_incremental:
            changed.append((key, row))
        if row.records:
            # Partitions that had data move to the end, so that a small response starves no other.
            partitions.move_to_end(key)
    return changed


def _hint_leaders(context: Context, response: FetchResponse) -> None:
    """Name the leaders of the partitions that this broker does not lead."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for row in topic.partitions:
            hint = leader_hint(
                context, row.error_code, topic.topic, topic.topic_id, row.partition_index
            )
            if hint is not None:
                broker, epoch = hint
                row.current_leader = LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=epoch)
                endpoints[broker.node_id] = NodeEndpoint(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
    response.node_endpoints = list(endpoints.values())


def _has_news(asked: FetchedPartition, row: PartitionData) -> bool:
    """Whether this row differs from the last one that the session sent. Remembers it as sent."""
    news = (
        bool(row.records)
        or row.error_code != 0
        or asked.sent_error
        or row.high_watermark != asked.sent_high_watermark
        or row.last_stable_offset != asked.sent_stable_offset
        or row.log_start_offset != asked.sent_log_start
    )
    asked.sent_high_watermark = row.high_watermark
    asked.sent_stable_offset = row.last_stable_offset
    asked.sent_log_start = row.log_start_offset
    asked.sent_error = row.error_code != 0
    return news


HANDLER = handler(FetchRequest, versions=(4, 18))(fetch)
