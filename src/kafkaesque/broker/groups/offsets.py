"""Committed offsets: a table that changes only by replay, and the rules of commit, fetch, delete and
expiry.

Expiry (KIP-211, KIP-496): the offsets of a group without members age from the moment it became empty,
so that a group may pause over a long weekend; those of an active consumer group age from their
commit, but only for topics that it no longer subscribes to; those of a simple group age from their
commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.log_format import (
    OffsetKey,
    OffsetValue,
    encode_offset,
    offset_tombstone,
)
from kafkaesque.broker.groups.pending_offsets import PendingOffsets
from kafkaesque.broker.groups.step import Step
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import (
    NO_MEMBER_ID,
    CommitAnswer,
    CommitRequest,
    DeleteOffsetsRequest,
    FetchedOffset,
    FetchedTopic,
    OffsetResult,
    OffsetToCommit,
    TopicResult,
    TopicToCommit,
    TopicToFetch,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    PartitionIndex,
    ProducerId,
    TimestampMs,
    TopicId,
)
from kafkaesque.model.limits import TOPIC_NAME_LENGTH_MAX
from kafkaesque.records.log_fields import LogRecord

_EMPTY: Final[Mapping[str, dict[PartitionIndex, OffsetValue]]] = MappingProxyType({})
_COMMITS_KEEP_SESSION: Final = frozenset((GroupState.STABLE, GroupState.PREPARING_REBALANCE))
_TIMESTAMP_MS_MAX: Final = 2**63 - 1
_KeyT = TypeVar("_KeyT")


class OffsetTable:
    """Offsets by group, topic and partition, from committed records only.

    Commits that were handed to the driver and not replayed yet are counted as in flight, so that
    their group is not deleted or expired meanwhile.
    """

    __slots__ = ("_by_group", "_count", "_in_flight", "_in_flight_groups", "pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[PartitionIndex, OffsetValue]]] = {}
        self._count = 0
        self._in_flight: Counter[OffsetKey] = Counter()
        self._in_flight_groups: Counter[str] = Counter()
        self.pending = PendingOffsets()

    def __len__(self) -> int:
        return self._count

    def of_group(self, group_id: str) -> Mapping[str, Mapping[PartitionIndex, OffsetValue]]:
        return self._by_group.get(group_id, _EMPTY)

    def get(self, key: OffsetKey) -> OffsetValue | None:
        return self._by_group.get(key.group_id, _EMPTY).get(key.topic, {}).get(key.partition)

    def has_in_flight(self, group_id: str) -> bool:
        return self._in_flight_groups[group_id] > 0 or self.pending.has_group(group_id)

    def is_in_flight(self, key: OffsetKey) -> bool:
        return self._in_flight[key] > 0 or key in self.pending

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Every key with an offset, committed or in flight."""
        keys = dict.fromkeys(
            OffsetKey(group_id, topic, partition)
            for topic, partitions in self._by_group.get(group_id, _EMPTY).items()
            for partition in partitions
        )
        if self.has_in_flight(group_id):
            keys |= dict.fromkeys(key for key in self._keys_in_flight() if key.group_id == group_id)
        return list(keys)

    def keys_of_topics(self, topics: Set[str]) -> list[OffsetKey]:
        """Every key of `topics` with an offset, committed or in flight, in any group."""
        keys = dict.fromkeys(
            OffsetKey(group_id, topic, partition)
            for group_id, by_topic in self._by_group.items()
            for topic in by_topic.keys() & topics
            for partition in by_topic[topic]
        )
        keys |= dict.fromkeys(key for key in self._keys_in_flight() if key.topic in topics)
        return list(keys)

    def _keys_in_flight(self) -> list[OffsetKey]:
        return [*self._in_flight, *self.pending.keys()]

    def sent(self, key: OffsetKey) -> None:
        """A commit of `key` was handed to the driver."""
        self._in_flight[key] += 1
        self._in_flight_groups[key.group_id] += 1

    def replay(self, key: OffsetKey, value: OffsetValue | None) -> None:
        if value is None:
            self._remove(key)
            return
        self._arrived(key)
        self._put(key, value)
        self.pending.committed(key)

    def replay_pending(self, producer_id: ProducerId, key: OffsetKey, value: OffsetValue) -> None:
        self._arrived(key)
        self.pending.add(producer_id, key, value)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> list[OffsetKey]:
        """Ends the transaction of `producer_id` and returns the keys that it committed."""
        offsets = self.pending.end(producer_id, is_commit=is_commit)
        for key, value in offsets.items():
            self._put(key, value)
        return list(offsets)

    def _arrived(self, key: OffsetKey) -> None:
        if self._in_flight[key]:
            _decrement(self._in_flight, key)
            _decrement(self._in_flight_groups, key.group_id)

    def _put(self, key: OffsetKey, value: OffsetValue) -> None:
        partitions = self._by_group.setdefault(key.group_id, {}).setdefault(key.topic, {})
        self._count += key.partition not in partitions
        partitions[key.partition] = value

    def _remove(self, key: OffsetKey) -> None:
        self.pending.remove(key)
        topics = self._by_group.get(key.group_id)
        partitions = None if topics is None else topics.get(key.topic)
        if topics is None or partitions is None or key.partition not in partitions:
            return
        del partitions[key.partition]
        self._count -= 1
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group_id]


