"""Log compaction: chooses the next log, decides how far to clean it, and swaps in the result.

One log at a time, the dirtiest first. Before anything is rewritten, the part to be cleaned is
durably removed from Raft's entries (`EntryLog.fold_before`); ADR 10 has the reasons. A separate
process rewrites the segments (`storage.cleaner_worker`). This module has what depends on the
partition: how far it is committed and stable, which transactions were aborted, which producers are
remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import msgspec

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.producer_state import read_producers
from kafkaesque.broker.partitions.rules.admission import Trim
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.storage.checkpoint import Cleaned
from kafkaesque.broker.storage.cleaner import CleanedSegment, Finished, Job
from kafkaesque.broker.storage.cleaner_worker import (
    Failed,
    Order,
    decode_result,
    encode,
    frame,
    frame_size,
)
from kafkaesque.broker.storage.rules.compaction import Cleanable, CleanableLimits, choose_cleanable
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import KafkaError, StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.model.settings import BrokerConfig

logger = logging.getLogger(__name__)

_SLEEP_SECONDS_MIN: Final = 0.1
_RETRY_ROUNDS: Final = 20
"""A log that could not be cleaned is skipped for this many rounds."""


_MODULE: Final = "kafkaesque.broker.storage.cleaner_worker"
_HEAD_BYTES: Final = 4


class CleanerProcess:
    """The worker process. Runs one job at a time."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, order: Order) -> AsyncGenerator[CleanedSegment | Finished, None]:
        """Runs a job and yields its results, a Finished last. Raises StorageFailed if it fails.

        Callers that do not consume all results must close the generator, which kills the process.
        """
        is_done = False
        try:
            process = await self._started()
            if process.stdin is None or process.stdout is None:
                raise StorageFailed("the cleaner's process has no pipes")
            process.stdin.write(frame(encode(order)))
            await process.stdin.drain()
            while not is_done:
                head = await process.stdout.readexactly(_HEAD_BYTES)
                result = decode_result(await process.stdout.readexactly(frame_size(head)))
                is_done = not isinstance(result, CleanedSegment)
                if isinstance(result, Failed):
                    raise StorageFailed(result.reason)
                yield result
        except (asyncio.IncompleteReadError, msgspec.MsgspecError, OSError) as error:
            raise StorageFailed(f"the cleaner's process failed: {error!r}") from error
        finally:
            if not is_done:
                await self.stop()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    async def stop(self) -> None:
        """Kills the process. Files that it left are recognised as incomplete."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()


@dataclass(slots=True)
class CleaningStats:
    """Totals since the start."""

    cleanings: int = 0
    failures: int = 0
    read_bytes: int = 0
    saved_bytes: int = 0
    """Bytes by which logs became shorter."""


class LogCleaner:
    """Cleans the compacted partitions of this node. `config` returns the broker's current
    settings."""

    def __init__(
        self,
        partitions: Iterable[Partition],
        journal: RaftJournal,
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._journal = journal
        self._config = config
        self._clock = clock
        self._process = CleanerProcess()
        self._skipped: dict[Partition, int] = {}
        """Rounds until a log whose cleaning failed is tried again."""
        self.stats = CleaningStats()

    async def turn(self) -> None:
        """Sleeps, then runs a round."""
        await asyncio.sleep(max(_SLEEP_SECONDS_MIN, self._config().log_cleaner_backoff_ms / 1000))
        await self.round()

    async def round(self) -> None:
        """Cleans all logs that are worth it, one after the other."""
        for partition in list(self._skipped):
            self._skipped[partition] -= 1
            if self._skipped[partition] <= 0 or partition.closed is not None:
                del self._skipped[partition]
        try:
            while (dirtiest := self._dirtiest()) is not None:
                if not await self._clean_or_log(dirtiest):
                    self._skipped[dirtiest] = _RETRY_ROUNDS
        finally:
            await self._process.stop()

    def dirty_ratios(self) -> list[tuple[Partition, float]]:
        """Returns the dirty ratio of each compacted log: the uncleaned share of what could be
        cleaned."""
        now_ms = self._clock.wall_ms()
        examined = [(p, self._examine(p, now_ms, may_roll=False)) for p in self._compacted()]
        return [
            (partition, found.dirty_ratio) for partition, found in examined if found is not None
        ]

    # -- choosing ----------------------------------------------------------------------------------

    def _compacted(self) -> Iterable[Partition]:
        return [p for p in self._partitions if p.config.is_compacted and p.closed is None]

    def _dirtiest(self) -> Partition | None:
        best, best_rank = None, (False, 0.0)
        now_ms = self._clock.wall_ms()
        for partition in self._compacted():
            if partition in self._skipped:
                continue
            cleanable = self._examine(partition, now_ms, may_roll=True)
            if cleanable is None:
                continue
            is_dirty = cleanable.dirty_bytes > 0
            is_worth = cleanable.dirty_ratio >= partition.config.min_cleanable_dirty_ratio
            rank = (cleanable.is_due, cleanable.dirty_ratio)
            if (cleanable.is_due or (is_dirty and is_worth)) and rank > best_rank:
                best, best_rank = partition, rank
        return best

    def _examine(self, partition: Partition, now_ms: int, *, may_roll: bool) -> Cleanable | None:
        """Returns None on a disk error; the requests to that log report it."""
        try:
            if may_roll:
                self._roll_if_old(partition, now_ms)
            return self._cleanable(partition, now_ms)
        except (KafkaError, OSError) as error:
            logger.info("cannot examine %s for cleaning: %s", partition.name, error)
            return None

    def _roll_if_old(self, partition: Partition, now_ms: int) -> None:
        """Rolls an old active segment: if nothing is appended, it would never be closed and so
        never cleaned."""
        log = partition.log
        active, limit_ms = log.segments[-1], log.config.segment_ms
        is_old = active.size_bytes > 0 and now_ms - active.first_timestamp > limit_ms
        if is_old and now_ms - log.modified_ms > limit_ms:
            log.roll()

    def _cleanable(
        self, partition: Partition, now_ms: int, stable_offset: Offset | None = None
    ) -> Cleanable:
        log, config = partition.log, partition.config
        stable_offset = partition.stable_offset if stable_offset is None else stable_offset
        stable_offset = min(stable_offset, self._held_by_followers(partition))
        return choose_cleanable(
            log.segments,
            max(log.cleaned.offset, log.log_start_offset),
            log.cleaned.next_horizon_ms,
            CleanableLimits(
                stable_offset, config.min_compaction_lag_ms, config.max_compaction_lag_ms
            ),
            now_ms,
        )

    def _held_by_followers(self, partition: Partition) -> Offset:
        """Returns the offset up to which all active followers have the log. Entries that they lack
        must stay entries, or they would have to copy the whole compacted part again."""
        replica = partition.replica
        if replica.is_alone or not replica.is_leader:
            return partition.log_end_offset
        peers = [peer for peer in replica.status().peers.values() if peer.is_active]
        index = min((peer.match_index for peer in peers), default=replica.entries.last_index)
        if index < replica.entries.first_index:
            return replica.entries.folded_offset
        return replica.entries.end_offset_of(index)

    # -- cleaning ----------------------------------------------------------------------------------

    async def _clean_or_log(self, partition: Partition) -> bool:
        try:
            return await self._clean(partition)
        except KafkaError as error:
            if partition.closed is None:
                self.stats.failures += 1
                logger.error("could not clean %s: %s", partition.name, error)
            return False

    async def _clean(self, partition: Partition) -> bool:
        """Returns True if the log was cleaned further than before."""
        log = partition.log
        await asyncio.to_thread(log.sync)
        producers, stable_offset = await self._producers_of(partition)
        now_ms = self._clock.wall_ms()
        cleanable = self._cleanable(partition, now_ms, stable_offset)
        end_offset = cleanable.end_offset
        if end_offset <= log.log_start_offset or not self._may_fold(partition, end_offset):
            return False
        job = self._job(partition, producers, cleanable, now_ms)
        partition.replica.entries.fold_before(end_offset)
        await asyncio.to_thread(self._journal.sync)
        size_bytes = log.size_bytes
        order = Order(job, self._config().log_cleaner_io_max_bytes_per_second)
        async with aclosing(self._process.run(order)) as results:
            async for result in results:
                if partition.closed is not None or partition.log is not log:
                    return False
                if isinstance(result, Finished):
                    await self._finish(partition, result)
                else:
                    await self._install(partition, result, job.token)
        saved_bytes = size_bytes - log.size_bytes
        self.stats.cleanings += 1
        self.stats.saved_bytes += max(0, saved_bytes)
        logger.info(
            "cleaned %s up to offset %d: saved_bytes=%d", partition.name, end_offset, saved_bytes
        )
        return True

    async def _producers_of(self, partition: Partition) -> tuple[ProducerTable, Offset]:
        """Returns the producers of the log and its last stable offset.

        A replica that lost leadership does not maintain its producer table until it leads again;
        with a stale table, records of an open transaction would look committed.
        """
        if not partition.are_producers_stale:
            return partition.producers, partition.stable_offset
        high_watermark = partition.high_watermark
        producers = await asyncio.to_thread(read_producers, partition.replica.entries)
        return producers, producers.transactions.stable_offset(high_watermark)

    def _may_fold(self, partition: Partition, end_offset: Offset) -> bool:
        """Returns whether the part before `end_offset` may be removed from Raft's entries. A trim
        that is not carried out must stay an entry, or a restart would lose it."""
        start = partition.log_start_offset
        trims = (payload for _, payload in partition.replica.entries.pending_controls())
        return (
            end_offset <= partition.log.file_synced_offset
            and partition.closed is None
            and partition.replica.entries.copied_until <= self._clock.monotonic()
            and all(msgspec.msgpack.decode(p, type=Trim).offset <= start for p in trims)
        )

    def _job(
        self, partition: Partition, producers: ProducerTable, cleanable: Cleanable, now_ms: int
    ) -> Job:
        log, config, end_offset = partition.log, partition.config, cleanable.end_offset
        aborted = producers.transactions.aborted.rows()
        return Job(
            str(log.directory),
            tuple(facts for facts in log.segments if facts.base_offset < end_offset),
            cleanable.first_dirty_offset,
            end_offset,
            now_ms,
            config.delete_retention_ms,
            uuid.uuid4().hex,
            tuple((row[0], row[1], row[2]) for row in aborted if row[1] < end_offset),
            tuple(
                (int(pid), int(p.epoch), int(p.batches[-1].base_offset) if p.batches else -1)
                for pid, p in producers.items()
            ),
            config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            self._config().log_cleaner_dedupe_buffer_size,
        )

    async def _install(self, partition: Partition, result: CleanedSegment, token: str) -> None:
        self.stats.read_bytes += result.read_bytes
        if result.facts is None:
            return
        if result.spent_aborts:
            self._forget_aborted(partition, result.spent_aborts)
        await asyncio.to_thread(partition.log.replace_segments, result.bases, result.facts, token)

    def _forget_aborted(self, partition: Partition, markers: Iterable[Offset]) -> None:
        """Forgets aborted transactions before their markers are gone: a reader that gets an aborted
        transaction skips all records of its producer until it reaches the marker. Older snapshots
        that contain it are deleted too."""
        partition.producers.transactions.aborted.forget(markers)
        partition.save_producers()
        is_saved = partition.producers.saved_offset == partition.log_end_offset
        partition.log.prune_snapshots(keep=1 if is_saved else 0)

    async def _finish(self, partition: Partition, result: Finished) -> None:
        offset = max(result.cleaned_offset, partition.log.cleaned.offset)
        partition.log.note_cleaned(Cleaned(offset, result.next_horizon_ms))
        await asyncio.to_thread(partition.log.sync)
