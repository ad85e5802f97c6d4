"""All groups of one coordinator partition: the entry point of the group rules.

Construct it, `replay` every record of the log, call `loaded`, then serve requests. The driver follows
the docstring of `types.Effects`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from kafkaesque.broker.groups import offsets, rebalance
from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.group import Group, describe, describe_unknown, list_groups
from kafkaesque.broker.groups.log_format import (
    GroupKey,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    group_tombstone,
    offset_tombstone,
)
from kafkaesque.broker.groups.membership import heartbeat, join, leave, leave_unknown_group, sync
from kafkaesque.broker.groups.step import GroupTimers, Step, TimerKey, TimerKind, Waiting
from kafkaesque.broker.groups.timers import Timers
from kafkaesque.broker.groups.transitions import GroupEvent, GroupState
from kafkaesque.broker.groups.types import (
    NO_MEMBER_ID,
    CommitRequest,
    DeletedGroup,
    DeleteGroupsAnswer,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    FetchedTopic,
    GroupDescription,
    GroupEffects,
    GroupListing,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    MemberHeartbeat,
    SyncAnswer,
    SyncRequest,
    TopicToFetch,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode, check
from kafkaesque.model.ids import PartitionIndex, ProducerId, TimestampMs
from kafkaesque.model.limits import GROUP_ID_LENGTH_MAX

_STRING_BYTES_MAX = 32_767
"""The length of a string in the log has 16 bits."""


class GroupRegistry:
    """Requests in, effects out; `new_id` returns the random part of a member id."""

    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self._config = config
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._offsets = offsets.OffsetTable()
        self._timers: GroupTimers = Timers()
        self._waiting: Waiting = set()
        self._is_loaded = False

    # -- the log ------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Applies a committed record, while loading and later after each append of our own.

        Ignores records of other protocols. Raises CorruptMessage if the bytes are malformed.
        """
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            self._replay_offset(decoded, None if value is None else decode_offset(value))
        elif decoded is not None:
            self._replay_group(decoded, value)

    def replay_pending(self, producer_id: ProducerId, key: bytes, value: bytes | None) -> None:
        """Applies a committed record of a transaction: it takes effect if the transaction commits."""
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey) and value is not None:
            self._offsets.replay_pending(producer_id, decoded, decode_offset(value))

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The transaction of `producer_id` has ended; its marker is committed."""
        for key in self._offsets.replay_marker(producer_id, is_commit=is_commit):
            if key.group_id not in self._groups:
                self._groups[key.group_id] = Group(key.group_id)

    def loaded(self, now: Moment) -> None:
        """The log has been replayed: the sessions of restored members start."""
        check(not self._is_loaded, "a registry is loaded once")
        self._is_loaded = True
        step = self._step(now)
        for group in self._groups.values():
            for member in group.roster:
                step.start_session(group, member)
            if len(group.roster) > self._config.group_size_max:
                # The setting was lowered: the next rebalance rejects those that join last.
                rebalance.begin(group, step)

    def _replay_offset(self, key: OffsetKey, value: OffsetValue | None) -> None:
        if value is not None and key.group_id not in self._groups:
            self._groups[key.group_id] = Group(key.group_id)
        self._offsets.replay(key, value)

    def _replay_group(self, key: GroupKey, value: bytes | None) -> None:
        group_id = key.group_id
        if self._is_loaded:
            # Our own record: the group has changed already. Only a commit that was in flight when
            # the group was deleted may have recreated it, empty.
            if value is None and self._is_bare(group_id):
                del self._groups[group_id]
        elif value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = Group.from_record(key, decode_group(value))

    def _is_bare(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return (
            group is not None
            and group.protocol_type is None
            and not group.roster.pending_ids
            and not self._offsets.of_group(group_id)
            and not self._offsets.has_in_flight(group_id)
        )

    # -- membership ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: int, now: Moment) -> GroupEffects:
        step = self._step(now)
        error = self._join_error(request)
        if error is not ErrorCode.NONE:
            step.answer(token, JoinAnswer(error=error, member_id=request.member_id))
            return step.effects()
        group = self._groups.get(request.group_id)
        if group is not None:
            join(group, request, token, self._new_id, step)
            return step.effects()
        group = Group(request.group_id, now.wall_ms)
        step.append(group.as_record())
        self._groups[request.group_id] = group
        join(group, request, token, self._new_id, step)
        return step.effects()

    def sync(self, request: SyncRequest, token: int, now: Moment) -> GroupEffects:
        step = self._step(now)
        group = self._groups.get(request.group_id)
        if group is None:
            step.answer(token, SyncAnswer(error=_unknown_member_in(request.group_id)))
        else:
            sync(group, request, token, step)
        return step.effects()

    def heartbeat(self, request: MemberHeartbeat, token: int, now: Moment) -> GroupEffects:
        step = self._step(now)
        group = self._groups.get(request.group_id)
        if group is None:
            step.answer(token, HeartbeatAnswer(error=_unknown_member_in(request.group_id)))
        else:
            heartbeat(group, request, token, step)
        return step.effects()

    def leave(self, request: LeaveRequest, token: int, now: Moment) -> GroupEffects:
        step = self._step(now)
        group = self._groups.get(request.group_id)
        if group is None:
            step.answer(token, leave_unknown_group(request))
        else:
            leave(group, request, token, step)
        return step.effects()

    def cancel(self, token: int) -> None:
        """The client of `token` disconnected; its member stays until its session ends."""
        self._waiting.discard(token)

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        """Checks the request itself, and whether a new group may be created for it."""
        if not 0 < len(request.group_id.encode()) <= GROUP_ID_LENGTH_MAX:
            return ErrorCode.INVALID_GROUP_ID
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not config.session_timeout_ms_min <= timeout_ms <= config.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        texts = [request.protocol_type, request.client_id, request.client_host]
        texts += [protocol.name for protocol in request.protocols]
        texts.append(request.group_instance_id or "")
        if any(len(text.encode()) > _STRING_BYTES_MAX for text in texts):
            return ErrorCode.INVALID_REQUEST
        if request.group_id in self._groups:
            return ErrorCode.NONE
        if request.member_id != NO_MEMBER_ID:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._is_full:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    @property
    def _is_full(self) -> bool:
        return len(self._groups) >= self._config.groups_max

    # -- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `tick` is due, in monotonic seconds; None: never."""
        return self._timers.next_deadline()

    def tick(self, now: Moment) -> GroupEffects:
        """Fires every timer that is due."""
        step = self._step(now)
        while (key := self._timers.pop_due(now.monotonic)) is not None:
            group = self._groups.get(key.group_id)
            if group is not None:
                _on_timer(group, key, step)
        return step.effects()

    # -- offsets ------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitRequest, token: int, now: Moment) -> GroupEffects:
        """Returns records and an answer; the offsets become visible when the records are replayed."""
        step = self._step(now)
        group = self._groups.get(request.group_id)
        if len(request.group_id.encode()) > GROUP_ID_LENGTH_MAX:
            step.answer(token, offsets.commit_refused(request, ErrorCode.INVALID_GROUP_ID))
        elif group is None and self._is_full and request.generation_id < 0:
            step.answer(token, offsets.commit_refused(request, ErrorCode.POLICY_VIOLATION))
        else:
            offsets.commit(self._offsets, group, request, token, step)
        effects = step.effects()
        return effects if request.producer is None else replace(effects, producer=request.producer)

    def fetch_offsets(
        self,
        group_id: str,
        topics: tuple[TopicToFetch, ...] | None,
        *,
        require_stable: bool = False,
    ) -> list[FetchedTopic]:
        """The committed offsets of `topics`, or of all topics with offsets of the group."""
        if topics is None:
            return offsets.fetch_all(self._offsets, group_id, require_stable=require_stable)
        return offsets.fetch(self._offsets, group_id, topics, require_stable=require_stable)

    def delete_offsets(
        self, request: DeleteOffsetsRequest, token: int, now: Moment
    ) -> GroupEffects:
        step = self._step(now)
        group = self._groups.get(request.group_id)
        error = offsets.delete_error(group) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if group is None or error is not ErrorCode.NONE:
            step.answer(token, DeleteOffsetsAnswer(error=error))
        else:
            topics = offsets.delete(self._offsets, group, request, step)
            step.answer(token, DeleteOffsetsAnswer(topics=topics))
        return step.effects()

    def expire_offsets(self, now_ms: TimestampMs) -> GroupEffects:
        """Tombstones for expired offsets and for empty groups without offsets."""
        records = []
        retention_ms = self._config.offsets_retention_ms
        for group in tuple(self._groups.values()):
            tombstones, is_bare = offsets.expired(self._offsets, group, retention_ms, now_ms)
            records += tombstones
            if is_bare and self._is_deletable(group):
                self._drop(group, now_ms)
                records.append(group_tombstone(GroupKey(group.group_id)))
        return GroupEffects(tuple(records))

    def topics_deleted(self, names: Iterable[str]) -> GroupEffects:
        """Tombstones for the offsets of deleted topics."""
        keys = self._offsets.keys_of_topics(frozenset(names))
        return GroupEffects(tuple(offset_tombstone(key) for key in keys))

    # -- groups -------------------------------------------------------------------------------

    def delete_groups(self, group_ids: tuple[str, ...], token: int, now: Moment) -> GroupEffects:
        step = self._step(now)
        results = tuple(
            DeletedGroup(group_id, self._delete_group(group_id, step)) for group_id in group_ids
        )
        step.answer(token, DeleteGroupsAnswer(groups=results))
        return step.effects()

    def describe_groups(self, group_ids: Iterable[str], api_version: int) -> list[GroupDescription]:
        """One entry for each requested id."""
        return [
            describe(self._groups[group_id])
            if group_id in self._groups
            else describe_unknown(group_id, api_version)
            for group_id in group_ids
        ]

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        return list_groups(self._groups.values(), states, types)

    def _delete_group(self, group_id: str, step: Step) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for key in self._offsets.keys_of_group(group_id):
            step.append(offset_tombstone(key))
        step.append(group_tombstone(GroupKey(group_id)))
        self._drop(group, step.now.wall_ms)
        return ErrorCode.NONE

    def _is_deletable(self, group: Group) -> bool:
        """It has no members, no pending ids and no commits in flight."""
        return (
            group.state is GroupState.EMPTY
            and not group.roster.pending_ids
            and not self._offsets.has_in_flight(group.group_id)
        )

    def _drop(self, group: Group, now_ms: TimestampMs) -> None:
        for member_id in group.roster.pending_ids:
            self._timers.cancel(TimerKey(group.group_id, TimerKind.SESSION, member_id))
        group.move(GroupEvent.REMOVED, now_ms)
        del self._groups[group.group_id]

    # -- metrics ------------------------------------------------------------------------------

    def group_ids(self) -> Iterator[str]:
        return iter(tuple(self._groups))

    def groups_by_state(self) -> dict[GroupState, int]:
        """The number of groups in every state; Dead is always 0."""
        counts = Counter(group.state for group in self._groups.values())
        return {state: counts[state] for state in GroupState}

    def member_count(self) -> int:
        return sum(len(group.roster) for group in self._groups.values())

    def offset_count(self) -> int:
        return len(self._offsets)

    def waiting_count(self) -> int:
        """Joins and syncs that wait for an answer."""
        return len(self._waiting)

    def committed_offsets(
        self, group_id: str
    ) -> Mapping[str, Mapping[PartitionIndex, OffsetValue]]:
        """By topic and partition, without a copy: for consumer lag."""
        return self._offsets.of_group(group_id)

    def _step(self, now: Moment) -> Step:
        return Step(self._config, now, self._timers, self._waiting)


def _on_timer(group: Group, key: TimerKey, step: Step) -> None:
    match key.kind:
        case TimerKind.SESSION:
            rebalance.on_session_timer(group, key.member_id, step)
        case TimerKind.JOIN:
            rebalance.on_join_timer(group, step)
        case TimerKind.SYNC:
            rebalance.on_sync_timer(group, step)


def _unknown_member_in(group_id: str) -> ErrorCode:
    """An unknown group has no members."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
