"""The controller on one node: the real rules and tables over the log of group 0.

An operation needs tables that include every entry of the log, so only one runs at a time. Its commands
are committed, then applied, then answered. A checker receives every node's tables at each offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from kafkaesque.broker.cluster.rules.commands import decode_command, encode_command
from kafkaesque.broker.cluster.rules.controller import Controller, Decision
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import NO_TERM, LogIndex, Role, Snapshot
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.log import Log
from kafkaesque.lab.sim.ground_truth import EntryFact, batch_fact
from kafkaesque.lab.sim.partition import ProduceOutcome, ProduceResult, Reply
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import KafkaError, StorageFailed
from kafkaesque.model.ids import LeaderEpoch, NodeId, Offset
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.records.batch import BatchHeader, read_header, stamp
from kafkaesque.records.codec import Record, decode_batch, encode_batch

Operation = Callable[[Controller], Decision[Any]]
_READ_BYTES = 1 << 16
_SETTINGS = DynamicConfig(BrokerConfig())


class SimulatedController:
    """The state machine of group 0."""

    waits_for_room = True

    def __init__(
        self,
        log: Log,
        clock: Clock,
        nodes: list[NodeId],
        failed: Callable[[StorageFailed], None],
        on_applied: Callable[[Offset, bytes], None],
        new_replica: Callable[[StateMachine], Replica],
    ) -> None:
        self.log = log
        self.tables = Tables()
        self.applied_offset = Offset(0)
        self.failed = failed
        self._clock = clock
        self._nodes = nodes
        self._on_applied = on_applied
        self._topics_made = 0
        self._waiting: tuple[EntryFact, Reply] | None = None
        self.replica = new_replica(self)

    # Callbacks of the replica

    def leadership_changed(self, leadership: Leadership) -> None:
        if leadership.role is not Role.LEADER and self._waiting is not None:
            _, reply = self._waiting
            self._waiting = None
            reply(ProduceResult(ProduceOutcome.UNKNOWN, None, "no longer leader"))

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        """The state changes by replay only, on the leader as on the followers."""
        while self.applied_offset < end_offset:
            read = self.log.read(self.applied_offset, _READ_BYTES, limit_offset=end_offset)
            self._apply(read.records)
        if self._waiting is not None and self._waiting[0].end_offset <= self.applied_offset:
            fact, reply = self._waiting
            self._waiting = None
            reply(ProduceResult(ProduceOutcome.COMMITTED, fact))

    def appended(self, header: BatchHeader) -> None:
        """Ignored: uncommitted batches are not applied."""

    def control(self, payload: bytes) -> None:
        """Ignored: the simulation proposes no control entries here."""

    def truncated(self, end_offset: Offset) -> None:
        """Ignored: truncated entries were never applied."""

    def installing(self, snapshot: Snapshot) -> None:
        """Never called: this log is not trimmed in the simulation."""

    def installed(self, snapshot: Snapshot) -> None:
        """Never called: this log is not trimmed in the simulation."""

    def _apply(self, batches: memoryview) -> None:
        position = 0
        while position < len(batches):
            header = read_header(batches, position)
            for record in decode_batch(batches, position):
                self.tables.apply(decode_command(record.value or b""))
            position += header.size_bytes
            self.applied_offset = header.next_offset
            self._on_applied(self.applied_offset, self.tables.snapshot())

    # Requests of clients

    def perform(self, operation: Operation, reply: Callable[[ProduceResult, object], None]) -> None:
        """Decides, commits, applies and answers. Refused while another operation is in progress."""
        replica = self.replica
        if not replica.is_leader or self.applied_offset < replica.next_offset:
            reply(ProduceResult(ProduceOutcome.REFUSED, None, "not leader, or busy"), None)
            return
        controller = Controller(self.tables, _SETTINGS, lambda: self._nodes, self._new_topic_id)
        try:
            outcome = operation(controller)
            if not outcome.commands:
                reply(ProduceResult(ProduceOutcome.REFUSED, None, "nothing to do"), None)
                return
            header = self._append([encode_command(command) for command in outcome.commands])
        except KafkaError as error:
            reply(ProduceResult(ProduceOutcome.REFUSED, None, repr(error)), None)
            return
        fact = batch_fact(header, NO_TERM)
        self._waiting = fact, lambda answer: reply(answer, outcome.answer)

    def _append(self, values: list[bytes]) -> BatchHeader:
        now_ms = self._clock.wall_ms()
        records = [Record(Offset(0), now_ms, None, value) for value in values]
        batch = encode_batch(records)
        offset, epoch = self.replica.next_offset, LeaderEpoch(self.replica.leadership.term)
        header = stamp(batch, read_header(batch), offset, epoch)
        self.replica.append(memoryview(batch), header, now_ms)
        return header

    def _new_topic_id(self) -> UUID:
        """Deterministic: the same run gives the same ids, and different topics get different ids."""
        self._topics_made += 1
        term = self.replica.leadership.term
        return UUID(int=term << 64 | self.applied_offset << 16 | self._topics_made)
