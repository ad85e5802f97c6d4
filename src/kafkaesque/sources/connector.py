"""The source connector: copies posts from a network to the log.

One pass creates the topics, opens a writer, restores cursors and deduplication window from the log,
connects, and then writes batch after batch: posts first, then the cursor, or both in one transaction. Any
log error ends the pass, and the next one starts from the log. A record whose delivery is unknown is either
found in the log or read from the network again; the window prevents a duplicate.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kafkaesque.client.ports import (
    Log,
    LogError,
    LogWriter,
    Record,
    TransactionsUnsupported,
    WriterFenced,
    WriterOptions,
)
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
from kafkaesque.events.topics import SOCIAL_CURSORS, SOCIAL_POSTS, SOCIAL_TOPICS
from kafkaesque.service.pass_backoff import PassBackoff, sleep_unless
from kafkaesque.sources.networks import SocialNetwork
from kafkaesque.sources.reconnect import STEADY_SECONDS, QueuedFrame, ReconnectingStream
from kafkaesque.sources.rules.backoff import ReconnectBackoff
from kafkaesque.sources.rules.cursors import Rewind, cursor_key, cursor_position
from kafkaesque.sources.rules.dedup_window import DedupWindow
from kafkaesque.sources.rules.frame_processor import (
    FrameProcessor,
    OutputBatch,
    SourceCounts,
    SourceIdentity,
    StreamProgress,
)
from kafkaesque.sources.rules.hashtags import HashtagFilter
from kafkaesque.sources.streams.endpoint import Endpoint

logger = logging.getLogger(__name__)

LOG_RETRY_SECONDS = 1.0
LOG_RETRY_SECONDS_MAX = 30.0
COLLECT_SECONDS = 0.1
TOMBSTONES_MAX = 10_000


@dataclass(slots=True)
class ConnectorStatus:
    """The state of a connector for the status page and the metrics."""

    connections: int = 0
    batches: int = 0
    passes: int = 0
    transactional: bool = False
    window: int = 0
    connected: bool = False
    error: str | None = None


class SourceConnector:
    """Runs until `stop`, or until `limit` posts are written."""

    def __init__(
        self,
        log: Log,
        network: SocialNetwork,
        identity: SourceIdentity,
        endpoint: Endpoint,
        *,
        limit: int | None = None,
    ) -> None:
        self._log = log
        self._network = network
        self._identity = identity
        self._endpoint = endpoint
        self._limit = limit
        self._stopping = asyncio.Event()
        self.counts = SourceCounts()
        self.state = ConnectorStatus()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Retries after log errors. Raises WriterFenced if another process of the same name has taken
        over, and TransactionsUnsupported if transactions are required."""
        backoff = PassBackoff(LOG_RETRY_SECONDS, LOG_RETRY_SECONDS_MAX)
        while not self._finished():
            backoff.start()
            try:
                await self._pass()
                self.state.error = None
            except (WriterFenced, TransactionsUnsupported):
                raise
            except LogError as error:
                self.state.error = str(error)
                wait_s = backoff.next_s()
                logger.warning("pass failed: %s; next pass in %.1f s", error, wait_s)
                await sleep_unless(self._stopping, wait_s)

    def _finished(self) -> bool:
        reached = self._limit is not None and self.counts.posts >= self._limit
        return self._stopping.is_set() or reached

    async def _pass(self) -> None:
        self.state.passes += 1
        await self._log.admin.ensure_topics(SOCIAL_TOPICS)
        writer = await self._open_writer()
        try:
            processor = await self._restore()
            async with _Streams(self._network, self._endpoint, processor) as streams:
                self.state.connected = True
                await self._write_batches(writer, processor, streams)
        finally:
            self.state.connected = False
            await writer.close()

    async def _open_writer(self) -> LogWriter:
        config = self._endpoint.config
        if config.transactions != "never":
            try:
                options = WriterOptions(transactional_id=f"source-{self._identity.name}")
                writer = await self._log.open_writer(options)
                self.state.transactional = True
                return writer
            except TransactionsUnsupported as error:
                if config.transactions == "required":
                    raise
                logger.info("writing posts and cursor without transactions: %s", error)
        return await self._log.open_writer(WriterOptions())

    async def _restore(self) -> FrameProcessor:
        """Rebuilds cursors and window from the log.

        The writer must be open already: opening a transactional writer ends its predecessor's
        transaction, so that everything the predecessor committed is read.
        """
        config = self._endpoint.config
        window = DedupWindow(config.dedup_window_posts, TOMBSTONES_MAX)
        progress = await _load_progress(self._log, self._identity.name)
        self.state.window = await _fill_window(self._log, window, config.dedup_window_posts)
        return FrameProcessor(
            self._identity,
            self._network.parser,
            HashtagFilter(self._endpoint.tags),
            window,
            self.counts,
            progress,
            all_deletes=config.deletes == "all",
        )

    async def _write_batches(
        self, writer: LogWriter, processor: FrameProcessor, streams: _Streams
    ) -> None:
        interval_s = self._endpoint.config.cursor_interval_ms / 1000
        written = _copy_progress(processor)
        written_s = time.monotonic()
        while True:
            finishing = self._finished()
            batch = OutputBatch()
            for item in await streams.collect(wait=not finishing):
                if item.processed is not None:
                    item.processed.set()
                else:
                    processor.process(batch, item.stream, item.frame, item.read_ms)
            for stream, reason in batch.stream_ends:
                logger.warning("the network ended a stream: stream=%s: %s", stream, reason)
            self.state.connections = streams.connections
            moved = [name for name, now in processor.progress.items() if written.get(name) != now]
            overdue = time.monotonic() - written_s >= interval_s
            if batch.records and (fresh := [name for name in moved if name not in written]):
                await _write(
                    writer, OutputBatch(), [processor.origin_record(name) for name in fresh]
                )
            if batch.records or (moved and (overdue or finishing)):
                await _write(writer, batch, [processor.cursor_record(name) for name in moved])
                self.state.batches += 1
                written, written_s = _copy_progress(processor), time.monotonic()
            if finishing:
                return


