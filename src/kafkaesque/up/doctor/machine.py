"""Checks of this machine: versions, limits, the clock, and a data directory with its disk.

Each `examine_*` measures; each `judge_*` turns measurements into a finding and does no I/O.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kafkaesque
from kafkaesque.compiled import Build
from kafkaesque.model.limits import MIB
from kafkaesque.model.sizes import human_bytes
from kafkaesque.service.finding import Finding

GIB = 1024 * MIB
PYTHON_LOWEST = (3, 11)
FILES_COMFORTABLE = 4096
FILES_LOWEST = 512
SYNCS = 20
SYNC_SLOW_MS = 20.0
SYNC_TOO_FAST_MS = 0.02
"""No storage device persists 4 KiB in 20 microseconds: a faster sync only reached memory."""
NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"})
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})


def examine_versions() -> Iterator[Finding]:
    here = ".".join(map(str, sys.version_info[:3]))
    text = f"Python {here} on {platform.system()} {platform.machine()}"
    yield Finding("versions", "ok", text, facts={"python": here})
    names = ("kafkaesque-platform", "confluent-kafka", "click", "rich")
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            yield Finding("versions", "fail", f"{name} is missing", f"pip install {name}")
    try:
        from confluent_kafka import libversion

        found["librdkafka"] = str(libversion()[0])
    except ImportError as error:
        yield Finding(
            "versions",
            "fail",
            f"confluent-kafka does not load: {error}",
            "pip install --force-reinstall confluent-kafka",
        )
    shown = ", ".join(f"{name} {number}" for name, number in found.items())
    yield Finding("versions", "ok", shown, facts=dict(found))
    yield judge_build(kafkaesque.BUILD)


def judge_build(build: Build) -> Finding:
    text, facts = f"brokers run from {build.text}", {"build": build.text}
    if build.is_compiled:
        return Finding("versions", "ok", text, facts=facts)
    fix = f"{build.fix}: with compiled modules a broker needs less CPU"
    return Finding("versions", "warn", text, fix, facts)


def examine_limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judge_open_files(soft, hard)


def judge_open_files(soft: int, hard: int) -> Finding:
    """A broker needs a file descriptor for each open segment and each connection."""
    if soft == resource.RLIM_INFINITY:
        return Finding("limits", "ok", "open files: unlimited")
    text = f"open files: {soft:,} (hard limit {'none' if hard < 0 else f'{hard:,}'})"
    facts = {"nofile_soft": soft, "nofile_hard": hard}
    if soft >= FILES_COMFORTABLE:
        return Finding("limits", "ok", text, facts=facts)
    wanted = 65536 if hard < 0 else min(hard, 65536)
    fix = f"ulimit -n {wanted}" if wanted > soft else "raise the hard limit (limits.conf, systemd)"
    return Finding("limits", "warn" if soft >= FILES_LOWEST else "fail", text, fix, facts)


def examine_clock() -> Iterator[Finding]:
    now = datetime.now().astimezone()
    built = Path(__file__).stat().st_mtime
    yield judge_clock(now, built)


def judge_clock(now: datetime, installed_at_s: float) -> Finding:
    """A wrong clock matters: retention, timestamps and lookups by time use the wall clock."""
    text = f"clock: {now.isoformat(timespec='seconds')}"
    if now.timestamp() < installed_at_s - 86400:
        return Finding(
            "clock",
            "fail",
            f"{text}, which is before this program was installed",
            "set the clock (timedatectl set-ntp true)",
        )
    return Finding("clock", "ok", text)


def examine_data(directory: Path) -> Iterator[Finding]:
    """Space, file system and sync latency of a data directory, or of its closest existing parent."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            "data",
            "fail",
            f"{directory}: this user cannot write to it",
            f"chown {os.geteuid()} {existing}, or choose another directory",
        )
        return
    usage = shutil.disk_usage(existing)
    yield judge_space(directory, usage.free, usage.total)
    kind = filesystem_of(existing, Path("/proc/mounts"))
    if kind is not None:
        yield judge_filesystem(directory, kind)
    yield judge_syncs(directory, measure_syncs(existing), kind)
    yield from _examine_ages(directory)


def judge_space(directory: Path, free_bytes: int, total_bytes: int) -> Finding:
    share = free_bytes / total_bytes if total_bytes else 0.0
    text = f"{directory}: {human_bytes(free_bytes)} free ({share:.0%})"
    facts = {"free_bytes": free_bytes, "total_bytes": total_bytes}
    fix = "free some space, lower retention.bytes or retention.ms, or use another disk"
    if free_bytes < 512 * MIB:
        return Finding("data", "fail", text, fix, facts)
    if free_bytes < 5 * GIB or share < 0.05:
        return Finding("data", "warn", text, fix, facts)
    return Finding("data", "ok", text, facts=facts)


def filesystem_of(directory: Path, mounts: Path) -> str | None:
    """Type of the file system that holds `directory`: that of the longest matching mount point."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in lines:
        parts = line.split()
        point = parts[1].replace("\\040", " ") if len(parts) > 2 else ""
        if point and directory.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind


def judge_filesystem(directory: Path, kind: str) -> Finding:
    facts = {"filesystem": kind}
    if kind in NETWORK_FILESYSTEMS:
        return Finding(
            "data",
            "warn",
            f"{directory}: {kind}, a network file system: locks and syncs may not work",
            "use a local disk",
            facts,
        )
    if kind in MEMORY_FILESYSTEMS:
        return Finding(
            "data",
            "warn",
            f"{directory}: {kind}, in memory: a restart of the machine loses all data",
            "use a disk, unless you can lose the data",
            facts,
        )
    return Finding("data", "ok", f"{directory}: file system {kind}", facts=facts)


def measure_syncs(directory: Path) -> list[float]:
    """Milliseconds that each of `SYNCS` appends of 4 KiB with a sync took, in a temporary file."""
    block = os.urandom(4096)
    times_ms = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            started = time.perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms


def judge_syncs(directory: Path, times_ms: list[float], filesystem: str | None) -> Finding:
    """acks=all waits for a sync, so no durable write is faster than one."""
    median, worst = statistics.median(times_ms), max(times_ms)
    text = f"{directory}: fsync {median:.2f} ms median, {worst:.2f} ms worst of {len(times_ms)}"
    facts = {"fsync_median_ms": round(median, 3), "fsync_worst_ms": round(worst, 3)}
    if median > SYNC_SLOW_MS:
        fix = "use a faster disk, or --set flush=never for Apache Kafka's page-cache durability"
        return Finding("data", "warn", f"{text}: slow", fix, facts)
    if median < SYNC_TOO_FAST_MS and filesystem not in MEMORY_FILESYSTEMS:
        fix = "none if a power loss cannot happen; otherwise find which layer ignores the sync"
        return Finding("data", "warn", f"{text}: too fast to be durable", fix, facts)
    return Finding("data", "ok", text, facts=facts)


def _examine_ages(directory: Path) -> Iterator[Finding]:
    """A modification time in the future means that the clock was set back; retention keeps such a file too long."""
    if not directory.is_dir():
        return
    newest = max((entry.stat().st_mtime for entry in directory.iterdir()), default=0.0)
    if newest > time.time() + 60:
        yield Finding(
            "clock",
            "warn",
            f"{directory} has files with a time in the future: the clock was set back",
            "check the clock (timedatectl); retention by time waits until the clock has caught up",
        )
