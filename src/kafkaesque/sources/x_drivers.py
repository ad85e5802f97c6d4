"""Connections to X: the filtered stream, its gaps, the compliance stream. Thin; rules are in `x.py`
and `cursors.py`.

Frames that fill a gap are not `is_settled`: only when the gap is filled does the source count as having
read up to now, so that a connection that is cut meanwhile leaves nothing behind.
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
from kafkaesque.sources.drivers import (
    PAGE_SIZE_BYTES_MAX,
    PAGES_MAX,
    Endpoint,
    now_ms,
    split,
    warn_of_loss,
)
from kafkaesque.sources.rules import cursors, x
from kafkaesque.sources.rules.backoff import Trouble
from kafkaesque.sources.rules.frames import MESSAGE, Frame, LineSplitter, frame
from kafkaesque.sources.rules.intake import Progress
from kafkaesque.sources.rules.parsing import FrameError
from kafkaesque.sources.streams import ConnectionTrouble, check_status

logger = logging.getLogger(__name__)

SETTLE_S: Final = 20.0
"""How long a connection with `backfill_minutes` may still bring what belongs to the gap: X sends a
keep-alive as often."""
SEARCH_LAG_S: Final = 40.0
"""Recent search does not know posts of the last half minute: the seam is asked for again after it."""
_SEAM_MS: Final = 60_000


class XStream:
    """Posts that match our rules."""

    name = "posts"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(self, progress: Progress | None, rewind_ms: int) -> AsyncIterator[Frame]:
        endpoint = self._endpoint
        await self._set_rules()
        base = (endpoint.url / "2/tweets/search/stream").with_query({"tweet.fields": x.FIELDS})
        if endpoint.config.x_enterprise or not endpoint.config.x_search:
            followed = _x_frames(endpoint, base, progress, rewind_ms)
        else:
            followed = self._searched_frames(base, progress, rewind_ms)
        async for item in followed:
            yield item

    async def _searched_frames(
        self, base: URL, progress: Progress | None, rewind_ms: int
    ) -> AsyncIterator[Frame]:
        """Connected first, then the gap by recent search, then the stream, then the seam."""
        endpoint = self._endpoint
        plan = cursors.plan_x_search(_read_ms(progress), now_ms(), rewind_ms)
        async with endpoint.get(base) as response:
            connected_ms = now_ms()
            seam_due_s = None
            if plan is not None:
                warn_of_loss("x", plan.lost_ms)
                async for item in self._search(plan.start_time):
                    yield item
                seam_due_s = time.monotonic() + SEARCH_LAG_S * endpoint.config.backoff_scale
            async for item in split(response, LineSplitter(endpoint.config.frame_max_bytes)):
                if seam_due_s is not None and time.monotonic() >= seam_due_s:
                    seam_due_s = None
                    seam = cursors.plan_x_search(connected_ms, now_ms(), _SEAM_MS)
                    if seam is not None:
                        async for late in self._search(seam.start_time):
                            yield late
                yield item if seam_due_s is None else _unsettled(item)

    async def _search(self, start_time: str) -> AsyncIterator[Frame]:
        """Posts since `start_time`. Who has no access to search is told once a connection, and goes on."""
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
        except ConnectionTrouble as error:
            if error.trouble is not Trouble.FORBIDDEN:
                raise
            logger.warning("x: this token may not search, what was posted in the gap is lost")

    async def _pages(self, url: URL) -> AsyncIterator[bytes]:
        for _ in range(PAGES_MAX):
            async with self._endpoint.get(url) as response:
                body = await response.content.read(PAGE_SIZE_BYTES_MAX)
                while chunk := await response.content.readany():
                    body += chunk
                    if len(body) > PAGE_SIZE_BYTES_MAX:
                        raise ConnectionTrouble(Trouble.HTTP, "a page that does not end")
            try:
                lines, token = x.page_lines(body)
            except FrameError as error:
                raise ConnectionTrouble(Trouble.HTTP, f"not a page: {error}") from None
            for line in lines:
                yield line
            if token is None:
                return
            url = url.update_query(next_token=token)

    async def _set_rules(self) -> None:
        """The rules under our label become those of our hashtags; nobody else's are touched."""
        endpoint = self._endpoint
        url = endpoint.url / "2/tweets/search/stream/rules"
        async with endpoint.get(url) as response:
            body = await response.read()
        try:
            present = msgspec.json.decode(body, type=x.Rules).data
        except msgspec.DecodeError as error:
            raise ConnectionTrouble(Trouble.HTTP, f"not a list of rules: {error}") from None
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


class XDeletions:
    """X's compliance stream (Enterprise access): the only one that says what was deleted."""

    name = "compliance"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(self, progress: Progress | None, rewind_ms: int) -> AsyncIterator[Frame]:
        url = (self._endpoint.url / "2/tweets/compliance/stream").with_query(partition="1")
        async for item in _x_frames(self._endpoint, url, progress, rewind_ms):
            yield item


async def _x_frames(
    endpoint: Endpoint, base: URL, progress: Progress | None, rewind_ms: int
) -> AsyncIterator[Frame]:
    """The gap by recovery and backfill, where the access has them, then the stream."""
    config = endpoint.config
    plan = cursors.XPlan()
    if config.x_enterprise:
        plan = cursors.plan_x(_read_ms(progress), now_ms(), rewind_ms)
        warn_of_loss("x", plan.lost_ms)
    if plan.recover is not None:
        start, end = plan.recover
        async with endpoint.get(base.update_query(start_time=start, end_time=end)) as response:
            async for item in split(response, LineSplitter(config.frame_max_bytes)):
                yield _unsettled(item)
    minutes = plan.backfill_minutes
    url = base.update_query(backfill_minutes=str(minutes)) if minutes else base
    settled_s = time.monotonic() + (SETTLE_S * config.backoff_scale if minutes else 0.0)
    async with endpoint.get(url) as response:
        async for item in split(response, LineSplitter(config.frame_max_bytes)):
            yield item if time.monotonic() >= settled_s else _unsettled(item)


def _read_ms(progress: Progress | None) -> TimestampMs | None:
    return progress.read_ms if progress is not None and progress.read_ms else None


def _unsettled(item: Frame) -> Frame:
    return dataclasses.replace(item, is_settled=False)
