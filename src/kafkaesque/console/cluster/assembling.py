"""Answers of brokers to a `ClusterView`: pure, so that it can be tested without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkaesque.console.cluster.asking import Listed, LogDirs
from kafkaesque.console.rules.lag import (
    OffsetClock,
    Status,
    Window,
    catch_up_s,
    group_status,
    trend,
)
from kafkaesque.console.rules.tails import Tail, Tails
from kafkaesque.console.rules.view import (
    BrokerView,
    ClusterView,
    GroupOffset,
    GroupView,
    PartitionView,
    Place,
    TopicView,
)
from kafkaesque.wire.messages.metadata import MetadataResponse


class GroupTails(NamedTuple):
    moving: list[Tail]
    still: list[Tail]


SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")


def assemble_brokers(answer: MetadataResponse, before: ClusterView) -> dict[int, BrokerView]:
    """Brokers that are up, and those that were or that hold a replica: they are down."""
    brokers = {
        item.node_id: BrokerView(item.node_id, item.host, item.port, item.rack)
        for item in answer.brokers
    }
    missing = {number: (old.host, old.port, old.rack) for number, old in before.brokers.items()}
    for topic in answer.topics:
        for partition in topic.partitions:
            for number in partition.replica_nodes:
                missing.setdefault(number, ("?", 0, None))
    for number, (host, port, rack) in missing.items():
        if number not in brokers:
            brokers[number] = BrokerView(number, host, port, rack, is_up=False)
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.leader_id in brokers:
                brokers[partition.leader_id].leads += 1
            for number in partition.replica_nodes:
                brokers[number].replicas += 1
                brokers[number].behind += number not in partition.isr_nodes
    for number, broker in brokers.items():
        if old := before.brokers.get(number):
            broker.size_bytes = old.size_bytes
            broker.disk_total_bytes = old.disk_total_bytes
            broker.disk_free_bytes = old.disk_free_bytes
    return dict(sorted(brokers.items()))


def assemble_topics(answer: MetadataResponse, before: ClusterView) -> dict[str, TopicView]:
    """What is asked for less often (starts, sizes, settings) is carried over from before."""
    topics: dict[str, TopicView] = {}
    for topic in answer.topics:
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


def leaders_of(topics: Iterable[TopicView]) -> dict[Place, int]:
    return {
        (topic.name, partition.index): partition.leader
        for topic in topics
        for partition in topic.partitions
    }


def set_ends(topics: Mapping[str, TopicView], ends: Mapping[Place, int], elapsed_s: float) -> int:
    """Ends, and rates from how far they moved in `elapsed_s`; how many records that is in all."""
    total = 0
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
            total += grown
    return total


def set_starts(topics: Mapping[str, TopicView], starts: Mapping[Place, int]) -> None:
    for topic in topics.values():
        for partition in topic.partitions:
            partition.start = starts.get((topic.name, partition.index), partition.start)


def set_sizes(view: ClusterView, dirs: Mapping[int, LogDirs]) -> None:
    """A partition's size is its leader's; a follower's lag is what its own broker says."""
    for number, found in dirs.items():
        broker = view.brokers.get(number)
        if broker is not None:
            broker.size_bytes = sum(found.sizes.values())
            broker.disk_total_bytes, broker.disk_free_bytes = found.total_bytes, found.free_bytes
    for topic in view.topics.values():
        for partition in topic.partitions:
            place = (topic.name, partition.index)
            leader = dirs.get(partition.leader)
            if leader is not None:
                partition.size_bytes = leader.sizes.get(place, partition.size_bytes)
            partition.follower_lag = {
                number: dirs[number].lags[place]
                for number in partition.replicas
                if number != partition.leader and number in dirs and place in dirs[number].lags
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


def set_oldest(topics: Mapping[str, TopicView], times_ms: Mapping[Place, int]) -> None:
    for topic in topics.values():
        places = [(topic.name, partition.index) for partition in topic.partitions]
        topic.oldest_ms = min((times_ms[one] for one in places if one in times_ms), default=None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


def assemble_groups(
    listed: Iterable[Listed], members: Mapping[str, int], before: ClusterView
) -> dict[str, GroupView]:
    """Offsets and windows are carried over; `judge_groups` brings them up to date."""
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


def end_of(topics: Mapping[str, TopicView], place: Place) -> int | None:
    topic, index = place
    view = topics.get(topic)
    return view.partitions[index].end if view and index < len(view.partitions) else None


def tails_of(view: ClusterView, committed: Mapping[str, Mapping[Place, int]]) -> GroupTails:
    """Where groups have not read to the end, of those with members and of those without."""
    found = GroupTails([], [])
    for name, offsets in committed.items():
        group = view.groups.get(name)
        if group is None:
            continue
        tails = found.moving if group.has_members else found.still
        for place, offset in offsets.items():
            end = end_of(view.topics, place)
            if end is not None and offset < end:
                tails.append(Tail(place, offset, end))
    return found


def judge_group(
    group: GroupView,
    committed: Mapping[Place, int],
    topics: Mapping[str, TopicView],
    clocks: Mapping[Place, OffsetClock],
    tails: Tails,
    now_s: float,
) -> None:
    """Offsets, lag and status of one group from what it has committed."""
    group.offsets = []
    for place in sorted(committed):
        topic, index = place
        end = end_of(topics, place)
        item = GroupOffset(topic, index, committed[place], end)
        if end is not None:
            item.silent = tails.silent(Tail(place, item.committed, end))
            read = item.committed + item.silent
            window = group.windows.setdefault(place, Window())
            window.observe(now_s, read, end)
            item.status = window.status(group.has_members)
            clock = clocks.get(place)
            item.behind = clock.lag_s(read, now_s) if clock is not None else None
        group.offsets.append(item)
    for place in group.windows.keys() - committed.keys():
        del group.windows[place]
    statuses = [item.status for item in group.offsets]
    group.status = group_status(statuses)
    if not statuses and group.has_members:
        group.status = Status.OK


def set_pace(group: GroupView, points: list[tuple[float, float]]) -> None:
    group.trend = trend(points)
    group.catch_up_s = catch_up_s(group.lag, points)


def set_topic_groups(view: ClusterView) -> None:
    for topic in view.topics.values():
        topic.groups = {}
    for group in view.groups.values():
        for item in group.offsets:
            topic_view = view.topics.get(item.topic)
            if topic_view is not None:
                lag = topic_view.groups.get(group.name, 0)
                topic_view.groups[group.name] = lag + (item.lag or 0)


def elections_between(before: ClusterView, after: ClusterView) -> int:
    """Terms that began between two looks, over all partitions."""
    total = 0
    for topic in after.topics.values():
        was = before.topics.get(topic.name)
        if was is None or was.id != topic.id:
            continue
        for old, new in zip(was.partitions, topic.partitions, strict=False):
            total += max(0, new.epoch - old.epoch)
    return total
