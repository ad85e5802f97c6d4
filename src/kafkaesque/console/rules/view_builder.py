"""Builds a `ConsoleClusterView` from the brokers' responses and from the view before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkaesque.console.rules.lag import (
    GroupStatus,
    LagWindow,
    OffsetClock,
    catch_up_s,
    group_status,
    trend,
)
from kafkaesque.console.rules.phantom_lag import PhantomLag, UnreadRange
from kafkaesque.console.rules.view import (
    ConsoleBrokerView,
    ConsoleClusterView,
    GroupOffset,
    GroupView,
    PartitionKey,
    PartitionView,
    TopicView,
)
from kafkaesque.wire.messages.list_groups import ListedGroup
from kafkaesque.wire.messages.metadata import MetadataResponse


class LogDirs(NamedTuple):
    """One broker's replicas, their sizes and lags, and the capacity of its disks."""

    sizes: dict[PartitionKey, int]
    lags: dict[PartitionKey, int]
    total_bytes: int | None
    free_bytes: int | None


class UnreadRanges(NamedTuple):
    """Unread ranges of groups with members (active) and without (inactive)."""

    active: list[UnreadRange]
    inactive: list[UnreadRange]


SETTINGS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
"""Topic settings that a view contains."""


def build_brokers(
    metadata: MetadataResponse, before: ConsoleClusterView
) -> dict[int, ConsoleBrokerView]:
    """Brokers in the metadata are up; others that were seen before or hold a replica are down."""
    brokers = {
        item.node_id: ConsoleBrokerView(item.node_id, item.host, item.port, item.rack)
        for item in metadata.brokers
    }
    missing = {number: (old.host, old.port, old.rack) for number, old in before.brokers.items()}
    for topic in metadata.topics:
        for partition in topic.partitions:
            for number in partition.replica_nodes:
                missing.setdefault(number, ("?", 0, None))
    for number, (host, port, rack) in missing.items():
        if number not in brokers:
            brokers[number] = ConsoleBrokerView(number, host, port, rack, is_up=False)
    for topic in metadata.topics:
        for partition in topic.partitions:
            if partition.leader_id in brokers:
                brokers[partition.leader_id].leads += 1
            for number in partition.replica_nodes:
                brokers[number].replicas += 1
                brokers[number].out_of_sync += number not in partition.isr_nodes
    for number, broker in brokers.items():
        if old := before.brokers.get(number):
            broker.size_bytes = old.size_bytes
            broker.disk_total_bytes = old.disk_total_bytes
            broker.disk_free_bytes = old.disk_free_bytes
    return dict(sorted(brokers.items()))


def build_topics(metadata: MetadataResponse, before: ConsoleClusterView) -> dict[str, TopicView]:
    """Data that is refreshed less often (starts, sizes, settings) is carried over from `before`."""
    topics: dict[str, TopicView] = {}
    for topic in metadata.topics:
        if topic.name is None:
            continue
        partitions = [
            PartitionView(
                index=item.partition_index,
                leader=item.leader_id,
                epoch=item.leader_epoch,
                replicas=tuple(item.replica_nodes),
                isr=tuple(item.isr_nodes),
                offline=tuple(item.offline_replicas),
            )
            for item in sorted(topic.partitions, key=lambda item: item.partition_index)
        ]
        view = TopicView(topic.name, str(topic.topic_id), topic.is_internal, partitions)
        old = before.topics.get(topic.name)
        if old is not None and old.id == view.id:
            view.rate, view.retention_ms = old.rate, old.retention_ms
            view.retention_bytes, view.cleanup = old.retention_bytes, old.cleanup
            view.oldest_ms = old.oldest_ms
            for new, was in zip(partitions, old.partitions, strict=False):
                new.start, new.end, new.size_bytes = was.start, was.end, was.size_bytes
                new.follower_lag = was.follower_lag
        topics[topic.name] = view
    return topics


def leaders_of(topics: Iterable[TopicView]) -> dict[PartitionKey, int]:
    """The leader of each partition; -1 where there is none."""
    return {
        (topic.name, partition.index): partition.leader
        for topic in topics
        for partition in topic.partitions
    }


def set_ends(
    topics: Mapping[str, TopicView], ends: Mapping[PartitionKey, int], elapsed_s: float
) -> None:
    """Set end offsets, and topic rates from how far the ends moved in `elapsed_s`."""
    for topic in topics.values():
        grown, is_known = 0, elapsed_s > 0
        for partition in topic.partitions:
            end = ends.get((topic.name, partition.index))
            if end is None:
                continue
            if partition.end is None:
                is_known = False
            else:
                grown += max(0, end - partition.end)
            partition.end = end
        if is_known:
            topic.rate = grown / elapsed_s


def set_starts(topics: Mapping[str, TopicView], starts: Mapping[PartitionKey, int]) -> None:
    for topic in topics.values():
        for partition in topic.partitions:
            partition.start = starts.get((topic.name, partition.index), partition.start)


