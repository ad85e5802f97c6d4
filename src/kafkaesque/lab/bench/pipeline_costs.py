"""The CPU cost of the pipeline's measurements by process: JVM, its compiler, Python, broker.

Reads /proc only. A process that ended between two readings counts as zero, not as negative: Spark ends
Python workers that were idle for a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkaesque.lab.harness.proc import cpu_seconds, descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_JVM = "java"
_COMPILERS = ("C1 Compiler", "C2 Compiler")


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds used between two readings."""

    jvm_s: float
    compiler_s: float
    """The part of `jvm_s` used by compiler threads; it disappears once everything is compiled."""
    python_s: float
    """CPU of this process and of the Python processes that Spark started."""
    broker_s: float

    @property
    def total_s(self) -> float:
        return self.jvm_s + self.python_s + self.broker_s

    def per_million(self, records: int) -> dict[str, float]:
        """The figures of a measurement, per million records."""
        return {
            "cpu_s_per_million": self.total_s * 1e6 / records,
            "settled_cpu_s_per_million": (self.total_s - self.compiler_s) * 1e6 / records,
            "jvm_cpu_s_per_million": self.jvm_s * 1e6 / records,
            "python_cpu_s_per_million": self.python_s * 1e6 / records,
            "broker_cpu_s_per_million": self.broker_s * 1e6 / records,
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds by process, and by thread for compilers."""

    jvm: dict[int, float]
    compiler: dict[int, float]
    python: dict[int, float]
    broker: dict[int, float]

    def __sub__(self, earlier: Reading) -> Spent:
        return Spent(
            jvm_s=_grown(earlier.jvm, self.jvm),
            compiler_s=_grown(earlier.compiler, self.compiler),
            python_s=_grown(earlier.python, self.python),
            broker_s=_grown(earlier.broker, self.broker),
        )


class CpuMeter:
    """Reads the CPU of this process, its descendants and the broker."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid

    def read(self) -> Reading:
        reading = Reading({}, {}, {}, {})
        for pid in {*descendants(os.getpid()), self._broker_pid}:
            spent_s = cpu_seconds([pid])
            if pid == self._broker_pid:
                reading.broker[pid] = spent_s
            elif _name(Path("/proc", str(pid))) == _JVM:
                reading.jvm[pid] = spent_s
                reading.compiler.update(_compilers(pid))
            else:
                reading.python[pid] = spent_s
        return reading


def _grown(earlier: dict[int, float], later: dict[int, float]) -> float:
    # A process that ended during the reading has zero.
    return sum(max(0.0, spent_s - earlier.get(number, 0.0)) for number, spent_s in later.items())


def _compilers(pid: int) -> Iterator[tuple[int, float]]:
    try:
        threads = list(Path("/proc", str(pid), "task").iterdir())
    except OSError:
        return
    for thread in threads:
        if _name(thread).startswith(_COMPILERS):
            yield int(thread.name), _thread_s(thread)


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""


def _thread_s(thread: Path) -> float:
    try:
        text = (thread / "stat").read_text()
    except OSError:
        return 0.0
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
