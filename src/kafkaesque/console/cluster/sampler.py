"""Looks at the cluster again and again, and keeps what it saw: a view, its history, its events.

Everything lives on one event loop. A look that takes long makes the next one come later, so that a
console on a large cluster never costs it more than `BUSY_SHARE` of its time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kafkaesque.console.cluster import asking, assembling
from kafkaesque.console.cluster.link import NotOffered, Unreachable
from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.cluster.members import member_counts
from kafkaesque.console.cluster.tail_fetch import look_at_tails
from kafkaesque.console.rules.changes import Change, EventLog, changes_between
from kafkaesque.console.rules.lag import OffsetClock
from kafkaesque.console.rules.rings import History
from kafkaesque.console.rules.tails import Tails
from kafkaesque.console.rules.view import ClusterView, GroupView, Place

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
BUSY_SHARE: Final = 0.1
"""Of the time that may be spent looking."""
MEMBERS_EVERY_S: Final = 3.0
SIZES_EVERY_S: Final = 5.0
SETTINGS_EVERY_S: Final = 30.0
TREND_WINDOW_S: Final = 60.0


class Due:
    """Says when something that is done now and then is due again."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def is_due(self, what: str, every_s: float, now: float) -> bool:
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_s
        return True

    def expire(self) -> None:
        self._next.clear()