class _Streams:
    """The connected streams of a source, and the queue of their frames."""

    def __init__(
        self, network: SocialNetwork, endpoint: Endpoint, processor: FrameProcessor
    ) -> None:
        self._config = endpoint.config
        self._queue: asyncio.Queue[QueuedFrame] = asyncio.Queue(self._config.buffer_frames_max)
        scale = self._config.backoff_scale
        self._streams = [
            ReconnectingStream(
                stream,
                self._queue,
                functools.partial(processor.progress.get, stream.name),
                ReconnectBackoff(network.name, scale),
                Rewind(self._config.cursor_rewind_ms),
                STEADY_SECONDS * scale,
            )
            for stream in network.streams(endpoint)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        return sum(stream.connections for stream in self._streams)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(stream.run()) for stream in self._streams]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def collect(self, *, wait: bool) -> list[QueuedFrame]:
        """The queued frames; waits a moment if there are none."""
        for task in self._tasks:
            if task.done():
                task.result()
        found: list[QueuedFrame] = []
        if wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COLLECT_SECONDS):
                    found.append(await self._queue.get())
            if found and self._queue.qsize() < self._config.batch_posts_max:
                await asyncio.sleep(self._config.batch_linger_ms / 1000)
        while len(found) < self._config.batch_posts_max and not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found


def _copy_progress(processor: FrameProcessor) -> dict[str, StreamProgress]:
    return {name: dataclasses.replace(progress) for name, progress in processor.progress.items()}


async def _write(writer: LogWriter, batch: OutputBatch, cursors: Sequence[Record]) -> None:
    """Writes records and cursors. A cursor is never in the log before the records it covers."""
    if writer.transactional:
        async with writer.transaction():
            await writer.send([*batch.records, *cursors])
        return
    if batch.records:
        await writer.send(batch.records)
    if cursors:
        await writer.send(cursors)


async def _load_progress(log: Log, source: str) -> dict[str, StreamProgress]:
    """The last cursor of each stream of `source`."""
    found: dict[str, StreamProgress] = {}
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
                and record.key == cursor_key(source, body.stream).encode()
                and body.source == source
            ):
                found[body.stream] = StreamProgress(cursor_position(body) or 0, body.read_ms)
    return found


async def _fill_window(log: Log, window: DedupWindow, count: int) -> int:
    """Adds the last `count` posts of the log to the window; returns the number of records read."""
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
