"""The pipeline's data: trends from its topic, and Spark queries from its files.

docs/PIPELINE.md, "Operating", describes the files.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.console.cluster.sampler import Sampler
from kafkaesque.console.messages.query import MessageQuery, StartPosition
from kafkaesque.console.messages.ranges import offset_ranges
from kafkaesque.console.messages.scan import ScanFailed, Scanner, ScanPlan
from kafkaesque.console.rules.view import Document

logger = logging.getLogger(__name__)

TOPIC: Final = "trends"
RECORDS_READ_FIRST: Final = 5000
WINDOWS_KEPT: Final = 120
TAGS_KEPT: Final = 2000
"""Hashtags kept of one window."""
RETRY_S: Final = 5.0
FEED_BYTES_READ_MAX: Final = 65_536
BATCHES_SHOWN: Final = 60


class TrendBoard:
    """Hashtag counts by window. The newest record of a window and hashtag replaces older ones."""

    def __init__(self) -> None:
        self._windows: dict[int, dict[str, Document]] = {}

    def add(self, value: Any) -> None:
        """Add the value of a record; anything but a trend is ignored."""
        if not isinstance(value, dict):
            return
        start, tag = value.get("window_start_ms"), value.get("hashtag")
        if not isinstance(start, int) or not isinstance(tag, str):
            return
        window = self._windows.setdefault(start, {})
        if tag in window or len(window) < TAGS_KEPT:
            window[tag] = value
        while len(self._windows) > WINDOWS_KEPT:
            del self._windows[min(self._windows)]

    def newest(self, top: int) -> Document:
        """The top hashtags of the recent window with most posts; the newest window may have only begun."""
        if not self._windows:
            return {"window_start_ms": None, "window_end_ms": None, "tags": []}
        recent = sorted(self._windows)[-10:]
        best = max(
            recent,
            key=lambda start: (sum(_posts(row) for row in self._windows[start].values()), start),
        )
        rows = sorted(self._windows[best].values(), key=lambda row: (-_posts(row), row["hashtag"]))
        return {
            "window_start_ms": best,
            "window_end_ms": rows[0].get("window_end_ms"),
            "tags": [
                {name: row.get(name) for name in ("hashtag", "posts", "recent", "authors", "burst")}
                for row in rows[:top]
            ],
        }

    def over_time(self, tags: list[str]) -> Mapping[str, list[tuple[float, float]]]:
        """Posts of each hashtag by the end time of the window."""
        return {
            tag: [
                ((row.get("window_end_ms") or start) / 1000, float(_posts(row)))
                for start in sorted(self._windows)
                if (row := self._windows[start].get(tag)) is not None
            ]
            for tag in tags
        }


def _posts(row: Document) -> int:
    posts = row.get("posts")
    return posts if isinstance(posts, int) else 0


class TrendFollower:
    """Follows the topic `trends` once it exists."""

    def __init__(self, links: ConnectionPool, sampler: Sampler, scanner: Scanner) -> None:
        self.board = TrendBoard()
        self._links = links
        self._sampler = sampler
        self._scanner = scanner

    @property
    def is_present(self) -> bool:
        return TOPIC in self._sampler.view.topics

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if self.is_present:
                try:
                    await self._follow()
                except (ScanFailed, ConnectionLost, ApiUnsupported) as error:
                    logger.info(
                        "following the topic %s failed, retrying in %s s: %s", TOPIC, RETRY_S, error
                    )
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        topic = self._sampler.view.topics[TOPIC]
        query = MessageQuery(
            start=StartPosition("last", RECORDS_READ_FIRST), limit=RECORDS_READ_FIRST
        )
        ranges = await offset_ranges(self._links, topic, query)
        first = {index: (0, start) for index, (start, _) in ranges.items()}
        async for found in self._scanner.scan(ScanPlan(TOPIC, first, query, follow=True)):
            for record in found.records:
                self.board.add(record.value)


def read_queries(directory: Path | None) -> list[Document]:
    """Every query with a status file, and its last batches."""
    if directory is None:
        return []
    found = []
    for path in sorted((directory / "queries").glob("*/status.json")):
        status = _object(path)
        if status is not None:
            batches = read_feed(path.with_name("progress.jsonl"))
            found.append({**status, "query": status.get("query", path.parent.name),
                          "batches": batches})  # fmt: skip
    return found


def _object(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def read_feed(path: Path) -> list[Document]:
    """The last batches, oldest first, read from the end of the file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - FEED_BYTES_READ_MAX))
            lines = file.read().splitlines()
    except OSError:
        return []
    if size > FEED_BYTES_READ_MAX:
        lines = lines[1:]  # the first line is incomplete
    batches = []
    for line in lines[-BATCHES_SHOWN:]:
        try:
            batch = json.loads(line)
        except ValueError:
            continue
        if isinstance(batch, dict):
            batches.append({name: batch.get(name) for name in
                            ("batch", "at", "input_rows", "rows_per_s", "duration_ms",
                             "lag_records", "watermark", "state_rows", "late_rows")})  # fmt: skip
    return batches
