"""Fetch, API key 1.

v4   the oldest that is served: isolation level
v5   log_start_offset
v7   incremental fetch sessions (KIP-227)
v9   current leader epoch (KIP-320)
v11  rack id
v12  flexible
v13  topics by id
v15  replica state moved to a tag
v16  with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH the leader and its address (KIP-951)
v17  replica directory id
v18  high watermark of the follower

A read is committed data only, in whole batches; the first partition with data answers at least one
batch whatever its size. Too little data parks the request until enough bytes are committed or its
time is over. What is not in memory is loaded by a thread first: a slow disk holds up whoever asked for
it and nobody else.
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

# By position, because every request makes these three.
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
    """What a client wants of a partition, now or as its session remembers it."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int


class _Loading:
    """What a request misses in memory, and what was loaded for it."""

    __slots__ = ("lets_read", "missing", "tried")

    def __init__(self) -> None:
        self.missing: list[FileRange] = []
        self.tried: set[Place] = set()
        self.lets_read = True
        """Whether the partition that was looked at last is to be read now."""

    def look(self, partition: Partition, offset: Offset, max_bytes: int, at_least_one: bool) -> int:
        """How many bytes have to be loaded before a read of it does not wait."""
        if at_least_one:
            max_bytes = max(max_bytes, partition.config.max_message_bytes)
        found = partition.log.on_disk(offset, max_bytes, self.tried)
        if found is None:
            self.lets_read = bool(self.tried) or not self.missing
            return 0
        self.missing.append(found)
        self.lets_read = False
        return max(found.size_bytes, 1)


Wanted: TypeAlias = Iterable[tuple[PartitionKey, Asked]]
Rows: TypeAlias = list[tuple[PartitionKey, PartitionData]]