def set_sizes(view: ConsoleClusterView, dirs: Mapping[int, LogDirs]) -> None:
    """A partition's size is that of its leader; a follower's lag is reported by its own broker."""
    for number, found in dirs.items():
        broker = view.brokers.get(number)
        if broker is not None:
            broker.size_bytes = sum(found.sizes.values())
            broker.disk_total_bytes, broker.disk_free_bytes = found.total_bytes, found.free_bytes
    for topic in view.topics.values():
        for partition in topic.partitions:
            key = (topic.name, partition.index)
            leader = dirs.get(partition.leader)
            if leader is not None:
                partition.size_bytes = leader.sizes.get(key, partition.size_bytes)
            partition.follower_lag = {
                number: dirs[number].lags[key]
                for number in partition.replicas
                if number != partition.leader and number in dirs and key in dirs[number].lags
            }


def set_settings(
    topics: Mapping[str, TopicView], settings: Mapping[str, Mapping[str, str | None]]
) -> None:
    for name, values in settings.items():
        topic = topics.get(name)
        if topic is not None:
            topic.retention_ms = _number(values.get("retention.ms"))
            topic.retention_bytes = _number(values.get("retention.bytes"))
            topic.cleanup = values.get("cleanup.policy")


def set_oldest(topics: Mapping[str, TopicView], times_ms: Mapping[PartitionKey, int]) -> None:
    for topic in topics.values():
        keys = [(topic.name, partition.index) for partition in topic.partitions]
        topic.oldest_ms = min((times_ms[key] for key in keys if key in times_ms), default=None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


def build_groups(
    listed: Iterable[tuple[ListedGroup, int]],
    members: Mapping[str, int],
    before: ConsoleClusterView,
) -> dict[str, GroupView]:
    """`listed` has each group with its coordinator. Offsets and lag windows are carried over from
    `before`; `evaluate_group` updates them."""
    groups: dict[str, GroupView] = {}
    for item, coordinator in listed:
        old = before.groups.get(item.group_id)
        view = GroupView(
            name=item.group_id,
            state=item.group_state or (old.state if old else ""),
            kind=item.group_type or "classic",
            protocol_type=item.protocol_type,
            coordinator=coordinator,
            members=members.get(item.group_id, old.members if old else None),
        )
        if view.state.lower() == "empty":
            view.members = 0
        if old is not None:
            view.offsets, view.windows, view.status = old.offsets, old.windows, old.status
        groups[item.group_id] = view
    return groups


def end_offset(topics: Mapping[str, TopicView], key: PartitionKey) -> int | None:
    topic, index = key
    view = topics.get(topic)
    return view.partitions[index].end if view and index < len(view.partitions) else None


def unread_ranges(
    view: ConsoleClusterView, committed: Mapping[str, Mapping[PartitionKey, int]]
) -> UnreadRanges:
    """The ranges between committed offsets and the partitions' ends."""
    found = UnreadRanges([], [])
    for name, offsets in committed.items():
        group = view.groups.get(name)
        if group is None:
            continue
        ranges = found.active if group.has_members else found.inactive
        for key, offset in offsets.items():
            end = end_offset(view.topics, key)
            if end is not None and offset < end:
                ranges.append(UnreadRange(key, offset, end))
    return found


def evaluate_group(
    group: GroupView,
    committed: Mapping[PartitionKey, int],
    topics: Mapping[str, TopicView],
    clocks: Mapping[PartitionKey, OffsetClock],
    phantom_lag: PhantomLag,
    now_s: float,
) -> None:
    """Set offsets, lag and status of one group from its committed offsets."""
    group.offsets = []
    for key in sorted(committed):
        topic, index = key
        end = end_offset(topics, key)
        item = GroupOffset(topic, index, committed[key], end)
        if end is not None:
            item.phantom = phantom_lag.count(UnreadRange(key, item.committed, end))
            read = item.committed + item.phantom
            window = group.windows.setdefault(key, LagWindow())
            window.observe(now_s, read, end)
            item.status = window.status(group.has_members)
            clock = clocks.get(key)
            item.time_lag = clock.lag_s(read, now_s) if clock is not None else None
        group.offsets.append(item)
    for key in group.windows.keys() - committed.keys():
        del group.windows[key]
    statuses = [item.status for item in group.offsets]
    group.status = group_status(statuses)
    if not statuses and group.has_members:
        group.status = GroupStatus.OK


def set_trend(group: GroupView, points: list[tuple[float, float]]) -> None:
    group.trend = trend(points)
    group.catch_up_s = catch_up_s(group.lag, points)


def set_topic_groups(view: ConsoleClusterView) -> None:
    """Set the lag of each group on each topic."""
    for topic in view.topics.values():
        topic.groups = {}
    for group in view.groups.values():
        for item in group.offsets:
            topic_view = view.topics.get(item.topic)
            if topic_view is not None:
                lag = topic_view.groups.get(group.name, 0)
                topic_view.groups[group.name] = lag + (item.lag or 0)


def count_elections(before: ConsoleClusterView, after: ConsoleClusterView) -> int:
    """Leader epochs that began between two samples, over all partitions."""
    total = 0
    for topic in after.topics.values():
        was = before.topics.get(topic.name)
        if was is None or was.id != topic.id:
            continue
        for old, new in zip(was.partitions, topic.partitions, strict=False):
            total += max(0, new.epoch - old.epoch)
    return total
