"""Ways to make small appends to many files durable: the measurements for docs/adr/0008.

Three processes run at once, like three brokers on one disk. A round appends one record to each of its
files and makes all of them durable:

- one fdatasync per file, in 4 or 16 threads;
- one syncfs of the file system;
- a copy of all records in one shared journal with one fdatasync (the files themselves are written, and
  the kernel syncs them later).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkaesque.lab.bench.figures import percentile
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

PROCESSES = 3
RECORD = bytes(170)
"""A batch of one record of 100 B."""
METHODS = ("fdatasync each, 4 threads", "fdatasync each, 16 threads", "syncfs", "shared journal")
START_BYTES = bytes(5000)


def run(options: BenchmarkOptions) -> BenchmarkReport:
    duration_s = options.pick(6, 1)
    sizes = (6, 30, 200, 1000) if not options.quick else (4,)
    settings = {"processes": PROCESSES, "record_bytes": len(RECORD), "duration_s": duration_s}
    report = new_report("sync-methods", options, settings)
    for files in sizes:
        for method in METHODS:
            times_s = sorted(_measure(options.directory, method, files, duration_s))
            figures = {
                "rounds_per_s": len(times_s) / duration_s / PROCESSES,
                "records_per_s": len(times_s) * files / duration_s,
                "p50_ms": percentile(times_s, 0.5) * 1000,
                "p99_ms": percentile(times_s, 0.99) * 1000,
                "max_ms": times_s[-1] * 1000,
            }
            report.case(f"{files:,} files in each process").add(method, figures)
            options.say(f"{files:,} files, {method}: {figures}")
    return report


def _measure(directory: Path, method: str, files: int, duration_s: float) -> list[float]:
    """The duration of every round of all processes, in seconds."""
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(PROCESSES) as pool:
        jobs = [(str(directory / f"sync-{n}"), method, files, duration_s) for n in range(PROCESSES)]
        return [one for times_s in pool.starmap(_rounds, jobs, chunksize=1) for one in times_s]


def _rounds(directory: str, method: str, files: int, duration_s: float) -> list[float]:
    os.makedirs(directory)
    fds = [_new_file(f"{directory}/{index}") for index in range(files)]
    journal = _new_file(f"{directory}/journal")
    times_s: list[float] = []
    with ThreadPoolExecutor(16) as threads:
        sync = _sync_method(method, fds, journal, threads)
        _syncfs(journal)
        end = time.perf_counter() + duration_s
        while (started := time.perf_counter()) < end:
            for fd in fds:
                os.write(fd, RECORD)
            sync()
            times_s.append(time.perf_counter() - started)
    for fd in (*fds, journal):
        os.close(fd)
    shutil.rmtree(directory)
    return times_s


def _new_file(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, START_BYTES)
    return fd


def _sync_method(
    method: str, fds: Sequence[int], journal: int, threads: ThreadPoolExecutor
) -> Callable[[], None]:
    def in_journal() -> None:
        os.write(journal, RECORD * len(fds))
        os.fdatasync(journal)

    if method == "shared journal":
        return in_journal
    if method == "syncfs":
        return lambda: _syncfs(journal)
    count = 4 if "4" in method.split() else 16
    shares = [fds[start::count] for start in range(min(count, len(fds)))]
    return lambda: list(threads.map(_sync_each, shares)).clear()


def _sync_each(fds: Sequence[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


def _syncfs(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")
