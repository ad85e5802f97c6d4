"""Workers killed -9 while they work off calls: every call runs, and effectively-once ones once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Record
from kafkaesque.client.reading import read_stretch
from kafkaesque.lab.faults import tasks_probe as probe
from kafkaesque.lab.faults.runs.service_process import ServiceProcess, kafkaesque
from kafkaesque.lab.faults.stage import FaultRun, RunOptions, Stage
from kafkaesque.lab.faults.target import TargetUnwell
from kafkaesque.lab.faults.workload import WorkloadSettings

WORKERS: Final = 3
CALLS: Final = 100_000
CHUNK: Final = 500
LOAD_RECORDS_PER_S: Final = 20
"""Of the run's usual load, which is not what is judged here."""
_STUCK_S: Final = 90.0
_POLL_S: Final = 1.0


class Run(FaultRun):
    purpose = "kill -9 workers 20 times while they work off 100,000 calls"
    promise = "every call runs; the effect of effectively-once calls is there exactly once"
    rounds = 20

    def __init__(self) -> None:
        self._workers: list[ServiceProcess] = []
        self._count = CALLS
        self._failure: BaseException | None = None
        self._sent = 0

    def workload(self, options: RunOptions) -> WorkloadSettings:
        self._count = options.amount or CALLS
        return WorkloadSettings(records_per_s=LOAD_RECORDS_PER_S, seed=options.seed)

    def begin(self, stage: Stage) -> None:
        bootstrap = stage.target.bootstrap_servers
        asyncio.run(probe.prepare(KafkaLog(bootstrap)))
        directory = stage.target.data(0).parent
        for number in range(WORKERS):
            self._workers.append(_worker(bootstrap, directory, f"w{number}"))
        for worker in self._workers:
            worker.launch()
        for worker in self._workers:
            worker.wait_ready()

    def inject(self, stage: Stage) -> None:
        bootstrap = stage.target.bootstrap_servers
        sending = threading.Thread(target=self._send, args=(bootstrap,), name="calls", daemon=True)
        started_s = time.monotonic()
        sending.start()
        try:
            while stage.another_round(0.5, 2.0):
                worker = stage.random.choice(self._workers)
                stage.fault(f"kill -9 worker {worker.name}, {self._sent} calls sent", ())
                stage.count("worker_kills")
                worker.kill()
                worker.launch()
                worker.wait_ready()
            sending.join()
            if self._failure is not None:
                raise TargetUnwell(f"calls could not be sent: {self._failure}")
            ran, once = asyncio.run(_until_done(bootstrap, self._count))
        finally:
            for worker in self._workers:
                worker.stop()
        self._note(stage, ran, once, time.monotonic() - started_s)

    def _note(self, stage: Stage, ran: Counter[int], once: Counter[int], elapsed_s: float) -> None:
        half = self._count // 2
        stage.notes |= {
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
            for start in range(0, half, CHUNK):
                records: list[Record] = []
                for number in range(start, min(half, start + CHUNK)):
                    records += [probe.plain.record(number), probe.once.record(number)]
                await app.send_records(records)
                self._sent += len(records)

    def complaints(self, stage: Stage) -> list[str]:
        notes, found = stage.notes, []
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
    """What ran, when all has, or when nothing more does."""
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
