"""The event log: changes between two samples of a cluster, as sentences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from kafkaesque.console.rules.lag import SENTENCES, GroupStatus
from kafkaesque.console.rules.view import ConsoleClusterView, GroupView, TopicView

EVENTS_MAX: Final = 5000
LISTED_ONE_BY_ONE_MAX: Final = 8
"""More changes of one kind in one sample are summed up in one event."""


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One change. `kind` is a word to filter by; `level` is good, info, warn or bad."""

    kind: str
    level: str
    text: str
    subject: str = ""
    """What changed: broker/1, topic/orders, group/billing."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A change with its time and its number in the log."""

    number: int
    at_s: float
    change: ClusterChange


class EventLog:
    """The last `EVENTS_MAX` events, numbered without gaps."""

    def __init__(self) -> None:
        self._events: deque[LoggedEvent] = deque(maxlen=EVENTS_MAX)
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, at_s: float, changes: Iterable[ClusterChange]) -> None:
        self._events.extend(LoggedEvent(next(self._numbers), at_s, change) for change in changes)

    def newest(self, limit: int, kinds: frozenset[str] = frozenset()) -> list[LoggedEvent]:
        """The newest events first, of these kinds; no kinds means all."""
        found: list[LoggedEvent] = []
        for event in reversed(self._events):
            if not kinds or event.change.kind in kinds:
                found.append(event)
                if len(found) == limit:
                    break
        return found

    def since(self, at_s: float, kinds: frozenset[str]) -> list[LoggedEvent]:
        """Events of these kinds at or after `at_s`, oldest first."""
        return [
            event for event in self._events if event.at_s >= at_s and event.change.kind in kinds
        ]


def changes_between(before: ConsoleClusterView, after: ConsoleClusterView) -> list[ClusterChange]:
    """All changes from `before` to `after`; none if either is not a sample yet."""
    if not before.sampled_s or not after.sampled_s:
        return []
    kinds = (
        _reachability(before, after),
        _brokers(before, after),
        _controller(before, after),
        _sum_up(list(_elections(before, after)), "election", "elections"),
        _sum_up(list(_replication(before, after)), "replicas", "replication changes"),
        _sum_up(list(_topics(before, after)), "topic", "topics changed"),
        _sum_up(list(_groups(before, after)), "group", "group changes"),
    )
    return [change for changes in kinds for change in changes]


