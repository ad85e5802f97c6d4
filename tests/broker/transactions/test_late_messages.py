"""Coordinator and partitions together, on a network that repeats and holds back whatever it likes.

One client runs one transaction after the other in the new flow. Every request and every marker that
was ever sent may arrive again, at any time, also in two halves: verified now, appended much later.
Coordinators change. A committed transaction is visible in every partition, any other in none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaesque.broker.partitions.rules.markers import Marker
from kafkaesque.broker.partitions.rules.open_transactions import (
    OpenTransactions,
    OpenTransactionsSnapshot,
    VerificationGuard,
)
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.transaction import Transaction
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    NOTHING,
    AddAnswer,
    AnswerValue,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Markers,
    PartitionsRequest,
    TransactionConfig,
    TransactionEffects,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode, InvalidProducerEpoch, InvariantBroken, KafkaError
from kafkaesque.model.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerId,
    ProducerIdentity,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT

NAME = "tx"
COUNT = 2
TIMEOUT_S = 60.0
ACTIONS = ("write", "write", "write", "commit", "abort", "late", "late", "late", "half", "marker")
RARE = ("restart", "timeout", "snapshot", "successor")


class FakePartition:
    """The log of a partition as a list of headers, and the table that folds it."""

    def __init__(self) -> None:
        self.table = ProducerTable(Offset(0))
        self.log: list[tuple[BatchHeader, int]] = []
        self.stable = 0

    def header(self, producer: ProducerIdentity, sequence: int, attributes: int) -> BatchHeader:
        return BatchHeader(
            Offset(len(self.log)), 61, LeaderEpoch(0), 2, 0, attributes, 0, TimestampMs(0),
            TimestampMs(0), producer.producer_id, producer.epoch, sequence, 1,
        )  # fmt: skip

    def append(
        self, producer: ProducerIdentity, sequence: int, value: int, guard: VerificationGuard | None
    ) -> None:
        header = self.header(producer, sequence, TRANSACTIONAL_BIT)
        if self.table.judge(header, guard) is None:
            self.log.append((header, value))
            self.table.apply(header)
        self.check()

    def mark(self, markers: Markers) -> None:
        if self.table.judge_marker(*markers.producer, 0, is_epoch_new=True):
            header = self.header(markers.producer, -1, TRANSACTIONAL_BIT | CONTROL_BIT)
            self.log.append((header, -1))
            self.table.apply(header, Marker(markers.is_commit, 0))
        self.check()

    def check(self) -> None:
        """The last stable offset never goes back, and never passes an open transaction."""
        stable = self.table.transactions.stable_offset(Offset(len(self.log)))
        assert stable >= self.stable
        begun: dict[ProducerId, Offset] = {}
        for header, _ in self.log:
            if header.is_control:
                begun.pop(header.producer_id, None)
            else:
                begun.setdefault(header.producer_id, header.base_offset)
        assert all(stable <= first for first in begun.values())
        self.stable = stable

    def seen(self) -> list[int]:
        """What a reader of committed transactions gets."""
        aborted = self.table.transactions.aborted.between(Offset(0), Offset(self.stable))
        begins = sorted((one.first_offset, one.producer_id) for one in aborted)
        skipping: set[int] = set()
        values = []
        for header, value in self.log[: self.stable]:
            while begins and begins[0][0] <= header.base_offset:
                skipping.add(begins.pop(0)[1])
            if header.is_control:
                skipping.discard(header.producer_id)
            elif header.producer_id not in skipping:
                values.append(value)
        return values


class World:
    def __init__(self) -> None:
        self.registry = TransactionRegistry(TransactionConfig())
        self.registry.loaded(Moment(0.0, TimestampMs(0)))
        self.records: list[tuple[bytes, bytes | None]] = []
        self.seconds = 0.0
        self.partitions = [FakePartition() for _ in range(COUNT)]
        self.due: list[tuple[Markers, int]] = []
        self.held: list[Callable[[], object]] = []
        self.committed: set[int] = set()
        self.written: dict[int, set[int]] = {}
        """By transaction, the partitions that acknowledged."""
        self.number = 0
        self.sequences = [0] * COUNT
        self.producer_ids = 0
        self.init()

    # -- the coordinator --------------------------------------------------------------------------

    @property
    def now(self) -> Moment:
        return Moment(self.seconds, TimestampMs(int(self.seconds * 1000)))

    def carry_out(self, effects: TransactionEffects) -> AnswerValue | None:
        for record in effects.records:
            self.records.append(record)
            self.registry.replay(*record)
        for markers in effects.markers:
            self.due += [(markers, name.partition) for name in markers.partitions]
        return effects.answers[0].value if effects.answers else None

    def restart(self) -> None:
        self.registry = TransactionRegistry(TransactionConfig())
        self.due.clear()
        for record in self.records:
            self.registry.replay(*record)
        self.carry_out(self.registry.loaded(self.now))

    def mark(self, number: int) -> None:
        if self.due:
            markers, index = self.due.pop(number % len(self.due))
            self.write_marker(markers, index)
            self.held.append(lambda: self.write_marker(markers, index))

    def write_marker(self, markers: Markers, index: int) -> None:
        with suppress(
            InvalidProducerEpoch
        ):  # it was written before, and the partition is further on
            self.partitions[index].mark(markers)
        name = TopicPartition("t", PartitionIndex(index))
        self.carry_out(self.registry.markers_written(NAME, markers.producer, [name], self.now))

    def mark_all(self) -> None:
        while self.due:
            self.mark(0)

    # -- the client ---------------------------------------------------------------------------------

    def init(self) -> None:
        self.number += 1
        self.sequences = [0] * COUNT
        for _ in range(5):
            self.producer_ids += 1
            request = InitRequest(
                transactional_id=NAME,
                timeout_ms=int(TIMEOUT_S * 1000),
                spare_producer_id=ProducerId(self.producer_ids),
            )
            answer = self.carry_out(self.registry.init_producer(request, 0, self.now))
            assert isinstance(answer, InitAnswer)
            if answer.error is ErrorCode.NONE:
                self.me = answer.producer
                return
            self.mark_all()
        raise AssertionError("a transaction is never complete")

    def add(self, producer: ProducerIdentity, index: int) -> ErrorCode:
        request = PartitionsRequest(
            transactional_id=NAME,
            producer=producer,
            partitions=frozenset([TopicPartition("t", PartitionIndex(index))]),
        )
        answer = self.carry_out(self.registry.add_partitions(request, 0, self.now))
        assert isinstance(answer, AddAnswer)
        return answer.error

    def produce(
        self,
        producer: ProducerIdentity,
        index: int,
        sequence: int,
        value: int,
        *,
        later: bool = False,
    ) -> ErrorCode:
        """Produce of the new flow. `later`: the verified batch is delayed and arrives at a random time."""
        partition, guard = self.partitions[index], None
        if partition.table.needs_guard(*producer):
            guard = partition.table.transactions.guard(*producer, sequence)
            code = self.add(producer, index)
            if code is not ErrorCode.NONE:
                return code
        if later:
            self.held.append(lambda: partition.append(producer, sequence, value, guard))
            return ErrorCode.REQUEST_TIMED_OUT
        try:
            partition.append(producer, sequence, value, guard)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def write(self, index: int, *, later: bool = False) -> None:
        me, sequence, value = self.me, self.sequences[index], self.number
        code = self.produce(me, index, sequence, value, later=later)
        self.held.append(lambda: self.produce(me, index, sequence, value))
        self.held.append(lambda: self.add(me, index))
        if code is ErrorCode.NONE:
            self.sequences[index] += 1
            self.written.setdefault(value, set()).add(index)

    def end(self, *, commit: bool) -> None:
        request = EndRequest(
            transactional_id=NAME,
            producer=self.me,
            is_commit=commit,
            flow=NEW_FLOW,
            spare_producer_id=ProducerId(1000 + self.number),
        )
        self.held.append(lambda: self.carry_out(self.registry.end(request, 0, self.now)))
        for _ in range(3):
            answer = self.carry_out(self.registry.end(request, 0, self.now))
            assert isinstance(answer, EndAnswer)
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.mark_all()
        if answer.error is ErrorCode.NONE:
            if commit:
                self.committed.add(self.number)
            self.me = answer.producer
            self.number += 1
            self.sequences = [0] * COUNT
        elif answer.error is ErrorCode.PRODUCER_FENCED or not commit:
            self.init()
        else:
            self.end(commit=False)

    # -- what happens -------------------------------------------------------------------------------

    def do(self, action: str, number: int) -> None:
        match action:
            case "write":
                self.write(number % COUNT)
            case "half":
                self.write(number % COUNT, later=True)
            case "commit" | "abort":
                self.end(commit=action == "commit")
            case "marker":
                self.mark(number)
            case "restart":
                self.restart()
            case "timeout":
                self.seconds += TIMEOUT_S + 1
                self.carry_out(self.registry.tick(self.now))
            case "successor":
                self.init()
            case "snapshot":
                partition = self.partitions[number % COUNT]
                saved = partition.table.snapshot()
                restored = ProducerTable.restore(saved, Offset(len(partition.log)), Offset(0))
                assert restored is not None
                partition.table = restored
            case "late" if self.held:
                late = self.held[number % len(self.held)]
                with suppress(KafkaError):
                    late()

    def settle(self) -> None:
        self.init()
        self.mark_all()

    def check(self) -> None:
        for index, partition in enumerate(self.partitions):
            assert partition.stable == len(partition.log), "a transaction hangs"
            seen = partition.seen()
            assert set(seen) <= self.committed
            assert {n for n, where in self.written.items() if index in where} & self.committed <= (
                set(seen)
            )
            assert sorted(seen) == seen


steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS + RARE), st.integers(0, 1 << 16)), min_size=10, max_size=120
)


def run(script: list[tuple[str, int]]) -> None:
    world = World()
    for action, number in script:
        world.do(action, number)
    world.settle()
    for late in tuple(world.held):
        with suppress(KafkaError):
            late()
    world.settle()
    world.check()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_late_messages_never_split_a_transaction(script: list[tuple[str, int]]) -> None:
    run(script)


# -- planted bugs: the property must find them --------------------------------------------------------


def marker_fits_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ProducerTable.judge_marker

    def lenient(table: ProducerTable, *args: Any, is_epoch_new: bool) -> bool:
        return judge(table, *args, is_epoch_new=False)

    monkeypatch.setattr(ProducerTable, "judge_marker", lenient)


def end_keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Transaction.end

    def old_flow(one: Transaction, is_commit: bool, flow: int, *args: Any) -> None:
        end(one, is_commit, 0, *args)

    monkeypatch.setattr(Transaction, "end", old_flow)


def stable_offset_forgets_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTransactions, "stable_offset", lambda _, watermark: watermark)


def snapshot_forgets_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTransactions, "snapshot", lambda _: OpenTransactionsSnapshot())


def new_coordinator_forgets_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionRegistry, "loaded", lambda *_: NOTHING)


BUGS = [
    marker_fits_the_next_transaction,
    end_keeps_the_epoch,
    stable_offset_forgets_open_transactions,
    snapshot_forgets_open_transactions,
    new_coordinator_forgets_what_was_decided,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    random = Random(1)
    for _ in range(500):
        script = [
            (random.choice(ACTIONS + RARE), random.randrange(1 << 16))
            for _ in range(random.randrange(10, 120))
        ]
        try:
            run(script)
        except (AssertionError, InvariantBroken):
            return
    raise AssertionError("500 runs did not find it")
