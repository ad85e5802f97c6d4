"""Samples the cluster periodically and keeps the latest view, its history and the event log.

Everything runs on one event loop. A slow sample delays the next one, so that the console spends at
most `BUSY_SHARE` of its time sampling, however large the cluster is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from kafkaesque.admin import requests
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.console.cluster import queries
from kafkaesque.console.rules import view_builder
from kafkaesque.console.rules.event_log import EventLog, changes_between
from kafkaesque.console.rules.history import MetricHistory
from kafkaesque.console.rules.lag import OffsetClock
from kafkaesque.console.rules.phantom_lag import PhantomLag
from kafkaesque.console.rules.view import ConsoleClusterView, GroupView, PartitionKey
from kafkaesque.model.address import Address

INTERVAL_S: Final = 1.0
BUSY_SHARE: Final = 0.1
"""The largest share of the time that sampling may take."""
MEMBERS_EVERY_S: Final = 3.0
SIZES_EVERY_S: Final = 5.0
SETTINGS_EVERY_S: Final = 30.0
TREND_WINDOW_S: Final = 60.0


class RefreshSchedule:
    """Decides when each kind of data that is refreshed less often than every sample is due."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def is_due(self, kind: str, every_s: float, now: float) -> bool:
        """True at most once in `every_s` seconds; a True answer schedules the next one."""
        if now < self._next.get(kind, 0.0):
            return False
        self._next[kind] = now + every_s
        return True

    def expire(self) -> None:
        """Make everything due."""
        self._next.clear()


