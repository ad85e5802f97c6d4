"""Bugs in the rules of transactions, of kinds that broke transactions in real brokers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from kafkaesque.broker.partitions.rules.open_transactions import (
    AbortedIndex,
    OpenTransactions,
    OpenTransactionsSnapshot,
)
from kafkaesque.broker.partitions.rules.producers import ProducerTable, WrittenBatch
from kafkaesque.broker.partitions.transaction_coordinator import TransactionShard
from kafkaesque.broker.transactions import registry as registry_module
from kafkaesque.broker.transactions.registry import TransactionRegistry, judge_end
from kafkaesque.broker.transactions.transaction import Transaction
from kafkaesque.broker.transactions.types import (
    NOTHING,
    OLD_FLOW,
    EndRequest,
    TransactionEffects,
    TransactionState,
)
from kafkaesque.lab.sim.planted.bug import Patches, Planted
from kafkaesque.lab.sim.profile import CALM, Profile
from kafkaesque.lab.sim.schedule import MILLISECOND_US
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, ProducerId
from kafkaesque.records.batch import BatchHeader


def end_keeps_the_epoch(patches: Patches) -> None:
    end = Transaction.end

    def old_flow(self: Transaction, is_commit: bool, flow: int, *args: Any) -> None:
        end(self, is_commit, OLD_FLOW, *args)

    patches.set(Transaction, "end", old_flow)


def end_that_is_late_fits_the_next_transaction(patches: Patches) -> None:
    def lenient(one: Transaction, request: EndRequest) -> ErrorCode | None:
        return None if one.state is TransactionState.ONGOING else judge_end(one, request)

    patches.set(registry_module, "judge_end", lenient)


def fence_keeps_the_epoch(patches: Patches) -> None:
    fence = Transaction.fence

    def gentle(self: Transaction, now_ms: Any) -> None:
        before = self.producer
        fence(self, now_ms)
        self.producer = before

    patches.set(Transaction, "fence", gentle)


def partitions_do_not_fence(patches: Patches) -> None:
    def lenient(
        self: ProducerTable, header: BatchHeader, guard: object = None
    ) -> WrittenBatch | None:
        known = self.get(header.producer_id)
        if known is None or header.producer_epoch >= known.epoch:
            return judge(self, header, guard)  # type: ignore[arg-type]
        return None

    judge = ProducerTable.judge
    patches.set(ProducerTable, "judge", lenient)
    needs_guard = ProducerTable.needs_guard

    def trusting(self: ProducerTable, producer_id: ProducerId, epoch: Any) -> bool:
        known = self.get(producer_id)
        is_late = known is not None and epoch < known.epoch
        return not is_late and needs_guard(self, producer_id, epoch)

    patches.set(ProducerTable, "needs_guard", trusting)


def stable_offset_forgets_open_transactions(patches: Patches) -> None:
    patches.set(OpenTransactions, "stable_offset", lambda self, high_watermark: high_watermark)


def stable_offset_does_not_wait_for_the_marker(patches: Patches) -> None:
    ended = OpenTransactions.ended

    def rash(self: OpenTransactions, *args: Any, is_commit: bool) -> None:
        ended(self, *args, is_commit=is_commit)
        self._ended.clear()

    patches.set(OpenTransactions, "ended", rash)


def snapshot_forgets_open_transactions(patches: Patches) -> None:
    patches.set(OpenTransactions, "snapshot", lambda self: OpenTransactionsSnapshot())


def aborted_transactions_are_forgotten(patches: Patches) -> None:
    def forgetful(self: AbortedIndex, producer_id: ProducerId, *offsets: Offset) -> None:
        return None

    patches.set(AbortedIndex, "add", forgetful)


def new_coordinator_forgets_what_was_decided(patches: Patches) -> None:
    loaded = TransactionRegistry.loaded

    def forgetful(self: TransactionRegistry, now: Any) -> TransactionEffects:
        loaded(self, now)
        return NOTHING

    patches.set(TransactionRegistry, "loaded", forgetful)


def markers_leave_before_the_decision_is_durable(patches: Patches) -> None:
    carry_out = TransactionShard._carry_out

    def rash(self: TransactionShard, effects: TransactionEffects) -> None:
        for markers in effects.markers:
            self._loop.create_task(self._send_all(markers))
        carry_out(self, replace(effects, markers=()))

    patches.set(TransactionShard, "_carry_out", rash)


def coordinator_answers_before_its_record_is_committed(patches: Patches) -> None:
    append = TransactionShard._append

    def rash(self: TransactionShard, effects: TransactionEffects) -> asyncio.Future[None] | None:
        append(self, effects)
        return None

    patches.set(TransactionShard, "_append", rash)


_CALM: Final = Profile(
    producers_per_partition=1,
    produce_interval_us=200 * MILLISECOND_US,
    fault_phase_us=2_500 * MILLISECOND_US,
    transactors=3,
)
_LEADERS: Final = replace(
    _CALM,
    link_quality=CALM,
    fault_interval_us=120 * MILLISECOND_US,
    weights={"isolate": 4, "cut_pair": 3, "heal": 5, "pause": 3, "resume": 5, "transfer": 3},
)
_RESTARTS: Final = replace(
    _CALM,
    fault_interval_us=100 * MILLISECOND_US,
    weights={"power_cut": 3, "kill": 4, "restart": 14, "save_producers": 12},
)

TRANSACTION_BUGS: Final = [
    Planted(end_keeps_the_epoch, _CALM),
    Planted(end_that_is_late_fits_the_next_transaction, _CALM, first_seed=4),
    Planted(fence_keeps_the_epoch, _LEADERS),
    Planted(partitions_do_not_fence, _LEADERS),
    Planted(stable_offset_forgets_open_transactions, _CALM),
    Planted(stable_offset_does_not_wait_for_the_marker, _CALM),
    Planted(snapshot_forgets_open_transactions, _RESTARTS),
    Planted(aborted_transactions_are_forgotten, _CALM),
    Planted(new_coordinator_forgets_what_was_decided, _LEADERS),
    Planted(markers_leave_before_the_decision_is_durable, _LEADERS),
    Planted(coordinator_answers_before_its_record_is_committed, _LEADERS),
]
