"""Requests of transactional producers are held back for seconds, and arrive in later transactions."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from kafkaesque.broker.transactions.types import NEW_FLOW, OLD_FLOW
from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import BROKERS
from kafkaesque.lab.faults.delaying import HOLD_S_MAX, DelayingRelay
from kafkaesque.lab.faults.stage import RunOptions, Stage
from kafkaesque.lab.faults.target import TargetUnwell
from kafkaesque.lab.faults.transactor import Transactor
from kafkaesque.lab.faults.wire_producer import WireProducer
from kafkaesque.lab.faults.workload import WorkloadSettings

HELD: Final = 1000
TRANSACTORS: Final = 24
SHARE: Final = 0.1
"""Of the requests that can be held back."""
PATIENCE_S: Final = 0.7
"""After this long without an answer a producer hangs up and asks again."""
STILL_S_MAX: Final = 60.0
_POLL_S: Final = 0.1


class Run(ClusterRun):
    purpose = "hold back EndTxn, Produce and AddPartitionsToTxn for seconds, then let them go"
    promise = "no transaction is torn or lost, none is seen that was aborted; none hangs"
    dense_offsets = False

    def __init__(self) -> None:
        super().__init__()
        self._held = HELD
        self._relay: DelayingRelay | None = None
        self._transactors: list[Transactor] = []

    def workload(self, options: RunOptions) -> WorkloadSettings:
        self._held = options.amount or HELD
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 50),
            seed=options.seed,
            replication_factor=BROKERS,
            senders=1,
            subscribed_readers=0,
        )

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        addresses = [self.cluster.network.address(node) for node in self.cluster.nodes]
        relay = self._relay = DelayingRelay(addresses, SHARE, seeded(stage.random.getrandbits(32)))
        relay.start()
        for number in range(TRANSACTORS):
            flow = NEW_FLOW if number % 2 else OLD_FLOW
            producer = WireProducer(relay.addresses, f"delayed-{number}", flow, PATIENCE_S)
            self._transactors.append(
                Transactor(
                    producer,
                    stage.workload.partitions,
                    stage.workload.recorder,
                    number=number,
                    count=TRANSACTORS,
                    seed=stage.random.getrandbits(32),
                )
            )
            self._transactors[-1].start()

    def inject(self, stage: Stage) -> None:
        relay = self._relay
        if relay is None:
            return
        relay.is_holding = True
        stage.fault("requests are held back from now on")
        told = before = 0
        since = time.monotonic()
        while (held := relay.held.total()) < self._held:
            if held > before:
                before, since = held, time.monotonic()
            if held >= told + self._held // 5:
                told = held
                stage.say(f"{held} held back, {relay.arrived_late} arrived late")
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetUnwell(f"nothing to hold back for {STILL_S_MAX:g} s: {self._failures}")
            time.sleep(_POLL_S)
        relay.is_holding = False
        time.sleep(HOLD_S_MAX)  # the last ones arrive in transactions that nobody disturbs
        for transactor in self._transactors:
            transactor.end()

    @property
    def _failures(self) -> list[str]:
        return [one.failure for one in self._transactors if one.failure is not None]

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        found = [f"{one.name} does not end" for one in self._transactors if not one.wait()]
        found += self._failures
        counts: Counter[str] = Counter()
        refusals: Counter[str] = Counter()
        for transactor in self._transactors:
            counts += transactor.counts
            refusals += transactor.refusals
        stage.notes |= {
            "committed": counts["ok"],
            "aborted": counts["fail"],
            "undecided": counts["info"],
        }
        stage.notes |= {f"refused {name}": count for name, count in sorted(refusals.items())}
        if self._relay is not None:
            self._relay.close()
            stage.notes |= {f"held {name}": n for name, n in sorted(self._relay.held.items())}
            stage.notes["arrived_late"] = self._relay.arrived_late
            if self._relay.arrived_late < self._held // 2:
                found.append("most of what was held back was not late")
        return [*found, *super().complaints(stage)]
