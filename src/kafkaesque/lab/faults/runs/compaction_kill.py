"""kill -9 while a compacted topic is written and cleaned."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.lab.faults.clients import admin_settings
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.cluster import BrokerSettings, TargetFailed
from kafkaesque.lab.harness.metrics import scrape
from kafkaesque.testing.table_rows import RowsRefused, TableRows

ROWS: Final = 1_000_000
UPDATES: Final = 10
TOPIC: Final = "rows"
LATE_KILLS: Final = 3
"""Kills after all rows are written, while only the cleaner works."""
STILL_S_MAX: Final = 120.0
_POLL_S: Final = 0.05
DIRTY_RATIO: Final = 0.2
CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": str(DIRTY_RATIO),
}
ROW_BYTES: Final = 118
"""Size of a row in the log: key, value of 100 bytes, and its share of the batch."""


class CompactionKill(FaultRun):
    purpose = "kill -9 while a compacted topic is written and cleaned"
    promise = "the newest version of every row is there, at an offset that never changed"
    settings: ClassVar[BrokerSettings] = {"log.cleaner.backoff.ms": 100}
    rounds = 10

    def __init__(self) -> None:
        self._count = ROWS
        self._rows: TableRows | None = None
        self._written = 0
        """Batches acknowledged."""
        self._failure: RowsRefused | None = None
        self._writer = threading.Thread(target=self._write, name="rows", daemon=True)

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        """Only a little of the usual load."""
        self._count = options.amount or ROWS
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 100),
            seed=options.seed,
            senders=1,
            assigned_readers=1,
            subscribed_readers=0,
        )

    def begin(self, context: FaultRunContext) -> None:
        servers = context.target.bootstrap_servers
        admin = AdminClient(admin_settings(servers))
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        self._rows = TableRows(servers, TOPIC, self._count)
        context.say(f"{self._count} rows, to be written {UPDATES} times")
        self._writer.start()

    @property
    def _wanted(self) -> int:
        return UPDATES * self._table.batches

    @property
    def _table(self) -> TableRows:
        if self._rows is None:
            raise TargetFailed("the table was never written")
        return self._rows

    def _write(self) -> None:
        try:
            for version in range(1, UPDATES + 1):
                for number in range(self._table.batches):
                    self._table.write(number, version, STILL_S_MAX)
                    self._written += 1
        except RowsRefused as error:
            self._failure = error

    # -- faults ------------------------------------------------------------------------------------

    def inject(self, context: FaultRunContext) -> None:
        early = max(1, (self.rounds or 1) - LATE_KILLS)
        moments = sorted(context.random.random() * self._wanted for _ in range(early))
        while context.another_round(0.0):
            self._wait_for(int(moments.pop(0)) if moments else self._wanted)
            time.sleep(context.random.uniform(0.0, 2.0))
            context.fault(f"kill -9; {self._written} of {self._wanted} batches written")
            context.count("cleanings_cut", self._unfinished(context))
            context.target.kill(0)
            context.target.bring_up(0)
        self._wait_for(self._wanted)

    def _wait_for(self, count: int) -> None:
        seen, since = -1, time.monotonic()
        while self._written < count:
            if self._failure is not None:
                raise TargetFailed(f"rows are not accepted any more: {self._failure}")
            if self._written != seen:
                seen, since = self._written, time.monotonic()
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetFailed(f"nothing was written since batch {seen}")
            time.sleep(_POLL_S)

    def _unfinished(self, context: FaultRunContext) -> int:
        """1 if the cleaner is writing at this moment, judged by its files."""
        found = context.target.data(0).glob("topics/*/0/*")
        return int(any(path.suffix in (".cleaned", ".swap") for path in found))

    # -- at the end --------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        self._writer.join()
        stored = self._wait_until_settled(context)
        context.notes["rows"] = self._count
        context.notes["written_mb"] = round(UPDATES * self._count * ROW_BYTES / 1e6, 1)
        context.notes["stored_mb"] = round(stored / 1e6, 1)
        wrong = self._table.wrong()
        context.notes["rows_wrong"] = len(wrong)
        return wrong

    def _wait_until_settled(self, context: FaultRunContext) -> int:
        """Wait until the cleaner has nothing to do; returns the size of the table."""
        ratio, since = 1.0, time.monotonic()
        while (now := _dirty_ratio(context.target.data(0))) >= DIRTY_RATIO or self._unfinished(
            context
        ):
            if now != ratio:
                ratio, since = now, time.monotonic()
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetFailed(f"{ratio:.0%} of the table is dirty and is not being cleaned")
            time.sleep(_POLL_S * 4)
        logs = context.target.data(0).glob("topics/*/0/*.log")
        return max(_sizes_by_directory(logs).values())


def _dirty_ratio(data: Path) -> float:
    """The dirty ratio of the table in the broker's metrics; 1 while they are not available."""
    try:
        address = json.loads((data / "broker.json").read_text())["http"]
        metrics = scrape(address)
    except (OSError, KeyError, ValueError):
        return 1.0
    return metrics.sum("kafkaesque_log_dirty_ratio", f'topic="{TOPIC}"', default=1.0)


def _sizes_by_directory(paths: Iterable[Path]) -> dict[Path, int]:
    """Total size by directory. The table is by far the largest topic."""
    sizes: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes[path.parent] = sizes.get(path.parent, 0) + path.stat().st_size
    return sizes
