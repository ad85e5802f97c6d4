"""What a source knows of itself when it starts: its cursors and its window, both read from the log."""

from __future__ import annotations

import logging

from kafkaesque.client.ports import Log
from kafkaesque.client.reading import last_records_stretch, read_stretch
from kafkaesque.events.envelope import EventError
from kafkaesque.events.social import (
    CURSORS,
    POSTS,
    Post,
    PostDeleted,
    PostEdited,
    SourceCursor,
)
from kafkaesque.events.topics import SOCIAL_CURSORS, SOCIAL_POSTS
from kafkaesque.sources.rules.cursors import key_of, position
from kafkaesque.sources.rules.intake import Progress
from kafkaesque.sources.rules.window import Window

logger = logging.getLogger(__name__)


async def load_progress(log: Log, source: str) -> dict[str, Progress]:
    """The last cursor of each stream of `source`."""
    found: dict[str, Progress] = {}
    spans = await log.admin.spans(SOCIAL_CURSORS.name)
    async for records in read_stretch(log, spans):
        for record in records:
            if record.value is None:
                continue
            try:
                body = CURSORS.decode(record.value).body
            except EventError as error:
                logger.warning("%s@%d: %s", record.topic, record.offset, error)
                continue
            if (
                isinstance(body, SourceCursor)
                and record.key == key_of(source, body.stream).encode()
                and body.source == source
            ):
                found[body.stream] = Progress(position(body) or 0, body.read_ms)
    return found


async def fill_window(log: Log, window: Window, count: int) -> int:
    """Remember the last `count` posts of the log; how many records were read."""
    read = 0
    stretch = await last_records_stretch(log, SOCIAL_POSTS.name, count)
    async for records in read_stretch(log, stretch):
        for record in records:
            read += 1
            try:
                body = POSTS.decode(record.value or b"").body
            except EventError as error:
                logger.warning("%s-%d@%d: %s", record.topic, record.partition, record.offset, error)
                continue
            if isinstance(body, Post | PostEdited | PostDeleted):
                window.remember(body)
    return read