class Sampler:
    """`view`, `history` and `events` are for everyone to read; `looked` wakes those who wait."""

    def __init__(self, links: KafkaLinks, interval_s: float = INTERVAL_S) -> None:
        self.view = ClusterView()
        self.history = History()
        self.events = EventLog()
        self.looks = 0
        self.look_seconds = 0.0
        """How long the last look took."""
        self._links = links
        self._interval_s = interval_s
        self._clocks: dict[Place, OffsetClock] = {}
        self._tails = Tails()
        self._due = Due()
        self._looked = asyncio.Condition()
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            self.look_seconds = time.monotonic() - began
            pause_s = max(self._interval_s - self.look_seconds, self.look_seconds / BUSY_SHARE
                          - self.look_seconds)  # fmt: skip
            self._asked.clear()
            try:
                async with asyncio.timeout(max(0.05, pause_s)):
                    await self._asked.wait()
            except TimeoutError:
                continue

    def ask(self) -> None:
        """Something was changed by hand: look now, at everything."""
        self._due.expire()
        self._asked.set()

    async def next_look(self, seen: int) -> int:
        """Wait for a look after number `seen`; its number."""
        async with self._looked:
            await self._looked.wait_for(lambda: self.looks > seen)
            return self.looks

    async def look(self) -> None:
        before, now_s = self.view, time.time()
        try:
            after = await self._look(before, now_s)
        except Unreachable as error:
            after = ClusterView(
                before.cluster_id, before.controller, before.brokers, before.topics, before.groups,
                before.quorum, before.sampled_s, str(error), before.software,
            )  # fmt: skip
        except NotOffered as error:
            after = ClusterView(error=f"this Kafka has no {error}", sampled_s=before.sampled_s)
        self.tell(now_s, changes_between(before, after))
        if after.error is None and before.sampled_s:
            elections = assembling.elections_between(before, after)
            self.history.add(now_s, {"elections": elections})
        self.view = after
        self.looks += 1
        async with self._looked:
            self._looked.notify_all()

    def tell(self, at_s: float, changes: list[Change]) -> None:
        self.events.add(at_s, changes)

    async def _look(self, before: ClusterView, now_s: float) -> ClusterView:
        answer = await asking.metadata(self._links)
        up = {item.node_id: (item.host, item.port) for item in answer.brokers}
        self._links.learn(up)
        view = ClusterView(answer.cluster_id, answer.controller_id, sampled_s=now_s)
        view.brokers = assembling.assemble_brokers(answer, before)
        view.topics = assembling.assemble_topics(answer, before)
        leaders = assembling.leaders_of(view.topics.values())
        ends, view.quorum = await asyncio.gather(
            asking.offsets(self._links, leaders), asking.quorum(self._links, answer.controller_id)
        )
        elapsed_s = now_s - before.sampled_s if before.sampled_s and not before.error else 0.0
        assembling.set_ends(view.topics, ends, elapsed_s)
        self._observe_ends(ends, now_s)
        await self._groups(view, before, leaders, now_s)
        await self._details(view, leaders, now_s)
        self._record(view, now_s)
        return view

    def _observe_ends(self, ends: Mapping[Place, int], now_s: float) -> None:
        for place, end in ends.items():
            clock = self._clocks.get(place)
            if clock is None:
                clock = self._clocks[place] = OffsetClock()
            clock.observe(now_s, end)
        if len(self._clocks) > 2 * len(ends) + 100:
            self._clocks = {place: self._clocks[place] for place in ends}

    async def _groups(
        self, view: ClusterView, before: ClusterView, leaders: Mapping[Place, int], now_s: float
    ) -> None:
        up = [broker.id for broker in view.brokers.values() if broker.is_up]
        listed = await asking.groups(self._links, up)
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        by_kind: dict[tuple[int, str], list[str]] = defaultdict(list)
        for item, coordinator in listed:
            if item.protocol_type in ("consumer", ""):
                by_coordinator[coordinator].append(item.group_id)
                by_kind[coordinator, item.group_type].append(item.group_id)
        members: Mapping[str, int] = {}
        if self._due.is_due("members", MEMBERS_EVERY_S, now_s):
            members = await member_counts(self._links, by_kind)
        view.groups = assembling.assemble_groups(listed, members, before)
        found = await asking.committed(self._links, by_coordinator)
        wanted = self._tails.choose(*assembling.tails_of(view, found))
        for tail, reached in (await look_at_tails(self._links, leaders, wanted)).items():
            self._tails.learn(tail, reached)
        for name, offsets in found.items():
            group = view.groups.get(name)
            if group is not None:
                assembling.judge_group(
                    group, offsets, view.topics, self._clocks, self._tails, now_s
                )
        assembling.set_topic_groups(view)

    async def _details(self, view: ClusterView, leaders: Mapping[Place, int], now_s: float) -> None:
        if self._due.is_due("sizes", SIZES_EVERY_S, now_s):
            up = [broker.id for broker in view.brokers.values() if broker.is_up]
            starts, dirs = await asyncio.gather(
                asking.offsets(self._links, leaders, asking.EARLIEST),
                asking.log_dirs(self._links, up),
            )
            assembling.set_starts(view.topics, starts)
            assembling.set_sizes(view, dirs)
        if self._due.is_due("settings", SETTINGS_EVERY_S, now_s):
            settings, oldest = await asyncio.gather(
                asking.topic_settings(self._links, list(view.topics), assembling.SETTINGS),
                asking.oldest_times(self._links, leaders),
            )
            assembling.set_settings(view.topics, settings)
            assembling.set_oldest(view.topics, oldest)

    def _record(self, view: ClusterView, now_s: float) -> None:
        topics, groups = view.topics.values(), view.groups.values()
        values = {
            "records_in": sum(topic.rate or 0.0 for topic in topics),
            "brokers_up": sum(1.0 for broker in view.brokers.values() if broker.is_up),
            "under_replicated": float(sum(topic.under_replicated for topic in topics)),
            "leaderless": float(sum(topic.leaderless for topic in topics)),
            "lag": float(sum(group.lag for group in groups)),
            "size_bytes": float(sum(topic.size_bytes or 0 for topic in topics)),
        }
        for group in groups:
            values[f"group/{group.name}/lag"] = float(group.lag)
            values[f"group/{group.name}/lag_s"] = group.behind.seconds
        for topic in topics:
            if topic.rate is not None:
                values[f"topic/{topic.name}/rate"] = topic.rate
        self.history.add(now_s, values)
        for group in groups:
            self._pace(group, now_s)

    def _pace(self, group: GroupView, now_s: float) -> None:
        points = self.history.points(f"group/{group.name}/lag", TREND_WINDOW_S, now_s)
        assembling.set_pace(group, [(point.at_s, point.value) for point in points])
