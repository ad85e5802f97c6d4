"""kill -9 while a compacted topic is written and cleaned: a table that loses no newest row."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.lab.faults.clients import admin_settings
from kafkaesque.lab.faults.stage import FaultRun, RunOptions, Stage
from kafkaesque.lab.faults.target import TargetUnwell
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.testing.table_rows import RowsRefused, TableRows

ROWS: Final = 1_000_000
UPDATES: Final = 10
TOPIC: Final = "rows"
LATE_KILLS: Final = 3
"""So many come when all is written, and only the cleaner works."""
STILL_S_MAX: Final = 120.0
_POLL_S: Final = 0.05
DIRTY_RATIO: Final = 0.2
CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": str(DIRTY_RATIO),
}
ROW_BYTES: Final = 118
"""As it is written: key, value of 100 bytes, and what a batch adds."""


class Run(FaultRun):
    purpose = "kill -9 while a compacted topic is written and cleaned"
    promise = "every newest row is there, at an offset that never changed"
    settings: Mapping[str, object] = {"log.cleaner.backoff.ms": 100}
    rounds = 10

    def __init__(self) -> None:
        self._count = ROWS
        self._rows: TableRows | None = None
        self._written = 0
        """Batches acknowledged."""
        self._failure: RowsRefused | None = None
        self._writer = threading.Thread(target=self._write, name="rows", daemon=True)

    def workload(self, options: RunOptions) -> WorkloadSettings:
        """A little of the usual load beside it."""
        self._count = options.amount or ROWS
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, 100),
            seed=options.seed,
            senders=1,
            assigned_readers=1,
            subscribed_readers=0,
        )

    def begin(self, stage: Stage) -> None:
        servers = stage.target.bootstrap_servers
        admin = AdminClient(admin_settings(servers))
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        self._rows = TableRows(servers, TOPIC, self._count)
        stage.say(f"{self._count} rows, to be written {UPDATES} times")
        self._writer.start()

    @property
    def _wanted(self) -> int:
        return UPDATES * self._table.batches

    @property
    def _table(self) -> TableRows:
        if self._rows is None:
            raise TargetUnwell("the table was never begun")
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

    def inject(self, stage: Stage) -> None:
        early = max(1, (self.rounds or 1) - LATE_KILLS)
        moments = sorted(stage.random.random() * self._wanted for _ in range(early))
        while stage.another_round(0.0):
            self._wait_for(int(moments.pop(0)) if moments else self._wanted)
            time.sleep(stage.random.uniform(0.0, 2.0))
            stage.fault(f"kill -9; {self._written} of {self._wanted} batches written")
            stage.count("cleanings_cut", self._unfinished(stage))
            stage.target.kill(0)
            stage.target.start(0)
        self._wait_for(self._wanted)

    def _wait_for(self, count: int) -> None:
        seen, since = -1, time.monotonic()
        while self._written < count:
            if self._failure is not None:
                raise TargetUnwell(f"rows are not taken any more: {self._failure}")
            if self._written != seen:
                seen, since = self._written, time.monotonic()
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetUnwell(f"nothing was written since batch {seen}")
            time.sleep(_POLL_S)

    def _unfinished(self, stage: Stage) -> int:
        """Whether a cleaner is writing at this moment, as its files tell."""
        found = stage.target.data(0).glob("topics/*/0/*")
        return int(any(path.suffix in (".cleaned", ".swap") for path in found))

    # -- at the end --------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        self._writer.join()
        stored = self._wait_until_settled(stage)
        stage.notes["rows"] = self._count
        stage.notes["written_mb"] = round(UPDATES * self._count * ROW_BYTES / 1e6, 1)
        stage.notes["stored_mb"] = round(stored / 1e6, 1)
        wrong = self._table.wrong()
        stage.notes["rows_wrong"] = len(wrong)
        return wrong

    def _wait_until_settled(self, stage: Stage) -> int:
        """The size of the table once the cleaner has nothing to do; TargetUnwell if it stands still."""
        ratio, since = 1.0, time.monotonic()
        while (now := _dirty_ratio(stage.target.data(0))) >= DIRTY_RATIO or self._unfinished(stage):
            if now != ratio:
                ratio, since = now, time.monotonic()
            if time.monotonic() - since > STILL_S_MAX:
                raise TargetUnwell(f"{ratio:.0%} of the table is dirty and nobody cleans it")
            time.sleep(_POLL_S * 4)
        logs = stage.target.data(0).glob("topics/*/0/*.log")
        return max(_sizes_by_directory(logs).values())


def _dirty_ratio(data: Path) -> float:
    """Of the table, as the broker's metrics tell it; 1 while it tells nothing."""
    try:
        address = json.loads((data / "broker.json").read_text())["http"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    except (OSError, KeyError, ValueError):
        return 1.0
    found = re.search(
        rf'^kafkaesque_log_dirty_ratio{{[^}}]*topic="{TOPIC}"[^}}]*}} (\S+)', page, re.M
    )
    return float(found[1]) if found else 1.0


def _sizes_by_directory(paths: Iterable[Path]) -> dict[Path, int]:
    """The table is by far the largest of the topics in a run."""
    sizes: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes[path.parent] = sizes.get(path.parent, 0) + path.stat().st_size
    return sizes
