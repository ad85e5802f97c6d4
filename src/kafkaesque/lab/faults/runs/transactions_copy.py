"""Kafka's own copy test: consume, produce and commit in transactions while everything dies.

After kafkatest's transactions_test.py: 100,000 messages, 750 in a transaction, brokers and copiers
killed hard meanwhile. The target must be the source, message by message.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import Final

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import BROKERS
from kafkaesque.lab.faults.copier import CopyOrder
from kafkaesque.lab.faults.copying import (
    CopierProcess,
    Tally,
    TargetReader,
    fill,
    judge,
    read_target,
)
from kafkaesque.lab.faults.stage import RunOptions, Stage
from kafkaesque.lab.faults.target import TargetUnwell
from kafkaesque.lab.faults.workload import WorkloadSettings

MESSAGES: Final = 100_000
PER_TRANSACTION: Final = 750
PARTITIONS: Final = 2
SOURCE, TARGET, GROUP = "copy-source", "copy-target", "copiers"
TRANSACTION_TIMEOUT_MS: Final = 20_000
PAUSE_S: Final = 0.6
STILL_S_MAX: Final = 90.0
"""Without a single message more, the copy stands still for good."""
_POLL_S: Final = 0.05


class Run(ClusterRun):
    purpose = "copy a topic in transactions while brokers and copiers are killed hard"
    promise = "the copy is the original: nothing missing, nothing twice, in order"

    def __init__(self) -> None:
        super().__init__()
        self._messages = MESSAGES
        self._source: list[list[bytes]] = []
        self._copiers: list[CopierProcess] = []
        self._reader: TargetReader | None = None

    def workload(self, options: RunOptions) -> WorkloadSettings:
        """A little of the usual load beside it: the copy is what this run is about."""
        self._messages = options.amount or MESSAGES
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 100),
            seed=options.seed,
            replication_factor=BROKERS,
            senders=1,
            assigned_readers=1,
            subscribed_readers=0,
        )

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        for topic in (SOURCE, TARGET):
            stage.workload.create_topic(topic, PARTITIONS)
        servers = self.cluster.bootstrap_servers
        self._source = fill(servers, SOURCE, PARTITIONS, self._messages)
        stage.say(f"{self._messages} messages to be copied")
        self._reader = TargetReader(servers, TARGET, PARTITIONS)
        self._reader.start()
        for number in range(PARTITIONS):
            order = CopyOrder(
                bootstrap_servers=servers,
                transactional_id=f"copier-{number}",
                group_id=GROUP,
                source=SOURCE,
                target=TARGET,
                per_transaction=PER_TRANSACTION,
                pause_s=PAUSE_S,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            self._copiers.append(CopierProcess(order))
            self._copiers[-1].start()

    @property
    def _copied(self) -> int:
        return 0 if self._reader is None else len(self._reader.distinct)

    def inject(self, stage: Stage) -> None:
        """Kill until the copy is done, and see that it gets done."""
        self._wait_for_more(stage, 0)
        for kill in cycle((self._kill_copier, self._kill_broker)):
            before = self._copied
            if before >= self._messages:
                break
            kill(stage)
            self._wait_for_more(stage, before)
            time.sleep(stage.random.uniform(0.0, 1.5))

    def _kill_copier(self, stage: Stage) -> None:
        stage.fault(f"kill -9 a copier; {self._copied} copied", ())
        stage.random.choice(self._copiers).kill()
        stage.count("copiers_killed")

    def _kill_broker(self, stage: Stage) -> None:
        node = stage.random.choice(self.cluster.nodes)
        keys = self.keys_led_by(stage, [node])
        stage.fault(f"kill -9 node {node}; {self._copied} copied", keys)
        self.cluster.kill(node)
        stage.count("brokers_killed")
        time.sleep(stage.random.uniform(0.5, 3.0))
        self.cluster.start(node)
        self.cluster.wait_whole()

    def _wait_for_more(self, stage: Stage, before: int) -> None:
        """Until the copy has gone on since; copiers that gave up are followed by others."""
        began = time.monotonic()
        while self._copied <= before < self._messages:
            for copier in self._copiers:
                copier.keep_alive()
            if time.monotonic() - began > STILL_S_MAX:
                silent = [f"{time.monotonic() - one.heard_at:.0f} s" for one in self._copiers]
                raise TargetUnwell(
                    f"the copy stands still at {before} of {self._messages}; copiers were silent "
                    f"for {', '.join(silent)}"
                )
            time.sleep(_POLL_S)
        stage.highest("copy_still_ms_max", int((time.monotonic() - began) * 1000))

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        found = [
            f"copier {number} did not end by itself"
            for number, copier in enumerate(self._copiers)
            if not copier.end()
        ]
        if self._reader is not None:
            self._reader.end()
        target = read_target(self.cluster.bootstrap_servers, TARGET, PARTITIONS)
        tally = Tally([judge(*pair) for pair in zip(self._source, target, strict=True)])
        self._note(stage, tally, sum(map(len, target)))
        for number, one in enumerate(tally.judged):
            if not one.is_exact:
                found.append(f"partition {number} is no copy: {one}")
        if self._reader is not None and self._reader.seen != target:
            found.append("who followed the target saw something else than who read it at the end")
        if not stage.notes.get("brokers_killed") or not stage.notes.get("copiers_killed"):
            found.append("the copy was over too soon: nothing was killed")
        return [*found, *super().complaints(stage)]

    def _note(self, stage: Stage, tally: Tally, copied: int) -> None:
        stage.notes["messages"] = self._messages
        stage.notes["copied"] = copied
        for name in ("missing", "duplicate", "out_of_order"):
            stage.notes[name] = tally.of(name)
        for name in ("transactions", "aborted", "gave_up"):
            stage.notes[f"copies_{name}"] = sum(one.counts[name] for one in self._copiers)
