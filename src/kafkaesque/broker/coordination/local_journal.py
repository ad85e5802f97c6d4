"""Commands in a journal of this node alone: synced, then applied. The one-node `Replicated`.

An entry's index is its offset in the journal plus one. Commands that wait are written and synced
together. From time to time the state is saved beside the journal, and what lies before the second
last snapshot is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from kafkaesque.broker.coordination.replicated import Applied, NotCommitted
from kafkaesque.broker.coordination.rules.machine import Outcome
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import StorageFailed, check
from kafkaesque.model.ids import LeaderEpoch, Offset
from kafkaesque.model.limits import MIB
from kafkaesque.records.batch import read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch

logger = logging.getLogger(__name__)

JOURNAL_CONFIG = LogConfig(segment_bytes=64 * MIB)
"""Only whole segments can go when a snapshot has replaced them."""

SNAPSHOT_AFTER_COMMANDS = 100_000
SNAPSHOT_AFTER_BYTES = 64 * MIB
SNAPSHOTS_KEPT = 2

_READ_BYTES = 1 << 20
_BATCH_COMMANDS_MAX = 1000
_BATCH_BYTES_MAX = 4 * MIB


class _Proposal(NamedTuple):
    command: bytes
    outcome: asyncio.Future[Outcome]


class LocalJournal:
    """Made with `open`, then `start`; `close` ends it. All calls on one event loop."""

    __slots__ = (
        "_applied",
        "_clock",
        "_failed",
        "_is_broken",
        "_is_closing",
        "_log",
        "_queue",
        "_since_snapshot",
        "_snapshot_after",
        "_wake",
        "_writer",
    )

    def __init__(
        self,
        log: Log,
        clock: Clock,
        applied: Applied,
        failed: Callable[[BaseException], None],
        snapshot_after_commands: int = SNAPSHOT_AFTER_COMMANDS,
    ) -> None:
        """`failed` is called when this node must stop: its state is not to be trusted any more."""
        self._log = log
        self._clock = clock
        self._applied = applied
        self._failed = failed
        self._snapshot_after = snapshot_after_commands
        self._queue: deque[_Proposal] = deque()
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_broken = False
        """The end of the log may hold a command that was refused: nothing may follow it."""
        self._since_snapshot = [0, 0]
        """Commands and bytes."""

    def load(self) -> None:
        """Restore the last snapshot and replay what follows it. Blocking."""
        log = self._log
        saved = log.latest_snapshot(log.log_end_offset)
        offset = log.log_start_offset
        if saved is not None:
            offset, content = saved
            self._applied.restore(content)
        is_whole = offset >= log.log_start_offset if saved is not None else offset == 0
        check(is_whole, f"{log.directory} begins behind its last sound snapshot")
        while offset < log.log_end_offset:
            read = log.read(offset, _READ_BYTES, limit_offset=log.log_end_offset)
            position = 0
            while position < len(read.records):
                header = read_header(read.records, position)
                for record in decode_batch(read.records, position):
                    if record.offset >= offset:
                        self._replay(record)
                position += header.size_bytes
                offset = header.next_offset

    def _replay(self, record: Record) -> None:
        check(record.value is not None, "a command has a body")
        self._count(record.value or b"")
        self._applied.apply(record.offset + 1, record.value or b"")

    def start(self) -> None:
        self._writer = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish what was proposed, then close the journal."""
        self._is_closing = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        await asyncio.to_thread(self._log.close, clean=True)

    # -- Replicated -----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def is_voter(self) -> bool:
        return True

    @property
    def term(self) -> int:
        return 1

    @property
    def is_available(self) -> bool:
        return not self._is_broken and not self._is_closing

    def propose(self, command: bytes) -> asyncio.Future[Outcome]:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if not self.is_available:
            outcome.set_exception(NotCommitted("the journal takes no more commands"))
        else:
            self._queue.append(_Proposal(command, outcome))
            self._wake.set()
        return outcome

    async def read_barrier(self) -> None:
        """Nothing is committed here before it is applied."""

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        self._applied.touched(session_ids)

    # -- the writer -----------------------------------------------------------------------------

    async def _run(self) -> None:
        taken: list[_Proposal] = []
        try:
            while not (self._is_closing and not self._queue):
                if self._queue:
                    taken = self._take()
                    await self._commit(taken)
                    await self._snapshot_if_due()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except Exception as error:  # noqa: BLE001 - supervisor: the node stops, clients are told
            self._is_broken = True
            self._refuse((*taken, *self._queue), error)
            self._queue.clear()
            self._failed(error)

    def _take(self) -> list[_Proposal]:
        taken: list[_Proposal] = []
        size_bytes = 0
        while self._queue and len(taken) < _BATCH_COMMANDS_MAX and size_bytes < _BATCH_BYTES_MAX:
            taken.append(self._queue.popleft())
            size_bytes += len(taken[-1].command)
        return taken

    async def _commit(self, proposals: list[_Proposal]) -> None:
        if self._is_broken:
            self._refuse(proposals, StorageFailed("the journal cannot be written"))
            return
        now_ms = self._clock.wall_ms()
        base_offset = self._log.log_end_offset
        records = [
            Record(Offset(base_offset + number), now_ms, None, proposal.command)
            for number, proposal in enumerate(proposals)
        ]
        try:
            batch = memoryview(
                encode_batch(records, base_offset=base_offset, leader_epoch=LeaderEpoch(0))
            )
            self._log.append(batch, read_header(batch), now_ms)
            await asyncio.to_thread(self._sync_or_take_back, base_offset)
        except StorageFailed as error:
            logger.error("%d coordination commands refused: %s", len(proposals), error)
            self._refuse(proposals, error)
            return
        for record, proposal in zip(records, proposals, strict=True):
            self._count(proposal.command)
            outcome = self._applied.apply(record.offset + 1, proposal.command)
            if not proposal.outcome.done():
                proposal.outcome.set_result(outcome)

    def _sync_or_take_back(self, base_offset: Offset) -> None:
        """A command that was refused must not be found by the next start."""
        try:
            self._log.sync()
        except StorageFailed:
            try:
                self._log.truncate_to(base_offset)
            except StorageFailed:
                self._is_broken = True
            raise

    def _refuse(self, proposals: Collection[_Proposal], error: BaseException) -> None:
        for proposal in proposals:
            if not proposal.outcome.done():
                proposal.outcome.set_exception(NotCommitted(str(error)))

    # -- snapshots ------------------------------------------------------------------------------

    def _count(self, command: bytes) -> None:
        self._since_snapshot[0] += 1
        self._since_snapshot[1] += len(command)

    async def _snapshot_if_due(self) -> None:
        commands, size_bytes = self._since_snapshot
        if commands < self._snapshot_after and size_bytes < SNAPSHOT_AFTER_BYTES:
            return
        self._since_snapshot = [0, 0]
        offset = self._log.log_end_offset
        content = self._applied.snapshot()
        try:
            await asyncio.to_thread(self._save, offset, content)
        except StorageFailed as error:
            # The journal has everything; only its beginning stays for longer.
            logger.warning("no coordination snapshot at %d: %s", offset, error)

    def _save(self, offset: Offset, content: bytes) -> None:
        older = self._log.latest_snapshot(offset)
        self._log.save_snapshot(offset, content)
        self._log.prune_snapshots(SNAPSHOTS_KEPT)
        if older is not None:
            self._log.delete_before(older[0])
