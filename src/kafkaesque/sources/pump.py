"""A running source: network to log, with everything that it knows rebuilt from the log at each start.

One pass: ensure topics, open a writer, read cursors and window from the log, connect, and then batch
after batch: posts first, then the cursor (or both in one transaction). Whatever goes wrong with the
log ends the pass, and the next one begins from what the log says. So a record whose fate is unknown is
found in the log, or it is read from the network again; the window sees to it that it is not both.
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
from kafkaesque.events.topics import SOCIAL_TOPICS
from kafkaesque.sources.drivers import Endpoint
from kafkaesque.sources.memory_of_log import fill_window, load_progress
from kafkaesque.sources.networks import Network
from kafkaesque.sources.rules.backoff import Backoff
from kafkaesque.sources.rules.cursors import Rewind
from kafkaesque.sources.rules.hashtags import Following
from kafkaesque.sources.rules.intake import Batch, Counts, Identity, Intake, Progress
from kafkaesque.sources.rules.window import Window
from kafkaesque.sources.streams import STEADY_SECONDS, Delivery, Follower

logger = logging.getLogger(__name__)

LOG_RETRY_SECONDS = 1.0
LOG_RETRY_SECONDS_MAX = 30.0
COLLECT_SECONDS = 0.1
TOMBSTONES_MAX = 10_000


@dataclass(slots=True)
class State:
    """What can be seen of a pump from outside."""

    connections: int = 0
    batches: int = 0
    passes: int = 0
    transactional: bool = False
    window: int = 0
    connected: bool = False
    error: str | None = None


class Pump:
    """Runs until `stop`, or until `limit` posts are written."""

    def __init__(
        self,
        log: Log,
        network: Network,
        identity: Identity,
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
        self.counts = Counts()
        self.state = State()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """WriterFenced if another process of the same name has taken over, TransactionsUnsupported if
        they are required; every other trouble with the log is waited out."""
        wait_s = LOG_RETRY_SECONDS
        while not self._finished():
            started_s = time.monotonic()
            try:
                await self._pass()
                self.state.error = None
            except (WriterFenced, TransactionsUnsupported):
                raise
            except LogError as error:
                self.state.error = str(error)
                logger.warning("%s; from the log's state again in %.1f s", error, wait_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stopping.wait()
                steady = time.monotonic() - started_s > LOG_RETRY_SECONDS_MAX
                wait_s = LOG_RETRY_SECONDS if steady else min(2 * wait_s, LOG_RETRY_SECONDS_MAX)

    def _finished(self) -> bool:
        reached = self._limit is not None and self.counts.posts >= self._limit
        return self._stopping.is_set() or reached

    async def _pass(self) -> None:
        self.state.passes += 1
        await self._log.admin.ensure_topics(SOCIAL_TOPICS)
        writer = await self._open_writer()
        try:
            intake = await self._recall()
            async with _Followers(self._network, self._endpoint, intake) as followers:
                self.state.connected = True
                await self._write_batches(writer, intake, followers)
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
                logger.info("posts and cursor are written one after the other: %s", error)
        return await self._log.open_writer(WriterOptions())

    async def _recall(self) -> Intake:
        config = self._endpoint.config
        window = Window(config.dedup_window_posts, TOMBSTONES_MAX)
        # The window is read after the writer is open: a transactional writer has by then ended what
        # its predecessor left, so that everything it wrote is seen.
        progress = await load_progress(self._log, self._identity.name)
        self.state.window = await fill_window(self._log, window, config.dedup_window_posts)
        intake = Intake(
            self._identity,
            self._network.parser,
            Following(self._endpoint.tags),
            window,
            all_deletes=config.deletes == "all",
        )
        intake.counts = self.counts
        intake.progress = progress
        return intake

    async def _write_batches(
        self, writer: LogWriter, intake: Intake, followers: _Followers
    ) -> None:
        interval_s = self._endpoint.config.cursor_interval_ms / 1000
        written = _snapshot(intake)
        written_s = time.monotonic()
        while True:
            finishing = self._finished()
            batch = Batch()
            for item in await followers.collect(wait=not finishing):
                if item.taken is not None:
                    item.taken.set()
                else:
                    intake.take(batch, item.stream, item.frame, item.read_ms)
            self.state.connections = followers.connections
            moved = [name for name, now in intake.progress.items() if written.get(name) != now]
            overdue = time.monotonic() - written_s >= interval_s
            if batch.records and (fresh := [name for name in moved if name not in written]):
                await _write(writer, Batch(), [intake.origin_record(name) for name in fresh])
            if batch.records or (moved and (overdue or finishing)):
                await _write(writer, batch, [intake.cursor_record(name) for name in moved])
                self.state.batches += 1
                written, written_s = _snapshot(intake), time.monotonic()
            if finishing:
                return


class _Followers:
    """The streams of a source while they are followed, and the queue that they fill."""

    def __init__(self, network: Network, endpoint: Endpoint, intake: Intake) -> None:
        self._config = endpoint.config
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue(self._config.buffer_frames_max)
        scale = self._config.backoff_scale
        self._followers = [
            Follower(
                stream,
                self._queue,
                functools.partial(intake.progress.get, stream.name),
                Backoff(network.name, scale),
                Rewind(self._config.cursor_rewind_ms),
                STEADY_SECONDS * scale,
            )
            for stream in network.streams(endpoint)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        return sum(follower.connections for follower in self._followers)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(follower.run()) for follower in self._followers]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def collect(self, *, wait: bool) -> list[Delivery]:
        """What has come, or comes within a moment; nothing if nothing comes."""
        for task in self._tasks:
            if task.done():
                task.result()
        found: list[Delivery] = []
        if wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COLLECT_SECONDS):
                    found.append(await self._queue.get())
            if found and self._queue.qsize() < self._config.batch_posts_max:
                await asyncio.sleep(self._config.batch_linger_ms / 1000)
        while len(found) < self._config.batch_posts_max and not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found


def _snapshot(intake: Intake) -> dict[str, Progress]:
    return {name: dataclasses.replace(progress) for name, progress in intake.progress.items()}


async def _write(writer: LogWriter, batch: Batch, cursors: Sequence[Record]) -> None:
    """A cursor is never in the log before what it stands for."""
    if writer.transactional:
        async with writer.transaction():
            await writer.send([*batch.records, *cursors])
        return
    if batch.records:
        await writer.send(batch.records)
    if cursors:
        await writer.send(cursors)
