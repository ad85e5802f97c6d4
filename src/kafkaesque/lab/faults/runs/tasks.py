"""Runs that kill task workers, timer schedulers and their broker."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections import Counter
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import ClassVar, Final

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Assignment, Record
from kafkaesque.client.reading import read_stretch
from kafkaesque.lab.faults import tasks_probe as probe
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness import proc
from kafkaesque.lab.harness.cluster import BrokerSettings, SingleBroker, Target, TargetFailed
from kafkaesque.lab.harness.service_process import ServiceProcess, kafkaesque
from kafkaesque.service.clock import SystemClock
from kafkaesque.testing.reserved_ports import ReservedPorts

LOAD_RECORDS_PER_S: Final = 20
"""Only a little of the usual load: it is not the subject of these runs."""
_STUCK_S: Final = 90.0

# -- workers --------------------------------------------------------------------------------------

WORKERS: Final = 3
CALLS: Final = 100_000
CALLS_PER_SEND: Final = 500
_POLL_S: Final = 1.0


class TasksWorkerKill(FaultRun):
    purpose = "kill -9 workers 20 times while they process 100,000 calls"
    promise = "every call runs; effectively-once calls take effect exactly once"
    rounds = 20

    def __init__(self) -> None:
        self._workers: list[ServiceProcess] = []
        self._count = CALLS
        self._failure: BaseException | None = None
        self._sent = 0

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        self._count = options.amount or CALLS
        return WorkloadSettings(records_per_s=LOAD_RECORDS_PER_S, seed=options.seed)

    def begin(self, context: FaultRunContext) -> None:
        bootstrap = context.target.bootstrap_servers
        asyncio.run(probe.prepare(KafkaLog(bootstrap)))
        directory = context.target.data(0).parent
        for number in range(WORKERS):
            self._workers.append(_worker(bootstrap, directory, f"w{number}"))
        for worker in self._workers:
            worker.launch()
        for worker in self._workers:
            worker.wait_ready()

    def inject(self, context: FaultRunContext) -> None:
        bootstrap = context.target.bootstrap_servers
        sending = threading.Thread(target=self._send, args=(bootstrap,), name="calls", daemon=True)
        started_s = time.monotonic()
        sending.start()
        try:
            while context.another_round(0.5, 2.0):
                worker = context.random.choice(self._workers)
                context.fault(f"kill -9 worker {worker.name}, {self._sent} calls sent", ())
                context.count("worker_kills")
                worker.kill()
                worker.launch()
                worker.wait_ready()
            sending.join()
            if self._failure is not None:
                raise TargetFailed(f"calls could not be sent: {self._failure}")
            ran, once = asyncio.run(_until_done(bootstrap, self._count))
        finally:
            for worker in self._workers:
                worker.stop()
        self._note(context, ran, once, time.monotonic() - started_s)

    def _note(
        self, context: FaultRunContext, ran: Counter[int], once: Counter[int], elapsed_s: float
    ) -> None:
        half = self._count // 2
        context.notes |= {
            "calls": 2 * half,
            "plain_ran": len(ran),
            "plain_repeated": sum(ran.values()) - len(ran),
            "once_ran": len(once),
            "once_repeated": sum(once.values()) - len(once),
            "never_ran": 2 * half - len(ran) - len(once),
            "calls_seconds": round(elapsed_s, 1),
        }

    def _send(self, bootstrap: str) -> None:
        try:
            asyncio.run(self._send_all(bootstrap))
        except BaseException as error:  # noqa: BLE001 - supervisor: raised again by the thread that joins
            self._failure = error

    async def _send_all(self, bootstrap: str) -> None:
        half = self._count // 2
        async with probe.app.connect(KafkaLog(bootstrap)) as app:
            for start in range(0, half, CALLS_PER_SEND):
                records: list[Record] = []
                for number in range(start, min(half, start + CALLS_PER_SEND)):
                    records += [probe.plain.record(number), probe.once.record(number)]
                await app.send_records(records)
                self._sent += len(records)

    def complaints(self, context: FaultRunContext) -> list[str]:
        notes, found = context.notes, []
        if notes.get("never_ran") != 0:
            found.append(f"{notes.get('never_ran')} calls never ran")
        if notes.get("once_repeated") != 0:
            found.append(f"{notes.get('once_repeated')} effects of effectively-once calls repeated")
        return found


def _worker(bootstrap: str, directory: Path, name: str) -> ServiceProcess:
    command = kafkaesque(
        "tasks", "worker", "kafkaesque.lab.faults.tasks_probe:app", "--name", name, "-b", bootstrap,
        "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=1000",
        "--data", str(directory / "workers"), "--end-with-stdin",
    )  # fmt: skip
    return ServiceProcess(name, command, directory)


async def _until_done(bootstrap: str, count: int) -> tuple[Counter[int], Counter[int]]:
    """The calls that ran, once all have run or nothing more does."""
    log = KafkaLog(bootstrap)
    half, seen, seen_s = count // 2, -1, time.monotonic()
    while True:
        ends = 0
        for topic in (probe.RAN.name, probe.ONCE.name):
            ends += sum(span.end for span in (await log.admin.spans(topic)).values())
        if ends != seen:
            seen, seen_s = ends, time.monotonic()
        if ends >= 2 * half or time.monotonic() - seen_s > _STUCK_S:
            ran, once = [await _numbers(log, topic) for topic in (probe.RAN.name, probe.ONCE.name)]
            is_over = time.monotonic() - seen_s > _STUCK_S
            if is_over or (len(ran) >= half and len(once) >= half):
                return ran, once
        await asyncio.sleep(_POLL_S)


async def _numbers(log: KafkaLog, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    async for batch in read_stretch(log, await log.admin.spans(topic)):
        found.update(int(record.value or b"-1") for record in batch)
    return found


# -- timers ---------------------------------------------------------------------------------------

PENDING: Final = 1_000_000
DUE: Final = 10_000
DUE_SECONDS: Final = 20.0
TIMERS_PER_SEND: Final = 5_000
FAR_MS: Final = 30 * 24 * 3_600_000
_LOADED_S: Final = 900.0
_SCHEDULERS: Final = 2
_BROKER_EVERY: Final = 3
"""Every third fault hits the broker."""
RSS_MB_MAX: Final = 600
"""Measured with a million: 85 to 310 MB."""


class TimersKill(FaultRun):
    purpose = "a million timers pending; kill -9 schedulers and the broker while 10,000 come due"
    promise = "each fires once, and memory stays bounded"
    rounds = 6
    dense_offsets = False
    # Room for the large batches in which a million timers are set.
    settings: ClassVar[BrokerSettings] = {"log.segment.bytes": 16 << 20}

    def __init__(self) -> None:
        self._pending = PENDING
        self._schedulers: list[ServiceProcess] = []
        self._coordination = ""
        self._fired: dict[int, list[int]] = {}

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        self._pending = options.amount or PENDING
        return WorkloadSettings(records_per_s=LOAD_RECORDS_PER_S, seed=options.seed)

    def open_target(
        self, directory: Path, settings: BrokerSettings
    ) -> AbstractContextManager[Target]:
        with ReservedPorts(1) as ports:
            self._coordination = f"127.0.0.1:{ports.numbers[0]}"
        listener = {"coordination.listener": self._coordination}
        return closing(SingleBroker(directory, {**settings, **listener}))

    def begin(self, context: FaultRunContext) -> None:
        bootstrap = context.target.bootstrap_servers
        directory = context.target.data(0).parent
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
        context.say(f"setting {self._pending} timers")
        began_s = time.monotonic()
        asyncio.run(_set_far(bootstrap, self._pending))
        context.notes["set_seconds"] = round(time.monotonic() - began_s, 1)
        _wait_until_pending(first, self._pending)
        context.notes["pending"] = self._pending
        context.notes["rss_mb_loaded"] = _rss_mb(first.pid)
        self._measure_starts(context, first, directory)

    def _measure_starts(
        self, context: FaultRunContext, first: ServiceProcess, directory: Path
    ) -> None:
        """Measure from exec until all timers are loaded: from its file, and from the log."""
        for label in ("start_seconds_with_file", "start_seconds_from_log"):
            first.kill()
            if label.endswith("log"):
                for file in (directory / "timers0").rglob("*.db*"):
                    file.unlink()
            began_s = time.monotonic()
            first.start()
            _wait_until_pending(first, self._pending)
            context.notes[label] = round(time.monotonic() - began_s, 1)
            context.notes[f"rss_mb_{label[14:]}"] = _rss_mb(first.pid)

    def inject(self, context: FaultRunContext) -> None:
        bootstrap = context.target.bootstrap_servers
        for scheduler in self._schedulers[1:]:
            scheduler.start()
        try:
            dues = asyncio.run(_set_near(bootstrap))
            faults = 0
            while context.another_round(1.0, DUE_SECONDS / 6):
                faults += 1
                if faults % _BROKER_EVERY == 0:
                    _kill_broker(context)
                else:
                    _kill_scheduler(context, context.random.choice(self._schedulers))
            self._fired = asyncio.run(_until_fired(bootstrap))
            context.notes["rss_mb_end"] = max(_rss_mb(one.pid) for one in self._schedulers)
            undisturbed = asyncio.run(_undisturbed(bootstrap))
        finally:
            for scheduler in self._schedulers:
                scheduler.stop()
        late = sorted(
            fired[0] - due for number, due in dues.items() if (fired := self._fired.get(number))
        )
        context.notes |= {
            "due": len(dues),
            "fired": len(self._fired),
            "fired_twice": sum(len(times) > 1 for times in self._fired.values()),
            "never_fired": len(dues) - len(self._fired),
            "late_ms_p50_with_kills": late[len(late) // 2] if late else -1,
            "late_ms_p99_with_kills": late[len(late) * 99 // 100] if late else -1,
            "late_ms_p50": undisturbed[len(undisturbed) // 2],
            "late_ms_p99": undisturbed[len(undisturbed) * 99 // 100],
        }

    def complaints(self, context: FaultRunContext) -> list[str]:
        notes, found = context.notes, []
        for figure in ("fired_twice", "never_fired"):
            if notes.get(figure) != 0:
                found.append(f"{figure}: {notes.get(figure)} timers")
        for figure, value in notes.items():
            if figure.startswith("rss_mb_") and int(str(value)) > RSS_MB_MAX:
                found.append(f"{figure}: {value} MB, more than {RSS_MB_MAX}")
        return found


def _kill_scheduler(context: FaultRunContext, scheduler: ServiceProcess) -> None:
    context.fault(f"kill -9 scheduler {scheduler.name}", ())
    context.count("scheduler_kills")
    scheduler.kill()
    scheduler.start()


def _kill_broker(context: FaultRunContext) -> None:
    """The log and the owners of its partitions go at once; the schedulers must recover by themselves."""
    context.fault("kill -9 the broker, with the coordination service")
    context.count("broker_kills")
    context.target.kill(0)
    context.target.bring_up(0)


async def _set_far(bootstrap: str, count: int) -> None:
    now_ms = SystemClock().wall_ms()
    async with probe.app.connect(KafkaLog(bootstrap)) as app:
        for start in range(0, count, TIMERS_PER_SEND):
            await app.send_records(
                probe.timed.options(id=f"far-{number}").timer(now_ms + FAR_MS + number, number)
                for number in range(start, min(count, start + TIMERS_PER_SEND))
            )


async def _set_near(bootstrap: str, first: int = 0, count: int = DUE) -> dict[int, int]:
    """Set timers that come due evenly over `DUE_SECONDS`, starting in 5 s; returns when each is due."""
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
    """Firing times by timer number. Waits until all have fired, and a little longer for repetitions."""
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
    """How late timers fire without faults, sorted, in ms."""
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
    raise TargetFailed(f"{process.name} did not load {count} timers: {status}")


def _rss_mb(pid: int) -> int:
    return proc.rss_bytes([pid]) >> 20
