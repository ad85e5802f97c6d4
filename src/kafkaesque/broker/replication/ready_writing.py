"""Carries what Raft wants durable to the disk: the writing half of a replica.

A Ready is written in the order of its parts (docs/RAFT.md), as far as the gate and the disk let it; the
rest waits in the backlog, and a token of what is written for its sync.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.ready import Ready, Standing
from kafkaesque.broker.raft.types import NO_INDEX, Entry, LogIndex, Role, SyncToken
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.replication.rules.backlog import Backlog, Unwritten
from kafkaesque.broker.replication.rules.owner import Owner
from kafkaesque.broker.replication.rules.sync_tokens import SyncTokens
from kafkaesque.broker.replication.surroundings import Surroundings
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import GroupId, Offset

logger = logging.getLogger(__name__)


class ReadyWriting(ABC):
    """What `Replica` is made of; it alone is one."""

    __slots__ = (
        "_around",
        "_backlog",
        "_committed_index",
        "_controls",
        "_owner",
        "_tokens",
        "entries",
        "flush_messages",
        "group",
        "raft",
        "standing",
    )

    def __init__(
        self,
        group: GroupId,
        raft: Raft,
        entries: EntryLog,
        around: Surroundings[Any],
        owner: Owner,
        flush_messages: int,
    ) -> None:
        self.group = group
        self.raft = raft
        self.entries = entries
        self.flush_messages = flush_messages
        """Batches are synced when so many records are not; 1 syncs each before it counts."""
        self.standing: Standing = raft.standing
        self._around = around
        self._owner = owner
        self._backlog = Backlog()
        self._tokens = SyncTokens()
        self._committed_index = NO_INDEX
        """The owner was told up to here."""
        self._controls: deque[tuple[LogIndex, bytes]] = deque(entries.pending_controls())
        """Control entries of the owner's that it was not told of yet."""

    @abstractmethod
    def _fail(self, error: StorageFailed) -> None:
        """What the log holds is not known any more."""

    @abstractmethod
    def _release(self) -> None:
        """Tell Raft of every token whose Ready is durable."""

    @property
    def is_alone(self) -> bool:
        """No other member: nothing is ever sent."""
        return len(self.raft.membership.nodes) == 1

    @property
    def _is_gate_open(self) -> bool:
        return self._around.journal.synced_position >= self.entries.gate_position

    def _write(self) -> None:
        """As far as the gate and the disk let it."""
        readies = self._backlog.readies
        try:
            while readies and self._write_one(readies[0]):
                readies.popleft()
        except StorageFailed as error:
            self._fail(error)
        if not readies and self._backlog.refusal is not None:
            self._backlog.refusal = None
            logger.warning("group %d has room again", self.group)

    def _write_one(self, unwritten: Unwritten) -> bool:
        """True when all of it is written; False if the gate is shut or the disk is full."""
        ready = unwritten.ready
        if unwritten.begun_entries < 0:
            if not self._begin(ready):
                return False
            unwritten.begun_entries = 0
            if ready.hard_state is not None:
                unwritten.journal_position = self._around.journal.position
        for entry in ready.entries[unwritten.begun_entries :]:
            if entry.index <= self.entries.last_index:
                self._cut_void(entry)
            payload = entry.payload
            if not isinstance(payload, BatchPayload | BatchRef):
                self.entries.append_control(entry)
                if isinstance(payload, bytes):
                    self._controls.append((entry.index, payload))
            elif isinstance(payload, BatchPayload) and entry.index > self.entries.last_index:
                if not self._is_gate_open:
                    self._around.sync_journal(self)
                    return False
                if not self._write_batch(entry, payload):
                    return False
            unwritten.begun_entries += 1
        if ready.token is not None:
            position = max(unwritten.journal_position, self.entries.gate_position)
            self._await_sync(ready.token, position)
        return True

    def _write_batch(self, entry: Entry, payload: BatchPayload) -> bool:
        try:
            self.entries.append_batch(entry.index, entry.term, payload, self._around.now_ms())
        except StorageFailed as error:
            self._refused(error)
            return False
        if entry.term != self.standing.term or self.standing.role is not Role.LEADER:
            # Not one of this leadership's own, which the owner appended itself.
            self._owner.appended(payload.header)
        return True

    def _cut_void(self, entry: Entry) -> None:
        """A leader writes before it proposes. What it wrote and Raft dropped before it ever came
        out of a Ready is in nobody's log but ours: another leader's entry takes its place."""
        if self.entries.term_at(entry.index) != entry.term:
            self._cut_from(entry.index)

    def _cut_from(self, index: LogIndex) -> None:
        end_offset = self.entries.truncate_from(index)
        while self._controls and self._controls[-1][0] >= index:
            self._controls.pop()
        self._tokens.clip(self.entries.log.log_end_offset)
        self._owner.cut(end_offset)

    def _begin(self, ready: Ready) -> bool:
        """The parts of a Ready that come before its entries, in their order. False if the disk is
        full: it is begun again then, and to save the same facts twice does no harm."""
        journal = self._around.journal
        if ready.hard_state is not None:
            journal.save_hard_state(self.group, ready.hard_state)
        if ready.snapshot is not None:
            try:
                self._owner.installing(ready.snapshot)
            except StorageFailed as error:
                self._refused(error)
                return False
            self.entries.install(ready.snapshot)
            self._committed_index = ready.snapshot.index
            self._tokens.clip(self.entries.log.log_end_offset)
            self._owner.installed(ready.snapshot)
        if ready.truncate_from is not None and ready.truncate_from <= self.entries.last_index:
            self._cut_from(ready.truncate_from)
        return True

    def _await_sync(self, token: SyncToken, journal_position: int) -> None:
        log = self.entries.log
        unsynced = log.log_end_offset - log.synced_offset
        end_offset = log.log_end_offset if unsynced >= self.flush_messages else Offset(0)
        self._tokens.add(token, journal_position, end_offset)
        if self._around.journal.synced_position < journal_position:
            self._around.sync_journal(self)
        if log.synced_offset < end_offset:
            self._around.sync_log(self)
        self._release()

    def _refused(self, error: StorageFailed) -> None:
        """There may be room again, and a leader lets the others write meanwhile: raises unless there
        are others, what the log holds is known, and this replica may wait."""
        may_wait = self.standing.role is Role.LEADER or self._owner.waits_for_room
        if self.is_alone or self.entries.log.failure is not None or not may_wait:
            raise error
        if self._backlog.refused(error):
            logger.warning("group %d waits for room: %s", self.group, error)
