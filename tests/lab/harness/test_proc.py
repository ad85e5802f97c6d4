"""Readings of /proc, with this process as the example."""

from __future__ import annotations

import os
import subprocess
import sys

from kafkaesque.lab.harness import proc
from kafkaesque.lab.harness.proc import MachineCpu


def test_own_process_has_memory_and_open_files() -> None:
    pids = [os.getpid()]
    assert proc.rss_bytes(pids) > 1_000_000
    assert proc.open_files(pids) >= 3
    assert proc.cpu_seconds(pids) > 0


def test_ended_process_counts_as_zero() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    pids = [child.pid]
    assert proc.cpu_seconds(pids) == 0
    assert proc.rss_bytes(pids) == 0
    assert proc.open_files(pids) == 0


def test_descendants_include_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert {os.getpid(), child.pid} <= set(proc.descendants(os.getpid()))
    finally:
        child.communicate(b"\n")


def test_busy_share_covers_the_time_between_two_readings() -> None:
    assert MachineCpu(6.0, 20.0).busy_share_since(MachineCpu(1.0, 10.0)) == 0.5
    assert MachineCpu(1.0, 10.0).busy_share_since(MachineCpu(1.0, 10.0)) == 0.0


def test_machine_facts_name_cores_and_versions() -> None:
    facts = proc.machine_facts()
    assert facts["cores"] == os.cpu_count()
    assert {"kernel", "python", "memory_mb", "load_average_1min"} <= set(facts)
