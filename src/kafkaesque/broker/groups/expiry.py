"""Which offsets and groups have outlived their use (KIP-211, KIP-496).

Offsets of a group without members age from the moment it became empty, so that a group may rest
over a long weekend; those of a consumer group at work age from their commit, but only for topics
that it no longer subscribes to; those of a simple group age from their commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.log_format import OffsetKey, OffsetValue, offset_tombstone
from kafkaesque.broker.groups.offsets import OffsetTable
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import LogRecord
from kafkaesque.model.ids import NO_TIMESTAMP, TimestampMs

_BeganMs: TypeAlias = Callable[[OffsetValue], TimestampMs]


def expired_offsets(
    table: OffsetTable, group: Group, retention_ms: int, now_ms: TimestampMs
) -> tuple[list[LogRecord], bool]:
    """Tombstones of the expired offsets, and whether no offset will be left after them."""
    topics = table.of_group(group.group_id)
    began_ms = _retention_began(group)
    if not topics:
        return [], True
    if began_ms is None:
        return [], False
    tombstones = []
    is_any_left = False
    for topic, partitions in topics.items():
        if group.subscribes_to(topic):
            is_any_left = True
            continue
        for partition, value in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            if _is_expired(value, began_ms, retention_ms, now_ms) and not table.is_in_flight(key):
                tombstones.append(offset_tombstone(key))
            else:
                is_any_left = True
    return tombstones, not is_any_left


def _retention_began(group: Group) -> _BeganMs | None:
    """How to tell when an offset began to age, or None while none of the group's do."""
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
    value: OffsetValue, began_ms: _BeganMs, retention_ms: int, now_ms: TimestampMs
) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - began_ms(value) >= retention_ms
