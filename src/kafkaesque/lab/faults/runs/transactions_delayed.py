"""Requests of transactional producers are delayed for seconds and arrive during later transactions."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Final

from kafkaesque.broker.transactions.types import NEW_FLOW, OLD_FLOW
from kafkaesque.lab.faults.checks.history import Function, OperationOutcome, SentRecord
from kafkaesque.lab.faults.checks.payload import encode_value
from kafkaesque.lab.faults.clients import Partitions
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.delaying_relay import HOLD_S_MAX, DelayingRelay
from kafkaesque.lab.faults.fault_run import FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.recorder import Recorder
from kafkaesque.lab.faults.wire_producer import ProduceRefused, Unserved, WireProducer
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.cluster import BROKERS, TargetFailed

HELD: Final = 1000
TRANSACTORS: Final = 24
SHARE: Final = 0.1
"""The share of these requests that is delayed."""
PATIENCE_S: Final = 0.7
"""After this long without an answer a producer reconnects and retries."""
STILL_S_MAX: Final = 60.0
_POLL_S: Final = 0.1
FIRST_VALUE: Final = 1_000_000_000
"""Values below this are those of plain senders."""
_RECORDS_MAX: Final = 4
_ABORT_SHARE: Final = 0.25
_VALUE_BYTES: Final = 100
_END_S: Final = 90.0


class TransactionsDelayed(ClusterRun):
    purpose = "delay EndTxn, Produce and AddPartitionsToTxn requests for seconds"
    promise = "no transaction is torn or lost, no aborted one is visible; none hangs"
    dense_offsets = False

    def __init__(self) -> None:
        super().__init__()
        self._held = HELD
        self._relay: DelayingRelay | None = None
        self._threads: list[TransactionThread] = []

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        self._held = options.amount or HELD
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 50),
            seed=options.seed,
            replication_factor=BROKERS,
            senders=1,
            subscribed_readers=0,
        )

    def begin(self, context: FaultRunContext) -> None:
        super().begin(context)
        addresses = [self.cluster.address(node) for node in self.cluster.nodes]
        relay = self._relay = DelayingRelay(
            addresses, SHARE, random.Random(context.random.getrandbits(32))
        )
        relay.start()
        for number in range(TRANSACTORS):
            flow = NEW_FLOW if number % 2 else OLD_FLOW
            producer = WireProducer(relay.addresses, f"delayed-{number}", flow, PATIENCE_S)
            self._threads.append(
                TransactionThread(
                    producer,
                    context.workload.partitions,
                    context.workload.recorder,
                    number=number,
                    count=TRANSACTORS,
                    seed=context.random.getrandbits(32),
                )
            )
            self._threads[-1].start()

    def inject(self, context: FaultRunContext) -> None:
        relay = self._relay
        if relay is None:
            return
        relay.is_holding = True
        context.fault("requests are delayed from now on")
        reported = before = 0
        since = time.monotonic()
        while (held := relay.held.total()) < self._held:
            if held > before:
                before, since = held, time.monotonic()
            if held >= reported + self._held // 5:
                reported = held
                context.say(f"{held} delayed, {relay.arrived_late} arrived late")
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetFailed(f"no request to delay for {STILL_S_MAX:g} s: {self._failures}")
            time.sleep(_POLL_S)
        relay.is_holding = False
        time.sleep(HOLD_S_MAX)  # the last ones arrive during undisturbed transactions
        for thread in self._threads:
            thread.end()

    @property
    def _failures(self) -> list[str]:
        return [one.failure for one in self._threads if one.failure is not None]

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = [f"{one.name} did not end" for one in self._threads if not one.wait()]
        found += self._failures
        counts: Counter[str] = Counter()
        refusals: Counter[str] = Counter()
        for thread in self._threads:
            counts += thread.counts
            refusals += thread.refusals
        context.notes |= {
            "committed": counts["ok"],
            "aborted": counts["fail"],
            "undecided": counts["info"],
        }
        context.notes |= {f"refused {name}": count for name, count in sorted(refusals.items())}
        if self._relay is not None:
            self._relay.close()
            context.notes |= {f"held {name}": n for name, n in sorted(self._relay.held.items())}
            context.notes["arrived_late"] = self._relay.arrived_late
            if self._relay.arrived_late < self._held // 2:
                found.append("most of the delayed requests were not late")
        return [*found, *super().complaints(context)]


class TransactionThread(threading.Thread):
    """Runs one transaction after another and records the outcome of each.

    Number `number` of `count` such threads; each takes every `count`-th value, so that values are
    unique without a lock.
    """

    def __init__(
        self,
        producer: WireProducer,
        partitions: Partitions,
        recorder: Recorder,
        *,
        number: int,
        count: int,
        seed: int,
    ) -> None:
        super().__init__(name=f"thread-{number}", daemon=True)
        self._producer = producer
        self._partitions = partitions
        self._recorder = recorder
        self._next_value = FIRST_VALUE + number
        self._count = count
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failure: str | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._producer.init()
                process = self._recorder.next_process()
                while not self._ended.is_set() and self._transact(process):
                    pass
        except Unserved as error:
            self.failure = str(error)
        except ProduceRefused as error:
            self.failure = f"init was refused: {error}"
        finally:
            self._producer.close()

    def end(self) -> None:
        self._ended.set()

    def wait(self) -> bool:
        self.join(_END_S)
        return not self.is_alive()

    def _transact(self, process: int) -> bool:
        """One transaction; False if the producer must be initialised again."""
        invocation = self._recorder.invoke(process, Function.TXN)
        sent: list[SentRecord] = []
        is_commit = self._random.random() >= _ABORT_SHARE
        is_usable = True
        try:
            for _ in range(self._random.randint(1, _RECORDS_MAX)):
                self._send(sent)
        except ProduceRefused as error:
            self.refusals[f"send {error}"] += 1
            is_commit = False
        outcome = OperationOutcome.INFO
        try:
            self._producer.end(is_commit=is_commit)
            outcome = OperationOutcome.OK if is_commit else OperationOutcome.FAIL
        except ProduceRefused as error:
            self.refusals[f"end {error}"] += 1
            is_usable = False
        finally:
            invocation.complete(outcome, sent)
        self.counts[outcome] += 1
        return is_usable

    def _send(self, sent: list[SentRecord]) -> None:
        key = self._random.choice(self._partitions.keys)
        value = self._next_value
        self._next_value += self._count
        sent.append(SentRecord(key, None, value))
        data = encode_value(key, value, _VALUE_BYTES)
        sent[-1] = SentRecord(key, self._producer.send(self._partitions.place(key), data), value)
