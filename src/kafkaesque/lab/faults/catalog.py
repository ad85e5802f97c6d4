"""What there is to break, by name. A run is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import Final, cast

from kafkaesque.lab.faults.stage import FaultRun

CLUSTER: Final = (
    "kill-leader",
    "kill-controller",
    "kill-coordinator",
    "kill-all",
    "pause-leader",
    "partition-one-way",
    "partition-two-way",
    "slow-disk",
    "disk-full",
    "power-cut",
    "flipped-bit",
    "wiped-replica",
    "clock-jump",
    "rolling-restart",
    "reassignment",
    "coordination",
    "coordination-recipes",
    "transactions-copy",
    "transactions-delayed",
    "posts-broker-down",
    "chat-broker-kill",
)
"""Runs of several brokers."""

ALONE: Final = (
    "kill-broker",
    "pause-broker",
    "restart-clean",
    "torn-tail",
    "single-power-cut",
    "single-disk-full",
    "single-flipped-bit",
    "single-clock-jump",
    "compaction-kill",
    "pipeline-driver-kill",
    "chat-backend-kill",
    "chat-backend-upgrade",
    "gateway-kill",
    "gateway-restart",
    "tasks-worker-kill",
    "timers-kill",
)
"""Runs of one."""

NAMES: Final = (*CLUSTER, *ALONE)


def load_run(name: str) -> FaultRun:
    """A fresh run; it keeps state of its own while it is performed."""
    module = importlib.import_module(f"kafkaesque.lab.faults.runs.{name.replace('-', '_')}")
    return cast(FaultRun, module.Run())