def commit(
    table: OffsetTable, group: Group | None, request: CommitRequest, token: int, step: Step
) -> None:
    """Turns a commit into records; the table changes when they are replayed.

    `group` is None for a group that no member has joined: replay will create it.
    """
    error = _commit_error(group, request)
    if error is not ErrorCode.NONE:
        step.answer(token, commit_refused(request, error))
        return
    keeps_session = group is not None and group.state in _COMMITS_KEEP_SESSION
    if group is not None and keeps_session and request.member_id in group.roster:
        step.start_session(group, group.roster[request.member_id])
    topics = tuple(
        TopicResult(topic.topic, _commit_topic(table, request, topic, step), topic.topic_id)
        for topic in request.topics
    )
    step.answer(token, CommitAnswer(topics=topics))


def commit_refused(request: CommitRequest, error: ErrorCode) -> CommitAnswer:
    """The whole request fails: every partition gets the error."""
    return CommitAnswer(
        topics=tuple(
            TopicResult(
                topic.topic,
                tuple(OffsetResult(wanted.partition, error) for wanted in topic.partitions),
                topic.topic_id,
            )
            for topic in request.topics
        )
    )


def _commit_error(group: Group | None, request: CommitRequest) -> ErrorCode:
    """Kafka's ClassicGroup.validateOffsetCommit."""
    is_simple = request.generation_id < 0
    if request.producer is not None:
        return _transactional_error(group, request)
    if group is None:
        if is_simple:
            return ErrorCode.NONE
        knows_code = request.api_version >= 9
        return ErrorCode.GROUP_ID_NOT_FOUND if knows_code else ErrorCode.ILLEGAL_GENERATION
    if is_simple and group.state is GroupState.EMPTY:
        # The admin client, or a consumer that assigns its partitions itself.
        return ErrorCode.NONE
    names_nobody = request.member_id == NO_MEMBER_ID and request.group_instance_id is None
    if is_simple and names_nobody:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member and generation are right but too early: the client treats it as a rebalance.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _transactional_error(group: Group | None, request: CommitRequest) -> ErrorCode:
    """TxnOffsetCommit names the member from version 3 on (KIP-447); if it does, it is checked."""
    names_nobody = request.member_id == NO_MEMBER_ID and request.group_instance_id is None
    if request.generation_id < 0 and names_nobody:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.EMPTY and request.generation_id < 0:
        return ErrorCode.NONE
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _commit_topic(
    table: OffsetTable, request: CommitRequest, topic: TopicToCommit, step: Step
) -> tuple[OffsetResult, ...]:
    results = []
    for wanted in topic.partitions:
        metadata = wanted.metadata or ""
        error = _partition_error(topic.topic, metadata, step.config)
        if error is ErrorCode.NONE:
            key = OffsetKey(request.group_id, topic.topic, wanted.partition)
            value = _value(request, wanted, metadata, topic.topic_id, step.now.wall_ms)
            step.append(encode_offset(key, value))
            table.sent(key)
        results.append(OffsetResult(wanted.partition, error))
    return tuple(results)


def _partition_error(topic: str, metadata: str, config: GroupConfig) -> ErrorCode:
    if not 0 < len(topic) <= TOPIC_NAME_LENGTH_MAX:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(metadata) > config.offset_metadata_length_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _value(
    request: CommitRequest,
    wanted: OffsetToCommit,
    metadata: str,
    topic_id: TopicId,
    now_ms: TimestampMs,
) -> OffsetValue:
    has_time = wanted.commit_timestamp_ms != NO_TIMESTAMP
    expire_ms = NO_TIMESTAMP
    if request.retention_ms >= 0:
        expire_ms = TimestampMs(min(now_ms + request.retention_ms, _TIMESTAMP_MS_MAX))
    return OffsetValue(
        offset=wanted.offset,
        metadata=metadata,
        commit_timestamp_ms=wanted.commit_timestamp_ms if has_time else now_ms,
        leader_epoch=wanted.leader_epoch,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )


