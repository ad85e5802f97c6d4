"""X: the filtered stream, its gaps, and the compliance stream. Rules are in rules/x.py and cursors.py.

Frames that fill a gap are not `is_settled`: the source counts as having read up to now only when the gap
is filled. A connection that is lost meanwhile therefore fills the whole gap again.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from yarl import URL

from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules import cursors, x
from kafkaesque.sources.rules.backoff import FailureKind
from kafkaesque.sources.rules.frame_processor import StreamProgress
from kafkaesque.sources.rules.frames import MESSAGE, LineSplitter, StreamFrame, frame
from kafkaesque.sources.rules.parsing import FrameError
from kafkaesque.sources.streams.endpoint import (
    PAGES_MAX,
    ConnectionFailure,
    Endpoint,
    check_status,
    now_ms,
    read_page,
    response_frames,
    warn_of_lost_posts,
)

logger = logging.getLogger(__name__)

SETTLE_S: Final = 20.0
"""How long a connection with `backfill_minutes` may still deliver posts of the gap: X's keep-alive
interval."""
SEARCH_LAG_S: Final = 40.0
"""Recent search lags half a minute, so the time around the connection is searched again after that."""
_OVERLAP_MS: Final = 60_000


class XStream:
    """Posts that match our rules on the filtered stream."""

    name = "posts"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(
        self, progress: StreamProgress | None, rewind_ms: int
    ) -> AsyncIterator[StreamFrame]:
        endpoint = self._endpoint
        await self._set_rules()
        base = (endpoint.url / "2/tweets/search/stream").with_query({"tweet.fields": x.FIELDS})
        if endpoint.config.x_enterprise or not endpoint.config.x_search:
            frames = _x_frames(endpoint, base, progress, rewind_ms)
        else:
            frames = self._searched_frames(base, progress, rewind_ms)
        async for item in frames:
            yield item

    async def _searched_frames(
        self, base: URL, progress: StreamProgress | None, rewind_ms: int
    ) -> AsyncIterator[StreamFrame]:
        """Connects first, then searches the gap, then streams, then searches the overlap again."""
        endpoint = self._endpoint
        plan = cursors.plan_x_search(_read_ms(progress), now_ms(), rewind_ms)
        async with endpoint.get(base) as response:
            connected_ms = now_ms()
            overlap_due_s = None
            if plan is not None:
                warn_of_lost_posts("x", plan.lost_ms)
                async for item in self._search(plan.start_time):
                    yield item
                overlap_due_s = time.monotonic() + SEARCH_LAG_S * endpoint.config.backoff_scale
            async for item in response_frames(
                response, LineSplitter(endpoint.config.frame_max_bytes)
            ):
                if overlap_due_s is not None and time.monotonic() >= overlap_due_s:
                    overlap_due_s = None
                    overlap = cursors.plan_x_search(connected_ms, now_ms(), _OVERLAP_MS)
                    if overlap is not None:
                        async for late in self._search(overlap.start_time):
                            yield late
                yield item if overlap_due_s is None else _unsettled(item)

    async def _search(self, start_time: str) -> AsyncIterator[StreamFrame]:
        """Posts since `start_time`. Without access to search, logs a warning and yields nothing."""
        endpoint = self._endpoint
        url = endpoint.url / "2/tweets/search/recent"
        try:
            for value in x.rule_values(endpoint.tags, x.QUERY_LENGTH_MAX):
                query = {
                    "query": value,
                    "start_time": start_time,
                    "max_results": "100",
                    "tweet.fields": x.FIELDS,
                }
                async for line in self._pages(url.with_query(query)):
                    yield _unsettled(frame(MESSAGE, line))
        except ConnectionFailure as error:
            if error.kind is not FailureKind.FORBIDDEN:
                raise
            logger.warning(
                "x: this token has no access to recent search; posts of the gap are lost"
            )

    async def _pages(self, url: URL) -> AsyncIterator[bytes]:
        for _ in range(PAGES_MAX):
            async with self._endpoint.get(url) as response:
                body = await read_page(response)
            try:
                lines, token = x.page_lines(body)
            except FrameError as error:
                raise ConnectionFailure(FailureKind.HTTP, f"invalid page: {error}") from None
            for line in lines:
                yield line
            if token is None:
                return
            url = url.update_query(next_token=token)

    async def _set_rules(self) -> None:
        """Replaces the rules with our label by those of our hashtags; other rules stay."""
        endpoint = self._endpoint
        url = endpoint.url / "2/tweets/search/stream/rules"
        async with endpoint.get(url) as response:
            body = await response.read()
        try:
            present = msgspec.json.decode(body, type=x.XRules).data
        except msgspec.DecodeError as error:
            raise ConnectionFailure(FailureKind.HTTP, f"invalid list of rules: {error}") from None
        add, remove = x.rule_changes(present, endpoint.tags, endpoint.label)
        if add:
            rules = [{"value": rule.value, "tag": rule.tag} for rule in add]
            await self._post(url, {"add": rules})
        if remove:
            await self._post(url, {"delete": {"ids": remove}})

    async def _post(self, url: URL, body: dict[str, object]) -> None:
        async with self._endpoint.session.post(
            url, data=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
        ) as response:
            await check_status(response, time.time())


class XComplianceStream:
    """X's compliance stream (Enterprise access), the only one with deletions."""

    name = "compliance"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(
        self, progress: StreamProgress | None, rewind_ms: int
    ) -> AsyncIterator[StreamFrame]:
        url = (self._endpoint.url / "2/tweets/compliance/stream").with_query(partition="1")
        async for item in _x_frames(self._endpoint, url, progress, rewind_ms):
            yield item


async def _x_frames(
    endpoint: Endpoint, base: URL, progress: StreamProgress | None, rewind_ms: int
) -> AsyncIterator[StreamFrame]:
    """Fills the gap by recovery and backfill if the access level has them, then streams."""
    config = endpoint.config
    plan = cursors.XPlan()
    if config.x_enterprise:
        plan = cursors.plan_x(_read_ms(progress), now_ms(), rewind_ms)
        warn_of_lost_posts("x", plan.lost_ms)
    if plan.recover is not None:
        start, end = plan.recover
        async with endpoint.get(base.update_query(start_time=start, end_time=end)) as response:
            async for item in response_frames(response, LineSplitter(config.frame_max_bytes)):
                yield _unsettled(item)
    minutes = plan.backfill_minutes
    url = base.update_query(backfill_minutes=str(minutes)) if minutes else base
    settled_s = time.monotonic() + (SETTLE_S * config.backoff_scale if minutes else 0.0)
    async with endpoint.get(url) as response:
        async for item in response_frames(response, LineSplitter(config.frame_max_bytes)):
            yield item if time.monotonic() >= settled_s else _unsettled(item)


def _read_ms(progress: StreamProgress | None) -> TimestampMs | None:
    return progress.read_ms if progress is not None and progress.read_ms else None


def _unsettled(item: StreamFrame) -> StreamFrame:
    return dataclasses.replace(item, is_settled=False)
