"""A million timers pending; schedulers, and the broker, which is the coordination service too, killed -9
while 10,000 come due: each fires once."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Assignment
from kafkaesque.lab.faults import tasks_probe as probe
from kafkaesque.lab.faults.runs.service_process import ServiceProcess, kafkaesque
from kafkaesque.lab.faults.stage import FaultRun, RunOptions, Stage
from kafkaesque.lab.faults.target import SingleBroker, Target, TargetUnwell
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.tasks.system import SystemClock
from kafkaesque.testing.reserved_ports import ReservedPorts

PENDING: Final = 1_000_000
DUE: Final = 10_000
DUE_SECONDS: Final = 20.0
CHUNK: Final = 5_000
FAR_MS: Final = 30 * 24 * 3_600_000
LOAD_RECORDS_PER_S: Final = 20
_LOADED_S: Final = 900.0
_STUCK_S: Final = 90.0
_SCHEDULERS: Final = 2
_BROKER_EVERY: Final = 3
"""Each third fault is the broker's."""
RSS_MB_MAX: Final = 600
"""Measured with a million: 85 to 310 MB."""


class Run(FaultRun):
    purpose = "a million timers pending; kill -9 schedulers and the broker while 10,000 come due"
    promise = "each fires once, and memory stays bounded"
    rounds = 6
    dense_offsets = False
    # A million timers are set in batches as large as the client makes them.
    settings: Mapping[str, object] = {"log.segment.bytes": 16 << 20}

    def __init__(self) -> None:
        self._pending = PENDING
        self._schedulers: list[ServiceProcess] = []
        self._coordination = ""
        self._fired: dict[int, list[int]] = {}

    def workload(self, options: RunOptions) -> WorkloadSettings:
        self._pending = options.amount or PENDING
        return WorkloadSettings(records_per_s=LOAD_RECORDS_PER_S, seed=options.seed)

    def open_target(
        self, directory: Path, settings: Mapping[str, object]
    ) -> AbstractContextManager[Target]:
        with ReservedPorts(1) as ports:
            self._coordination = f"127.0.0.1:{ports.numbers[0]}"
        listener = {"coordination.listener": self._coordination}
        return closing(SingleBroker(directory, {**settings, **listener}))

    def begin(self, stage: Stage) -> None:
        bootstrap = stage.target.bootstrap_servers
        directory = stage.target.data(0).parent
        for number in range(_SCHEDULERS):
            name = f"timers{number}"
            command = kafkaesque(
                "tasks", "timers", "--name", name, "-b", bootstrap, "--data", str(directory / name),
                "--zookeeper-connect", self._coordination, "--end-with-stdin",
            )  # fmt: skip
            self._schedulers.append(ServiceProcess(name, command, directory))
        asyncio.run(probe.prepare(KafkaLog(bootstrap)))
        first = self._schedulers[0]
        first.start()
        stage.say(f"setting {self._pending} timers")
        began_s = time.monotonic()
        asyncio.run(_set_far(bootstrap, self._pending))
        stage.notes["set_seconds"] = round(time.monotonic() - began_s, 1)
        _wait_until_pending(first, self._pending)
        stage.notes["pending"] = self._pending
        stage.notes["rss_mb_loaded"] = _rss_mb(first.pid)
        self._measure_starts(stage, first, directory)

    def _measure_starts(self, stage: Stage, first: ServiceProcess, directory: Path) -> None:
        """From exec to all timers held again: with its file, and without."""
        for label in ("start_seconds_with_file", "start_seconds_from_log"):
            first.kill()
            if label.endswith("log"):
                for file in (directory / "timers0").rglob("*.db*"):
                    file.unlink()
            began_s = time.monotonic()
            first.start()
            _wait_until_pending(first, self._pending)
            stage.notes[label] = round(time.monotonic() - began_s, 1)
            stage.notes[f"rss_mb_{label[14:]}"] = _rss_mb(first.pid)

    def inject(self, stage: Stage) -> None:
        bootstrap = stage.target.bootstrap_servers
        for scheduler in self._schedulers[1:]:
            scheduler.start()
        try:
            dues = asyncio.run(_set_near(bootstrap))
            faults = 0
            while stage.another_round(1.0, DUE_SECONDS / 6):
                faults += 1
                if faults % _BROKER_EVERY == 0:
                    _kill_broker(stage)
                else:
                    _kill_scheduler(stage, stage.random.choice(self._schedulers))
            self._fired = asyncio.run(_until_fired(bootstrap))
            stage.notes["rss_mb_end"] = max(_rss_mb(one.pid) for one in self._schedulers)
            undisturbed = asyncio.run(_undisturbed(bootstrap))
        finally:
            for scheduler in self._schedulers:
                scheduler.stop()
        late = sorted(
            fired[0] - due for number, due in dues.items() if (fired := self._fired.get(number))
        )
        stage.notes |= {
            "due": len(dues),
            "fired": len(self._fired),
            "fired_twice": sum(len(times) > 1 for times in self._fired.values()),
            "never_fired": len(dues) - len(self._fired),
            "late_ms_p50_with_kills": late[len(late) // 2] if late else -1,
            "late_ms_p99_with_kills": late[len(late) * 99 // 100] if late else -1,
            "late_ms_p50": undisturbed[len(undisturbed) // 2],
            "late_ms_p99": undisturbed[len(undisturbed) * 99 // 100],
        }

    def complaints(self, stage: Stage) -> list[str]:
        notes, found = stage.notes, []
        for figure in ("fired_twice", "never_fired"):
            if notes.get(figure) != 0:
                found.append(f"{figure}: {notes.get(figure)} timers")
        for figure, value in notes.items():
            if figure.startswith("rss_mb_") and int(str(value)) > RSS_MB_MAX:
                found.append(f"{figure}: {value} MB, more than {RSS_MB_MAX}")
        return found


def _kill_scheduler(stage: Stage, scheduler: ServiceProcess) -> None:
    stage.fault(f"kill -9 scheduler {scheduler.name}", ())
    stage.count("scheduler_kills")
    scheduler.kill()
    scheduler.start()


def _kill_broker(stage: Stage) -> None:
    """The log and who owns what of it, at once: the schedulers go on by themselves."""
    stage.fault("kill -9 the broker, with the coordination service")
    stage.count("broker_kills")
    stage.target.kill(0)
    stage.target.start(0)


async def _set_far(bootstrap: str, count: int) -> None:
    now_ms = SystemClock().wall_ms()
    async with probe.app.connect(KafkaLog(bootstrap)) as app:
        for start in range(0, count, CHUNK):
            await app.send_records(
                probe.timed.options(id=f"far-{number}").timer(now_ms + FAR_MS + number, number)
                for number in range(start, min(count, start + CHUNK))
            )


async def _set_near(bootstrap: str, first: int = 0, count: int = DUE) -> dict[int, int]:
    """Due evenly over `DUE_SECONDS`, from a moment on."""
    begin_ms = SystemClock().wall_ms() + 5_000
    step_ms = DUE_SECONDS * 1000 / count
    dues = {first + number: begin_ms + round(number * step_ms) for number in range(count)}
    async with probe.app.connect(KafkaLog(bootstrap)) as app:
        await app.send_records(
            probe.timed.options(id=f"near-{number}").timer(due_ms, number)
            for number, due_ms in dues.items()
        )
    return dues


async def _until_fired(bootstrap: str, first: int = 0, count: int = DUE) -> dict[int, list[int]]:
    """Times of the calls that fired, by number; until all have, and a little longer for a second."""
    log = KafkaLog(bootstrap)
    fired: dict[int, list[int]] = {}
    spans = await log.admin.spans("tasks.probe")
    reader = await log.open_reader(Assignment({place: one.start for place, one in spans.items()}))
    seen_s = time.monotonic()
    complete_s: float | None = None
    try:
        while True:
            for record in await reader.read(wait_s=0.5):
                call = json.loads(record.value or b"{}")
                number = call["args"]["n"]
                if call["id"].startswith("near-") and first <= number < first + count:
                    fired.setdefault(number, []).append(int(record.timestamp_ms))
                    seen_s = time.monotonic()
            if len(fired) == count and complete_s is None:
                complete_s = time.monotonic()
            if complete_s is not None and time.monotonic() - complete_s > 5.0:
                return fired
            if time.monotonic() - seen_s > _STUCK_S:
                return fired
    finally:
        await reader.close()


async def _undisturbed(bootstrap: str) -> list[int]:
    """How late timers fire when nothing is broken, sorted, in ms."""
    first, count = 10 * DUE, DUE // 10
    dues = await _set_near(bootstrap, first, count)
    fired = await _until_fired(bootstrap, first, count)
    return sorted(fired[number][0] - due for number, due in dues.items() if number in fired) or [-1]


def _wait_until_pending(process: ServiceProcess, count: int) -> None:
    deadline_s = time.monotonic() + _LOADED_S
    status: dict[str, object] = {}
    while time.monotonic() < deadline_s:
        with urllib.request.urlopen(f"http://{process.facts['http']}/status", timeout=30) as answer:
            status = json.loads(answer.read())
        if int(str(status["pending"])) >= count and len(status["caught_up"]) > 0:  # type: ignore[arg-type]
            return
        time.sleep(0.1)
    raise TargetUnwell(f"{process.name} does not hold {count} timers: {status}")


def _rss_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