class Sampler:
    """Readers use `view`, `history` and `events` directly; `next_sample` waits for a newer view."""

    def __init__(self, links: ConnectionPool, interval_s: float = INTERVAL_S) -> None:
        self.view = ConsoleClusterView()
        self.history = MetricHistory()
        self.events = EventLog()
        self.sample_count = 0
        self.sample_seconds = 0.0
        """Duration of the last sample."""
        self._links = links
        self._interval_s = interval_s
        self._clocks: dict[PartitionKey, OffsetClock] = {}
        self._phantom_lag = PhantomLag()
        self._schedule = RefreshSchedule()
        self._sampled = asyncio.Condition()
        self._refresh_requested = asyncio.Event()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            began = time.monotonic()
            # Cleared before the sample: a request that arrives during it starts another one.
            self._refresh_requested.clear()
            await self.sample()
            took_s = self.sample_seconds = time.monotonic() - began
            pause_s = max(self._interval_s - took_s, took_s / BUSY_SHARE - took_s)
            try:
                async with asyncio.timeout(max(0.05, pause_s)):
                    await self._refresh_requested.wait()
            except TimeoutError:
                continue

    def request_refresh(self) -> None:
        """Sample everything now, for example because an operator changed something."""
        self._schedule.expire()
        self._refresh_requested.set()

    async def next_sample(self, seen: int) -> int:
        """Wait until `sample_count` exceeds `seen`, and return it."""
        async with self._sampled:
            await self._sampled.wait_for(lambda: self.sample_count > seen)
            return self.sample_count

    async def sample(self) -> None:
        """Replace `view`. If the cluster does not answer, the old data stays, with an error."""
        before, now_s = self.view, time.time()
        try:
            after = await self._read_cluster(before, now_s)
        except ConnectionLost as error:
            after = dataclasses.replace(before, error=str(error))
        except ApiUnsupported as error:
            after = ConsoleClusterView(error=str(error), sampled_s=before.sampled_s)
        self.events.add(now_s, changes_between(before, after))
        if after.error is None and before.sampled_s:
            self.history.add(now_s, {"elections": view_builder.count_elections(before, after)})
        self.view = after
        self.sample_count += 1
        async with self._sampled:
            self._sampled.notify_all()

    async def _read_cluster(self, before: ConsoleClusterView, now_s: float) -> ConsoleClusterView:
        metadata = await requests.fetch_metadata(self._links)
        up = {item.node_id: Address(item.host, item.port) for item in metadata.brokers}
        self._links.set_brokers(up)
        view = ConsoleClusterView(metadata.cluster_id, metadata.controller_id, sampled_s=now_s)
        view.brokers = view_builder.build_brokers(metadata, before)
        view.topics = view_builder.build_topics(metadata, before)
        leaders = view_builder.leaders_of(view.topics.values())
        ends, view.quorum = await asyncio.gather(
            requests.list_offsets(self._links, leaders),
            queries.describe_quorum(self._links, metadata.controller_id),
        )
        elapsed_s = now_s - before.sampled_s if before.sampled_s and not before.error else 0.0
        view_builder.set_ends(view.topics, ends, elapsed_s)
        self._observe_ends(ends, now_s)
        await self._read_groups(view, before, leaders, now_s)
        await self._read_details(view, leaders, now_s)
        self._record_history(view, now_s)
        return view

    def _observe_ends(self, ends: Mapping[PartitionKey, int], now_s: float) -> None:
        for key, end in ends.items():
            clock = self._clocks.get(key)
            if clock is None:
                clock = self._clocks[key] = OffsetClock()
            clock.observe(now_s, end)
        if len(self._clocks) > 2 * len(ends) + 100:
            self._clocks = {key: self._clocks[key] for key in ends}

    async def _read_groups(
        self,
        view: ConsoleClusterView,
        before: ConsoleClusterView,
        leaders: Mapping[PartitionKey, int],
        now_s: float,
    ) -> None:
        up = [broker.id for broker in view.brokers.values() if broker.is_up]
        listed = await requests.list_groups(self._links, up)
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        by_kind: dict[tuple[int, str], list[str]] = defaultdict(list)
        for item, coordinator in listed:
            if item.protocol_type in ("consumer", ""):
                by_coordinator[coordinator].append(item.group_id)
                by_kind[coordinator, item.group_type].append(item.group_id)
        members: Mapping[str, int] = {}
        if self._schedule.is_due("members", MEMBERS_EVERY_S, now_s):
            members = await queries.count_members(self._links, by_kind)
        view.groups = view_builder.build_groups(listed, members, before)
        committed = await queries.committed_offsets(self._links, by_coordinator)
        ranges = self._phantom_lag.choose(*view_builder.unread_ranges(view, committed))
        found = await queries.next_readable_offsets(self._links, leaders, ranges)
        for unread, offset in found.items():
            self._phantom_lag.record(unread, offset)
        for name, offsets in committed.items():
            group = view.groups.get(name)
            if group is not None:
                view_builder.evaluate_group(
                    group, offsets, view.topics, self._clocks, self._phantom_lag, now_s
                )
        view_builder.set_topic_groups(view)

    async def _read_details(
        self, view: ConsoleClusterView, leaders: Mapping[PartitionKey, int], now_s: float
    ) -> None:
        if self._schedule.is_due("sizes", SIZES_EVERY_S, now_s):
            up = [broker.id for broker in view.brokers.values() if broker.is_up]
            starts, dirs = await asyncio.gather(
                requests.list_offsets(self._links, leaders, requests.EARLIEST),
                queries.describe_log_dirs(self._links, up),
            )
            view_builder.set_starts(view.topics, starts)
            view_builder.set_sizes(view, dirs)
        if self._schedule.is_due("settings", SETTINGS_EVERY_S, now_s):
            settings, oldest = await asyncio.gather(
                queries.topic_settings(self._links, list(view.topics), view_builder.SETTINGS),
                requests.oldest_timestamps(self._links, leaders),
            )
            view_builder.set_settings(view.topics, settings)
            view_builder.set_oldest(view.topics, oldest)

    def _record_history(self, view: ConsoleClusterView, now_s: float) -> None:
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
            values[f"group/{group.name}/lag_s"] = group.time_lag.seconds
        for topic in topics:
            if topic.rate is not None:
                values[f"topic/{topic.name}/rate"] = topic.rate
        self.history.add(now_s, values)
        for group in groups:
            self._set_trend(group, now_s)

    def _set_trend(self, group: GroupView, now_s: float) -> None:
        points = self.history.points(f"group/{group.name}/lag", TREND_WINDOW_S, now_s)
        view_builder.set_trend(group, [(point.at_s, point.value) for point in points])
