"""CPU, memory, open files and load of processes and of the machine, from /proc."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import kafkaesque

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSY_SHARE_WARN = 0.15


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system CPU time of these processes; 0 for one that has ended."""
    ticks = 0
    for pid in pids:
        fields = _stat_fields(pid)
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory; shared pages count once per process."""
    total_kib = 0
    for pid in pids:
        total_kib += _status_kib(pid, "VmRSS:")
    return total_kib * 1024


def anonymous_bytes(pids: Iterable[int]) -> int:
    """Resident memory that is not backed by a file."""
    return sum(_status_kib(pid, "RssAnon:") for pid in pids) * 1024


def open_files(pids: Iterable[int]) -> int:
    count = 0
    for pid in pids:
        try:
            count += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return count


def descendants(root: int) -> tuple[int, ...]:
    """`root` and every process below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat_fields(int(entry))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return tuple(found)


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may contain spaces; state first."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def _status_kib(pid: int, label: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(label)), 0)


@dataclass(frozen=True, slots=True)
class MachineCpu:
    """CPU seconds of the whole machine since boot."""

    busy_s: float
    total_s: float

    def busy_share_since(self, earlier: MachineCpu) -> float:
        span = self.total_s - earlier.total_s
        return (self.busy_s - earlier.busy_s) / span if span > 0 else 0.0


def machine_cpu() -> MachineCpu:
    with open("/proc/stat") as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return MachineCpu((sum(ticks) - idle) / _TICKS_PER_S, sum(ticks) / _TICKS_PER_S)


def machine_facts() -> dict[str, object]:
    """Facts about the machine, for the report."""
    return {
        "cores": os.cpu_count(),
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "memory_mb": int(_first_value("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kafkaesque": kafkaesque.BUILD.text,
        "load_average_1min": round(os.getloadavg()[0], 2),
    }


def _first_value(path: str, key: str) -> str:
    with open(path) as lines:
        for line in lines:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return "0 unknown"


def raise_open_file_limit() -> int:
    """Raise the soft limit to the hard one, for this process and its children; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