def fetch(
    table: OffsetTable,
    group_id: str,
    topics: tuple[TopicToFetch, ...],
    *,
    require_stable: bool = False,
) -> list[FetchedTopic]:
    """One entry for every requested partition, with offset -1 where nothing is committed.

    With `require_stable`, offsets that an open transaction may change are an error (KIP-447).
    """
    fetched = []
    for topic in topics:
        known = table.of_group(group_id).get(topic.topic, {})
        partitions = tuple(
            FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if require_stable and OffsetKey(group_id, topic.topic, partition) in table.pending
            else _fetched(partition, known.get(partition), topic.topic_id)
            for partition in topic.partitions
        )
        fetched.append(FetchedTopic(topic.topic, partitions, topic.topic_id))
    return fetched


def fetch_all(
    table: OffsetTable, group_id: str, *, require_stable: bool = False
) -> list[FetchedTopic]:
    if require_stable and table.pending.has_group(group_id):
        by_topic: dict[str, list[PartitionIndex]] = {}
        for key in table.keys_of_group(group_id):
            by_topic.setdefault(key.topic, []).append(key.partition)
        topics = tuple(TopicToFetch(topic, tuple(found)) for topic, found in by_topic.items())
        return fetch(table, group_id, topics, require_stable=True)
    return [
        FetchedTopic(topic, tuple(_fetched(number, value) for number, value in partitions.items()))
        for topic, partitions in table.of_group(group_id).items()
    ]


def _fetched(
    partition: PartitionIndex, value: OffsetValue | None, topic_id: TopicId = NO_TOPIC_ID
) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition)
    if NO_TOPIC_ID not in (value.topic_id, topic_id) and value.topic_id != topic_id:
        # The offset belongs to a deleted topic of the same name (OffsetFetch 10).
        return FetchedOffset(partition)
    return FetchedOffset(partition, value.offset, value.leader_epoch, value.metadata)


def delete(
    table: OffsetTable, group: Group, request: DeleteOffsetsRequest, step: Step
) -> tuple[TopicResult, ...]:
    """Appends tombstones for the topics that the group does not subscribe to (KIP-496)."""
    results = []
    for topic in request.topics:
        if group.subscribes_to(topic.topic):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            error = ErrorCode.NONE
            for partition in topic.partitions:
                key = OffsetKey(request.group_id, topic.topic, partition)
                if table.get(key) is not None or table.is_in_flight(key):
                    step.append(offset_tombstone(key))
        partitions = tuple(OffsetResult(partition, error) for partition in topic.partitions)
        results.append(TopicResult(topic.topic, partitions))
    return tuple(results)


def delete_error(group: Group | None) -> ErrorCode:
    """Whether the group permits OffsetDelete at all."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _decrement(counter: Counter[_KeyT], key: _KeyT) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


_AgesFrom: TypeAlias = Callable[[OffsetValue], TimestampMs]


def expired(
    table: OffsetTable, group: Group, retention_ms: int, now_ms: TimestampMs
) -> tuple[list[LogRecord], bool]:
    """Tombstones of the expired offsets, and whether the group then has none left."""
    topics = table.of_group(group.group_id)
    ages_from = _ages_from(group)
    if not topics:
        return [], True
    if ages_from is None:
        return [], False
    tombstones = []
    is_any_left = False
    for topic, partitions in topics.items():
        if group.subscribes_to(topic):
            is_any_left = True
            continue
        for partition, value in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            if _is_expired(value, ages_from, retention_ms, now_ms) and not table.is_in_flight(key):
                tombstones.append(offset_tombstone(key))
            else:
                is_any_left = True
    return tombstones, not is_any_left


def _ages_from(group: Group) -> _AgesFrom | None:
    """Returns a function for when an offset began to age; None while the group's offsets do not."""
    if group.protocol_type is None:
        return _commit_time
    if group.state is GroupState.EMPTY:
        since_ms = group.state_since_ms
        return _commit_time if since_ms is None else lambda _: since_ms
    if group.state is GroupState.STABLE and group.subscribed is not None:
        return _commit_time
    return None


def _commit_time(value: OffsetValue) -> TimestampMs:
    return value.commit_timestamp_ms


def _is_expired(
    value: OffsetValue, ages_from: _AgesFrom, retention_ms: int, now_ms: TimestampMs
) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - ages_from(value) >= retention_ms