def _sum_up(changes: list[ClusterChange], kind: str, words: str) -> list[ClusterChange]:
    if len(changes) <= LISTED_ONE_BY_ONE_MAX:
        return changes
    shown = changes[: LISTED_ONE_BY_ONE_MAX // 2]
    rest = len(changes) - len(shown)
    return [*shown, ClusterChange(kind, changes[0].level, f"and {rest} more {words} at once")]


def _reachability(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    if before.error is None and after.error is not None:
        yield ClusterChange("cluster", "bad", f"the cluster stopped answering: {after.error}")
    elif before.error is not None and after.error is None:
        yield ClusterChange("cluster", "good", "the cluster answers again")


def _brokers(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    for number, broker in after.brokers.items():
        was = before.brokers.get(number)
        subject = f"broker/{number}"
        if was is None:
            yield ClusterChange(
                "broker", "info", f"broker {number} joined at {broker.address}", subject
            )
        elif was.is_up and not broker.is_up:
            yield ClusterChange("broker", "bad", f"broker {number} is down", subject)
        elif broker.is_up and not was.is_up:
            yield ClusterChange(
                "broker", "good", f"broker {number} is back at {broker.address}", subject
            )


def _controller(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    was, now = before.quorum, after.quorum
    if was is not None and now is not None and (was.leader, was.epoch) != (now.leader, now.epoch):
        yield ClusterChange(
            "election",
            "info",
            f"broker {now.leader} leads the controller quorum in "
            f"term {now.epoch} (was broker {was.leader}, term {was.epoch})",
            "controller",
        )
    elif now is None and before.controller != after.controller and after.controller >= 0:
        yield ClusterChange(
            "election",
            "info",
            f"broker {after.controller} is the controller (was {before.controller})",
            "controller",
        )


def _elections(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    for topic in after.topics.values():
        was = before.topics.get(topic.name)
        if was is None or was.id != topic.id:
            continue
        for old, new in zip(was.partitions, topic.partitions, strict=False):
            name = f"{topic.name}-{new.index}"
            if new.leader < 0 <= old.leader:
                yield ClusterChange(
                    "election", "bad", f"{name} has no leader", f"topic/{topic.name}"
                )
            elif new.leader >= 0 and (old.leader, old.epoch) != (new.leader, new.epoch):
                term = f" in term {new.epoch}" if new.epoch >= 0 else ""
                text = f"broker {new.leader} leads {name}{term}"
                yield ClusterChange("election", "info", text, f"topic/{topic.name}")


def _replication(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    for topic in after.topics.values():
        was = before.topics.get(topic.name)
        if was is None:
            continue
        old = sum(1 for item in was.partitions if item.is_under_replicated)
        new = topic.under_replicated
        if new > old == 0:
            text = f"{new} of {len(topic.partitions)} partitions of {topic.name} became under-replicated"
            yield ClusterChange("replicas", "warn", text, f"topic/{topic.name}")
        elif old > new == 0:
            text = f"all replicas of {topic.name} are in sync again"
            yield ClusterChange("replicas", "good", text, f"topic/{topic.name}")


def _topics(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    for name in before.topics.keys() - after.topics.keys():
        yield ClusterChange("topic", "warn", f"topic {name} was deleted", f"topic/{name}")
    for name, topic in after.topics.items():
        was = before.topics.get(name)
        if was is None:
            text = f"topic {name} was created with {len(topic.partitions)} partitions"
            yield ClusterChange("topic", "info", text, f"topic/{name}")
        else:
            yield from _topic(was, topic)


def _topic(was: TopicView, topic: TopicView) -> Iterator[ClusterChange]:
    subject = f"topic/{topic.name}"
    if was.id != topic.id:
        yield ClusterChange(
            "topic", "warn", f"topic {topic.name} was deleted and re-created", subject
        )
    elif len(was.partitions) != len(topic.partitions):
        text = f"topic {topic.name} now has {len(topic.partitions)} partitions"
        yield ClusterChange("topic", "info", f"{text} (had {len(was.partitions)})", subject)
    for name in ("retention_ms", "retention_bytes", "cleanup"):
        old, new = getattr(was, name), getattr(topic, name)
        if old is not None and new is not None and old != new:
            setting = {"cleanup": "cleanup.policy"}.get(name, name.replace("_", "."))
            yield ClusterChange(
                "config", "info", f"{setting} of {topic.name} is {new} (was {old})", subject
            )


def _groups(before: ConsoleClusterView, after: ConsoleClusterView) -> Iterator[ClusterChange]:
    for name in before.groups.keys() - after.groups.keys():
        yield ClusterChange("group", "info", f"group {name} disappeared", f"group/{name}")
    for name, group in after.groups.items():
        was = before.groups.get(name)
        if was is None:
            yield ClusterChange("group", "info", f"group {name} appeared", f"group/{name}")
        else:
            yield from _group(was, group)


def _group(was: GroupView, group: GroupView) -> Iterator[ClusterChange]:
    subject = f"group/{group.name}"
    if was.members is not None and group.members is not None and was.members != group.members:
        verb = "grew" if group.members > was.members else "shrank"
        yield ClusterChange(
            "group",
            "info",
            f"group {group.name} {verb} from {was.members} to {group.members} members",
            subject,
        )
    if was.status is not group.status and {was.status, group.status} != {
        GroupStatus.OK,
        GroupStatus.IDLE,
    }:
        level = "warn" if group.status.level != "good" else "good"
        yield ClusterChange("lag", level, f"group {group.name} {SENTENCES[group.status]}", subject)