def fetch(
    context: Context, request: FetchRequest, call: Call
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    try:
        session, incremental = _session_of(context, request, call)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    wanted: Wanted = _asked(request) if session is None else list(session.partitions.items())
    loading = _Loading()
    rows, size_bytes, failed = _read_all(context, request, call, wanted, loading)
    if loading.missing:
        return _load_and_read(context, request, call, session, incremental, wanted, loading)
    if failed or size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or not wanted:
        return _respond(context, call, session, incremental, rows, failed)
    return _wait_and_read(context, request, call, session, incremental, wanted, size_bytes)


async def _load_and_read(
    context: Context,
    request: FetchRequest,
    call: Call,
    session: FetchSession | None,
    incremental: bool,
    wanted: Wanted,
    loading: _Loading,
) -> FetchResponse:
    """Once there is something, what is still missing is left to the next request, and nothing is waited
    for. It ends: of a partition its index is loaded, then what that points to, and no more."""
    size_bytes = 0
    while loading.missing and size_bytes == 0:
        missing, loading.missing = loading.missing, []
        await context.pages.load(missing)
        loading.tried.update(found.start for found in missing)
        rows, size_bytes, failed = _read_all(context, request, call, wanted, loading)
    is_enough = size_bytes >= request.min_bytes or request.max_wait_ms <= 0
    if failed or is_enough or loading.missing:
        return _respond(context, call, session, incremental, rows, failed)
    return await _wait_and_read(context, request, call, session, incremental, wanted, size_bytes)


async def _wait_and_read(
    context: Context,
    request: FetchRequest,
    call: Call,
    session: FetchSession | None,
    incremental: bool,
    wanted: Wanted,
    size_bytes: int,
) -> FetchResponse:
    stable_only = request.isolation_level == READ_COMMITTED
    missing_bytes = request.min_bytes - size_bytes
    awaited = BytesAwaited(missing_bytes, context.loop, stable_only=stable_only)
    try:
        watched = [_find(context, call, key) for key, _ in wanted]
    except KafkaError:
        # This task starts a moment after the first look: one of them was lost meanwhile.
        rows, _, _ = _read_all(context, request, call, wanted)
        return _respond(context, call, session, incremental, rows, failed=True)
    for partition in watched:
        partition.watch(awaited)
    timer = context.loop.call_later(request.max_wait_ms / 1000, awaited.interrupt)
    try:
        await awaited.done
    finally:
        timer.cancel()
        for partition in watched:
            partition.unwatch(awaited)
    rows, _, failed = _read_all(context, request, call, wanted)
    return _respond(context, call, session, incremental, rows, failed)


# -- sessions -----------------------------------------------------------------------------------


def _session_of(
    context: Context, request: FetchRequest, call: Call
) -> tuple[FetchSession | None, bool]:
    """The session of this request, if any, and whether the answer may leave out what is unchanged."""
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


# -- reading ------------------------------------------------------------------------------------


def _find(context: Context, call: Call, key: PartitionKey) -> Partition:
    name, topic_id, index = key
    if call.version >= IDS_SINCE:
        return context.partitions.get_by_id(TopicId(topic_id), index)
    return context.partitions.get(name, index)


def _read_all(
    context: Context,
    request: FetchRequest,
    call: Call,
    wanted: Wanted,
    loading: _Loading | None = None,
) -> tuple[Rows, int, bool]:
    """Rows in the order asked, their size, and whether an error forbids to wait.

    What would have to be waited for is not read but told to `loading`, if that is given, as far as it
    fits into an answer. Before anything was loaded, nothing is read behind it: all is asked for again.
    """
    room_bytes = min(request.max_bytes, context.config.fetch_max_bytes, context.unsent_room_bytes())
    rows: Rows = []
    total_bytes = missing_bytes = 0
    failed = False
    committed_only = request.isolation_level == READ_COMMITTED
    for key, asked in wanted:
        max_bytes = min(asked.partition_max_bytes, room_bytes - total_bytes - missing_bytes)
        row = _make_row(key[2], 0, -1, [] if committed_only else None, _EMPTY)
        rows.append((key, row))
        try:
            partition = _find(context, call, key)
            if asked.current_leader_epoch != NO_EPOCH:
                partition.check_epoch(asked.current_leader_epoch)
            if max_bytes > 0 or total_bytes + missing_bytes == 0:
                offset, max_bytes = Offset(asked.fetch_offset), max(max_bytes, 0)
                if loading is not None:
                    missing_bytes += loading.look(partition, offset, max_bytes, total_bytes == 0)
                if loading is None or loading.lets_read:
                    records, next_offset = partition.read(
                        offset,
                        max_bytes,
                        at_least_one=total_bytes == 0,
                        stable_only=committed_only,
                    )
                    row.records = records
                    total_bytes += len(records)
                    if committed_only and len(aborted := partition.producers.transactions.aborted):
                        row.aborted_transactions = _aborted(aborted, offset, next_offset)
            row.high_watermark = partition.high_watermark
            row.last_stable_offset = partition.stable_offset
            row.log_start_offset = partition.log_start_offset
        except KafkaError as error:
            failed = True
            row.error_code = error.code
    return rows, total_bytes, failed


def _aborted(index: AbortedIndex, offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
    """Whose records in what was read the consumer must leave out."""
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in index.between(offset, end_offset)
    ]


# -- answering ----------------------------------------------------------------------------------


def _respond(
    context: Context,
    call: Call,
    session: FetchSession | None,
    incremental: bool,
    rows: Rows,
    failed: bool,
) -> FetchResponse:
    response = _response_of(session, incremental, rows)
    if failed and call.version >= _HINTS_SINCE:
        _hint_leaders(context, response)
    return response


def _response_of(session: FetchSession | None, incremental: bool, rows: Rows) -> FetchResponse:
    session_id = NO_SESSION
    if session is not None:
        session_id = session.session_id
        rows = _news_of(session, incremental, rows)
    if len(rows) == 1:
        # The hash of a topic's id costs more than all the rest of this.
        ((name, topic_id, _), row) = rows[0]
        return _make_response(session_id, [_make_topic(name, topic_id, [row])])
    topics: dict[tuple[str, UUID], FetchableTopicResponse] = {}
    for (name, topic_id, _), row in rows:
        topic = topics.get((name, topic_id))
        if topic is None:
            topics[name, topic_id] = _make_topic(name, topic_id, [row])
        else:
            topic.partitions.append(row)
    return _make_response(session_id, list(topics.values()))


def _news_of(session: FetchSession, incremental: bool, rows: Rows) -> Rows:
    """What the session must be told of these rows; nothing of those forgotten since they were read."""
    partitions = session.partitions
    told: Rows = []
    for key, row in rows:
        known = partitions.get(key)
        if known is None:
            continue
        has_news = _has_news(known, row)
        if has_news or not incremental:
            told.append((key, row))
        if row.records:
            # Those that had data go to the end, so that a small answer does not starve the rest.
            partitions.move_to_end(key)
    return told


def _hint_leaders(context: Context, response: FetchResponse) -> None:
    """Where some of it failed: say who leads what this broker does not."""
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
    """Whether a session must tell of this partition; remembers that it was told."""
    news = (
        bool(row.records)
        or row.error_code != 0
        or asked.told_error
        or row.high_watermark != asked.told_high_watermark
        or row.last_stable_offset != asked.told_stable_offset
        or row.log_start_offset != asked.told_log_start
    )
    asked.told_high_watermark = row.high_watermark
    asked.told_stable_offset = row.last_stable_offset
    asked.told_log_start = row.log_start_offset
    asked.told_error = row.error_code != 0
    return news


HANDLER = handler(FetchRequest, versions=(4, 18))(fetch)
